#include "ops/op.h"

static enum status infer_nonzero(const struct op_call *call, struct error *err)
{
    const struct shape *in = &call->in[0]->shape;
    int64_t count;

    if (in->rank == 0)
        return error_set(err, STATUS_UNSUPPORTED, "the input is a scalar");
    TRY(shape_elements(in, &count));
    call->out[0]->dtype = DTYPE_INT64;
    call->out[0]->shape = (struct shape){.rank = 2, .dims = {(int64_t)in->rank, count}};
    call->out_bound[0] = true;
    return STATUS_OK;
}

const struct op_def op_nonzero = {
    .name = "nonzero",
    .onnx = {"NonZero", .since = 13},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_NUMBERS | DTYPE_BIT(BOOL),
    .flags = OP_DATA_DEPENDENT,
    .infer = infer_nonzero,
};
