/* Pools over windows: one result a thread, taps in order.  LRN: one element a thread. */
#include <math.h>

#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/kernels/pool.h"
#include "device/cuda/kernels/walk.cuh"
#include "device/cuda/kernels/window.cuh"

/* The cell under a tap. */
struct tap {
    bool inside;
    bool counts; /* on a cell or on padding, not behind it */
    int64_t offset;
    int64_t cell; /* its number in a plane */
};

__device__ static inline struct tap tap_of(const struct pool &p,
                                           const int32_t (&place)[WINDOW_AXES], uint32_t number)
{
    const struct window_walk &w = p.window;
    struct tap tap = {true, true, 0, 0};
    int32_t taps[WINDOW_AXES], at[WINDOW_AXES];

    spread(w.kernel, number, taps);
#pragma unroll
    for (int i = 0; i < WINDOW_AXES; i++) {
        at[i] = place[i] * w.stride[i] - w.pad[i] + taps[i] * w.dilation[i];
        tap.inside = tap.inside && at[i] >= 0 && at[i] < w.in[i];
        tap.counts = tap.counts && at[i] < w.in[i] + p.pad_end[i];
        tap.offset += at[i] * w.step[i];
        tap.cell = tap.cell * w.in[i] + at[i];
    }
    if (p.column_major) /* the first dimension runs fastest, of those that there are */
        tap.cell = at[0] + (int64_t)w.in[0] * (at[1] + (int64_t)w.in[1] * at[2]);
    return tap;
}

template <class T> __device__ static inline T nothing_of(const struct pool &p)
{
    return (T)p.least;
}
template <> __device__ inline float nothing_of<float>(const struct pool &)
{
    return -INFINITY;
}
template <> __device__ inline double nothing_of<double>(const struct pool &)
{
    return -INFINITY;
}

/* The maximum under a window, and the number of its cell in the plane (-1: none).  A NaN is passed
 * over, as by comparing one cell after the other. */
template <class T>
__device__ static inline T pool_max(const struct pool &p, const int32_t (&place)[WINDOW_AXES],
                                    int64_t base, int64_t *cell)
{
    T best = nothing_of<T>(p);

    *cell = -1;
    for (uint32_t k = 0; k < p.taps; k++) {
        const struct tap tap = tap_of(p, place, k);
        T value;

        if (!tap.inside)
            continue;
        value = element_load<T>(p.dtype, p.in, base + tap.offset);
        if (*cell < 0 || value > best)
            *cell = tap.cell;
        if (value > best)
            best = value;
    }
    return best;
}

template <class T>
__device__ static inline T pool_sum(const struct pool &p, const int32_t (&place)[WINDOW_AXES],
                                    int64_t base)
{
    const T power = (T)p.p;
    int count = 0;
    T sum = 0;

    for (uint32_t k = 0; k < p.taps; k++) {
        const struct tap tap = tap_of(p, place, k);

        count += tap.inside || (p.count_padding && tap.counts);
        if (tap.inside) {
            const T value = element_load<T>(p.dtype, p.in, base + tap.offset);

            sum += p.way == POOL_OF_AVERAGE ? value : pow(fabs(value), power);
        }
    }
    if (p.way == POOL_OF_AVERAGE)
        return count > 0 ? sum / (T)count : (T)0;
    return pow(sum, (T)1 / power);
}
template <>
__device__ inline int64_t pool_sum<int64_t>(const struct pool &, const int32_t (&)[WINDOW_AXES],
                                            int64_t)
{
    return 0; /* only maxima know integers */
}

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS) pool_kernel(const __grid_constant__ struct pool p)
{
    for (GRID_STRIDE(i, p.images * p.channels * p.places)) {
        const int64_t rest = p.channels_last ? i / p.channels : i / p.places;
        const int64_t channel = p.channels_last ? i % p.channels : rest % p.channels;
        const int64_t place = p.channels_last ? rest % p.places : i % p.places;
        const int64_t image = p.channels_last ? rest / p.places : rest / p.channels;
        const int64_t base = image * p.in_image + channel * p.window.channel_step;
        const int64_t to = image * p.out_image + channel * p.out_channel + place * p.out_place;
        int32_t at[WINDOW_AXES];
        int64_t cell;

        spread(p.window.out, (uint32_t)place, at);
        if (p.way != POOL_OF_MAX) {
            element_store<T>(p.dtype, p.out, to, pool_sum<T>(p, at, base));
            continue;
        }
        element_store<T>(p.dtype, p.out, to, pool_max<T>(p, at, base, &cell));
        if (p.indices != nullptr) {
            const int64_t plane = image * p.channels + channel;
            const int64_t cells = (int64_t)p.window.in[0] * p.window.in[1] * p.window.in[2];

            p.indices[to] = plane * cells + cell;
        }
    }
}

extern "C" cudaError_t cuda_pool(const struct pool *pool, cudaStream_t stream)
{
    const int64_t count = pool->images * pool->channels * pool->places;

    if (count == 0)
        return cudaSuccess;
    switch (pool->type) {
    case PW_FLOAT:
        pool_kernel<float><<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*pool);
        break;
    case PW_DOUBLE:
        pool_kernel<double><<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*pool);
        break;
    default:
        pool_kernel<int64_t><<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*pool);
    }
    return cudaGetLastError();
}

/* ---- local response normalisation ---- */

/* floor((size - 1) / 2) channels before, ceil((size - 1) / 2) behind. */
template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    response_kernel(const __grid_constant__ struct response r)
{
    const int64_t step = r.channels_last ? 1 : r.places;

    for (GRID_STRIDE(i, r.images * r.channels * r.places)) {
        const int64_t channel = r.channels_last ? i % r.channels : i / r.places % r.channels;
        int64_t first = channel - (r.size - 1) / 2, last = channel + r.size / 2;
        T sum = 0;

        first = first > 0 ? first : 0;
        last = last < r.channels - 1 ? last : r.channels - 1;
        for (int64_t c = first; c <= last; c++) {
            const T x = element_load<T>(r.dtype, r.in, i + (c - channel) * step);

            sum += x * x;
        }
        element_store<T>(r.dtype, r.out, i,
                         element_load<T>(r.dtype, r.in, i) /
                             pow((T)r.bias + (T)r.alpha * sum, (T)r.beta));
    }
}

extern "C" cudaError_t cuda_response(const struct response *response, cudaStream_t stream)
{
    const int64_t count = response->images * response->channels * response->places;

    if (count == 0)
        return cudaSuccess;
    if (response->type == PW_DOUBLE)
        response_kernel<double><<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*response);
    else
        response_kernel<float><<<grid_for(count), BLOCK_THREADS, 0, stream>>>(*response);
    return cudaGetLastError();
}
