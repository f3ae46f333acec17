#include "ops/movement.h"

static enum status infer_trilu(const struct op_call *call, struct error *err)
{
    if (call->in[0]->shape.rank < 2)
        return error_set(err, STATUS_INVALID, "the input has rank %zu, must have 2 or more",
                         call->in[0]->shape.rank);
    if (call->inputs > 1 && call->in[1] != NULL &&
        (call->in[1]->dtype != DTYPE_INT64 || shape_count(&call->in[1]->shape) != 1))
        return error_set(err, STATUS_INVALID, "k must be one int64");
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = call->in[0]->shape;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct trilu_attrs, upper, 1),
    OP_ATTR_END,
};

const struct op_def op_trilu = {
    .name = "trilu",
    .onnx = {"Trilu", .since = 14},
    .inputs = 2,
    .min_inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct trilu_attrs),
    .infer = infer_trilu,
};
