/* Quantised operators beside the products: sums and products of bytes, tables, global averages. */
#ifndef DEVICE_CUDA_KERNELS_BYTES_H
#define DEVICE_CUDA_KERNELS_BYTES_H

#include <cuda_runtime_api.h>

#include "device/cuda/kernels/quantized.h"
#include "device/cuda/kernels/walk.h"

/* (a - zero) * scale + (b - zero) * scale, or the product of both, each step rounded to float, as
 * bytes again. */
struct byte_pair {
    struct walk walk; /* over the result */
    struct walk_strides out_strides, a_strides, b_strides;
    uint32_t multiplies;
    uint32_t a_dtype, b_dtype;
    struct quantized_parameter a_scale, a_zero, b_scale, b_zero; /* one number each */
    struct quantized_finish finish;
    const void *a, *b;
    void *out;
};

/* out[i] = table[the bits of in[i]] */
struct byte_table {
    int64_t count;
    const uint8_t *in, *table;
    uint8_t *out;
};

/* One exact sum for each image and channel, scaled once in double. */
struct byte_average {
    int64_t images, channels, cells;
    uint32_t channels_last;
    uint32_t in_dtype;
    struct quantized_parameter x_scale, x_zero;
    struct quantized_finish finish;
    const void *in;
    void *out; /* [images][channels] */
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_byte_pair(const struct byte_pair *pair, cudaStream_t stream);
cudaError_t cuda_byte_table(const struct byte_table *table, cudaStream_t stream);
cudaError_t cuda_byte_average(const struct byte_average *average, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
