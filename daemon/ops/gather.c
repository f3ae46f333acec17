#include <inttypes.h>

#include "ops/movement.h"

static enum status infer_gather(const struct op_call *call, struct error *err)
{
    const struct gather_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    const struct shape *indices = &call->in[1]->shape;
    struct shape out = {0};
    size_t axis;

    if (call->in[1]->dtype != DTYPE_INT64 && call->in[1]->dtype != DTYPE_INT32)
        return error_set(err, STATUS_INVALID, "indices are %s, must be int32 or int64",
                         dtype_name(call->in[1]->dtype));
    if (!shape_has_axis(in, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         in->rank);
    if (in->rank - 1 + indices->rank > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "rank %zu of the result is above %d",
                         in->rank - 1 + indices->rank, SHAPE_MAX_RANK);
    axis = shape_axis(in, attrs->axis);
    for (size_t i = 0; i < axis; i++)
        out.dims[out.rank++] = in->dims[i];
    for (size_t i = 0; i < indices->rank; i++)
        out.dims[out.rank++] = indices->dims[i];
    for (size_t i = axis + 1; i < in->rank; i++)
        out.dims[out.rank++] = in->dims[i];
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct gather_attrs, axis, 0),
    OP_ATTR_END,
};

const struct op_def op_gather = {
    .name = "gather",
    .onnx = {"Gather", .since = 13},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct gather_attrs),
    .flags = OP_PICKS,
    .infer = infer_gather,
};
