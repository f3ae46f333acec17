#include <inttypes.h>

#include "ops/indexing.h"

static enum status infer_gather_nd(const struct op_call *call, struct error *err)
{
    const struct gather_nd_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape, *indices = &call->in[1]->shape;
    int64_t batch = attrs->batch_dims;
    struct shape out = {0};
    size_t depth, rest;

    if (call->in[1]->dtype != DTYPE_INT64)
        return error_set(err, STATUS_INVALID, "indices are %s, must be int64",
                         dtype_name(call->in[1]->dtype));
    if (batch < 0 || in->rank == 0 || indices->rank == 0 || batch >= (int64_t)in->rank ||
        batch >= (int64_t)indices->rank)
        return error_set(err, STATUS_INVALID,
                         "batch_dims is %" PRId64 " with ranks %zu and %zu of the inputs", batch,
                         in->rank, indices->rank);
    for (size_t i = 0; i < (size_t)batch; i++)
        if (in->dims[i] != indices->dims[i])
            return error_set(err, STATUS_INVALID,
                             "batch axis %zu is %" PRId64 " long in one input, %" PRId64
                             " in the other",
                             i, in->dims[i], indices->dims[i]);
    if (indices->dims[indices->rank - 1] < 1 ||
        indices->dims[indices->rank - 1] > (int64_t)in->rank - batch)
        return error_set(err, STATUS_INVALID,
                         "indices have %" PRId64 " numbers each, allowed are 1 to %" PRId64,
                         indices->dims[indices->rank - 1], (int64_t)in->rank - batch);
    depth = (size_t)batch + (size_t)indices->dims[indices->rank - 1];
    rest = in->rank - depth;
    if (indices->rank - 1 + rest > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "rank %zu of the result is above %d",
                         indices->rank - 1 + rest, SHAPE_MAX_RANK);
    for (size_t i = 0; i + 1 < indices->rank; i++)
        out.dims[out.rank++] = indices->dims[i];
    for (size_t i = depth; i < in->rank; i++)
        out.dims[out.rank++] = in->dims[i];
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct gather_nd_attrs, batch_dims, 0),
    OP_ATTR_END,
};

const struct op_def op_gather_nd = {
    .name = "gather_nd",
    .onnx = {"GatherND", .since = 13},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct gather_nd_attrs),
    .flags = OP_PICKS,
    .infer = infer_gather_nd,
};
