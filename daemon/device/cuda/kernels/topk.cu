/* TopK, a block a line.  Elements are compared as unsigned keys of the same order: both zeros are
 * one key, every NaN is one above infinity.
 *
 * A short line is sorted in shared memory.  Of a longer one the best 2048 are found first, and
 * sorted, then the next ones: a bound that so many are above is made digit by digit, from the
 * highest on, out of the number of elements that have each digit.
 */
#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/scan.cuh"
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

/* Sorts the first `count` of them, a power of two, best first.  All threads come here. */
__device__ static inline void sort_entries(struct entry (&entries)[TOPK_SORTED], unsigned count)
{
    for (unsigned size = 2; size <= count; size *= 2)
        for (unsigned step = size / 2; step > 0; step /= 2) {
            for (unsigned i = threadIdx.x; i < count / 2; i += BLOCK_THREADS) {
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
}

/* The power of two that is not below. */
__device__ static inline unsigned padded_to(int64_t count)
{
    unsigned padded = 1;

    while (padded < count)
        padded *= 2;
    return padded;
}

/* ---- short lines ---- */

__global__ void __launch_bounds__(BLOCK_THREADS) sort_kernel(const __grid_constant__ struct topk t)
{
    __shared__ struct entry entries[TOPK_SORTED];
    const unsigned padded = padded_to(t.length);

    for (int64_t line = blockIdx.x; line < t.outer * t.inner; line += gridDim.x) {
        const int64_t start = line / t.inner * t.length * t.inner + line % t.inner;

        for (unsigned i = threadIdx.x; i < padded; i += BLOCK_THREADS) {
            entries[i].key = i < t.length ? key_of(t, start + i * t.inner) : 0;
            entries[i].place = i; /* what pads comes after whatever has the same key */
        }
        __syncthreads();
        sort_entries(entries, padded);
        for (unsigned i = threadIdx.x; i < t.k; i += BLOCK_THREADS)
            put(t, line, i, entries[i].place);
        __syncthreads();
    }
}

/* ---- long lines ---- */

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };
static_assert((int)DIGITS == (int)BLOCK_THREADS, "a thread has a digit");

/* What a block shares while it looks for a bound. */
struct bound_search {
    uint32_t counts[DIGITS];
    int64_t sums[BLOCK_THREADS];
    uint32_t digit;
    int64_t above, with_it;
};

/* A line, and the entry that all that are still looked for come behind. */
struct line {
    int64_t start;
    struct entry last;
};

__device__ static inline struct entry entry_at(const struct topk &t, const struct line &line,
                                               int64_t place)
{
    return {key_of(t, line.start + place * t.inner), place};
}

/* By its key; or, among those of one key, by its place, the first being the largest. */
struct by_key {
    __device__ bool may_be(const struct entry &) const
    {
        return true;
    }
    __device__ uint64_t operator()(const struct entry &entry) const
    {
        return entry.key;
    }
};
struct by_place {
    uint64_t key;

    __device__ bool may_be(const struct entry &entry) const
    {
        return entry.key == key;
    }
    __device__ uint64_t operator()(const struct entry &entry) const
    {
        return ~(uint64_t)entry.place;
    }
};

/* The largest bound that at least *wanted numbers reach; *wanted becomes how many of those that are
 * the bound itself are wanted, 0 when all that reach it are.  All threads come here. */
template <class NUMBER>
__device__ static inline uint64_t find_bound(const struct topk &t, const struct line &line,
                                             const NUMBER &number, int64_t *wanted,
                                             struct bound_search &search)
{
    uint64_t bound = 0;

    for (int shift = 64 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        const uint64_t known = shift + DIGIT_BITS == 64 ? 0 : UINT64_MAX << (shift + DIGIT_BITS);
        int64_t count, up_to, all;

        search.counts[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < t.length; i += BLOCK_THREADS) {
            const struct entry entry = entry_at(t, line, i);
            const uint64_t value = number(entry);

            if (((value ^ bound) & known) == 0 && number.may_be(entry) &&
                is_before(line.last, entry))
                atomicAdd(&search.counts[value >> shift & (DIGITS - 1)], 1u);
        }
        __syncthreads();
        count = search.counts[DIGITS - 1 - threadIdx.x]; /* the largest digit first */
        up_to = block_scan(count, search.sums, &all);
        if (up_to - count < *wanted && up_to >= *wanted) {
            search.digit = DIGITS - 1 - threadIdx.x;
            search.above = up_to - count;
            search.with_it = count;
        }
        __syncthreads();
        bound |= (uint64_t)search.digit << shift;
        *wanted -= search.above;
        if (search.with_it == *wanted) {
            *wanted = 0;
            return bound;
        }
    }
    return bound;
}

/* The best `count` entries that come behind line.last, in no order. */
__device__ static inline void take_entries(const struct topk &t, const struct line &line,
                                           int64_t count, struct bound_search &search,
                                           struct entry (&entries)[TOPK_SORTED], uint32_t *taken)
{
    int64_t wanted = count;
    const uint64_t key = find_bound(t, line, by_key(), &wanted, search);
    const bool of_some = wanted > 0; /* of those with this very key */
    const uint64_t place =
        of_some ? find_bound(t, line, by_place{key}, &wanted, search) : (uint64_t)0;

    if (threadIdx.x == 0)
        *taken = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < t.length; i += BLOCK_THREADS) {
        const struct entry entry = entry_at(t, line, i);

        if (entry.key >= key && is_before(line.last, entry) &&
            (!of_some || entry.key > key || by_place{key}(entry) >= place))
            entries[atomicAdd(taken, 1u)] = entry;
    }
}

__global__ void __launch_bounds__(BLOCK_THREADS, 2)
    select_kernel(const __grid_constant__ struct topk t)
{
    __shared__ struct entry entries[TOPK_SORTED];
    __shared__ struct bound_search search;
    __shared__ uint32_t taken;

    for (int64_t number = blockIdx.x; number < t.outer * t.inner; number += gridDim.x) {
        struct line line = {number / t.inner * t.length * t.inner + number % t.inner,
                            {UINT64_MAX, -1}}; /* before all others */

        for (int64_t rank = 0; rank < t.k; rank += TOPK_SORTED) {
            const int64_t count = t.k - rank < TOPK_SORTED ? t.k - rank : (int64_t)TOPK_SORTED;
            const unsigned padded = padded_to(count);

            take_entries(t, line, count, search, entries, &taken);
            for (unsigned i = (unsigned)count + threadIdx.x; i < padded; i += BLOCK_THREADS)
                entries[i] = {0, INT64_MAX}; /* behind all others */
            __syncthreads();
            sort_entries(entries, padded);
            for (unsigned i = threadIdx.x; i < count; i += BLOCK_THREADS)
                put(t, number, rank + i, entries[i].place);
            line.last = entries[count - 1];
            __syncthreads();
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
