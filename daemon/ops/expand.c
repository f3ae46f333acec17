#include "ops/op.h"

static enum status infer_expand(const struct op_call *call, struct error *err)
{
    struct shape wanted = {0};
    char in_text[SHAPE_TEXT_BYTES], text[SHAPE_TEXT_BYTES];

    TRY(op_read_ints(call->in[1], "shape", SHAPE_MAX_RANK, wanted.dims, &wanted.rank, err));
    if (!shape_is_known(&wanted) ||
        shape_broadcast(&call->in[0]->shape, &wanted, &call->out[0]->shape) != STATUS_OK)
        return error_set(err, STATUS_INVALID, "an input of shape %s cannot be expanded to %s",
                         shape_format(&call->in[0]->shape, in_text), shape_format(&wanted, text));
    call->out[0]->dtype = call->in[0]->dtype;
    return STATUS_OK;
}

const struct op_def op_expand = {
    .name = "expand",
    .onnx = {"Expand", .since = 13},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .value_inputs = 1 << 1,
    .infer = infer_expand,
};
