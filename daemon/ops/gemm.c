#include "ops/gemm.h"

#include "ops/conv.h"
#include "ops/matmul.h"

static enum status check_c(const struct op_call *call, const struct shape *out, struct error *err)
{
    const struct tensor *c = call->inputs > GEMM_C ? call->in[GEMM_C] : NULL;
    char c_text[SHAPE_TEXT_BYTES], out_text[SHAPE_TEXT_BYTES];
    struct shape both;

    if (c == NULL)
        return STATUS_OK;
    if (c->dtype != call->in[GEMM_A]->dtype || c->shape.rank > 2 ||
        shape_broadcast(&c->shape, out, &both) != STATUS_OK || !shape_is_equal(&both, out))
        return error_set(err, STATUS_INVALID, "C of shape %s does not broadcast to %s",
                         shape_format(&c->shape, c_text), shape_format(out, out_text));
    return STATUS_OK;
}

static enum status infer_gemm(const struct op_call *call, struct error *err)
{
    const struct gemm_attrs *attrs = call->attrs;
    const struct tensor *a = call->in[GEMM_A], *b = call->in[GEMM_B];
    struct matmul_geometry geometry;

    if (a->shape.rank != 2 || b->shape.rank != 2 || b->dtype != a->dtype)
        return error_set(err, STATUS_INVALID, "A and B must be matrices of one type");
    TRY(matmul_resolve(&a->shape, &b->shape, attrs->transA != 0, attrs->transB != 0, &geometry,
                       err));
    call->out[0]->dtype = a->dtype;
    call->out[0]->shape = matmul_output_shape(&geometry);
    TRY(check_c(call, &call->out[0]->shape, err));
    return epilogue_check(call, attrs->epilogue.has_residual, GEMM_RESIDUAL, err);
}

static uint64_t flops(const struct op_call *call)
{
    const struct gemm_attrs *attrs = call->attrs;

    return matmul_flops(&call->out[0]->shape,
                        call->in[GEMM_A]->shape.dims[attrs->transA != 0 ? 0 : 1]);
}

static const struct attr_def attrs[] = {OP_ATTR_FLOAT(struct gemm_attrs, alpha, 1.0f),
                                        OP_ATTR_FLOAT(struct gemm_attrs, beta, 1.0f),
                                        OP_ATTR_INT(struct gemm_attrs, transA, 0),
                                        OP_ATTR_INT(struct gemm_attrs, transB, 0), OP_ATTR_END};

const struct op_def op_gemm = {
    .name = "gemm",
    .onnx = {"Gemm", .since = 13},
    .inputs = 4,
    .min_inputs = 2,
    .outputs = 1,
    .dtypes =
        DTYPE_FLOATS | DTYPE_BIT(INT32) | DTYPE_BIT(INT64) | DTYPE_BIT(UINT32) | DTYPE_BIT(UINT64),
    .attrs = attrs,
    .attrs_size = sizeof(struct gemm_attrs),
    .infer = infer_gemm,
    .flops = flops,
};
