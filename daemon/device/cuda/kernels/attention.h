/* Attention in one step: softmax(scale Q K^T, masked) V, head by head: of float32, and of 16-bit
 * types by tensor cores.
 *
 * The scores of a block of queries exist only while they are used: sixty-four keys at a time, with
 * the largest score and the sum of each query so far (the softmax is made on the way, and what was
 * summed is scaled down when a larger score comes).  The order of a query's sums depends on the
 * numbers of keys, of the depth and of nothing else: a row has the same bits in every batch.
 *
 * Where it is causal, keys that no query of a block sees are left out: their parts would be zeros
 * exactly, for `fill` is -infinity, or so far below each query's largest score (attention.cuh).
 */
#ifndef DEVICE_CUDA_KERNELS_ATTENTION_H
#define DEVICE_CUDA_KERNELS_ATTENTION_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "device/cuda/kernels/walk.h"

enum { ATTENTION_MASKS = 2 };
/* Columns of the result that one block can make: it makes all scores for them. */
enum { ATTENTION_COLUMNS = 128 };
/* Most of depth and width, of 16-bit types. */
enum { ATTENTION16_COLUMNS = 256 };
/* Elements of 16 bits that are read at once where an operand's `unit` says so. */
enum { ATTENTION_UNIT = 8 };

/* Strides are elements from one index to the next. */
struct attention_operand {
    struct walk_strides heads;
    int64_t row, column; /* masks and the result: columns lie side by side */
    uint32_t dtype;      /* masks: of the others, float32, or boolean */
    uint32_t unit;       /* 16 bits: so many neighbours of a row may be moved at once: 1, 2 or 8 */
};

struct attention {
    struct walk heads; /* count: of them all */
    struct attention_operand q, k, v, out, mask[ATTENTION_MASKS];
    int64_t queries, keys, depth, width;
    float scale;
    uint32_t dtype; /* of Q, K, V and the result */
    /* Boolean masks: where they are `hides`, scores become `fill`. */
    uint32_t hides[ATTENTION_MASKS];
    float fill[ATTENTION_MASKS];
    uint32_t is_causal; /* query i sees keys up to i + causal_offset, others are causal_fill */
    float causal_fill;
    int64_t causal_offset;
    const void *q_data, *k_data, *v_data;
    const void *mask_data[ATTENTION_MASKS]; /* NULL: none */
    void *out_data; /* may be Q where both have the same strides and `width` fits one block */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Nothing happens where there are no results.  There is at least one key. */
cudaError_t cuda_attention(const struct attention *attention, cudaStream_t stream);
/* The same of 16-bit types, of at most ATTENTION16_COLUMNS of depth and width; bfloat16 from
 * capability 8.0 on. */
cudaError_t cuda_attention16(const struct attention *attention, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
