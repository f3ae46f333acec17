/* MatMul, Gemm, Conv and ConvTranspose for every type and attribute: what is left where the
 * libraries' kernels refuse. */
#include "device/cuda/kernels/product.h"

#include <stdlib.h>

#include "device/cuda/kernels/pointwise_plan.h"
#include "device/cuda/kernels/product_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/gemm.h"

static void set_epilogue(struct product *product, const struct epilogue *epilogue)
{
    product->act = (uint32_t)epilogue->act;
    product->act_a = epilogue->a;
    product->act_b = epilogue->b;
    product->residual_after = epilogue->residual_after;
}

static void set_types(struct product *product, const struct kernel_call *call)
{
    product->type = pointwise_type_of(call->in[0]->dtype);
    product->dtype = call->in[0]->dtype;
    product->out_dtype = call->out[0]->dtype;
    product->scale = product->beta = 1;
}

static enum status launch(struct product *product, const struct kernel_run *run, const void *a,
                          const void *b, const void *bias, const void *residual)
{
    product->a = a;
    product->b = b;
    product->bias = bias;
    product->residual = residual;
    product->out = run->out[0];
    return cuda_status(cuda_product(product, cuda_stream(run)));
}

/* ---- matrices ---- */

static enum status prepare_matmul(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct matmul_attrs *attrs = call->attrs;
    const struct shape *a = &call->in[MATMUL_A]->shape, *b = &call->in[MATMUL_B]->shape;
    struct matmul_geometry geometry;
    struct product *product;

    TRY(matmul_resolve(a, b, attrs->trans_a, attrs->trans_b, &geometry, err));
    product = prepare_state(prepare, sizeof(*product), err);
    if (product == NULL)
        return STATUS_NO_MEMORY;
    set_types(product, call);
    product_matrices(product, &geometry, a, b, attrs->trans_a, attrs->trans_b);
    set_epilogue(product, &attrs->epilogue);
    product->scale = attrs->has_scale ? (double)attrs->scale : 1;
    product->bias_n = 1;
    return STATUS_OK;
}

static enum status run_matmul(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    const struct matmul_attrs *attrs = call->attrs;
    struct product product = *(const struct product *)state;

    return launch(&product, run, run->in[MATMUL_A], run->in[MATMUL_B],
                  attrs->has_bias ? run->in[MATMUL_BIAS] : NULL,
                  attrs->epilogue.has_residual ? run->in[MATMUL_RESIDUAL] : NULL);
}

const struct kernel kernel_matmul_product = {
    .name = "cuda:product",
    .flags = KERNEL_IN_PLACE_LAST,
    .prepare = prepare_matmul,
    .enqueue = run_matmul,
    .release = free,
};

static bool has_c(const struct kernel_call *call)
{
    const struct gemm_attrs *attrs = call->attrs;

    return call_input(call, GEMM_C) != NULL && attrs->beta != 0;
}

static enum status prepare_gemm(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct gemm_attrs *attrs = call->attrs;
    const struct shape *a = &call->in[GEMM_A]->shape, *b = &call->in[GEMM_B]->shape;
    bool trans_a = attrs->transA != 0, trans_b = attrs->transB != 0;
    struct matmul_geometry geometry;
    struct product *product;

    TRY(matmul_resolve(a, b, trans_a, trans_b, &geometry, err));
    product = prepare_state(prepare, sizeof(*product), err);
    if (product == NULL)
        return STATUS_NO_MEMORY;
    set_types(product, call);
    product_matrices(product, &geometry, a, b, trans_a, trans_b);
    set_epilogue(product, &attrs->epilogue);
    product->scale = (double)attrs->alpha;
    product->beta = (double)attrs->beta;
    if (has_c(call)) {
        const struct shape *c = &call->in[GEMM_C]->shape;
        int64_t columns = c->rank > 0 ? c->dims[c->rank - 1] : 1;
        int64_t rows = c->rank > 1 ? c->dims[0] : 1;

        product->bias_n = columns > 1 ? 1 : 0;
        product->bias_m = rows > 1 ? columns : 0;
    }
    return STATUS_OK;
}

static enum status run_gemm(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    const struct gemm_attrs *attrs = call->attrs;
    struct product product = *(const struct product *)state;

    return launch(&product, run, run->in[GEMM_A], run->in[GEMM_B],
                  has_c(call) ? run->in[GEMM_C] : NULL,
                  attrs->epilogue.has_residual ? run->in[GEMM_RESIDUAL] : NULL);
}

/* Integers know neither alpha nor C. */
static const char *refuse_gemm(const struct kernel_call *call)
{
    return dtype_is_float(call->in[0]->dtype) ? NULL : "only float types";
}

const struct kernel kernel_gemm_product = {
    .name = "cuda:product",
    .flags = KERNEL_IN_PLACE_LAST,
    .refuses = refuse_gemm,
    .prepare = prepare_gemm,
    .enqueue = run_gemm,
    .release = free,
};

/* ---- convolutions ---- */

static const char *refuse_conv(const struct kernel_call *call)
{
    if (!dtype_is_float(call->in[CONV_X]->dtype))
        return "only float types";
    if (conv_has_more(call->op, call->attrs))
        return "a prelude or a shuffle";
    if (shape_count(&call->out[0]->shape) > INT32_MAX ||
        shape_count(&call->in[0]->shape) > INT32_MAX)
        return "2^31 elements or more";
    return NULL;
}

static enum status prepare_conv(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct shape *x = &call->in[CONV_X]->shape, *w = &call->in[CONV_W]->shape;
    const struct conv_attrs *attrs = call->attrs;
    const struct conv_transpose_attrs *turned = call->attrs;
    bool transposed = call->op == &op_conv_transpose;
    struct conv_geometry geometry;
    struct product *product;

    if (transposed)
        TRY(conv_transpose_resolve(turned, x, w, &geometry, err));
    else
        TRY(conv_resolve(attrs, x, w, &geometry, err));
    product = prepare_state(prepare, sizeof(*product), err);
    if (product == NULL)
        return STATUS_NO_MEMORY;
    set_types(product, call);
    product_conv(product, &(struct conv_operands){call->in[CONV_X], call->in[CONV_W], call->out[0]},
                 &geometry, transposed);
    set_epilogue(product, transposed ? &turned->epilogue : &attrs->epilogue);
    return STATUS_OK;
}

static enum status run_conv(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    struct product product = *(const struct product *)state;

    return launch(&product, run, run->in[CONV_W], run->in[CONV_X], run_input(call, run, CONV_BIAS),
                  run_input(call, run, CONV_RESIDUAL));
}

#define CONV(operator)                                                                             \
    const struct kernel kernel_##operator##_product = {                                            \
        .name = "cuda:product",                                                                    \
        .flags = KERNEL_IN_PLACE_LAST,                                                             \
        .layouts = ANY_LAYOUT,                                                                     \
        .refuses = refuse_conv,                                                                    \
        .prepare = prepare_conv,                                                                   \
        .enqueue = run_conv,                                                                       \
        .release = free,                                                                           \
    };
CONV(conv)
CONV(conv_transpose)
