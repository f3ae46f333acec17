/* Quantising and back, and products of bytes in tiles of 32 x 32 sums. */
#include <math.h>

#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/product.cuh"
#include "device/cuda/kernels/quantized.cuh"
#include "device/cuda/kernels/walk.cuh"

/* Which scale and zero point element `i` has. */
__device__ static inline int64_t parameter_of(const struct quantize &q, int64_t i)
{
    const int64_t line = i / q.inner, place = line % q.count;

    switch (q.by) {
    case QUANTIZED_BY_AXIS:
        return place;
    case QUANTIZED_BY_BLOCK:
        return (line / q.count * ((q.count + q.block - 1) / q.block) + place / q.block) * q.inner +
               i % q.inner;
    default:
        return 0;
    }
}

/* A NaN, of which ONNX says nothing, becomes the zero point. */
__device__ static inline int64_t quantized(const struct quantize &q, double rounded, int32_t zero)
{
    const double value = rounded + zero;

    if (value != value)
        return zero;
    return (int64_t)(value < q.low ? q.low : value > q.high ? q.high : value);
}

__global__ void __launch_bounds__(BLOCK_THREADS)
    quantize_kernel(const __grid_constant__ struct quantize q)
{
    for (GRID_STRIDE(i, q.elements)) {
        const int64_t at = parameter_of(q, i);
        const float scale = scale_at(q.scale, at);
        const int32_t zero = zero_at(q.zero, at);

        if (!q.to_integers) {
            const int64_t number = element_load<int64_t>(q.in_dtype, q.in, i);

            element_store<float>(q.out_dtype, q.out, i, (float)(number - zero) * scale);
        } else if (q.in_dtype == DTYPE_INT32) { /* may have more digits than a float */
            const double value = (double)((const int32_t *)q.in)[i];

            element_store<int64_t>(q.out_dtype, q.out, i,
                                   quantized(q, rint(value / (double)scale), zero));
        } else {
            const float value = (float)element_load<double>(q.in_dtype, q.in, i);

            element_store<int64_t>(q.out_dtype, q.out, i,
                                   quantized(q, (double)rintf(__fdiv_rn(value, scale)), zero));
        }
    }
}

extern "C" cudaError_t cuda_quantize(const struct quantize *quantize, cudaStream_t stream)
{
    if (quantize->elements == 0)
        return cudaSuccess;
    quantize_kernel<<<grid_for(quantize->elements), BLOCK_THREADS, 0, stream>>>(*quantize);
    return cudaGetLastError();
}

__global__ void range_kernel(const struct quantize_range r)
{
    const float low = fminf(0, *r.least), high = fmaxf(0, *r.most);
    const float scale = __fdiv_rn(__fsub_rn(high, low), 255);

    *r.scale = scale;
    *r.zero = (uint8_t)(scale > 0 ? fminf(255, fmaxf(0, rintf(__fdiv_rn(-low, scale)))) : 0.0f);
}

extern "C" cudaError_t cuda_quantize_range(const struct quantize_range *range, cudaStream_t stream)
{
    range_kernel<<<1, 1, 0, stream>>>(*range);
    return cudaGetLastError();
}

/* ---- products ---- */

enum { SIDE = 32, DEPTH = 32, ROWS = 4, STEP = SIDE / ROWS };

__device__ static inline int32_t number_a(const struct quantized_product &q, int64_t base,
                                          int64_t channel, int64_t m, int64_t k)
{
    const struct product &p = q.product;

    if (m >= p.m || k >= p.k)
        return 0;
    return (int32_t)element_load<int64_t>(p.dtype, p.a, base + m * p.a_m + k * p.a_k) -
           zero_at(q.a_zero, channel + m);
}

__device__ static inline int32_t number_b(const struct quantized_product &q, int64_t base,
                                          int64_t k, int64_t n, const int32_t (&place)[WINDOW_AXES])
{
    const struct product &p = q.product;
    int64_t offset = k * p.b_k + n * p.b_n;

    if (k >= p.k || n >= p.n)
        return 0;
    if (p.kind != PRODUCT_MATRIX) {
        uint32_t tap, channel = divide(p.taps, (uint32_t)k, &tap);

        offset = cell_offset(p, place, tap);
        if (offset < 0)
            return 0;
        offset += channel * p.window.channel_step;
    }
    return (int32_t)element_load<int64_t>(q.b_dtype, p.b, base + offset) - zero_at(q.b_zero, n);
}

__device__ static inline void finish(const struct quantized_product &q, uint32_t sum,
                                     int64_t channel, int64_t n, int64_t out)
{
    finish_sum(q.finish, sum, channel, n, q.product.kind == PRODUCT_MATRIX ? n : channel,
               q.product.out, out);
}

__global__ void __launch_bounds__(SIDE *STEP)
    quantized_kernel(const __grid_constant__ struct quantized_product q)
{
    __shared__ int32_t a[DEPTH][SIDE + 1], b[DEPTH][SIDE + 1];
    const struct product &p = q.product;
    const int64_t row_tiles = (p.m + SIDE - 1) / SIDE, column_tiles = (p.n + SIDE - 1) / SIDE;
    const int64_t tiles = row_tiles * column_tiles;
    const int x = (int)threadIdx.x, y = (int)threadIdx.y;

    for (int64_t t = blockIdx.x; t < p.batch.count * tiles; t += gridDim.x) {
        const struct bases bases = bases_of(p, t / tiles);
        const int64_t m = t % tiles / column_tiles * SIDE, n = t % tiles % column_tiles * SIDE;
        int32_t place[WINDOW_AXES] = {0, 0, 0};
        uint32_t sums[ROWS] = {0, 0, 0, 0};

        if (p.kind != PRODUCT_MATRIX)
            spread(p.window.out, (uint32_t)(n + x), place);
        for (int64_t k = 0; k < p.k; k += DEPTH) {
            for (int d = y; d < DEPTH; d += STEP) {
                a[x][d] = number_a(q, bases.a, bases.bias, m + d, k + x);
                b[d][x] = number_b(q, bases.b, k + d, n + x, place);
            }
            __syncthreads();
            for (int d = 0; d < DEPTH; d++)
#pragma unroll
                for (int i = 0; i < ROWS; i++)
                    sums[i] += (uint32_t)(a[d][y + i * STEP] * b[d][x]);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int64_t row = m + y + i * STEP;

            if (row < p.m && n + x < p.n)
                finish(q, sums[i], bases.bias + row, n + x,
                       bases.out + row * p.out_m + (n + x) * p.out_n);
        }
    }
}

/* One thread a result where a tile would have few rows: depthwise convolutions, vectors.  With
 * channels last neighbouring threads have neighbouring channels of one place, so that a warp reads
 * and writes bytes side by side. */
enum { THIN_ROWS = 4 };

__global__ void __launch_bounds__(BLOCK_THREADS)
    quantized_thin_kernel(const __grid_constant__ struct quantized_product q)
{
    const struct product &p = q.product;
    const int64_t results = p.m * p.n;

    for (GRID_STRIDE(i, p.batch.count * results)) {
        const int64_t rest = i / q.together;
        const struct bases bases = bases_of(p, rest / results * q.together + i % q.together);
        const int64_t m = rest % results / p.n, n = rest % results % p.n;
        int32_t place[WINDOW_AXES] = {0, 0, 0};
        uint32_t sum = 0;

        if (p.kind != PRODUCT_MATRIX)
            spread(p.window.out, (uint32_t)n, place);
        for (int64_t k = 0; k < p.k; k++)
            sum += (uint32_t)(number_a(q, bases.a, bases.bias, m, k) *
                              number_b(q, bases.b, k, n, place));
        finish(q, sum, bases.bias + m, n, bases.out + m * p.out_m + n * p.out_n);
    }
}

extern "C" cudaError_t cuda_quantized_product(const struct quantized_product *product,
                                              cudaStream_t stream)
{
    const struct product *p = &product->product;
    const int64_t tiles = p->batch.count * ((p->m + SIDE - 1) / SIDE) * ((p->n + SIDE - 1) / SIDE);

    if (tiles == 0)
        return cudaSuccess;
    if (p->m <= THIN_ROWS) {
        quantized_thin_kernel<<<grid_for(p->batch.count * p->m * p->n), BLOCK_THREADS, 0, stream>>>(
            *product);
        return cudaGetLastError();
    }
    quantized_kernel<<<grid_of(tiles), dim3(SIDE, STEP), 0, stream>>>(*product);
    return cudaGetLastError();
}
