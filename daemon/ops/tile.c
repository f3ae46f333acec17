#include <inttypes.h>

#include "ops/op.h"

static enum status infer_tile(const struct op_call *call, struct error *err)
{
    struct shape out = call->in[0]->shape;
    int64_t repeats[SHAPE_MAX_RANK];
    size_t count;

    TRY(op_read_ints(call->in[1], "repeats", SHAPE_MAX_RANK, repeats, &count, err));
    if (count != out.rank)
        return error_set(err, STATUS_INVALID, "repeats has %zu elements for rank %zu", count,
                         out.rank);
    for (size_t i = 0; i < count; i++)
        if (repeats[i] < 0 || __builtin_mul_overflow(out.dims[i], repeats[i], &out.dims[i]))
            return error_set(err, STATUS_INVALID, "axis %zu cannot be repeated %" PRId64 " times",
                             i, repeats[i]);
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

const struct op_def op_tile = {
    .name = "tile",
    .onnx = {"Tile", .since = 13},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .value_inputs = 1 << 1,
    .infer = infer_tile,
};
