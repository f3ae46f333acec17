/* What goes along lines and keeps their shape: softmax and its kin, normalisations. */
#include <math.h>

#include "device/cuda/kernels/lines.cuh"

/* ---- softmax, log softmax, hardmax, Lp normalisation ---- */

template <class T>
__device__ static inline T line_load(const struct lines &lines, int64_t base, int64_t j)
{
    return element_load<T>(lines.in_dtype, lines.in,
                           base + line_offset(lines.reduced, lines.in_reduced, j));
}

template <class T>
__device__ static inline void line_store(const struct lines &lines, int64_t base, int64_t j,
                                         T value)
{
    element_store<T>(lines.out_dtype, lines.out,
                     base + line_offset(lines.reduced, lines.out_reduced, j), value);
}

/* Of a line: the largest value, and the sum that each is divided by. */
template <class T> struct line_facts {
    T top;
    T sum;
    int64_t best; /* hardmax: the place of the largest */
};

template <class T> struct spot {
    T value;
    int64_t place;
};

/* The first of the largest; a NaN is none, but at the very start, where nothing beats it. */
template <class T> struct first_largest {
    __device__ spot<T> operator()(const spot<T> &a, const spot<T> &b) const
    {
        if (a.value == b.value)
            return a.place < b.place ? a : b;
        return a.value > b.value ? a : b;
    }
};

template <class T>
__device__ static inline int64_t find_best(const struct line_map &m, const struct line_place &place,
                                           int64_t base, bool active, spot<T> *shared)
{
    const first_largest<T> pick;
    spot<T> best = {(T)-INFINITY, INT64_MAX};

    if (active)
        for (LINE_ELEMENTS(j, m.lines, place)) {
            const T value = line_load<T>(m.lines, base, j);
            const T counted = value == value ? value : j == 0 ? (T)INFINITY : (T)-INFINITY;

            best = pick(best, spot<T>{counted, j});
        }
    return line_combine(m.lines, place, best, shared, pick).place;
}

template <class T>
__device__ static inline line_facts<T> find_sum(const struct line_map &m,
                                                const struct line_place &place, int64_t base,
                                                bool active, T *shared)
{
    const bool is_lp = m.way == LINE_LP;
    line_facts<T> facts = {(T)-INFINITY, 0, 0};

    if (!is_lp) {
        if (active)
            for (LINE_ELEMENTS(j, m.lines, place))
                facts.top = larger<T>()(facts.top, line_load<T>(m.lines, base, j));
        facts.top = line_combine(m.lines, place, facts.top, shared, larger<T>());
    }
    if (active)
        for (LINE_ELEMENTS(j, m.lines, place)) {
            const T value = line_load<T>(m.lines, base, j);

            facts.sum += !is_lp ? exp(value - facts.top) : m.p == 1 ? fabs(value) : value * value;
        }
    facts.sum = line_combine(m.lines, place, facts.sum, shared, plus<T>());
    if (is_lp && m.p == 2)
        facts.sum = sqrt(facts.sum);
    return facts;
}

template <class T>
__device__ static inline T map_element(const struct line_map &m, const line_facts<T> &facts,
                                       T log_sum, T value)
{
    switch (m.way) {
    case LINE_SOFTMAX:
        return exp(value - facts.top) / facts.sum;
    case LINE_LOG_SOFTMAX:
        return value - facts.top - log_sum;
    default:
        return facts.sum == (T)0 ? (T)0 : value / facts.sum;
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    line_map_kernel(const __grid_constant__ struct line_map m)
{
    __shared__ T shared[BLOCK_THREADS];
    const struct line_place place = line_place_of(m.lines);

    for (LINES(first, m.lines, place)) {
        const int64_t line = first + place.line;
        const bool active = line < m.lines.kept.count;
        const int64_t in_base = active ? walk_offset(m.lines.kept, m.lines.in_kept, line) : 0;
        const int64_t out_base = active ? walk_offset(m.lines.kept, m.lines.out_kept, line) : 0;
        const line_facts<T> facts = find_sum<T>(m, place, in_base, active, shared);
        const T log_sum = m.way == LINE_LOG_SOFTMAX ? log(facts.sum) : (T)0;

        if (active)
            for (LINE_ELEMENTS(j, m.lines, place))
                line_store<T>(m.lines, out_base, j,
                              map_element(m, facts, log_sum, line_load<T>(m.lines, in_base, j)));
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    hardmax_kernel(const __grid_constant__ struct line_map m)
{
    __shared__ spot<T> shared[BLOCK_THREADS];
    const struct line_place place = line_place_of(m.lines);

    for (LINES(first, m.lines, place)) {
        const int64_t line = first + place.line;
        const bool active = line < m.lines.kept.count;
        const int64_t in_base = active ? walk_offset(m.lines.kept, m.lines.in_kept, line) : 0;
        const int64_t out_base = active ? walk_offset(m.lines.kept, m.lines.out_kept, line) : 0;
        const int64_t best = find_best<T>(m, place, in_base, active, shared);

        if (active)
            for (LINE_ELEMENTS(j, m.lines, place))
                line_store<T>(m.lines, out_base, j, (T)(j == best));
    }
}

extern "C" cudaError_t cuda_line_map(const struct line_map *map, cudaStream_t stream)
{
    const unsigned blocks = line_blocks(&map->lines);
    const bool doubles = map->lines.type == PW_DOUBLE;

    if (map->lines.kept.count == 0 || map->lines.reduced.count == 0)
        return cudaSuccess;
    if (map->way == LINE_HARDMAX && doubles)
        hardmax_kernel<double><<<blocks, BLOCK_THREADS, 0, stream>>>(*map);
    else if (map->way == LINE_HARDMAX)
        hardmax_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(*map);
    else if (doubles)
        line_map_kernel<double><<<blocks, BLOCK_THREADS, 0, stream>>>(*map);
    else
        line_map_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(*map);
    return cudaGetLastError();
}

/* ---- normalisations: the mean first, then the squares of the differences ---- */

template <class T>
__device__ static inline T mean_of(const struct normalize &n, const struct line_place &place,
                                   int64_t base, bool active, T *shared)
{
    T sum = 0;

    if (active)
        for (LINE_ELEMENTS(j, n.lines, place))
            sum += line_load<T>(n.lines, base, j);
    return line_combine(n.lines, place, sum, shared, plus<T>()) / (T)n.lines.reduced.count;
}

template <class T>
__device__ static inline T variance_of(const struct normalize &n, const struct line_place &place,
                                       int64_t base, bool active, T mean, T *shared)
{
    T sum = 0;

    if (active)
        for (LINE_ELEMENTS(j, n.lines, place)) {
            const T difference = line_load<T>(n.lines, base, j) - mean;

            sum += difference * difference;
        }
    return line_combine(n.lines, place, sum, shared, plus<T>()) / (T)n.lines.reduced.count;
}

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    normalize_kernel(const __grid_constant__ struct normalize n)
{
    __shared__ T shared[BLOCK_THREADS];
    const struct line_place place = line_place_of(n.lines);

    for (LINES(first, n.lines, place)) {
        const int64_t line = first + place.line;
        const bool active = line < n.lines.kept.count;
        const int64_t kept = active ? line : 0;
        const int64_t in_base = walk_offset(n.lines.kept, n.lines.in_kept, kept);
        const int64_t out_base = walk_offset(n.lines.kept, n.lines.out_kept, kept);
        const int64_t scale_base = walk_offset(n.lines.kept, n.scale_kept, kept);
        const int64_t bias_base = walk_offset(n.lines.kept, n.bias_kept, kept);
        const T mean = n.no_mean ? (T)0 : mean_of<T>(n, place, in_base, active, shared);
        const T variance = variance_of<T>(n, place, in_base, active, mean, shared);
        const T factor = n.epsilon_outside ? (T)1 / (sqrt(variance) + (T)n.epsilon)
                                           : (T)1 / sqrt(variance + (T)n.epsilon);

        if (active)
            for (LINE_ELEMENTS(j, n.lines, place)) {
                T value = (line_load<T>(n.lines, in_base, j) - mean) * factor;

                if (n.scale != nullptr)
                    value *= element_load<T>(n.scale_dtype, n.scale,
                                             scale_base +
                                                 line_offset(n.lines.reduced, n.scale_reduced, j));
                if (n.bias != nullptr)
                    value += element_load<T>(n.bias_dtype, n.bias,
                                             bias_base +
                                                 line_offset(n.lines.reduced, n.bias_reduced, j));
                line_store<T>(n.lines, out_base, j, value);
            }
        if (active && place.worker == 0 && n.mean != nullptr)
            element_store<T>(n.facts_dtype, n.mean, line, mean);
        if (active && place.worker == 0 && n.deviation != nullptr)
            element_store<T>(n.facts_dtype, n.deviation, line, factor);
    }
}

extern "C" cudaError_t cuda_normalize(const struct normalize *normalize, cudaStream_t stream)
{
    const unsigned blocks = line_blocks(&normalize->lines);

    if (normalize->lines.kept.count == 0 || normalize->lines.reduced.count == 0)
        return cudaSuccess;
    if (normalize->lines.type == PW_DOUBLE)
        normalize_kernel<double><<<blocks, BLOCK_THREADS, 0, stream>>>(*normalize);
    else
        normalize_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(*normalize);
    return cudaGetLastError();
}
