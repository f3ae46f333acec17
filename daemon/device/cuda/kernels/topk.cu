/* TopK, a block a line.  Elements are compared as unsigned keys of the same order: both zeros are
 * one key, every NaN is one above infinity. */
#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/topk.h"

struct entry {
    uint64_t key;
    int64_t place;
};

__device__ static inline uint64_t key_of_float(float value)
{
    const uint32_t bits = __float_as_uint(value + 0.0f);

    if (value != value)
        return 0xFFFFFFFFu;
    return (bits >> 31) != 0 ? (uint32_t)~bits : bits | 0x80000000u;
}

__device__ static inline uint64_t key_of_double(double value)
{
    const uint64_t bits = (uint64_t)__double_as_longlong(value + 0.0);

    if (value != value)
        return UINT64_MAX;
    return (bits >> 63) != 0 ? ~bits : bits | (uint64_t)1 << 63;
}

__device__ static inline uint64_t key_of(const struct topk &t, int64_t at)
{
    uint64_t key;

    switch (t.dtype) {
    case DTYPE_FLOAT:
    case DTYPE_FLOAT16:
    case DTYPE_BFLOAT16:
        key = key_of_float(element_load<float>(t.dtype, t.in, at));
        break;
    case DTYPE_DOUBLE:
        key = key_of_double(((const double *)t.in)[at]);
        break;
    case DTYPE_UINT64:
        key = ((const uint64_t *)t.in)[at];
        break;
    default:
        key = (uint64_t)element_load<int64_t>(t.dtype, t.in, at) ^ (uint64_t)1 << 63;
    }
    return t.smallest ? ~key : key;
}

__device__ static inline bool is_before(const struct entry &a, const struct entry &b)
{
    return a.key > b.key || (a.key == b.key && a.place < b.place);
}

/* Element `rank` of the result is the one at `place` of the line. */
__device__ static inline void put(const struct topk &t, int64_t line, int64_t rank, int64_t place)
{
    const int64_t outer = line / t.inner, inner = line % t.inner;
    const int64_t from = (outer * t.length + place) * t.inner + inner;
    const int64_t to = (outer * t.k + rank) * t.inner + inner;

    if (t.indices != nullptr)
        t.indices[to] = place;
    if (t.values == nullptr)
        return;
    switch (t.dtype) {
    case DTYPE_INT8:
    case DTYPE_UINT8:
    case DTYPE_BOOL:
        ((uint8_t *)t.values)[to] = ((const uint8_t *)t.in)[from];
        break;
    case DTYPE_INT16:
    case DTYPE_UINT16:
    case DTYPE_FLOAT16:
    case DTYPE_BFLOAT16:
        ((uint16_t *)t.values)[to] = ((const uint16_t *)t.in)[from];
        break;
    case DTYPE_INT32:
    case DTYPE_UINT32:
    case DTYPE_FLOAT:
        ((uint32_t *)t.values)[to] = ((const uint32_t *)t.in)[from];
        break;
    default:
        ((uint64_t *)t.values)[to] = ((const uint64_t *)t.in)[from];
    }
}

/* ---- short lines: a bitonic sort of all of it ---- */

__global__ void __launch_bounds__(BLOCK_THREADS) sort_kernel(const __grid_constant__ struct topk t)
{
    __shared__ struct entry entries[TOPK_SORTED];
    unsigned padded = 1;

    while (padded < t.length)
        padded *= 2;
    for (int64_t line = blockIdx.x; line < t.outer * t.inner; line += gridDim.x) {
        const int64_t start = line / t.inner * t.length * t.inner + line % t.inner;

        for (unsigned i = threadIdx.x; i < padded; i += BLOCK_THREADS) {
            entries[i].key = i < t.length ? key_of(t, start + i * t.inner) : 0;
            entries[i].place = i; /* what pads comes after whatever has the same key */
        }
        __syncthreads();
        for (unsigned size = 2; size <= padded; size *= 2)
            for (unsigned step = size / 2; step > 0; step /= 2) {
                for (unsigned i = threadIdx.x; i < padded / 2; i += BLOCK_THREADS) {
                    const unsigned a = i / step * step * 2 + i % step, b = a + step;
                    const bool forwards = (a & size) == 0;

                    if (is_before(entries[b], entries[a]) == forwards) {
                        const struct entry moved = entries[a];

                        entries[a] = entries[b];
                        entries[b] = moved;
                    }
                }
                __syncthreads();
            }
        for (unsigned i = threadIdx.x; i < t.k; i += BLOCK_THREADS)
            put(t, line, i, entries[i].place);
        __syncthreads();
    }
}

/* ---- long lines: the next best, k times ---- */

__global__ void __launch_bounds__(BLOCK_THREADS)
    select_kernel(const __grid_constant__ struct topk t)
{
    __shared__ struct entry shared[BLOCK_THREADS];

    for (int64_t line = blockIdx.x; line < t.outer * t.inner; line += gridDim.x) {
        const int64_t start = line / t.inner * t.length * t.inner + line % t.inner;
        struct entry last = {UINT64_MAX, -1}; /* before all others */

        for (int64_t rank = 0; rank < t.k; rank++) {
            struct entry best = {0, INT64_MAX}; /* behind all others */

            for (int64_t i = threadIdx.x; i < t.length; i += BLOCK_THREADS) {
                const struct entry next = {key_of(t, start + i * t.inner), i};

                if (is_before(last, next) && is_before(next, best))
                    best = next;
            }
            shared[threadIdx.x] = best;
            __syncthreads();
            for (unsigned step = BLOCK_THREADS / 2; step > 0; step /= 2) {
                if (threadIdx.x < step &&
                    is_before(shared[threadIdx.x + step], shared[threadIdx.x]))
                    shared[threadIdx.x] = shared[threadIdx.x + step];
                __syncthreads();
            }
            last = shared[0];
            __syncthreads();
            if (threadIdx.x == 0)
                put(t, line, rank, last.place);
        }
    }
}

extern "C" cudaError_t cuda_topk(const struct topk *topk, cudaStream_t stream)
{
    const int64_t lines = topk->outer * topk->inner;

    if (lines * topk->k == 0)
        return cudaSuccess;
    if (topk->length <= TOPK_SORTED)
        sort_kernel<<<grid_of(lines), BLOCK_THREADS, 0, stream>>>(*topk);
    else
        select_kernel<<<grid_of(lines), BLOCK_THREADS, 0, stream>>>(*topk);
    return cudaGetLastError();
}
