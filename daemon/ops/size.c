#include "ops/op.h"

static enum status infer_size(const struct op_call *call, struct error *err)
{
    (void)err;
    call->out[0]->dtype = DTYPE_INT64;
    call->out[0]->shape = (struct shape){.rank = 0};
    return STATUS_OK;
}

const struct op_def op_size = {
    .name = "size",
    .onnx = {"Size", .since = 13},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .flags = OP_SHAPE_ONLY,
    .infer = infer_size,
};
