#include <inttypes.h>

#include "ops/indexing.h"

static enum status infer_compress(const struct op_call *call, struct error *err)
{
    const struct compress_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    const struct tensor *condition = call->in[1];
    bool flat = attrs->axis == INT64_MIN;
    int64_t length;

    if (condition->dtype != DTYPE_BOOL || condition->shape.rank != 1)
        return error_set(err, STATUS_INVALID, "condition must be bool of rank 1, is %s of rank %zu",
                         dtype_name(condition->dtype), condition->shape.rank);
    if (!flat && !shape_has_axis(in, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         in->rank);
    length = flat ? shape_count(in) : in->dims[shape_axis(in, attrs->axis)];
    if (condition->shape.dims[0] < length)
        length = condition->shape.dims[0];
    call->out[0]->dtype = call->in[0]->dtype;
    if (flat) {
        call->out[0]->shape = (struct shape){.rank = 1, .dims = {length}};
    } else {
        call->out[0]->shape = *in;
        call->out[0]->shape.dims[shape_axis(in, attrs->axis)] = length;
    }
    call->out_bound[0] = true;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct compress_attrs, axis, INT64_MIN),
    OP_ATTR_END,
};

const struct op_def op_compress = {
    .name = "compress",
    .onnx = {"Compress", .since = 11},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .flags = OP_DATA_DEPENDENT,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct compress_attrs),
    .infer = infer_compress,
};
