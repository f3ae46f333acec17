/* Sums of all before: how many, and where each goes. */
#ifndef DEVICE_CUDA_KERNELS_SCAN_CUH
#define DEVICE_CUDA_KERNELS_SCAN_CUH

#include "device/cuda/kernels/launch.cuh"

/* The sum of the values of the block's threads up to this one; *total is that of all.  All threads
 * come here; `shared` is free again when they leave. */
__device__ static inline int64_t block_scan(int64_t value, int64_t (&shared)[BLOCK_THREADS],
                                            int64_t *total)
{
    shared[threadIdx.x] = value;
    __syncthreads();
    for (unsigned step = 1; step < BLOCK_THREADS; step *= 2) {
        const int64_t before = threadIdx.x >= step ? shared[threadIdx.x - step] : 0;

        __syncthreads();
        value += before;
        shared[threadIdx.x] = value;
        __syncthreads();
    }
    *total = shared[BLOCK_THREADS - 1];
    __syncthreads();
    return value;
}

#endif
