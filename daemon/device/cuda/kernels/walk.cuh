/* The device's side of walk.h. */
#ifndef DEVICE_CUDA_KERNELS_WALK_CUH
#define DEVICE_CUDA_KERNELS_WALK_CUH

#include <cuda_runtime.h>

#include "device/cuda/kernels/walk.h"

/* Splits `index` by the innermost size `axis`: what is left, and the place in the axis. */
__device__ static inline int64_t walk_divide(const struct walk &walk, bool wide, uint32_t axis,
                                             int64_t index, int64_t *place)
{
    int64_t quotient;

    if (wide)
        quotient = index / walk.sizes[axis];
    else
        quotient = (__umulhi((uint32_t)index, walk.multipliers[axis]) + (uint32_t)index) >>
                   walk.shifts[axis];
    *place = index - quotient * walk.sizes[axis];
    return quotient;
}

__device__ static inline int64_t walk_divide(const struct walk &walk, uint32_t axis, int64_t index,
                                             int64_t *place)
{
    return walk_divide(walk, walk.wide != 0, axis, index, place);
}

/* Offsets of element `index` in `count` operands; strides[k * step] is operand k's.  `rank` and
 * `wide` are the walk's, which who calls may know before. */
template <int COUNT>
__device__ static inline void walk_offsets(const struct walk &walk, uint32_t rank, bool wide,
                                           const struct walk_strides *strides, int64_t index,
                                           int64_t (&offsets)[COUNT])
{
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        offsets[k] = 0;
    for (uint32_t axis = rank - 1; axis > 0; axis--) {
        int64_t place;

        index = walk_divide(walk, wide, axis, index, &place);
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            offsets[k] += place * strides[k].of[axis];
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        offsets[k] += index * strides[k].of[0];
}

template <int COUNT>
__device__ static inline void walk_offsets(const struct walk &walk,
                                           const struct walk_strides *strides, int64_t index,
                                           int64_t (&offsets)[COUNT])
{
    walk_offsets<COUNT>(walk, walk.rank, walk.wide != 0, strides, index, offsets);
}

__device__ static inline int64_t walk_offset(const struct walk &walk,
                                             const struct walk_strides &strides, int64_t index)
{
    int64_t offsets[1];

    walk_offsets<1>(walk, &strides, index, offsets);
    return offsets[0];
}

/* Grid-stride loops: for (GRID_STRIDE(i, count)). */
#define GRID_STRIDE(i, count)                                                                      \
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;                                    \
    i < (count);                                                                                   \
    i += (int64_t)gridDim.x * blockDim.x

#endif
