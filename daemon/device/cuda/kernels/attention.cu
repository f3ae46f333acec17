/* Attention: 64 queries of one head a block, 64 keys at a time.
 *
 *     scores [64, 64]     = Q K^T, 16 of the depth at a time in shared memory; in registers
 *     their largest, e^x  a query's 16 threads are neighbours in a warp
 *     result [64, width] += e^x V, the e^x in shared memory, 16 keys of V at a time
 *
 * A thread has 4 queries that follow each other, and of each 4 keys, later 4 columns of the result
 * (twice, where it is wide).
 */
#include <math.h>

#include "device/cuda/kernels/attention.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/walk.cuh"
#include "tensor/dtype.h"

enum {
    SIDE = 64,
    DEPTH = 16,
    CELL = 4,
    CELLS = CELL * CELL,
    ACROSS = SIDE / CELL, /* threads that share queries */
    PITCH = SIDE + 4,     /* rows in shared memory begin at 16 bytes, and in other banks */
    LOADS = SIDE * DEPTH / BLOCK_THREADS
};

/* What a block works on. */
struct place {
    const float *q, *k, *v;
    const void *mask[ATTENTION_MASKS];
    float *out;
    int64_t row, column; /* its first query and column of the result */
};

__device__ static inline const float *operand_at(const struct attention &a,
                                                 const struct attention_operand &operand,
                                                 const void *data, int64_t head)
{
    return data == nullptr ? nullptr
                           : (const float *)data + walk_offset(a.heads, operand.heads, head);
}

__device__ static inline void cells_load(float (&values)[CELL], const float *from)
{
    const float4 four = *(const float4 *)from;

    values[0] = four.x;
    values[1] = four.y;
    values[2] = four.z;
    values[3] = four.w;
}

/* Rows [row, row + 64) of an operand, [depth, depth + 16) of each, turned; zero where there is
 * none.  Neighbouring threads read neighbouring elements. */
__device__ static inline void load_turned(const float *data,
                                          const struct attention_operand &operand, int64_t row,
                                          int64_t rows, int64_t depth, int64_t depths,
                                          float (&to)[DEPTH][PITCH])
{
    const bool by_rows = operand.column != 1;

#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int index = (int)threadIdx.x + i * BLOCK_THREADS;
        const int r = by_rows ? index % SIDE : index / DEPTH;
        const int d = by_rows ? index / SIDE : index % DEPTH;

        to[d][r] = row + r < rows && depth + d < depths
                       ? data[(row + r) * operand.row + (depth + d) * operand.column]
                       : 0.0f;
    }
}

/* Sixteen rows of V, from `key` on. */
template <int COLUMNS>
__device__ static inline void load_values(const struct attention &a, const struct place &place,
                                          int64_t key, float (&to)[DEPTH][COLUMNS])
{
    const bool by_keys = a.v.column != 1;

#pragma unroll
    for (int i = 0; i < COLUMNS * DEPTH / BLOCK_THREADS; i++) {
        const int index = (int)threadIdx.x + i * BLOCK_THREADS;
        const int c = by_keys ? index / DEPTH : index % COLUMNS;
        const int d = by_keys ? index % DEPTH : index / COLUMNS;

        to[d][c] = key + d < a.keys && place.column + c < a.width
                       ? place.v[(key + d) * a.v.row + (place.column + c) * a.v.column]
                       : 0.0f;
    }
}

/* sums[i][j] += one of a column of four and one of a row of four. */
__device__ static inline void add_products(float *sums, const float (&rows)[CELL],
                                           const float (&columns)[CELL])
{
#pragma unroll
    for (int i = 0; i < CELL; i++)
#pragma unroll
        for (int j = 0; j < CELL; j++)
            sums[i * CELL + j] += rows[i] * columns[j];
}

__device__ static inline float masked(const struct attention &a, const struct place &place, int m,
                                      int64_t row, int64_t column, float score)
{
    const int64_t at = row * a.mask[m].row + column;

    if (a.mask[m].dtype != DTYPE_BOOL)
        return score + ((const float *)place.mask[m])[at];
    return (((const uint8_t *)place.mask[m])[at] != 0) == (a.hides[m] != 0) ? a.fill[m] : score;
}

/* Scores of the block's queries and 64 keys from `key` on, masked; -infinity beyond the last key.
 */
__device__ static inline void make_scores(const struct attention &a, const struct place &place,
                                          int64_t key, int x, int y, float (&q)[DEPTH][PITCH],
                                          float (&k)[DEPTH][PITCH], float (&scores)[CELLS])
{
#pragma unroll
    for (int i = 0; i < CELLS; i++)
        scores[i] = 0;
    for (int64_t depth = 0; depth < a.depth; depth += DEPTH) {
        load_turned(place.q, a.q, place.row, a.queries, depth, a.depth, q);
        load_turned(place.k, a.k, key, a.keys, depth, a.depth, k);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            float rows[CELL], columns[CELL];

            cells_load(rows, &q[d][y * CELL]);
            cells_load(columns, &k[d][x * CELL]);
            add_products(scores, rows, columns);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < CELLS; i++) {
        const int64_t row = place.row + y * CELL + i / CELL;
        const int64_t column = key + x * CELL + i % CELL;
        float score = scores[i] * a.scale;

#pragma unroll
        for (int m = 0; m < ATTENTION_MASKS; m++)
            if (place.mask[m] != nullptr && row < a.queries && column < a.keys)
                score = masked(a, place, m, row, column, score);
        if (a.is_causal && column > row + a.causal_offset)
            score = a.causal_fill;
        scores[i] = column < a.keys ? score : -INFINITY;
    }
}

struct larger {
    __device__ float operator()(float a, float b) const
    {
        return a > b ? a : b;
    }
};
struct plus {
    __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

/* Over the threads that share a query; each gets the result.  All of the warp come here. */
template <class COMBINE> __device__ static inline float across(float value, COMBINE combine)
{
#pragma unroll
    for (int step = ACROSS / 2; step > 0; step /= 2)
        value = combine(value, __shfl_xor_sync(0xFFFFFFFFu, value, step));
    return value;
}

/* What is known of a thread's queries so far: the largest score, this thread's part of the sum. */
struct so_far {
    float top[CELL], sum[CELL];
};

/* Scores become e^(score - the largest), and `factors` say by how much what was summed before
 * shrinks.  Where all scores so far are -infinity, they are zeros; a NaN stays one. */
__device__ static inline void soften(float (&scores)[CELLS], struct so_far &so_far,
                                     float (&factors)[CELL])
{
#pragma unroll
    for (int i = 0; i < CELL; i++) {
        float top = so_far.top[i], base, sum = 0;

#pragma unroll
        for (int j = 0; j < CELL; j++)
            top = larger()(scores[i * CELL + j], top);
        top = across(top, larger());
        base = top == -INFINITY ? 0.0f : top;
#pragma unroll
        for (int j = 0; j < CELL; j++) {
            scores[i * CELL + j] = expf(scores[i * CELL + j] - base);
            sum += scores[i * CELL + j];
        }
        factors[i] = expf(so_far.top[i] - base);
        so_far.sum[i] = so_far.sum[i] * factors[i] + sum;
        so_far.top[i] = top;
    }
}

__device__ static inline void store_turned(const float (&scores)[CELLS], int x, int y,
                                           float (&to)[SIDE][PITCH])
{
#pragma unroll
    for (int j = 0; j < CELL; j++)
        *(float4 *)&to[x * CELL + j][y * CELL] =
            make_float4(scores[j], scores[CELL + j], scores[2 * CELL + j], scores[3 * CELL + j]);
}

template <int COLUMNS>
__device__ static inline void store_result(const struct attention &a, const struct place &place,
                                           int x, int y, const struct so_far &so_far,
                                           const float (&sums)[COLUMNS / SIDE][CELLS])
{
#pragma unroll
    for (int i = 0; i < CELL; i++) {
        const float sum = across(so_far.sum[i], plus());
        const int64_t row = place.row + y * CELL + i;

#pragma unroll
        for (int j = 0; j < COLUMNS / SIDE * CELL; j++) {
            const int64_t column = place.column + j / CELL * SIDE + x * CELL + j % CELL;

            if (row < a.queries && column < a.width)
                place.out[row * a.out.row + column] = sums[j / CELL][i * CELL + j % CELL] / sum;
        }
    }
}

__device__ static inline const void *mask_at(const struct attention &a, int mask, int64_t head)
{
    const int64_t offset = walk_offset(a.heads, a.mask[mask].heads, head);

    if (a.mask_data[mask] == nullptr)
        return nullptr;
    return (const char *)a.mask_data[mask] +
           offset * (a.mask[mask].dtype == DTYPE_BOOL ? sizeof(uint8_t) : sizeof(float));
}

/* Whether keys that are hidden count for one of the block's queries.  All of it come here. */
__device__ static inline bool counts_hidden(const struct attention &a, const struct so_far &so_far)
{
    bool counts = false;

#pragma unroll
    for (int i = 0; i < CELL; i++)
        counts |= attention_counts_hidden(a, so_far.top[i]);
    return __syncthreads_or(counts) != 0;
}

/* Two blocks a processor, where registers allow it. */
template <int COLUMNS>
__global__ void __launch_bounds__(BLOCK_THREADS, COLUMNS == SIDE ? 2 : 1)
    attention_kernel(const __grid_constant__ struct attention a)
{
    __shared__ __align__(16) float q[DEPTH][PITCH], k[DEPTH][PITCH], v[DEPTH][COLUMNS];
    __shared__ __align__(16) float parts[SIDE][PITCH];
    const int64_t row_tiles = (a.queries + SIDE - 1) / SIDE;
    const int64_t column_tiles = (a.width + COLUMNS - 1) / COLUMNS;
    const int64_t tiles = row_tiles * column_tiles;
    const int x = (int)threadIdx.x % ACROSS, y = (int)threadIdx.x / ACROSS;

    for (int64_t t = blockIdx.x; t < a.heads.count * tiles; t += gridDim.x) {
        const int64_t head = t / tiles;
        const struct place place = {
            operand_at(a, a.q, a.q_data, head),
            operand_at(a, a.k, a.k_data, head),
            operand_at(a, a.v, a.v_data, head),
            {mask_at(a, 0, head), mask_at(a, 1, head)},
            (float *)a.out_data + walk_offset(a.heads, a.out.heads, head),
            t % tiles / column_tiles * SIDE,
            t % tiles % column_tiles * COLUMNS,
        };
        int64_t end = attention_end(a, place.row, SIDE);
        struct so_far so_far;
        float sums[COLUMNS / SIDE][CELLS];

#pragma unroll
        for (int i = 0; i < CELL; i++) {
            so_far.top[i] = -INFINITY;
            so_far.sum[i] = 0;
        }
#pragma unroll
        for (int i = 0; i < COLUMNS / SIDE * CELLS; i++)
            sums[i / CELLS][i % CELLS] = 0;
        for (int64_t key = 0; key < end; key += SIDE) {
            float scores[CELLS], factors[CELL];

            make_scores(a, place, key, x, y, q, k, scores);
            soften(scores, so_far, factors);
            if (end < a.keys && key + SIDE >= end && counts_hidden(a, so_far))
                end = a.keys;
            store_turned(scores, x, y, parts);
#pragma unroll
            for (int i = 0; i < COLUMNS / SIDE * CELLS; i++)
                sums[i / CELLS][i % CELLS] *= factors[i % CELLS / CELL];
            for (int at = 0; at < SIDE && key + at < a.keys; at += DEPTH) {
                load_values<COLUMNS>(a, place, key + at, v);
                __syncthreads();
#pragma unroll
                for (int d = 0; d < DEPTH; d++) {
                    float rows[CELL], columns[CELL];

                    cells_load(rows, &parts[at + d][y * CELL]);
#pragma unroll
                    for (int half = 0; half < COLUMNS / SIDE; half++) {
                        cells_load(columns, &v[d][half * SIDE + x * CELL]);
                        add_products(sums[half], rows, columns);
                    }
                }
                __syncthreads();
            }
        }
        store_result<COLUMNS>(a, place, x, y, so_far, sums);
    }
}

template <int COLUMNS> static void launch(const struct attention *a, cudaStream_t stream)
{
    const int64_t tiles = (a->queries + SIDE - 1) / SIDE * ((a->width + COLUMNS - 1) / COLUMNS);

    attention_kernel<COLUMNS><<<grid_of(a->heads.count * tiles), BLOCK_THREADS, 0, stream>>>(*a);
}

extern "C" cudaError_t cuda_attention(const struct attention *attention, cudaStream_t stream)
{
    if (attention->heads.count * attention->queries * attention->width == 0)
        return cudaSuccess;
    if (attention->width <= SIDE)
        launch<SIDE>(attention, stream);
    else
        launch<ATTENTION_COLUMNS>(attention, stream);
    return cudaGetLastError();
}
