/* Attention in one step: softmax(scale Q K^T + masks) V of float32, head by head.
 *
 * The scores of a block of queries exist only while they are used: sixty-four keys at a time, with
 * the largest score and the sum of each query so far (the softmax is made on the way, and what was
 * summed is scaled down when a larger score comes).  The order of a query's sums depends on the
 * numbers of keys, of the depth and of nothing else: a row has the same bits in every batch.
 */
#ifndef DEVICE_CUDA_KERNELS_ATTENTION_H
#define DEVICE_CUDA_KERNELS_ATTENTION_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "device/cuda/kernels/walk.h"

enum { ATTENTION_MASKS = 2 };
/* Columns of the result that one block can make: it makes all scores for them. */
enum { ATTENTION_COLUMNS = 128 };

/* Strides are elements from one index to the next. */
struct attention_operand {
    struct walk_strides heads;
    int64_t row, column; /* masks and the result: columns lie side by side */
};

struct attention {
    struct walk heads; /* count: of them all */
    struct attention_operand q, k, v, out, mask[ATTENTION_MASKS];
    int64_t queries, keys, depth, width;
    float scale;
    const float *q_data, *k_data, *v_data;
    const float *mask_data[ATTENTION_MASKS]; /* NULL: none */
    float *out_data; /* may be Q where both have the same strides and `width` fits one block */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Nothing happens where there are no results.  There is at least one key. */
cudaError_t cuda_attention(const struct attention *attention, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
