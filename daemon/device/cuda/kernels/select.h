/* NonZero and Compress: what comes out is counted first, by parts of SELECT_PART elements.
 *
 *     how many each part has  ->  where each begins, and how many there are  ->  each part writes
 */
#ifndef DEVICE_CUDA_KERNELS_SELECT_H
#define DEVICE_CUDA_KERNELS_SELECT_H

#include <cuda_runtime_api.h>
#include <stdint.h>

enum { SELECT_PART = 4096, SELECT_RANK = 8 };

/* What is looked at: an element counts if it is not zero. */
struct selected {
    const void *in;
    uint32_t dtype;
    int64_t count;
    int64_t parts; /* select_parts(count) */
    /* Scratch, one more than there are parts: where each begins; the last is how many there are. */
    int64_t *offsets;
    int64_t *found; /* out: how many there are; page-locked */
};

static inline int64_t select_parts(int64_t count)
{
    return (count + SELECT_PART - 1) / SELECT_PART;
}

struct nonzero {
    struct selected selected;
    uint32_t rank;
    int64_t dims[SELECT_RANK];
    int64_t *out; /* [rank, found] */
};

struct compress {
    struct selected selected; /* the condition */
    int64_t outer, length;    /* length: of the axis */
    int64_t slice;            /* units behind the axis */
    uint32_t bytes;           /* a unit: 1, 2, 4, 8 or 16 */
    const void *in;
    void *out;
    int64_t *places; /* scratch, one for each condition: those that are true */
};

#ifdef __cplusplus
extern "C" {
#endif
/* counts[i] becomes the sum of those before it, counts[count] and *found that of all. */
cudaError_t cuda_scan(int64_t *counts, int64_t count, int64_t *found, cudaStream_t stream);
cudaError_t cuda_nonzero(const struct nonzero *nonzero, cudaStream_t stream);
cudaError_t cuda_compress(const struct compress *compress, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
