/* ScatterElements and ScatterND: the input with some elements replaced, or reduced with others. */
#include <inttypes.h>

#include "ops/indexing.h"

static const char *const reductions[] = {"none", "add", "mul", "max", "min", NULL};

static enum status check_reduction(const struct op_call *call, struct error *err)
{
    const struct scatter_attrs *attrs = call->attrs;
    enum dtype dtype = call->in[0]->dtype;

    if (call->in[2]->dtype != dtype)
        return error_set(err, STATUS_INVALID, "updates are %s, the input is %s",
                         dtype_name(call->in[2]->dtype), dtype_name(dtype));
    if (attrs->reduction != SCATTER_NONE && (DTYPE_NUMBERS >> dtype & 1) == 0)
        return error_set(err, STATUS_UNSUPPORTED, "reduction '%s' of %s",
                         reductions[attrs->reduction], dtype_name(dtype));
    call->out[0]->dtype = dtype;
    call->out[0]->shape = call->in[0]->shape;
    return STATUS_OK;
}

static enum status infer_scatter_elements(const struct op_call *call, struct error *err)
{
    const struct scatter_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape, *indices = &call->in[1]->shape;

    if (call->in[1]->dtype != DTYPE_INT64 && call->in[1]->dtype != DTYPE_INT32)
        return error_set(err, STATUS_INVALID, "indices are %s, must be int32 or int64",
                         dtype_name(call->in[1]->dtype));
    if (!shape_has_axis(in, attrs->axis) || indices->rank != in->rank ||
        !shape_is_equal(indices, &call->in[2]->shape))
        return error_set(err, STATUS_INVALID,
                         "axis %" PRId64 ", indices and updates do not suit rank %zu", attrs->axis,
                         in->rank);
    for (size_t i = 0; i < in->rank; i++)
        if (i != shape_axis(in, attrs->axis) && indices->dims[i] > in->dims[i])
            return error_set(err, STATUS_INVALID,
                             "axis %zu of indices is %" PRId64 " long, that of the input %" PRId64,
                             i, indices->dims[i], in->dims[i]);
    return check_reduction(call, err);
}

/* updates: the indices' shape without the last axis, then what is left of the input's. */
static enum status infer_scatter_nd(const struct op_call *call, struct error *err)
{
    const struct shape *in = &call->in[0]->shape, *indices = &call->in[1]->shape;
    const struct shape *updates = &call->in[2]->shape;
    int64_t depth = indices->rank > 0 ? indices->dims[indices->rank - 1] : 0;
    struct shape expected = {0};
    char text[SHAPE_TEXT_BYTES], expected_text[SHAPE_TEXT_BYTES];

    if (call->in[1]->dtype != DTYPE_INT64)
        return error_set(err, STATUS_INVALID, "indices are %s, must be int64",
                         dtype_name(call->in[1]->dtype));
    if (depth < 1 || depth > (int64_t)in->rank)
        return error_set(err, STATUS_INVALID,
                         "indices have %" PRId64 " numbers each, allowed are 1 to %zu", depth,
                         in->rank);
    if (indices->rank - 1 + in->rank - (size_t)depth > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "updates of a rank above %d", SHAPE_MAX_RANK);
    for (size_t i = 0; i + 1 < indices->rank; i++)
        expected.dims[expected.rank++] = indices->dims[i];
    for (size_t i = (size_t)depth; i < in->rank; i++)
        expected.dims[expected.rank++] = in->dims[i];
    if (!shape_is_equal(updates, &expected))
        return error_set(err, STATUS_INVALID, "updates have shape %s, expected is %s",
                         shape_format(updates, text), shape_format(&expected, expected_text));
    return check_reduction(call, err);
}

static const struct attr_def elements_attrs[] = {
    OP_ATTR_INT(struct scatter_attrs, axis, 0),
    OP_ATTR_ENUM(struct scatter_attrs, reduction, reductions, SCATTER_NONE),
    OP_ATTR_END,
};

static const struct attr_def nd_attrs[] = {
    OP_ATTR_ENUM(struct scatter_attrs, reduction, reductions, SCATTER_NONE),
    OP_ATTR_END,
};

const struct op_def op_scatter_elements = {
    .name = "scatter_elements",
    .onnx = {"ScatterElements", .since = 18},
    .inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = elements_attrs,
    .attrs_size = sizeof(struct scatter_attrs),
    .infer = infer_scatter_elements,
};

const struct op_def op_scatter_nd = {
    .name = "scatter_nd",
    .onnx = {"ScatterND", .since = 18},
    .inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = nd_attrs,
    .attrs_size = sizeof(struct scatter_attrs),
    .infer = infer_scatter_nd,
};
