#include "device/cuda/kernels/product_plan.h"

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/window_plan.h"

void product_batch(struct product *product, struct axes *axes)
{
    struct walk_strides strides[WALK_OPERANDS];

    axes_simplify(axes, -1);
    (void)axes_finish(axes, &product->batch, strides);
    product->out_batch = strides[0];
    product->a_batch = strides[1];
    product->b_batch = strides[2];
    product->bias_batch = strides[3];
}

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

void product_matrices(struct product *product, const struct matmul_geometry *g,
                      const struct shape *a, const struct shape *b, bool trans_a, bool trans_b)
{
    struct axes axes = {.operands = 4};

    for (size_t i = 0; i < g->batch.rank; i++) {
        const int64_t strides[] = {shape_product(&g->batch, i + 1, g->batch.rank) * g->m * g->n,
                                   batch_stride(a, g, i, g->m * g->k),
                                   batch_stride(b, g, i, g->k * g->n), 0};

        axes_add(&axes, g->batch.dims[i], strides);
    }
    product_batch(product, &axes);
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

void product_conv(struct product *product, const struct conv_operands *operands,
                  const struct conv_geometry *g, bool transposed)
{
    int64_t in = g->in_channels / g->groups, out = g->out_channels / g->groups;
    int64_t taps = window_cells(g->window.kernel, g->window.spatial);
    int64_t x[SHAPE_MAX_RANK], w[SHAPE_MAX_RANK], y[SHAPE_MAX_RANK];
    struct axes axes = {.operands = 4};

    operand_strides(operands->x, x);
    operand_strides(operands->w, w);
    operand_strides(operands->y, y);
    axes_add(&axes, g->batch, (const int64_t[]){y[0], 0, x[0], 0});
    axes_add(&axes, g->groups,
             (const int64_t[]){y[1] * out, w[0] * (transposed ? in : out), x[1] * in, out});
    product_batch(product, &axes);
    window_walk_make(&product->window, &g->window, operands->x);
    product->kind = transposed ? PRODUCT_CONV_TRANSPOSED : PRODUCT_CONV;
    product->m = out;
    product->n = window_cells(g->window.out, g->window.spatial);
    product->k = in * taps;
    product->taps = divisor_of(taps);
    product->out_m = y[1];
    product->out_n = y[g->window.spatial + 1]; /* places follow each other */
    product->a_m = w[transposed ? 1 : 0];
    product->a_channel = w[transposed ? 0 : 1];
    product->a_k = w[g->window.spatial + 1]; /* taps follow each other, too */
    product->bias_m = 1;
}
