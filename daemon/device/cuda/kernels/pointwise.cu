/* The interpreter of pointwise programs, and Where.
 *
 * A thread works on four elements at a time: the program is decoded once for them.  Values lie in
 * registers; a step whose code is long stands there once and the four values are turned through it.
 */
#include <math.h>

#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/kernels/walk.cuh"

enum { GROUP = 4 };

/* ---- what the steps' expressions use ---- */

template <class T> __device__ static inline T between(T x, T low, T high)
{
    T floored = x < low ? low : x;

    return floored > high ? high : floored;
}

template <class T> __device__ static inline T softplus(T x)
{
    return x > T(0) ? x + log1p(exp(-x)) : log1p(exp(x));
}

__device__ static inline bool is_negative(int64_t x)
{
    return x < 0;
}
__device__ static inline bool is_negative(uint64_t)
{
    return false;
}

/* A division by zero gives zero; the smallest integer by -1 gives itself. */
__device__ static inline int64_t quotient(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}
__device__ static inline uint64_t quotient(uint64_t x, uint64_t y)
{
    return y == 0 ? 0 : x / y;
}
__device__ static inline int64_t rest(int64_t x, int64_t y)
{
    return y == 0 || y == -1 ? 0 : x % y;
}
__device__ static inline uint64_t rest(uint64_t x, uint64_t y)
{
    return y == 0 ? 0 : x % y;
}

/* The rest with the divisor's sign. */
__device__ static inline int64_t floor_mod(int64_t x, int64_t y)
{
    int64_t left = rest(x, y);

    return left != 0 && (left < 0) != (y < 0) ? left + y : left;
}
__device__ static inline uint64_t floor_mod(uint64_t x, uint64_t y)
{
    return rest(x, y);
}

/* Wraps; a negative exponent leaves 1, -1 or nothing.  An unsigned exponent beyond int64 says as
 * much as the largest. */
__device__ static inline int64_t power(int64_t base, int64_t exponent, bool exponent_is_unsigned)
{
    uint64_t result = 1, factor = (uint64_t)base;

    if (exponent_is_unsigned && exponent < 0)
        exponent = INT64_MAX;
    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 != 0)
            result *= factor;
        factor *= factor;
    }
    return (int64_t)result;
}
__device__ static inline uint64_t power(uint64_t base, uint64_t exponent, bool)
{
    return (uint64_t)power((int64_t)base, (int64_t)exponent, true);
}

/* ---- steps ---- */

#define STEP_each_(T, expression)                                                                  \
    _Pragma("unroll") for (int k = 0; k < GROUP; k++)                                              \
    {                                                                                              \
        const T x = value[k], y = operand[k];                                                      \
        value[k] = (T)(expression);                                                                \
        (void)x;                                                                                   \
        (void)y;                                                                                   \
    }
/* The values go round: each passes place 0 once and comes back to its own. */
#define STEP_once_(T, expression)                                                                  \
    _Pragma("unroll 1") for (int k = 0; k < GROUP; k++)                                            \
    {                                                                                              \
        const T x = value[0], y = operand[0];                                                      \
        const T result = (T)(expression);                                                          \
        turn(value, result);                                                                       \
        turn(operand, y);                                                                          \
        (void)x;                                                                                   \
    }

template <class T> __device__ static inline void turn(T (&values)[GROUP], T last)
{
    values[0] = values[1];
    values[1] = values[2];
    values[2] = values[3];
    values[3] = last;
}

template <class T>
__device__ static inline void apply_real(const struct pointwise_step &step, T (&value)[GROUP],
                                         T (&operand)[GROUP])
{
    const T a = (T)step.a, b = (T)step.b;
#define num(x) ((T)(x))

    switch (step.op) {
#define REAL(name, where, expression)                                                              \
    case PW_##name:                                                                                \
        STEP_##where##_(T, expression) break;
#define WHOLE(name, where, expression)
#include "device/cuda/kernels/pointwise.def"
#undef REAL
#undef WHOLE
    default:
        break;
    }
#undef num
}

template <class T>
__device__ static inline void apply_whole(const struct pointwise_step &step, T (&value)[GROUP],
                                          T (&operand)[GROUP])
{
    const double a = step.a, b = step.b;

    switch (step.op) {
#define REAL(name, where, expression)
#define WHOLE(name, where, expression)                                                             \
    case PW_WHOLE_##name:                                                                          \
        STEP_##where##_(T, expression) break;
#include "device/cuda/kernels/pointwise.def"
#undef REAL
#undef WHOLE
    default:
        break;
    }
}

__device__ static inline void apply(const struct pointwise_step &step, float (&value)[GROUP],
                                    float (&operand)[GROUP])
{
    apply_real(step, value, operand);
}
__device__ static inline void apply(const struct pointwise_step &step, double (&value)[GROUP],
                                    double (&operand)[GROUP])
{
    apply_real(step, value, operand);
}
__device__ static inline void apply(const struct pointwise_step &step, int64_t (&value)[GROUP],
                                    int64_t (&operand)[GROUP])
{
    apply_whole(step, value, operand);
}
__device__ static inline void apply(const struct pointwise_step &step, uint64_t (&value)[GROUP],
                                    uint64_t (&operand)[GROUP])
{
    apply_whole(step, value, operand);
}

/* ---- operands ---- */

__device__ static inline void group_offsets(const struct pointwise &p,
                                            const struct pointwise_operand &operand, int64_t first,
                                            int64_t (&offsets)[GROUP])
{
    if (p.grouped) {
        const int64_t step = operand.strides.of[p.walk.rank - 1];
        const int64_t start = walk_offset(p.walk, operand.strides, first);

#pragma unroll
        for (int k = 0; k < GROUP; k++)
            offsets[k] = start + k * step;
    } else {
#pragma unroll
        for (int k = 0; k < GROUP; k++)
            offsets[k] = walk_offset(p.walk, operand.strides, first + k);
    }
}

/* Floats are what most bytes are: four at once. */
template <class T>
__device__ static inline bool load_vector(const struct pointwise_operand &, int64_t, T (&)[GROUP])
{
    return false;
}
template <>
__device__ inline bool load_vector<float>(const struct pointwise_operand &operand, int64_t at,
                                          float (&values)[GROUP])
{
    if (operand.dtype == DTYPE_FLOAT) {
        const float4 four = *(const float4 *)((const float *)operand.data + at);

        values[0] = four.x;
        values[1] = four.y;
        values[2] = four.z;
        values[3] = four.w;
    } else {
        const uint2 four = *(const uint2 *)((const uint16_t *)operand.data + at);
        const uint32_t bits[2] = {four.x, four.y};

#pragma unroll
        for (int k = 0; k < GROUP; k++) {
            const uint16_t one = (uint16_t)(bits[k / 2] >> (k % 2 * 16));

            values[k] = operand.dtype == DTYPE_FLOAT16 ? __half2float(__ushort_as_half(one))
                                                       : __uint_as_float((uint32_t)one << 16);
        }
    }
    return true;
}

template <class T>
__device__ static inline bool store_vector(const struct pointwise_operand &, int64_t,
                                           const T (&)[GROUP])
{
    return false;
}
template <>
__device__ inline bool store_vector<float>(const struct pointwise_operand &operand, int64_t at,
                                           const float (&values)[GROUP])
{
    if (operand.dtype == DTYPE_FLOAT) {
        *(float4 *)((float *)operand.data + at) =
            make_float4(values[0], values[1], values[2], values[3]);
    } else {
        uint32_t bits[2] = {0, 0};

#pragma unroll
        for (int k = 0; k < GROUP; k++) {
            const uint16_t one = operand.dtype == DTYPE_FLOAT16
                                     ? __half_as_ushort(__float2half_rn(values[k]))
                                     : __bfloat16_as_ushort(__float2bfloat16_rn(values[k]));

            bits[k / 2] |= (uint32_t)one << (k % 2 * 16);
        }
        *(uint2 *)((uint16_t *)operand.data + at) = make_uint2(bits[0], bits[1]);
    }
    return true;
}

template <class T>
__device__ static inline void load_group(const struct pointwise &p, uint32_t input, int64_t first,
                                         int valid, T (&values)[GROUP])
{
    const struct pointwise_operand &operand = p.in[input];
    int64_t offsets[GROUP];

    group_offsets(p, operand, first, offsets);
    if (operand.vector && valid == GROUP && load_vector<T>(operand, offsets[0], values))
        return;
    elements_load<GROUP>(operand.dtype, operand.data, offsets, valid, values);
}

template <class T>
__device__ static inline void store_group(const struct pointwise &p, int64_t first, int valid,
                                          const T (&values)[GROUP])
{
    int64_t offsets[GROUP];

    group_offsets(p, p.out, first, offsets);
    if (p.out.vector && valid == GROUP && store_vector<T>(p.out, offsets[0], values))
        return;
    elements_store<GROUP>(p.out.dtype, p.out.data, offsets, valid, values);
}

/* ---- the kernel ---- */

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    pointwise_kernel(const __grid_constant__ struct pointwise p)
{
    for (GRID_STRIDE(group, (p.walk.count + GROUP - 1) / GROUP)) {
        const int64_t first = group * GROUP, left = p.walk.count - first;
        const int valid = left < GROUP ? (int)left : GROUP;
        T value[GROUP], saved[GROUP], operand[GROUP];

#pragma unroll
        for (int k = 0; k < GROUP; k++)
            value[k] = saved[k] = operand[k] = 0;
        for (uint32_t i = 0; i < p.steps; i++) {
            const struct pointwise_step &step = p.step[i];

            if (step.from < POINTWISE_INPUTS)
                load_group<T>(p, step.from, first, valid, operand);
            else if (step.from == PW_FROM_SAVED)
#pragma unroll
                for (int k = 0; k < GROUP; k++)
                    operand[k] = saved[k];
            apply(step, value, operand);
            if (step.saves)
#pragma unroll
                for (int k = 0; k < GROUP; k++)
                    saved[k] = value[k];
        }
        store_group<T>(p, first, valid, value);
    }
}

extern "C" cudaError_t cuda_pointwise(const struct pointwise *program, cudaStream_t stream)
{
    const unsigned blocks = grid_for((program->walk.count + GROUP - 1) / GROUP);

    if (program->walk.count == 0)
        return cudaSuccess;
    switch (program->type) {
    case PW_FLOAT:
        pointwise_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(*program);
        break;
    case PW_DOUBLE:
        pointwise_kernel<double><<<blocks, BLOCK_THREADS, 0, stream>>>(*program);
        break;
    case PW_SIGNED:
        pointwise_kernel<int64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*program);
        break;
    default:
        pointwise_kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*program);
    }
    return cudaGetLastError();
}

/* ---- Where ---- */

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS)
    choose_kernel(const __grid_constant__ struct choose c)
{
    for (GRID_STRIDE(i, c.walk.count)) {
        int64_t offsets[4];

        walk_offsets<4>(c.walk, c.strides, i, offsets);
        ((E *)c.out)[offsets[0]] = c.condition[offsets[1]] != 0 ? ((const E *)c.a)[offsets[2]]
                                                                : ((const E *)c.b)[offsets[3]];
    }
}

extern "C" cudaError_t cuda_choose(const struct choose *choose, cudaStream_t stream)
{
    const unsigned blocks = grid_for(choose->walk.count);

    if (choose->walk.count == 0)
        return cudaSuccess;
    switch (choose->bytes) {
    case 1:
        choose_kernel<uint8_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*choose);
        break;
    case 2:
        choose_kernel<uint16_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*choose);
        break;
    case 4:
        choose_kernel<uint32_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*choose);
        break;
    case 8:
        choose_kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*choose);
        break;
    default:
        return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}
