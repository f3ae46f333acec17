/* TopK: the best k elements of each line, best first; equal ones in the order of their places. */
#ifndef DEVICE_CUDA_KERNELS_TOPK_H
#define DEVICE_CUDA_KERNELS_TOPK_H

#include <cuda_runtime_api.h>
#include <stdint.h>

struct topk {
    int64_t outer, length, inner, k;
    uint32_t smallest; /* 1: smallest first */
    uint32_t dtype;
    const void *in;
    void *values;     /* NULL: not wanted */
    int64_t *indices; /* NULL: not wanted */
};

/* Lines of at most so many elements are sorted in shared memory; of longer ones so many of the best
 * at a time. */
enum { TOPK_SORTED = 2048 };

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_topk(const struct topk *topk, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
