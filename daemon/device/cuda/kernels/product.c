/* MatMul, Gemm, Conv and ConvTranspose for every type and attribute: what is left where the
 * libraries' kernels refuse. */
#include "device/cuda/kernels/product.h"

#include <stdlib.h>

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/pointwise_plan.h"
#include "device/cuda/kernels/rows.h"
#include "device/cuda/kernels/window_plan.h"
#include "ops/conv.h"
#include "ops/gemm.h"
#include "ops/matmul.h"

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

/* Axes of the batch: out, a, b, bias. */
static void set_batch(struct product *product, struct axes *axes)
{
    struct walk_strides strides[WALK_OPERANDS];

    axes_simplify(axes, -1);
    (void)axes_finish(axes, &product->batch, strides);
    product->out_batch = strides[0];
    product->a_batch = strides[1];
    product->b_batch = strides[2];
    product->bias_batch = strides[3];
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

/* The stride of batch axis `axis` in an operand whose matrices have `size` elements. */
static int64_t batch_stride(const struct shape *operand, const struct matmul_geometry *geometry,
                            size_t axis, int64_t size)
{
    size_t rank = operand->rank > 2 ? operand->rank - 2 : 0;
    size_t missing = geometry->batch.rank - rank;

    if (axis < missing || operand->dims[axis - missing] == 1)
        return 0;
    return shape_product(operand, axis - missing + 1, rank) * size;
}

static void set_matrices(struct product *product, const struct matmul_geometry *g,
                         const struct shape *a, const struct shape *b, bool trans_a, bool trans_b)
{
    struct axes axes = {.operands = 4};

    for (size_t i = 0; i < g->batch.rank; i++) {
        const int64_t strides[] = {shape_product(&g->batch, i + 1, g->batch.rank) * g->m * g->n,
                                   batch_stride(a, g, i, g->m * g->k),
                                   batch_stride(b, g, i, g->k * g->n), 0};

        axes_add(&axes, g->batch.dims[i], strides);
    }
    set_batch(product, &axes);
    product->kind = PRODUCT_MATRIX;
    product->m = g->m;
    product->n = g->n;
    product->k = g->k;
    product->out_m = g->n;
    product->out_n = 1;
    product->a_m = trans_a ? 1 : g->k;
    product->a_k = trans_a ? g->m : 1;
    product->b_k = trans_b ? 1 : g->n;
    product->b_n = trans_b ? g->k : 1;
}

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
    set_matrices(product, &geometry, a, b, attrs->trans_a, attrs->trans_b);
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
    set_matrices(product, &geometry, a, b, trans_a, trans_b);
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

static void set_conv(struct product *product, const struct kernel_call *call,
                     const struct conv_geometry *g, bool transposed)
{
    int64_t in = g->in_channels / g->groups, out = g->out_channels / g->groups;
    int64_t taps = window_cells(g->window.kernel, g->window.spatial);
    int64_t x[SHAPE_MAX_RANK], y[SHAPE_MAX_RANK];
    struct axes axes = {.operands = 4};

    operand_strides(call->in[CONV_X], x);
    operand_strides(call->out[0], y);
    axes_add(&axes, g->batch, (const int64_t[]){y[0], 0, x[0], 0});
    axes_add(&axes, g->groups, (const int64_t[]){y[1] * out, in * out * taps, x[1] * in, out});
    set_batch(product, &axes);
    window_walk_make(&product->window, &g->window, call->in[CONV_X]);
    product->kind = transposed ? PRODUCT_CONV_TRANSPOSED : PRODUCT_CONV;
    product->m = out;
    product->n = window_cells(g->window.out, g->window.spatial);
    product->k = in * taps;
    product->taps = divisor_of(taps);
    product->out_m = y[1];
    product->out_n = y[g->window.spatial + 1]; /* places follow each other */
    product->a_m = transposed ? taps : in * taps;
    product->a_channel = transposed ? out * taps : taps;
    product->a_k = 1;
    product->bias_m = 1;
}

static const char *refuse_conv(const struct kernel_call *call)
{
    if (!dtype_is_float(call->in[CONV_X]->dtype))
        return "only float types";
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
    set_conv(product, call, &geometry, transposed);
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
