/* Strided copies, plain or turned through shared memory, and Pad. */
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/move.h"
#include "device/cuda/kernels/walk.cuh"

enum { TILE = 32, TILE_ROWS = 8 };

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS) move_kernel(const __grid_constant__ struct move m)
{
    for (GRID_STRIDE(i, m.walk.count))
        ((E *)m.to_data)[walk_offset(m.walk, m.to, i)] =
            ((const E *)m.from_data)[walk_offset(m.walk, m.from, i)];
}

/* A block turns 32 x 32 units at a time: read along the rows, written along the columns. */
template <class E>
__global__ void __launch_bounds__(TILE *TILE_ROWS)
    turn_kernel(const __grid_constant__ struct move m)
{
    __shared__ E tile[TILE][TILE + 1];
    const int64_t row_tiles = (m.rows + TILE - 1) / TILE;
    const int64_t column_tiles = (m.columns + TILE - 1) / TILE;
    const int x = (int)threadIdx.x, y = (int)threadIdx.y;

    for (int64_t t = blockIdx.x; t < m.walk.count * row_tiles * column_tiles; t += gridDim.x) {
        const int64_t plane = t / (row_tiles * column_tiles), rest = t % (row_tiles * column_tiles);
        const int64_t row = rest / column_tiles * TILE, column = rest % column_tiles * TILE;
        const E *from = (const E *)m.from_data + walk_offset(m.walk, m.from, plane);
        E *to = (E *)m.to_data + walk_offset(m.walk, m.to, plane);

        for (int k = y; k < TILE; k += TILE_ROWS)
            if (column + k < m.columns && row + x < m.rows)
                tile[k][x] = from[(column + k) * m.column_from + row + x];
        __syncthreads();
        for (int k = y; k < TILE; k += TILE_ROWS)
            if (row + k < m.rows && column + x < m.columns)
                to[(row + k) * m.row_to + column + x] = tile[x][k];
        __syncthreads();
    }
}

template <class E> static void launch_move(const struct move *move, cudaStream_t stream)
{
    if (move->tiled) {
        const int64_t tiles = move->walk.count * ((move->rows + TILE - 1) / TILE) *
                              ((move->columns + TILE - 1) / TILE);
        const unsigned blocks = grid_of(tiles);

        turn_kernel<E><<<blocks, dim3(TILE, TILE_ROWS), 0, stream>>>(*move);
    } else {
        move_kernel<E><<<grid_for(move->walk.count), BLOCK_THREADS, 0, stream>>>(*move);
    }
}

extern "C" cudaError_t cuda_move(const struct move *move, cudaStream_t stream)
{
    if (move->walk.count == 0)
        return cudaSuccess;
    switch (move->bytes) {
    case 1:
        launch_move<uint8_t>(move, stream);
        break;
    case 2:
        launch_move<uint16_t>(move, stream);
        break;
    case 4:
        launch_move<uint32_t>(move, stream);
        break;
    case 8:
        launch_move<uint64_t>(move, stream);
        break;
    default:
        launch_move<uint4>(move, stream);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_load_code(void)
{
    struct cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, (const void *)move_kernel<uint8_t>);
}

/* ---- Pad ---- */

/* Where index `i` of the kept part, counted from its start, comes from; -1: from nowhere. */
__device__ static inline int64_t pad_source(uint32_t how, int64_t i, int64_t kept)
{
    const int64_t period = 2 * (kept - 1);

    if (i >= 0 && i < kept)
        return i;
    switch (how) {
    case PAD_BY_EDGE:
        return i < 0 ? 0 : kept - 1;
    case PAD_BY_WRAPPING:
        return (i % kept + kept) % kept;
    case PAD_BY_REFLECTION:
        if (kept == 1)
            return 0;
        i = (i % period + period) % period;
        return i < kept ? i : period - i;
    default:
        return -1;
    }
}

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS) pad_kernel(const __grid_constant__ struct pad p)
{
    const E value = p.value != nullptr ? *(const E *)p.value : (E)0;

    for (GRID_STRIDE(i, p.walk.count)) {
        int64_t index = i, to = 0, from = 0;
        bool inside = true;

        for (uint32_t axis = p.walk.rank; axis-- > 0;) {
            int64_t place, source;

            index = walk_divide(p.walk, axis, index, &place);
            source = pad_source(p.how, place - p.before[axis], p.kept[axis]);
            inside = inside && source >= 0;
            from += source * p.from.of[axis];
            to += place * p.to.of[axis];
        }
        ((E *)p.to_data)[to] = inside ? ((const E *)p.from_data)[from] : value;
    }
}

extern "C" cudaError_t cuda_pad(const struct pad *pad, cudaStream_t stream)
{
    const unsigned blocks = grid_for(pad->walk.count);

    if (pad->walk.count == 0)
        return cudaSuccess;
    switch (pad->bytes) {
    case 1:
        pad_kernel<uint8_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*pad);
        break;
    case 2:
        pad_kernel<uint16_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*pad);
        break;
    case 4:
        pad_kernel<uint32_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*pad);
        break;
    default:
        pad_kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*pad);
    }
    return cudaGetLastError();
}
