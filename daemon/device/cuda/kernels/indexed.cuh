/* The device's side of indexed.h: indices to offsets. */
#ifndef DEVICE_CUDA_KERNELS_INDEXED_CUH
#define DEVICE_CUDA_KERNELS_INDEXED_CUH

#include <cuda_runtime.h>

#include "device/cuda/kernels/indexed.h"

/* Counts from the end when negative; -1, and the fault is raised, when outside. */
__device__ static inline int64_t index_resolve(int64_t index, int64_t length, uint32_t *fault)
{
    if (index < 0)
        index += length;
    if (index >= 0 && index < length)
        return index;
    *fault = 1;
    return -1;
}

/* Where the slice of tuple `i` begins; -1, and the fault is raised, when outside. */
__device__ static inline int64_t tuple_offset(const struct index_tuples &tuples, int64_t i,
                                              uint32_t *fault)
{
    int64_t offset = 0;

    for (uint32_t k = 0; k < tuples.depth; k++) {
        const int64_t given = tuples.indices[i * tuples.depth + k];
        const int64_t index = index_resolve(tuples.from_start_only && given < 0 ? INT64_MIN : given,
                                            tuples.lengths[k], fault);

        if (index < 0)
            return -1;
        offset += index * tuples.strides[k];
    }
    return offset;
}

/* The body of a launcher: `kernel` for units of args->bytes. */
#define BY_BYTES(kernel, count, args)                                                              \
    const unsigned blocks = grid_for(count);                                                       \
                                                                                                   \
    if ((count) == 0)                                                                              \
        return cudaSuccess;                                                                        \
    switch ((args)->bytes) {                                                                       \
    case 1:                                                                                        \
        kernel<uint8_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*(args));                            \
        break;                                                                                     \
    case 2:                                                                                        \
        kernel<uint16_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*(args));                           \
        break;                                                                                     \
    case 4:                                                                                        \
        kernel<uint32_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*(args));                           \
        break;                                                                                     \
    case 8:                                                                                        \
        kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*(args));                           \
        break;                                                                                     \
    default:                                                                                       \
        kernel<uint4><<<blocks, BLOCK_THREADS, 0, stream>>>(*(args));                              \
    }                                                                                              \
    return cudaGetLastError();

#endif
