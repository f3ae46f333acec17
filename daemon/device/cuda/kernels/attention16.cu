/* Attention of 16-bit types by tensor cores: 64 queries of one head a block, 16 a warp, 64 keys at
 * a time (32 where heads are wider than 128, and 128 columns of the result a block).
 *
 *     shared memory    K of these keys, V of these keys: one is copied while the other is used
 *     registers        Q, the scores, e^(score - the largest), the result so far
 *
 * Scores are sums in float32, and never leave the registers: two tiles of them, rounded, are what
 * the product with V reads (tensor.cuh).  Their largest and their sum are carried along as in
 * attention.cu.  Keys, columns and queries that there are none of are zeros; their scores
 * -infinity.
 */
#include <math.h>

#include "device/cuda/kernels/attention.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/tensor.cuh"
#include "device/cuda/kernels/walk.cuh"
#include "tensor/dtype.h"

enum {
    THREADS = 128,
    ROWS = 16, /* of a warp; also what one product takes of columns or keys */
    QUERIES = THREADS / 32 * ROWS,
    TILE = 8, /* columns of a tile of sums */
    UNIT = ATTENTION_UNIT
};

/* What a block works on. */
struct place {
    const uint16_t *q, *k, *v;
    const void *mask[ATTENTION_MASKS];
    uint16_t *out;
    int64_t row;   /* its warp's first query */
    int64_t width; /* columns of the result: how many the block makes */
};

/* Of a thread's two queries: the largest score, this thread's part of the sum, the result. */
template <int WIDE> struct so_far {
    float top[2], sum[2];
    float result[WIDE / TILE][4];
};

__device__ static inline int group()
{
    return (int)threadIdx.x % 32 / 4;
}
__device__ static inline int pair()
{
    return (int)threadIdx.x % 4 * 2;
}

template <class T> __device__ static inline uint32_t packed(float low, float high);
template <> __device__ inline uint32_t packed<__half>(float low, float high)
{
    return __half_as_ushort(__float2half_rn(low)) |
           (uint32_t)__half_as_ushort(__float2half_rn(high)) << 16;
}
template <> __device__ inline uint32_t packed<__nv_bfloat16>(float low, float high)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(low)) |
           (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(high)) << 16;
}

template <class T> __device__ static inline float real_of_bits(uint16_t bits);
template <> __device__ inline float real_of_bits<__half>(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}
template <> __device__ inline float real_of_bits<__nv_bfloat16>(uint16_t bits)
{
    return __bfloat162float(__ushort_as_bfloat16(bits));
}

/* ---- operands ---- */

/* Two neighbours of a query; zero where there is none. */
__device__ static inline uint32_t query_pair(const struct attention &a, const uint16_t *q,
                                             int64_t row, int64_t column)
{
    const uint16_t *from = q + row * a.q.row + column * a.q.column;
    uint32_t low = 0, high = 0;

    if (row >= a.queries)
        return 0;
    if (a.q.unit >= 2 && column + 1 < a.depth)
        return *(const uint32_t *)from;
    if (column < a.depth)
        low = from[0];
    if (column + 1 < a.depth)
        high = from[a.q.column];
    return low | high << 16;
}

template <int DEEP>
__device__ static inline void load_queries(const struct attention &a, const struct place &place,
                                           uint32_t (&q)[DEEP / ROWS][4])
{
#pragma unroll
    for (int step = 0; step < DEEP / ROWS; step++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            q[step][i] = query_pair(a, place.q, place.row + group() + i % 2 * 8,
                                    step * ROWS + pair() + i / 2 * 8);
}

/* Of the block's keys from `key` on, those that there are. */
template <int KEYS> __device__ static inline int keys_left(const struct attention &a, int64_t key)
{
    return a.keys - key < KEYS ? (int)(a.keys - key) : KEYS;
}

/* Begins to bring their rows. */
template <int WIDE, int KEYS>
__device__ static inline void
load_keys(const struct attention &a, const struct attention_operand &operand, const uint16_t *data,
          int64_t key, int64_t columns, uint16_t (&to)[KEYS][WIDE + UNIT])
{
    if (operand.unit >= UNIT) {
        enum { UNITS = WIDE / UNIT, STEP = THREADS / UNITS };
        const int row = (int)threadIdx.x / UNITS, column = (int)threadIdx.x % UNITS * UNIT;
        const int left = keys_left<KEYS>(a, key);
        const uint16_t *from = data + (key + row) * operand.row + column;

#pragma unroll
        for (int i = 0; i < KEYS / STEP; i++) {
            const bool is_there = row + i * STEP < left && column < columns;

            copy_begin(&to[row + i * STEP][column], is_there ? from : data, is_there);
            from += STEP * operand.row;
        }
        return;
    }
    for (int index = (int)threadIdx.x; index < KEYS * WIDE; index += THREADS) {
        const bool by_keys = operand.column != 1;
        const int row = by_keys ? index % KEYS : index / WIDE;
        const int column = by_keys ? index / KEYS : index % WIDE;

        to[row][column] = key + row < a.keys && column < columns
                              ? data[(key + row) * operand.row + column * operand.column]
                              : (uint16_t)0;
    }
}

/* ---- scores ---- */

/* Q K^T of the warp's queries and the block's keys. */
template <class T, int DEEP, int KEYS>
__device__ static inline void
multiply_keys(const struct attention &a, const uint32_t (&q)[DEEP / ROWS][4],
              const uint16_t (&k)[KEYS][DEEP + UNIT], float (&scores)[KEYS / TILE][4])
{
    const int lane = (int)threadIdx.x % 32;

#pragma unroll
    for (int i = 0; i < KEYS / TILE * 4; i++)
        scores[i / 4][i % 4] = 0;
#pragma unroll
    for (int step = 0; step < DEEP / ROWS; step++) {
        if (step * ROWS >= a.depth)
            break;
#pragma unroll
        for (int tile = 0; tile < KEYS / TILE; tile += 2) {
            uint32_t b[4];

            tensor_load(b,
                        &k[tile * TILE + lane / 16 * 8 + lane % 8][step * ROWS + lane / 8 % 2 * 8]);
            tensor_multiply<T>(scores[tile], q[step], {b[0], b[1]});
            tensor_multiply<T>(scores[tile + 1], q[step], {b[2], b[3]});
        }
    }
}

/* Mask `m`, whose elements are of type E, at this thread's scores.  `left` keys are there from its
 * first one on. */
template <class T, class E, int TILES>
__device__ static inline void apply_mask(const struct attention &a, const struct place &place,
                                         int m, int64_t key, int left, float (&scores)[TILES][4])
{
    const E *mask = (const E *)place.mask[m] + (place.row + group()) * a.mask[m].row + key + pair();

#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (place.row + group() + half * 8 >= a.queries)
            continue;
#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
            const int column = i / 2 * TILE + i % 2;

            float &score = scores[i / 2][half * 2 + i % 2];

            if (column >= left)
                continue;
            if constexpr (sizeof(E) == sizeof(float))
                score += mask[column];
            else if constexpr (sizeof(E) == sizeof(uint16_t))
                score += real_of_bits<T>(mask[column]);
            else if ((mask[column] != 0) == (a.hides[m] != 0))
                score = a.fill[m];
        }
        mask += 8 * a.mask[m].row;
    }
}

template <int TILES>
__device__ static inline void hide_future(const struct attention &a, const struct place &place,
                                          int64_t key, float (&scores)[TILES][4])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int seen =
            attention_seen(a, place.row + group() + half * 8, key, TILES * TILE) - pair();

#pragma unroll
        for (int i = 0; i < TILES * 2; i++)
            if (i / 2 * TILE + i % 2 >= seen)
                scores[i / 2][half * 2 + i % 2] = a.causal_fill;
    }
}

template <class T, int TILES>
__device__ static inline void finish_scores(const struct attention &a, const struct place &place,
                                            int64_t key, float (&scores)[TILES][4])
{
    const int left = keys_left<TILES * TILE>(a, key) - pair();

#pragma unroll
    for (int i = 0; i < TILES * 4; i++)
        scores[i / 4][i % 4] *= a.scale;
#pragma unroll
    for (int m = 0; m < ATTENTION_MASKS; m++) {
        if (place.mask[m] == nullptr)
            continue;
        if (a.mask[m].dtype == DTYPE_BOOL)
            apply_mask<T, uint8_t>(a, place, m, key, left, scores);
        else if (a.mask[m].dtype == DTYPE_FLOAT)
            apply_mask<T, float>(a, place, m, key, left, scores);
        else
            apply_mask<T, uint16_t>(a, place, m, key, left, scores);
    }
    if (a.is_causal)
        hide_future(a, place, key, scores);
#pragma unroll
    for (int i = 0; i < TILES * 4; i++)
        if (i / 4 * TILE + i % 2 >= left)
            scores[i / 4][i % 4] = -INFINITY;
}

/* Over the four threads that share a query; each gets the result. */
__device__ static inline float largest_across(float value)
{
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, value, step);

        value = other > value ? other : value;
    }
    return value;
}
__device__ static inline float sum_across(float value)
{
#pragma unroll
    for (int step = 1; step < 4; step *= 2)
        value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
    return value;
}

__device__ static inline float power_of_e(float x)
{
    return exp2f(x * 1.44269504088896340736f);
}

/* Scores become e^(score - the largest), and what was summed before shrinks.  Where all scores so
 * far are -infinity they are zeros; a NaN stays one. */
template <int WIDE, int TILES>
__device__ static inline void soften(float (&scores)[TILES][4], struct so_far<WIDE> &so_far)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = so_far.top[half], base, factor, sum = 0;

#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
            const float score = scores[i / 2][half * 2 + i % 2];

            top = score > top ? score : top;
        }
        top = largest_across(top);
        base = top == -INFINITY ? 0.0f : top;
#pragma unroll
        for (int i = 0; i < TILES * 2; i++) {
            float &score = scores[i / 2][half * 2 + i % 2];

            score = power_of_e(score - base);
            sum += score;
        }
        factor = power_of_e(so_far.top[half] - base);
        so_far.sum[half] = so_far.sum[half] * factor + sum;
        so_far.top[half] = top;
#pragma unroll
        for (int i = 0; i < WIDE / TILE * 2; i++)
            so_far.result[i / 2][half * 2 + i % 2] *= factor;
    }
}

/* Whether keys that are hidden count for one of the block's queries.  All of it come here. */
template <int WIDE>
__device__ static inline bool counts_hidden(const struct attention &a,
                                            const struct so_far<WIDE> &so_far)
{
    return __syncthreads_or(attention_counts_hidden(a, so_far.top[0]) ||
                            attention_counts_hidden(a, so_far.top[1])) != 0;
}

/* ---- the result ---- */

template <class T, int WIDE, int KEYS>
__device__ static inline void
multiply_values(const struct place &place, const float (&parts)[KEYS / TILE][4],
                const uint16_t (&v)[KEYS][WIDE + UNIT], struct so_far<WIDE> &so_far)
{
    const int lane = (int)threadIdx.x % 32;

#pragma unroll
    for (int step = 0; step < KEYS / ROWS; step++) {
        const float(&left)[4] = parts[2 * step], (&right)[4] = parts[2 * step + 1];
        const uint32_t p[4] = {packed<T>(left[0], left[1]), packed<T>(left[2], left[3]),
                               packed<T>(right[0], right[1]), packed<T>(right[2], right[3])};

#pragma unroll
        for (int tile = 0; tile < WIDE / TILE; tile += 2) {
            uint32_t b[4];

            if (tile * TILE >= place.width)
                break;
            tensor_load_turned(b, &v[step * ROWS + lane % 16][tile * TILE + lane / 16 * 8]);
            tensor_multiply<T>(so_far.result[tile], p, {b[0], b[1]});
            tensor_multiply<T>(so_far.result[tile + 1], p, {b[2], b[3]});
        }
    }
}

template <class T, int WIDE>
__device__ static inline void store_result(const struct attention &a, const struct place &place,
                                           const struct so_far<WIDE> &so_far)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = sum_across(so_far.sum[half]);
        const int64_t row = place.row + group() + half * 8;

        if (row >= a.queries)
            continue;
#pragma unroll
        for (int tile = 0; tile < WIDE / TILE; tile++) {
            const int64_t column = tile * TILE + pair();
            const uint32_t two = packed<T>(so_far.result[tile][half * 2] / sum,
                                           so_far.result[tile][half * 2 + 1] / sum);
            uint16_t *to = place.out + row * a.out.row + column;

            if (a.out.unit >= 2 && column + 1 < place.width) {
                *(uint32_t *)to = two;
                continue;
            }
            if (column < place.width)
                to[0] = (uint16_t)two;
            if (column + 1 < place.width)
                to[1] = (uint16_t)(two >> 16);
        }
    }
}

__device__ static inline const void *mask_at(const struct attention &a, int mask, int64_t head)
{
    const int64_t offset = walk_offset(a.heads, a.mask[mask].heads, head);

    if (a.mask_data[mask] == nullptr)
        return nullptr;
    return (const char *)a.mask_data[mask] +
           offset * (a.mask[mask].dtype == DTYPE_FLOAT  ? sizeof(float)
                     : a.mask[mask].dtype == DTYPE_BOOL ? sizeof(uint8_t)
                                                        : sizeof(uint16_t));
}

/* ---- a block ---- */

__host__ __device__ static inline int64_t tiles_of(int64_t count, int64_t side)
{
    return (count + side - 1) / side;
}

/* Heads of up to DEEP, WIDE columns of the result. */
template <class T, int DEEP, int WIDE, int KEYS>
__global__ void __launch_bounds__(THREADS, 2)
    tensor_kernel(const __grid_constant__ struct attention a)
{
    __shared__ __align__(16) uint16_t k[KEYS][DEEP + UNIT], v[KEYS][WIDE + UNIT];
    const int64_t across = tiles_of(a.width, WIDE);
    const int64_t tiles = tiles_of(a.queries, QUERIES) * across;

    for (int64_t t = blockIdx.x; t < a.heads.count * tiles; t += gridDim.x) {
        const int64_t head = t / tiles, row = t % tiles / across * QUERIES;
        const int64_t column = t % across * WIDE;
        const struct place place = {
            (const uint16_t *)a.q_data + walk_offset(a.heads, a.q.heads, head),
            (const uint16_t *)a.k_data + walk_offset(a.heads, a.k.heads, head),
            (const uint16_t *)a.v_data + walk_offset(a.heads, a.v.heads, head) +
                column * a.v.column,
            {mask_at(a, 0, head), mask_at(a, 1, head)},
            (uint16_t *)a.out_data + walk_offset(a.heads, a.out.heads, head) + column,
            row + (int)threadIdx.x / 32 * ROWS,
            a.width - column < WIDE ? a.width - column : WIDE,
        };
        int64_t end = attention_end(a, row, QUERIES);
        struct so_far<WIDE> so_far = {
            {-INFINITY, -INFINITY}, {0, 0},
            {
            }
        };
        uint32_t q[DEEP / ROWS][4];

        if (end > 0)
            load_keys<DEEP, KEYS>(a, a.k, place.k, 0, a.depth, k);
        load_queries<DEEP>(a, place, q);
        for (int64_t key = 0; key < end; key += KEYS) {
            float scores[KEYS / TILE][4];

            copies_wait();
            __syncthreads(); /* K is there, V is done with */
            load_keys<WIDE, KEYS>(a, a.v, place.v, key, place.width, v);
            multiply_keys<T, DEEP, KEYS>(a, q, k, scores);
            finish_scores<T>(a, place, key, scores);
            soften<WIDE>(scores, so_far);
            if (end < a.keys && key + KEYS >= end && counts_hidden<WIDE>(a, so_far))
                end = a.keys;
            copies_wait();
            __syncthreads(); /* V is there, K is done with */
            if (key + KEYS < end)
                load_keys<DEEP, KEYS>(a, a.k, place.k, key + KEYS, a.depth, k);
            multiply_values<T, WIDE, KEYS>(place, scores, v, so_far);
        }
        store_result<T, WIDE>(a, place, so_far);
    }
}

template <class T, int DEEP, int WIDE, int KEYS>
static void launch(const struct attention *a, cudaStream_t stream)
{
    const int64_t tiles = tiles_of(a->queries, QUERIES) * tiles_of(a->width, WIDE);

    tensor_kernel<T, DEEP, WIDE, KEYS><<<grid_of(a->heads.count * tiles), THREADS, 0, stream>>>(*a);
}

template <class T> static void launch_wide(const struct attention *a, cudaStream_t stream)
{
    const int64_t wide = a->depth > a->width ? a->depth : a->width;

    if (wide <= 32)
        launch<T, 32, 32, 64>(a, stream);
    else if (wide <= 64)
        launch<T, 64, 64, 64>(a, stream);
    else if (wide <= ATTENTION_COLUMNS)
        launch<T, ATTENTION_COLUMNS, ATTENTION_COLUMNS, 64>(a, stream);
    else
        launch<T, ATTENTION16_COLUMNS, ATTENTION_COLUMNS, 32>(a, stream);
}

extern "C" cudaError_t cuda_attention16(const struct attention *attention, cudaStream_t stream)
{
    if (attention->heads.count * attention->queries * attention->width == 0)
        return cudaSuccess;
    if (attention->dtype == DTYPE_FLOAT16)
        launch_wide<__half>(attention, stream);
    else
        launch_wide<__nv_bfloat16>(attention, stream);
    return cudaGetLastError();
}
