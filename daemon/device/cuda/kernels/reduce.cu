/* Reductions, ArgMax and ArgMin, running sums. */
#include <math.h>

#include "device/cuda/kernels/lines.cuh"

/* ---- reductions ---- */

template <class T> __device__ static inline T size_of(T value)
{
    return value < 0 ? (T)(0 - (uint64_t)value) : value;
}
template <> __device__ inline uint64_t size_of<uint64_t>(uint64_t value)
{
    return value;
}
template <> __device__ inline float size_of<float>(float value)
{
    return fabsf(value);
}
template <> __device__ inline double size_of<double>(double value)
{
    return fabs(value);
}

template <class T> __device__ static inline T least_of(const struct reduce &r)
{
    return (T)r.least;
}
template <> __device__ inline float least_of<float>(const struct reduce &)
{
    return -INFINITY;
}
template <> __device__ inline double least_of<double>(const struct reduce &)
{
    return -INFINITY;
}
template <class T> __device__ static inline T most_of(const struct reduce &r)
{
    return (T)r.most;
}
template <> __device__ inline float most_of<float>(const struct reduce &)
{
    return INFINITY;
}
template <> __device__ inline double most_of<double>(const struct reduce &)
{
    return INFINITY;
}

template <class T> __device__ static inline T neutral_of(const struct reduce &r)
{
    switch (r.way) {
    case REDUCE_MAX:
    case REDUCE_MAX_OF_NUMBERS:
        return least_of<T>(r);
    case REDUCE_MIN:
        return most_of<T>(r);
    case REDUCE_PROD:
        return (T)1;
    default:
        return (T)0;
    }
}

/* Two totals as one.  A NaN stays, but of REDUCE_MAX_OF_NUMBERS, where `a` is none. */
template <class T> struct join {
    uint32_t way;

    __device__ T operator()(T a, T b) const
    {
        const T odd = way == REDUCE_MAX ? a : b;

        switch (way) {
        case REDUCE_MAX:
        case REDUCE_MAX_OF_NUMBERS:
            return a > b || odd != odd ? a : b;
        case REDUCE_MIN:
            return a < b || a != a ? a : b;
        case REDUCE_PROD:
            return a * b;
        default:
            return a + b;
        }
    }
};

/* What an element counts for.  Only the real types know exponentials. */
template <class T> __device__ static inline T weigh_real(const struct reduce &r, T value, T shift)
{
    switch (r.way) {
    case REDUCE_L1:
        return size_of(value);
    case REDUCE_L2:
    case REDUCE_SUM_SQUARE:
        return value * value;
    case REDUCE_LOG_SUM_EXP:
        return exp(value - shift);
    case REDUCE_LP:
        return r.p == 1 ? size_of(value) : r.p == 2 ? value * value : pow(size_of(value), (T)r.p);
    default:
        return value;
    }
}
template <class T> __device__ static inline T weigh_whole(const struct reduce &r, T value)
{
    switch (r.way) {
    case REDUCE_L1:
        return size_of(value);
    case REDUCE_SUM_SQUARE:
        return value * value;
    default:
        return value;
    }
}
__device__ static inline float weigh(const struct reduce &r, float value, float shift)
{
    return weigh_real(r, value, shift);
}
__device__ static inline double weigh(const struct reduce &r, double value, double shift)
{
    return weigh_real(r, value, shift);
}
__device__ static inline int64_t weigh(const struct reduce &r, int64_t value, int64_t)
{
    return weigh_whole(r, value);
}
__device__ static inline uint64_t weigh(const struct reduce &r, uint64_t value, uint64_t)
{
    return weigh_whole(r, value);
}

template <class T> __device__ static inline T finish_real(const struct reduce &r, T total, T shift)
{
    switch (r.way) {
    case REDUCE_MEAN:
        return total / (T)r.lines.reduced.count;
    case REDUCE_L2:
        return sqrt(total);
    case REDUCE_LOG_SUM:
        return log(total);
    case REDUCE_LOG_SUM_EXP:
        return log(total) + shift;
    case REDUCE_LP:
        return r.p == 1 ? total : r.p == 2 ? sqrt(total) : pow(total, (T)1 / (T)r.p);
    default:
        return total;
    }
}
template <class T> __device__ static inline T finish_whole(const struct reduce &r, T total)
{
    if (r.way != REDUCE_MEAN)
        return total;
    return r.lines.reduced.count > 0 ? total / (T)r.lines.reduced.count : (T)0;
}
__device__ static inline float finish(const struct reduce &r, float total, float shift)
{
    return finish_real(r, total, shift);
}
__device__ static inline double finish(const struct reduce &r, double total, double shift)
{
    return finish_real(r, total, shift);
}
__device__ static inline int64_t finish(const struct reduce &r, int64_t total, int64_t)
{
    return finish_whole(r, total);
}
__device__ static inline uint64_t finish(const struct reduce &r, uint64_t total, uint64_t)
{
    return finish_whole(r, total);
}

/* The largest element of a line; 0 where it is infinite. */
template <class T>
__device__ static inline T shift_of(const struct reduce &r, const struct line_place &place,
                                    int64_t base, bool active, T *shared)
{
    T top = least_of<T>(r);

    if (active)
        for (LINE_ELEMENTS(j, r.lines, place)) {
            const T value =
                element_load<T>(r.lines.in_dtype, r.lines.in,
                                base + line_offset(r.lines.reduced, r.lines.in_reduced, j));

            top = value > top || value != value ? value : top;
        }
    top = line_combine(r.lines, place, top, shared, larger<T>());
    return top - top == (T)0 || top != top ? top : (T)0;
}

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    reduce_kernel(const __grid_constant__ struct reduce r)
{
    __shared__ T shared[BLOCK_THREADS];
    const struct line_place place = line_place_of(r.lines);
    const join<T> joined = {r.way};

    for (LINES(first, r.lines, place)) {
        const int64_t line = first + place.line;
        const bool active = line < r.lines.kept.count;
        const int64_t base = active ? walk_offset(r.lines.kept, r.lines.in_kept, line) : 0;
        T total = neutral_of<T>(r), shift = 0;

        if (r.way == REDUCE_LOG_SUM_EXP)
            shift = shift_of<T>(r, place, base, active, shared);
        if (active)
            for (LINE_ELEMENTS(j, r.lines, place)) {
                const T value =
                    element_load<T>(r.lines.in_dtype, r.lines.in,
                                    base + line_offset(r.lines.reduced, r.lines.in_reduced, j));

                total = joined(total, weigh(r, value, shift));
            }
        total = line_combine(r.lines, place, total, shared, joined);
        if (active && place.worker == 0)
            element_store<T>(r.lines.out_dtype, r.lines.out,
                             walk_offset(r.lines.kept, r.lines.out_kept, line),
                             finish(r, total, shift));
    }
}

#define BY_TYPE(kernel, lines, args)                                                               \
    switch ((lines)->type) {                                                                       \
    case PW_FLOAT:                                                                                 \
        kernel<float><<<line_blocks(lines), BLOCK_THREADS, 0, stream>>>(args);                     \
        break;                                                                                     \
    case PW_DOUBLE:                                                                                \
        kernel<double><<<line_blocks(lines), BLOCK_THREADS, 0, stream>>>(args);                    \
        break;                                                                                     \
    case PW_SIGNED:                                                                                \
        kernel<int64_t><<<line_blocks(lines), BLOCK_THREADS, 0, stream>>>(args);                   \
        break;                                                                                     \
    default:                                                                                       \
        kernel<uint64_t><<<line_blocks(lines), BLOCK_THREADS, 0, stream>>>(args);                  \
    }

extern "C" cudaError_t cuda_reduce(const struct reduce *reduce, cudaStream_t stream)
{
    if (reduce->lines.kept.count == 0)
        return cudaSuccess;
    BY_TYPE(reduce_kernel, &reduce->lines, *reduce)
    return cudaGetLastError();
}

/* ---- ArgMax, ArgMin ---- */

template <class T> struct candidate {
    T value;
    int64_t place; /* -1: none yet */
};

/* The first NaN wins, then the best value, then the first (or last) place. */
template <class T> struct better {
    uint32_t largest, last;

    __device__ candidate<T> operator()(const candidate<T> &a, const candidate<T> &b) const
    {
        const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;

        if (a.place < 0 || b.place < 0)
            return b.place < 0 ? a : b;
        if (a_is_nan || b_is_nan)
            return a_is_nan && (!b_is_nan || a.place < b.place) ? a : b;
        if (a.value == b.value)
            return (a.place < b.place) != (last != 0) ? a : b;
        return (largest ? a.value > b.value : a.value < b.value) ? a : b;
    }
};

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    arg_reduce_kernel(const __grid_constant__ struct arg_reduce r)
{
    __shared__ candidate<T> shared[BLOCK_THREADS];
    const struct line_place place = line_place_of(r.lines);
    const better<T> pick = {r.largest, r.last};

    for (LINES(first, r.lines, place)) {
        const int64_t line = first + place.line;
        const bool active = line < r.lines.kept.count;
        const int64_t base = active ? walk_offset(r.lines.kept, r.lines.in_kept, line) : 0;
        candidate<T> best = {0, -1};

        if (active)
            for (LINE_ELEMENTS(j, r.lines, place)) {
                const candidate<T> next = {
                    element_load<T>(r.lines.in_dtype, r.lines.in,
                                    base + line_offset(r.lines.reduced, r.lines.in_reduced, j)),
                    j};

                best = pick(best, next);
            }
        best = line_combine(r.lines, place, best, shared, pick);
        if (active && place.worker == 0)
            ((int64_t *)r.lines.out)[walk_offset(r.lines.kept, r.lines.out_kept, line)] =
                best.place;
    }
}

extern "C" cudaError_t cuda_arg_reduce(const struct arg_reduce *reduce, cudaStream_t stream)
{
    if (reduce->lines.kept.count == 0)
        return cudaSuccess;
    BY_TYPE(arg_reduce_kernel, &reduce->lines, *reduce)
    return cudaGetLastError();
}

/* ---- running sums: each worker has a part of the line, and begins with the sum of those before
 * it ---- */

template <class T>
__device__ static inline int64_t sum_place(const struct running_sum &s, int64_t j)
{
    return s.reverse ? s.lines.reduced.count - 1 - j : j;
}

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    running_sum_kernel(const __grid_constant__ struct running_sum s)
{
    __shared__ T shared[BLOCK_THREADS];
    const struct line_place place = line_place_of(s.lines);
    const int64_t count = s.lines.reduced.count;
    const int64_t part = (count + s.lines.workers - 1) / s.lines.workers;
    const int64_t from = place.worker * part < count ? place.worker * part : count;
    const int64_t to = from + part < count ? from + part : count;

    for (LINES(first, s.lines, place)) {
        const int64_t line = first + place.line;
        const bool active = line < s.lines.kept.count;
        const int64_t in_base = active ? walk_offset(s.lines.kept, s.lines.in_kept, line) : 0;
        const int64_t out_base = active ? walk_offset(s.lines.kept, s.lines.out_kept, line) : 0;
        T total = 0, before = 0;

        for (int64_t j = from; active && j < to; j++)
            total += element_load<T>(s.lines.in_dtype, s.lines.in,
                                     in_base + sum_place<T>(s, j) * s.lines.in_reduced.of[0]);
        shared[threadIdx.x] = total;
        __syncthreads();
        for (unsigned k = 0; k < place.worker; k++)
            before += shared[threadIdx.x - (place.worker - k) * place.unit];
        __syncthreads();
        for (int64_t j = from; active && j < to; j++) {
            const int64_t at = sum_place<T>(s, j);
            const T after = before + element_load<T>(s.lines.in_dtype, s.lines.in,
                                                     in_base + at * s.lines.in_reduced.of[0]);

            element_store<T>(s.lines.out_dtype, s.lines.out,
                             out_base + at * s.lines.out_reduced.of[0],
                             s.exclusive ? before : after);
            before = after;
        }
    }
}

extern "C" cudaError_t cuda_running_sum(const struct running_sum *sum, cudaStream_t stream)
{
    if (sum->lines.kept.count == 0 || sum->lines.reduced.count == 0)
        return cudaSuccess;
    BY_TYPE(running_sum_kernel, &sum->lines, *sum)
    return cudaGetLastError();
}
