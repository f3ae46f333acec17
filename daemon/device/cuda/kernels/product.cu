/* Sums of products in tiles of 64 x 64 results held in registers, 16 products deep in shared
 * memory; and one result a thread, for convolutions of few channels a group. */
#include "device/cuda/kernels/activate.cuh"
#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/kernels/product.cuh"
#include "device/cuda/kernels/walk.cuh"
#include "device/cuda/kernels/window.cuh"

/* A thread has 4 x 4 sums, 16 apart in both directions. */
enum {
    SIDE = 64,
    DEPTH = 16,
    CELL = 4,
    CELLS = CELL * CELL,
    LOADS = SIDE * DEPTH / BLOCK_THREADS,
    FEW_ROWS = 8
};

template <class T>
__device__ static inline T load_a(const struct product &p, int64_t base, int64_t m, int64_t k)
{
    if (m >= p.m || k >= p.k)
        return (T)0;
    if (p.kind != PRODUCT_MATRIX) {
        uint32_t tap, channel = divide(p.taps, (uint32_t)k, &tap);

        return element_load<T>(p.dtype, p.a,
                               base + m * p.a_m + channel * p.a_channel + tap * p.a_k);
    }
    return element_load<T>(p.dtype, p.a, base + m * p.a_m + k * p.a_k);
}

template <class T>
__device__ static inline T load_b(const struct product &p, int64_t base, int64_t k, int64_t n,
                                  const int32_t (&place)[WINDOW_AXES])
{
    if (k >= p.k || n >= p.n)
        return (T)0;
    if (p.kind != PRODUCT_MATRIX) {
        uint32_t tap, channel = divide(p.taps, (uint32_t)k, &tap);
        const int64_t offset = cell_offset(p, place, tap);

        return offset < 0
                   ? (T)0
                   : element_load<T>(p.dtype, p.b, base + channel * p.window.channel_step + offset);
    }
    return element_load<T>(p.dtype, p.b, base + k * p.b_k + n * p.b_n);
}

/* ---- the end of a sum ---- */

template <class T>
__device__ static inline void finish_real(const struct product &p, T sum, int64_t bias, int64_t out)
{
    const T residual = p.residual != nullptr ? element_load<T>(p.out_dtype, p.residual, out) : (T)0;

    sum *= (T)p.scale;
    if (p.bias != nullptr)
        sum += (T)p.beta * element_load<T>(p.dtype, p.bias, bias);
    if (p.residual_after)
        sum = activate(p.act, sum, (T)p.act_a, (T)p.act_b) + residual;
    else
        sum = activate(p.act, sum + residual, (T)p.act_a, (T)p.act_b);
    element_store<T>(p.out_dtype, p.out, out, sum);
}

__device__ static inline void finish(const struct product &p, float sum, int64_t bias, int64_t out)
{
    finish_real(p, sum, bias, out);
}
__device__ static inline void finish(const struct product &p, double sum, int64_t bias, int64_t out)
{
    finish_real(p, sum, bias, out);
}
__device__ static inline void finish(const struct product &p, int64_t sum, int64_t, int64_t out)
{
    element_store<int64_t>(p.out_dtype, p.out, out, sum);
}
__device__ static inline void finish(const struct product &p, uint64_t sum, int64_t, int64_t out)
{
    element_store<uint64_t>(p.out_dtype, p.out, out, sum);
}

/* ---- tiles ---- */

/* Fills the shared tiles for products k …; neighbouring threads read neighbouring elements. */
template <class T>
__device__ static inline void
load_tiles(const struct product &p, const struct bases &bases, int64_t m, int64_t n, int64_t k,
           const int32_t (&place)[WINDOW_AXES], T (&a)[DEPTH][SIDE + 1], T (&b)[DEPTH][SIDE + 1])
{
    const bool a_by_rows = p.a_m == 1 && p.kind == PRODUCT_MATRIX;
    const bool b_by_depth = p.b_n != 1 && p.kind == PRODUCT_MATRIX;

#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int index = (int)threadIdx.x + i * BLOCK_THREADS;
        const int a_row = a_by_rows ? index % SIDE : index / DEPTH;
        const int a_depth = a_by_rows ? index / SIDE : index % DEPTH;
        const int b_column = b_by_depth ? index / DEPTH : index % SIDE;
        const int b_depth = b_by_depth ? index % DEPTH : index / SIDE;

        a[a_depth][a_row] = load_a<T>(p, bases.a, m + a_row, k + a_depth);
        b[b_depth][b_column] = load_b<T>(p, bases.b, k + b_depth, n + b_column, place);
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    tile_kernel(const __grid_constant__ struct product p)
{
    __shared__ T a[DEPTH][SIDE + 1], b[DEPTH][SIDE + 1];
    const int64_t row_tiles = (p.m + SIDE - 1) / SIDE, column_tiles = (p.n + SIDE - 1) / SIDE;
    const int64_t tiles = row_tiles * column_tiles;
    const int x = (int)threadIdx.x % (SIDE / CELL), y = (int)threadIdx.x / (SIDE / CELL);

    for (int64_t t = blockIdx.x; t < p.batch.count * tiles; t += gridDim.x) {
        const struct bases bases = bases_of(p, t / tiles);
        const int64_t m = t % tiles / column_tiles * SIDE, n = t % tiles % column_tiles * SIDE;
        int32_t place[WINDOW_AXES] = {0, 0, 0};
        T sums[CELLS];

        if (p.kind != PRODUCT_MATRIX) /* a thread loads of one column only */
            spread(p.window.out, (uint32_t)(n + threadIdx.x % SIDE), place);
#pragma unroll
        for (int i = 0; i < CELLS; i++)
            sums[i] = 0;
        for (int64_t k = 0; k < p.k; k += DEPTH) {
            load_tiles<T>(p, bases, m, n, k, place, a, b);
            __syncthreads();
#pragma unroll
            for (int d = 0; d < DEPTH; d++)
#pragma unroll
                for (int i = 0; i < CELL; i++)
#pragma unroll
                    for (int j = 0; j < CELL; j++)
                        sums[i * CELL + j] +=
                            a[d][y + i * (SIDE / CELL)] * b[d][x + j * (SIDE / CELL)];
            __syncthreads();
        }
        /* The end of a sum is long code: it stands here once, and the sums go past it. */
#pragma unroll 1
        for (int c = 0; c < CELLS; c++) {
            const int64_t row = m + y + c / CELL * (SIDE / CELL);
            const int64_t column = n + x + c % CELL * (SIDE / CELL);

            if (row < p.m && column < p.n)
                finish(p, sums[0], bases.bias + row * p.bias_m + column * p.bias_n,
                       bases.out + row * p.out_m + column * p.out_n);
#pragma unroll
            for (int i = 0; i + 1 < CELLS; i++)
                sums[i] = sums[i + 1];
        }
    }
}

/* ---- one result a thread ---- */

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    single_kernel(const __grid_constant__ struct product p)
{
    const bool rows_first = p.out_m == 1; /* channels last: neighbours are channels */

    for (GRID_STRIDE(i, p.batch.count * p.m * p.n)) {
        const int64_t inner = i % (p.m * p.n);
        const struct bases bases = bases_of(p, i / (p.m * p.n));
        const int64_t m = rows_first ? inner % p.m : inner / p.n;
        const int64_t n = rows_first ? inner / p.m : inner % p.n;
        int32_t place[WINDOW_AXES] = {0, 0, 0};
        T sum = 0;

        if (p.kind != PRODUCT_MATRIX)
            spread(p.window.out, (uint32_t)n, place);
        for (int64_t k = 0; k < p.k; k++)
            sum += load_a<T>(p, bases.a, m, k) * load_b<T>(p, bases.b, k, n, place);
        finish(p, sum, bases.bias + m * p.bias_m + n * p.bias_n,
               bases.out + m * p.out_m + n * p.out_n);
    }
}

template <class T> static void launch(const struct product *p, cudaStream_t stream)
{
    if (p->m <= FEW_ROWS && p->kind != PRODUCT_MATRIX)
        single_kernel<T><<<grid_for(p->batch.count * p->m * p->n), BLOCK_THREADS, 0, stream>>>(*p);
    else
        tile_kernel<T>
            <<<grid_of(p->batch.count * ((p->m + SIDE - 1) / SIDE) * ((p->n + SIDE - 1) / SIDE)),
               BLOCK_THREADS, 0, stream>>>(*p);
}

extern "C" cudaError_t cuda_product(const struct product *product, cudaStream_t stream)
{
    if (product->batch.count * product->m * product->n == 0)
        return cudaSuccess;
    switch (product->type) {
    case PW_FLOAT:
        launch<float>(product, stream);
        break;
    case PW_DOUBLE:
        launch<double>(product, stream);
        break;
    case PW_SIGNED:
        launch<int64_t>(product, stream);
        break;
    default:
        launch<uint64_t>(product, stream);
    }
    return cudaGetLastError();
}
