#include <inttypes.h>
#include <stdbool.h>

#include "ops/movement.h"

enum status transpose_axes(const struct transpose_attrs *attrs, const struct shape *in,
                           size_t out_axes[SHAPE_MAX_RANK], struct error *err)
{
    bool used[SHAPE_MAX_RANK] = {false};

    if (attrs->perm.values == NULL) {
        for (size_t i = 0; i < in->rank; i++)
            out_axes[i] = in->rank - 1 - i;
        return STATUS_OK;
    }
    if (attrs->perm.count != in->rank)
        return error_set(err, STATUS_INVALID, "perm has %zu axes, the input %zu", attrs->perm.count,
                         in->rank);
    for (size_t i = 0; i < in->rank; i++) {
        int64_t axis = attrs->perm.values[i];

        if (!shape_has_axis(in, axis) || used[shape_axis(in, axis)])
            return error_set(err, STATUS_INVALID,
                             "perm names axis %" PRId64 ", outside rank %zu or named twice", axis,
                             in->rank);
        out_axes[i] = shape_axis(in, axis);
        used[out_axes[i]] = true;
    }
    return STATUS_OK;
}

static enum status infer_transpose(const struct op_call *call, struct error *err)
{
    const struct shape *in = &call->in[0]->shape;
    struct shape out = {.rank = in->rank};
    size_t axes[SHAPE_MAX_RANK];

    TRY(transpose_axes(call->attrs, in, axes, err));
    for (size_t i = 0; i < in->rank; i++)
        out.dims[i] = in->dims[axes[i]];
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INTS(struct transpose_attrs, perm),
    OP_ATTR_END,
};

const struct op_def op_transpose = {
    .name = "transpose",
    .onnx = {"Transpose", .since = 13},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct transpose_attrs),
    .infer = infer_transpose,
};
