/* Around a product of bytes on integer tensor cores: operands laid as those want them, and what
 * becomes of the sums.
 *
 *     laid [rows][k_padded]      x' = x - 128 for uint8, x for int8; zeros behind k
 *     sums [rows][n_padded]      sum of x' w', by the library
 *     y = finish(sums - xz' total[n] - wz'[n] rows' sums)     total[n] = sum w'[n] - k wz'[n]
 *
 * with xz', wz' the zero points, shifted as the bytes are.  Where wz' is not zero everywhere, the
 * weights have a column of ones at n, which sums up the rows.  All of it is exact modulo 2^32.
 *
 * For convolutions a row is a place, and k counts taps, and channels inside of them; where a window
 * hangs over the edge the zero point is laid, which counts nothing.
 */
#ifndef DEVICE_CUDA_KERNELS_IMMA_H
#define DEVICE_CUDA_KERNELS_IMMA_H

#include <cuda_runtime_api.h>

#include "device/cuda/kernels/quantized.h"

/* Some rows: from `first`, `rows` of them; rows x k_padded and rows x n_padded are below 2^31. */
struct imma_lay {
    struct product product; /* of convolutions: window, batch and channels */
    uint32_t is_matrix;     /* then rows of k bytes follow each other */
    uint32_t flip;          /* what makes x' out of the bits of x */
    uint32_t in_words;      /* four channels of a cell are a word in line */
    int64_t first, rows, k, k_padded;
    struct divisor words, places, channels; /* of k_padded / 4, rows an image, k a tap */
    struct quantized_parameter zero;        /* of x */
    const void *in;
    void *out;
};

struct imma_finish {
    uint32_t is_matrix;
    uint32_t turned; /* rows are neighbours in out, not columns */
    int64_t first, rows, n, n_padded;
    struct divisor places;
    int64_t out_image, out_row, out_column; /* elements */
    struct quantized_parameter x_zero;
    int32_t x_shift; /* xz' = zero - x_shift */
    const int32_t *sums;
    const int32_t *totals; /* n */
    const int32_t *zeros;  /* n, wz'; NULL: all are 0, and there is no column of ones */
    struct quantized_finish finish;
    void *out;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_imma_lay(const struct imma_lay *lay, cudaStream_t stream);
cudaError_t cuda_imma_finish(const struct imma_finish *finish, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
