#include <inttypes.h>
#include <stdbool.h>

#include "ops/op.h"

static enum status infer_unsqueeze(const struct op_call *call, struct error *err)
{
    const struct shape *in = &call->in[0]->shape;
    int64_t axes[SHAPE_MAX_RANK];
    bool made[SHAPE_MAX_RANK] = {false};
    struct shape out = {0};
    size_t count, next = 0;

    TRY(op_read_ints(call->in[1], "axes", SHAPE_MAX_RANK, axes, &count, err));
    out.rank = in->rank + count;
    if (out.rank > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED, "rank %zu of the result is above %d", out.rank,
                         SHAPE_MAX_RANK);
    for (size_t i = 0; i < count; i++) {
        if (!shape_has_axis(&out, axes[i]) || made[shape_axis(&out, axes[i])])
            return error_set(err, STATUS_INVALID,
                             "axis %" PRId64 " is outside rank %zu of the result or named twice",
                             axes[i], out.rank);
        made[shape_axis(&out, axes[i])] = true;
    }
    for (size_t i = 0; i < out.rank; i++)
        out.dims[i] = made[i] ? 1 : in->dims[next++];
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

const struct op_def op_unsqueeze = {
    .name = "unsqueeze",
    .onnx = {"Unsqueeze", .since = 13},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .flags = OP_VIEW,
    .value_inputs = 1 << 1,
    .infer = infer_unsqueeze,
};
