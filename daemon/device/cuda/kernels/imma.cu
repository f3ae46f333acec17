/* Operands and results of products of bytes on tensor cores (imma.h). */
#include "device/cuda/kernels/imma.h"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/product.cuh"
#include "device/cuda/kernels/quantized.cuh"

enum { WORD = 4 };

/* Four bytes of a row of a matrix. */
__device__ static inline uint32_t matrix_word(const struct imma_lay &l, int64_t row, int64_t k)
{
    const uint8_t *from = (const uint8_t *)l.in + row * l.k + k;
    uint32_t word = 0;

#pragma unroll
    for (int i = 0; i < WORD; i++)
        if (k + i < l.k)
            word |= (from[i] ^ l.flip) << 8 * i;
    return word;
}

/* … of the cells under a window; `zero` is what lies beyond the edge. */
__device__ static inline uint32_t window_word(const struct imma_lay &l, int64_t row, uint32_t k,
                                              uint32_t zero)
{
    const struct product &p = l.product;
    uint32_t place, channel, tap, word = 0;
    const uint32_t image = divide(l.places, (uint32_t)row, &place);
    const uint8_t *from = (const uint8_t *)l.in + walk_offset(p.batch, p.b_batch, image);
    int32_t at[WINDOW_AXES];
    int64_t cell;

    spread(p.window.out, place, at);
    tap = divide(l.channels, k, &channel);
    if (k >= l.k)
        return 0;
    cell = cell_offset(p, at, tap);
    if (l.in_words)
        return (cell < 0 ? zero * 0x01010101u : *(const uint32_t *)(from + cell + channel)) ^
               l.flip * 0x01010101u;
    for (int i = 0; i < WORD && k + i < l.k; i++) {
        const uint32_t byte = cell < 0 ? zero : from[cell + channel * p.window.channel_step];

        word |= (byte ^ l.flip) << 8 * i;
        if (++channel == l.channels.by && k + i + 1 < l.k) {
            channel = 0;
            cell = cell_offset(p, at, ++tap);
        }
    }
    return word;
}

__global__ void __launch_bounds__(BLOCK_THREADS)
    lay_kernel(const __grid_constant__ struct imma_lay l)
{
    const uint32_t zero = (uint32_t)zero_at(l.zero, 0) & 255;

    for (GRID_STRIDE(i, l.rows * l.words.by)) {
        uint32_t word;
        const int64_t row = l.first + divide(l.words, (uint32_t)i, &word);

        ((uint32_t *)l.out)[i] = l.is_matrix ? matrix_word(l, row, (int64_t)word * WORD)
                                             : window_word(l, row, word * WORD, zero);
    }
}

extern "C" cudaError_t cuda_imma_lay(const struct imma_lay *lay, cudaStream_t stream)
{
    lay_kernel<<<grid_for(lay->rows * lay->words.by), BLOCK_THREADS, 0, stream>>>(*lay);
    return cudaGetLastError();
}

/* ---- behind the product ---- */

enum { SIDE = 32, STEP = 8 };

__device__ static inline void finish_one(const struct imma_finish &f, uint32_t sum, int64_t row,
                                         int64_t column, uint32_t x_zero)
{
    uint32_t place = (uint32_t)row, image = 0;
    int64_t out;

    sum -= x_zero * (uint32_t)f.totals[column];
    if (f.zeros != nullptr)
        sum -= (uint32_t)f.zeros[column] * (uint32_t)f.sums[row * f.n_padded + f.n];
    if (f.is_matrix) {
        out = (f.first + row) * f.out_row + column;
    } else {
        image = divide(f.places, (uint32_t)(f.first + row), &place);
        out = image * f.out_image + place * f.out_row + column * f.out_column;
    }
    finish_sum(f.finish, sum, 0, column, column, f.out, out);
}

__global__ void __launch_bounds__(SIDE *STEP)
    finish_kernel(const __grid_constant__ struct imma_finish f)
{
    __shared__ uint32_t sums[SIDE][SIDE + 1];
    const int64_t column_tiles = (f.n + SIDE - 1) / SIDE;
    const int64_t tiles = (f.rows + SIDE - 1) / SIDE * column_tiles;
    const uint32_t x_zero = (uint32_t)(zero_at(f.x_zero, 0) - f.x_shift);
    const int x = (int)threadIdx.x;

    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int64_t row = t / column_tiles * SIDE, column = t % column_tiles * SIDE;

        for (int d = (int)threadIdx.y; d < SIDE; d += STEP)
            if (row + d < f.rows && column + x < f.n)
                sums[d][x] = (uint32_t)f.sums[(row + d) * f.n_padded + column + x];
        __syncthreads();
        for (int d = (int)threadIdx.y; d < SIDE; d += STEP) {
            const int r = f.turned ? x : d, c = f.turned ? d : x;

            if (row + r < f.rows && column + c < f.n)
                finish_one(f, sums[r][c], row + r, column + c, x_zero);
        }
        __syncthreads();
    }
}

extern "C" cudaError_t cuda_imma_finish(const struct imma_finish *finish, cudaStream_t stream)
{
    const int64_t tiles = (finish->rows + SIDE - 1) / SIDE * ((finish->n + SIDE - 1) / SIDE);

    finish_kernel<<<grid_of(tiles), dim3(SIDE, STEP), 0, stream>>>(*finish);
    return cudaGetLastError();
}
