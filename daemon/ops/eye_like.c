#include <inttypes.h>

#include "ops/movement.h"

static enum status infer_eye_like(const struct op_call *call, struct error *err)
{
    const struct eye_like_attrs *attrs = call->attrs;
    enum dtype dtype = attrs->dtype != 0 ? (enum dtype)attrs->dtype : call->in[0]->dtype;

    if (call->in[0]->shape.rank != 2)
        return error_set(err, STATUS_INVALID, "the input has rank %zu, must have 2",
                         call->in[0]->shape.rank);
    if (attrs->dtype < 0 || attrs->dtype >= DTYPE_COUNT || !dtype_is_valid(dtype) ||
        dtype == DTYPE_STRING)
        return error_set(err, STATUS_UNSUPPORTED, "dtype is %" PRId64 ", not a type it makes",
                         attrs->dtype);
    call->out[0]->dtype = dtype;
    call->out[0]->shape = call->in[0]->shape;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct eye_like_attrs, dtype, 0),
    OP_ATTR_INT(struct eye_like_attrs, k, 0),
    OP_ATTR_END,
};

const struct op_def op_eye_like = {
    .name = "eye_like",
    .onnx = {"EyeLike", .since = 9},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_NUMBERS | DTYPE_BIT(BOOL),
    .flags = OP_SHAPE_ONLY,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct eye_like_attrs),
    .infer = infer_eye_like,
};
