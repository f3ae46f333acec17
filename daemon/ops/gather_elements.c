#include <inttypes.h>

#include "ops/indexing.h"

static enum status infer_gather_elements(const struct op_call *call, struct error *err)
{
    const struct axis_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape, *indices = &call->in[1]->shape;

    if (call->in[1]->dtype != DTYPE_INT64 && call->in[1]->dtype != DTYPE_INT32)
        return error_set(err, STATUS_INVALID, "indices are %s, must be int32 or int64",
                         dtype_name(call->in[1]->dtype));
    if (!shape_has_axis(in, attrs->axis) || indices->rank != in->rank)
        return error_set(err, STATUS_INVALID,
                         "axis %" PRId64 " and indices of rank %zu do not suit rank %zu",
                         attrs->axis, indices->rank, in->rank);
    for (size_t i = 0; i < in->rank; i++)
        if (i != shape_axis(in, attrs->axis) && indices->dims[i] > in->dims[i])
            return error_set(err, STATUS_INVALID,
                             "axis %zu of indices is %" PRId64 " long, that of the input %" PRId64,
                             i, indices->dims[i], in->dims[i]);
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = *indices;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct axis_attrs, axis, 0),
    OP_ATTR_END,
};

const struct op_def op_gather_elements = {
    .name = "gather_elements",
    .onnx = {"GatherElements", .since = 13},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct axis_attrs),
    .flags = OP_PICKS,
    .infer = infer_gather_elements,
};
