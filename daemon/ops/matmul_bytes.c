#include "ops/matmul_bytes.h"

static enum status check_parameter(const struct tensor *tensor, enum dtype dtype, int64_t n,
                                   struct error *err)
{
    const int64_t count = tensor != NULL ? shape_count(&tensor->shape) : 1;

    if (tensor != NULL && (tensor->dtype != dtype || (count != 1 && count != n)))
        return error_set(err, STATUS_INVALID, "scale or zero point do not fit the weights");
    return STATUS_OK;
}

static enum status infer_matmul_bytes(const struct op_call *call, struct error *err)
{
    const struct matmul_attrs *attrs = call->attrs;
    const struct tensor *a = call->in[MATMUL_A], *b = call->in[MATMUL_B];
    const struct tensor *bias = call->in[MATMUL_BIAS], *residual = call->in[MATMUL_RESIDUAL];
    struct matmul_geometry g;

    if (a->dtype != DTYPE_FLOAT || (b->dtype != DTYPE_INT8 && b->dtype != DTYPE_UINT8) ||
        b->shape.rank != 2 || attrs->trans_a || attrs->has_scale)
        return error_set(err, STATUS_UNSUPPORTED, "only float32 times a matrix of bytes");
    TRY(matmul_resolve(&a->shape, &b->shape, false, attrs->trans_b, &g, err));
    TRY(check_parameter(call->in[MATMUL_BYTES_SCALE], DTYPE_FLOAT, g.n, err));
    TRY(check_parameter(call->inputs > MATMUL_BYTES_ZERO ? call->in[MATMUL_BYTES_ZERO] : NULL,
                        b->dtype, g.n, err));
    call->out[0]->dtype = DTYPE_FLOAT;
    call->out[0]->shape = matmul_output_shape(&g);
    if ((bias != NULL) != attrs->has_bias ||
        (bias != NULL && (bias->dtype != DTYPE_FLOAT || shape_count(&bias->shape) != g.n)))
        return error_set(err, STATUS_INVALID, "the fused bias does not fit");
    if ((residual != NULL) != attrs->epilogue.has_residual ||
        (residual != NULL && !shape_is_equal(&residual->shape, &call->out[0]->shape)))
        return error_set(err, STATUS_INVALID, "the fused residual does not fit");
    return STATUS_OK;
}

const struct op_def op_matmul_bytes = {
    .name = "matmul_bytes",
    .onnx = {"MatMulBytes", .since = 1, .domain = "sluice"},
    .inputs = MATMUL_BYTES_INPUTS,
    .min_inputs = 2,
    .outputs = 1,
    .attrs_size = sizeof(struct matmul_attrs),
    .flags = OP_INTERNAL,
    .infer = infer_matmul_bytes,
};
