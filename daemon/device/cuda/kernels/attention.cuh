/* Which keys a block looks at where attention is causal: what both kernels share. */
#ifndef DEVICE_CUDA_KERNELS_ATTENTION_CUH
#define DEVICE_CUDA_KERNELS_ATTENTION_CUH

#include <math.h>

#include "device/cuda/kernels/attention.h"

/* So far below the largest score e^x is zero, in float32. */
#define ATTENTION_NOTHING 128.0f

/* Keys in front of those that none of the queries from `row` on sees, `rows` of them.  All, where
 * one of them sees none and `fill` is a number: then it counts. */
__device__ static inline int64_t attention_end(const struct attention &a, int64_t row, int64_t rows)
{
    const int64_t last = row + rows < a.queries ? row + rows : a.queries;
    const int64_t end = last + a.causal_offset;

    if (!a.is_causal || end >= a.keys)
        return a.keys;
    if (end > 0)
        return end;
    return a.causal_fill == -INFINITY ? 0 : a.keys;
}

/* Whether keys that are hidden count for a query whose largest score so far is `top`. */
__device__ static inline bool attention_counts_hidden(const struct attention &a, float top)
{
    return a.causal_fill > -INFINITY && !(top > a.causal_fill + ATTENTION_NOTHING);
}

/* How many of `count` keys from `key` on query `row` sees. */
__device__ static inline int attention_seen(const struct attention &a, int64_t row, int64_t key,
                                            int count)
{
    const int64_t seen = row + a.causal_offset + 1 - key;

    return seen < 0 ? 0 : seen < count ? (int)seen : count;
}

#endif
