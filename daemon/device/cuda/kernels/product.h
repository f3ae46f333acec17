/* Sums of products: matrix products, convolutions and transposed convolutions, in plain arithmetic.
 *
 *     out[z][m][n] = act(scale * sum over k of a[z][m][k] * b[z][k][n] + beta * bias + residual)
 *
 * For convolutions m is an output channel of a group, n an output place, k a tap of an input
 * channel, and b is looked up under the window.  Each sum is made one product after the other, from
 * the first k to the last, whatever the sizes: a row has the same bits in every batch.
 */
#ifndef DEVICE_CUDA_KERNELS_PRODUCT_H
#define DEVICE_CUDA_KERNELS_PRODUCT_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "device/cuda/kernels/walk.h"
#include "device/cuda/kernels/window.h"

enum product_kind { PRODUCT_MATRIX, PRODUCT_CONV, PRODUCT_CONV_TRANSPOSED };

struct product {
    struct walk batch; /* over z */
    struct walk_strides out_batch, a_batch, b_batch, bias_batch;
    int64_t m, n, k;
    int64_t out_m, out_n; /* elements */
    int64_t a_m, a_k;     /* matrices and weights: a_k is that of a tap, see a_channel */
    int64_t a_channel;    /* convolutions: from input channel to input channel of the weights */
    int64_t b_k, b_n;     /* matrices */
    int64_t bias_m, bias_n;
    struct divisor taps; /* of k: channel and tap */
    struct window_walk window;
    uint32_t kind;
    uint32_t type;  /* enum pointwise_type */
    uint32_t dtype; /* of all operands */
    uint32_t out_dtype;
    const void *a, *b;
    const void *bias;     /* NULL: none */
    const void *residual; /* like out; NULL: none */
    void *out;            /* may be the residual */
    double scale, beta;
    /* the epilogue */
    uint32_t act;
    uint32_t residual_after;
    float act_a, act_b;
};

#ifdef __cplusplus
extern "C" {
#endif
/* Nothing happens where there are no results.  One thread a result where `m` is small. */
cudaError_t cuda_product(const struct product *product, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
