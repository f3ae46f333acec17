/* Sums, products, tables and averages of bytes, to the CPU device's bytes (bytes.h). */
#include "device/cuda/kernels/bytes.h"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/quantized.cuh"
#include "device/cuda/kernels/walk.cuh"

__device__ static inline float real_at(uint32_t dtype, const void *data, int64_t at, int32_t zero,
                                       float scale)
{
    return __fmul_rn((float)((int32_t)element_load<int64_t>(dtype, data, at) - zero), scale);
}

__global__ void __launch_bounds__(BLOCK_THREADS)
    pair_kernel(const __grid_constant__ struct byte_pair p)
{
    const float a_scale = scale_at(p.a_scale, 0), b_scale = scale_at(p.b_scale, 0);
    const int32_t a_zero = zero_at(p.a_zero, 0), b_zero = zero_at(p.b_zero, 0);
    const float scale = scale_at(p.finish.y_scale, 0);

    for (GRID_STRIDE(i, p.walk.count)) {
        int64_t at[3];
        float a, b, whole;

        walk_offsets<3>(p.walk, &p.out_strides, i, at);
        a = real_at(p.a_dtype, p.a, at[1], a_zero, a_scale);
        b = real_at(p.b_dtype, p.b, at[2], b_zero, b_scale);
        whole = rintf(__fdiv_rn(p.multiplies ? __fmul_rn(a, b) : __fadd_rn(a, b), scale));
        element_store<int64_t>(p.finish.out_dtype, p.out, at[0], byte_of(p.finish, whole, scale));
    }
}

extern "C" cudaError_t cuda_byte_pair(const struct byte_pair *pair, cudaStream_t stream)
{
    if (pair->walk.count == 0)
        return cudaSuccess;
    pair_kernel<<<grid_for(pair->walk.count), BLOCK_THREADS, 0, stream>>>(*pair);
    return cudaGetLastError();
}

/* ---- tables ---- */

enum { ENTRIES = 256 };

__global__ void __launch_bounds__(BLOCK_THREADS)
    table_kernel(const __grid_constant__ struct byte_table t)
{
    __shared__ uint8_t entries[ENTRIES];

    for (unsigned i = threadIdx.x; i < ENTRIES; i += blockDim.x)
        entries[i] = t.table[i];
    __syncthreads();
    for (GRID_STRIDE(i, t.count))
        t.out[i] = entries[t.in[i]];
}

extern "C" cudaError_t cuda_byte_table(const struct byte_table *table, cudaStream_t stream)
{
    if (table->count == 0)
        return cudaSuccess;
    table_kernel<<<grid_for(table->count), BLOCK_THREADS, 0, stream>>>(*table);
    return cudaGetLastError();
}

/* ---- averages ---- */

enum { WARP = 32 };

__device__ static inline int64_t sum_cells(const struct byte_average &a, int64_t from, int64_t step,
                                           int64_t first, int64_t stride)
{
    int64_t sum = 0;

    for (int64_t i = first; i < a.cells; i += stride)
        sum += element_load<int64_t>(a.in_dtype, a.in, from + i * step);
    return sum;
}

__device__ static inline void store_average(const struct byte_average &a, int64_t result,
                                            int64_t sum)
{
    const double y_scale = element_load<double>(a.finish.y_scale.dtype, a.finish.y_scale.data, 0);
    const double x_scale = element_load<double>(a.x_scale.dtype, a.x_scale.data, 0);
    const double cells = (double)a.cells, zero = (double)zero_at(a.finish.y_zero, 0);
    const double low = (double)a.finish.low, high = (double)a.finish.high;
    const double scale = x_scale / cells / y_scale;
    /* whole numbers below 2^53: exact */
    const double offset = (double)(sum - (int64_t)zero_at(a.x_zero, 0) * a.cells);
    double q = rint(offset * scale) + zero;

    q = q < low ? low : q;
    q = q > high ? high : q;
    element_store<int64_t>(a.finish.out_dtype, a.out, result, (int64_t)q);
}

/* Channels side by side: a thread for each. */
__global__ void __launch_bounds__(BLOCK_THREADS)
    average_last_kernel(const __grid_constant__ struct byte_average a)
{
    for (GRID_STRIDE(i, a.images * a.channels)) {
        const int64_t from = i / a.channels * a.cells * a.channels + i % a.channels;

        store_average(a, i, sum_cells(a, from, a.channels, 0, 1));
    }
}

/* Cells side by side: a warp for each channel. */
__global__ void __launch_bounds__(BLOCK_THREADS)
    average_kernel(const __grid_constant__ struct byte_average a)
{
    const int64_t warps = (int64_t)gridDim.x * (BLOCK_THREADS / WARP);
    const unsigned lane = threadIdx.x % WARP;

    for (int64_t i = (int64_t)blockIdx.x * (BLOCK_THREADS / WARP) + threadIdx.x / WARP;
         i < a.images * a.channels; i += warps) {
        int64_t sum = sum_cells(a, i * a.cells, 1, lane, WARP);

        for (int step = WARP / 2; step > 0; step /= 2)
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
        if (lane == 0)
            store_average(a, i, sum);
    }
}

extern "C" cudaError_t cuda_byte_average(const struct byte_average *average, cudaStream_t stream)
{
    const int64_t results = average->images * average->channels;

    if (results == 0)
        return cudaSuccess;
    if (average->channels_last)
        average_last_kernel<<<grid_for(results), BLOCK_THREADS, 0, stream>>>(*average);
    else
        average_kernel<<<grid_for(results * WARP), BLOCK_THREADS, 0, stream>>>(*average);
    return cudaGetLastError();
}
