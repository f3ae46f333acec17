#include <inttypes.h>
#include <stdbool.h>

#include "ops/op.h"

/* Marks the axes to drop: those named, or, when none are, all of length one. */
static enum status mark(const struct op_call *call, bool drop[SHAPE_MAX_RANK], struct error *err)
{
    const struct shape *in = &call->in[0]->shape;
    int64_t axes[SHAPE_MAX_RANK];
    size_t count;

    if (call->inputs < 2 || call->in[1] == NULL) {
        for (size_t i = 0; i < in->rank; i++)
            drop[i] = in->dims[i] == 1;
        return STATUS_OK;
    }
    TRY(op_read_ints(call->in[1], "axes", SHAPE_MAX_RANK, axes, &count, err));
    for (size_t i = 0; i < count; i++) {
        if (!shape_has_axis(in, axes[i]))
            return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", axes[i],
                             in->rank);
        drop[shape_axis(in, axes[i])] = true;
    }
    return STATUS_OK;
}

static enum status infer_squeeze(const struct op_call *call, struct error *err)
{
    const struct shape *in = &call->in[0]->shape;
    bool drop[SHAPE_MAX_RANK] = {false};
    struct shape out = {0};

    TRY(mark(call, drop, err));
    for (size_t i = 0; i < in->rank; i++) {
        if (!drop[i])
            out.dims[out.rank++] = in->dims[i];
        else if (in->dims[i] != 1)
            return error_set(err, STATUS_INVALID, "axis %zu has length %" PRId64 ", must be 1", i,
                             in->dims[i]);
    }
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

const struct op_def op_squeeze = {
    .name = "squeeze",
    .onnx = {"Squeeze", .since = 13},
    .inputs = 2,
    .min_inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .flags = OP_VIEW,
    .value_inputs = 1 << 1,
    .infer = infer_squeeze,
};
