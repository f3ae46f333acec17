/* The device's side of lines.h: who works on what, and sums over the workers of a line. */
#ifndef DEVICE_CUDA_KERNELS_LINES_CUH
#define DEVICE_CUDA_KERNELS_LINES_CUH

#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/lines.h"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/kernels/walk.cuh"

/* Of one thread: the place of its line among the block's, and its own among the line's workers. */
struct line_place {
    unsigned per_block; /* lines a block */
    unsigned line;
    unsigned worker;
    unsigned unit; /* threads from one worker of a line to the next */
};

__device__ static inline struct line_place line_place_of(const struct lines &lines)
{
    struct line_place place;

    place.per_block = BLOCK_THREADS / lines.workers;
    place.unit = lines.columns ? place.per_block : 1;
    place.line = lines.columns ? threadIdx.x % place.per_block : threadIdx.x / lines.workers;
    place.worker = lines.columns ? threadIdx.x / place.per_block : threadIdx.x % lines.workers;
    return place;
}

/* All threads of a block walk the same number of times: for (LINES(first, …)) { line = first +
 * place.line; may be beyond the last. */
#define LINES(first, lines, place)                                                                 \
    int64_t first = (int64_t)blockIdx.x * (place).per_block;                                       \
    first < (lines).kept.count;                                                                    \
    first += (int64_t)gridDim.x * (place).per_block

/* The elements of a line that this worker takes. */
#define LINE_ELEMENTS(j, lines, place)                                                             \
    int64_t j = (place).worker;                                                                    \
    j < (lines).reduced.count;                                                                     \
    j += (lines).workers

/* Combines the values of a line's workers, in an order that the number of workers decides; every
 * worker gets the result.  All threads of the block must come here.  `shared` has a place a thread.
 */
template <class V, class COMBINE>
__device__ static inline V line_combine(const struct lines &lines, const struct line_place &place,
                                        V value, V *shared, COMBINE combine)
{
    V result;

    shared[threadIdx.x] = value;
    __syncthreads();
    for (unsigned step = lines.workers / 2; step > 0; step /= 2) {
        if (place.worker < step)
            shared[threadIdx.x] =
                combine(shared[threadIdx.x], shared[threadIdx.x + step * place.unit]);
        __syncthreads();
    }
    result = shared[threadIdx.x - place.worker * place.unit];
    __syncthreads();
    return result;
}

template <class T> struct plus {
    __device__ T operator()(T a, T b) const
    {
        return a + b;
    }
};

/* A NaN stays. */
template <class T> struct larger {
    __device__ T operator()(T a, T b) const
    {
        return a > b || a != a ? a : b;
    }
};

__device__ static inline int64_t line_offset(const struct walk &walk,
                                             const struct walk_strides &strides, int64_t index)
{
    return walk.rank == 1 ? index * strides.of[0] : walk_offset(walk, strides, index);
}

static inline unsigned line_blocks(const struct lines *lines)
{
    const int64_t per_block = BLOCK_THREADS / lines->workers;

    return grid_of((lines->kept.count + per_block - 1) / per_block);
}

#endif
