#include <inttypes.h>
#include <string.h>

#include "ops/indexing.h"

/* The depth may be of any numeric type. */
static enum status read_depth(const struct tensor *tensor, int64_t *out_depth, struct error *err)
{
    double value;
    float single;
    size_t count;

    if (shape_count(&tensor->shape) != 1 || tensor->shape.rank > 1 || tensor->data == NULL)
        return error_set(err, STATUS_INVALID, "depth must be one known number");
    switch (tensor->dtype) {
    case DTYPE_FLOAT:
        memcpy(&single, tensor->data, sizeof(single));
        value = (double)single;
        break;
    case DTYPE_DOUBLE:
        memcpy(&value, tensor->data, sizeof(value));
        break;
    case DTYPE_UINT8:
        value = *(const uint8_t *)tensor->data;
        break;
    default:
        return op_read_ints(tensor, "depth", 1, out_depth, &count, err);
    }
    *out_depth = value >= 0 && value < 0x1p40 ? (int64_t)value : -1;
    return STATUS_OK;
}

static enum status infer_one_hot(const struct op_call *call, struct error *err)
{
    const struct axis_attrs *attrs = call->attrs;
    const struct shape *indices = &call->in[0]->shape;
    struct shape out = {.rank = indices->rank + 1};
    int64_t depth = 0;
    size_t axis;

    if (out.rank > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "rank %zu of the result is above %d", out.rank,
                         SHAPE_MAX_RANK);
    if (!shape_has_axis(&out, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu of the result",
                         attrs->axis, out.rank);
    if (shape_count(&call->in[2]->shape) != 2)
        return error_set(err, STATUS_INVALID, "values has %" PRId64 " elements, must have 2",
                         shape_count(&call->in[2]->shape));
    TRY(read_depth(call->in[1], &depth, err));
    if (depth < 0)
        return error_set(err, STATUS_INVALID, "depth is no length");
    axis = shape_axis(&out, attrs->axis);
    for (size_t i = 0; i < out.rank; i++)
        out.dims[i] = i == axis ? depth : indices->dims[i < axis ? i : i - 1];
    call->out[0]->dtype = call->in[2]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct axis_attrs, axis, -1),
    OP_ATTR_END,
};

const struct op_def op_one_hot = {
    .name = "one_hot",
    .onnx = {"OneHot", .since = 11},
    .inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_NUMBERS,
    .value_inputs = 1 << 1,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct axis_attrs),
    .infer = infer_one_hot,
};
