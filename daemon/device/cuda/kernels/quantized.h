/* Quantised numbers: q = saturate(round(x / scale) + zero), and products of them in 32-bit
 * integers. */
#ifndef DEVICE_CUDA_KERNELS_QUANTIZED_H
#define DEVICE_CUDA_KERNELS_QUANTIZED_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "device/cuda/kernels/product.h"

/* One number, or one for each of several things. */
struct quantized_parameter {
    const void *data; /* NULL: 0 */
    uint32_t dtype;
    uint32_t step; /* 0: one for all */
};

enum quantized_by { QUANTIZED_BY_TENSOR, QUANTIZED_BY_AXIS, QUANTIZED_BY_BLOCK };

/* A tensor is [outer, count, inner] around the axis. */
struct quantize {
    int64_t elements;
    int64_t count, inner, block;
    uint32_t by; /* enum quantized_by */
    uint32_t to_integers;
    uint32_t in_dtype, out_dtype;
    double low, high; /* of the quantised type */
    const void *in;
    void *out;
    struct quantized_parameter scale, zero;
};

/* DynamicQuantizeLinear: its scale and zero point out of the smallest and the largest element. */
struct quantize_range {
    const float *least, *most; /* one number each */
    float *scale;
    uint8_t *zero;
};

enum quantized_result {
    QUANTIZED_SUMS,  /* int32 */
    QUANTIZED_BYTES, /* saturate(round((sum + bias) * scale) + zero), scale = row * column / y */
    QUANTIZED_FLOATS /* sum * scale + shift, rounded twice */
};

/* What becomes of a sum of products.  Numbers of which there is one a column or one a row. */
struct quantized_finish {
    uint32_t result; /* enum quantized_result */
    uint32_t out_dtype;
    uint32_t act; /* enum activation: none, or one that cuts off what becomes bytes */
    float act_a, act_b;
    float low, high; /* of the bytes' type */
    struct quantized_parameter row_scale, column_scale, y_scale, y_zero;
    const int32_t *bias; /* where the caller says; NULL: none */
    const float *shift;  /* alike */
};

/* A product of bytes.  `zero`s are subtracted before.  product.bias_batch is the number of a
 * channel of the first row, and bias goes by it for convolutions, by columns for matrices. */
struct quantized_product {
    struct product product;
    /* Neighbouring threads of a thin product take so many of the batch one after the other: groups
     * of channels that lie side by side in the image; 1: results of one product. */
    int64_t together;
    uint32_t b_dtype; /* product.dtype is that of a */
    struct quantized_parameter a_zero, b_zero;
    struct quantized_finish finish;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_quantize(const struct quantize *quantize, cudaStream_t stream);
cudaError_t cuda_quantize_range(const struct quantize_range *range, cudaStream_t stream);
cudaError_t cuda_quantized_product(const struct quantized_product *product, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
