/* What a thread does for a pointwise program, whoever says which steps: the interpreter
 * (pointwise.cu), or a kernel made for one program at run time (rtc/fused.c), which NVRTC compiles
 * out of this very text.  Both compute by the same expressions and without contracting products and
 * sums to one operation (-fmad=false), so both give the same bits.
 *
 * A thread works on four elements at a time: the program is decoded once for them.  Values lie in
 * registers.
 */
#ifndef DEVICE_CUDA_KERNELS_POINTWISE_CUH
#define DEVICE_CUDA_KERNELS_POINTWISE_CUH

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

/* real_step<PW_add>::of(x, y, a, b) and whole_step<PW_WHOLE_add>::of(…). */
template <int OP> struct real_step;
template <int OP> struct whole_step;

#define num(c) ((T)(c))
#define REAL(name, where, expression)                                                              \
    template <> struct real_step<PW_##name> {                                                      \
        template <class T>                                                                         \
        __device__ static inline T of(const T x, const T y, const T a, const T b)                  \
        {                                                                                          \
            (void)x, (void)y, (void)a, (void)b;                                                    \
            return (T)(expression);                                                                \
        }                                                                                          \
    };
#define WHOLE(name, where, expression)                                                             \
    template <> struct whole_step<PW_WHOLE_##name> {                                               \
        template <class T>                                                                         \
        __device__ static inline T of(const T x, const T y, const double a, const double b)        \
        {                                                                                          \
            (void)x, (void)y, (void)a, (void)b;                                                    \
            return (T)(expression);                                                                \
        }                                                                                          \
    };
#include "device/cuda/kernels/pointwise.def"
#undef REAL
#undef WHOLE
#undef num

/* WIDTH elements on their way through a program.  WHOLE: all of them are there; else the first
 * `left`, which may be fewer at the end of all. */
template <class T, int WIDTH, bool WHOLE> struct group {
    int64_t first;
    int left;
    T value[WIDTH], saved[WIDTH], operand[WIDTH];

    __device__ inline group(int64_t first_, int64_t left_)
        : first(first_), left(left_ < WIDTH ? (int)left_ : WIDTH)
    {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            value[k] = saved[k] = operand[k] = 0;
    }
    __device__ inline int valid() const
    {
        return WHOLE ? WIDTH : left;
    }
    __device__ inline void save()
    {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            saved[k] = value[k];
    }
    __device__ inline void take_saved()
    {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            operand[k] = saved[k];
    }
};

/* ---- operands ---- */

/* What is known of a program when its kernel is compiled.  The interpreter knows nothing; a kernel
 * for one program has a struct like this of constants. */
struct facts_none {
    __device__ static inline uint32_t rank(const struct pointwise &p)
    {
        return p.walk.rank;
    }
    __device__ static inline bool wide(const struct pointwise &p)
    {
        return p.walk.wide != 0;
    }
    __device__ static inline bool grouped(const struct pointwise &p)
    {
        return p.grouped != 0;
    }
    __device__ static inline uint32_t in_dtype(const struct pointwise &p, uint32_t input)
    {
        return p.in[input].dtype;
    }
    __device__ static inline bool in_vector(const struct pointwise &p, uint32_t input)
    {
        return p.in[input].vector != 0;
    }
    __device__ static inline uint32_t out_dtype(const struct pointwise &p)
    {
        return p.out.dtype;
    }
    __device__ static inline bool out_vector(const struct pointwise &p)
    {
        return p.out.vector != 0;
    }
};

template <class FACTS>
__device__ static inline int64_t offset_of(const struct pointwise &p,
                                           const struct pointwise_operand &operand, int64_t index)
{
    int64_t offsets[1];

    walk_offsets<1>(p.walk, FACTS::rank(p), FACTS::wide(p), &operand.strides, index, offsets);
    return offsets[0];
}

template <class FACTS, int WIDTH>
__device__ static inline void group_offsets(const struct pointwise &p,
                                            const struct pointwise_operand &operand, int64_t first,
                                            int64_t (&offsets)[WIDTH])
{
    if (FACTS::grouped(p)) {
        const int64_t step = operand.strides.of[FACTS::rank(p) - 1];
        const int64_t start = offset_of<FACTS>(p, operand, first);

#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            offsets[k] = start + k * step;
    } else {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            offsets[k] = offset_of<FACTS>(p, operand, first + k);
    }
}

/* Floats are what most bytes are: four at once. */
template <class T>
__device__ static inline bool load_vector(const struct pointwise_operand &, uint32_t, int64_t,
                                          T (&)[GROUP])
{
    return false;
}
template <>
__device__ inline bool load_vector<float>(const struct pointwise_operand &operand, uint32_t dtype,
                                          int64_t at, float (&values)[GROUP])
{
    if (dtype == DTYPE_FLOAT) {
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

            values[k] = dtype == DTYPE_FLOAT16 ? __half2float(__ushort_as_half(one))
                                               : __uint_as_float((uint32_t)one << 16);
        }
    }
    return true;
}

template <class T>
__device__ static inline bool store_vector(const struct pointwise_operand &, uint32_t, int64_t,
                                           const T (&)[GROUP])
{
    return false;
}
template <>
__device__ inline bool store_vector<float>(const struct pointwise_operand &operand, uint32_t dtype,
                                           int64_t at, const float (&values)[GROUP])
{
    if (dtype == DTYPE_FLOAT) {
        *(float4 *)((float *)operand.data + at) =
            make_float4(values[0], values[1], values[2], values[3]);
    } else {
        uint32_t bits[2] = {0, 0};

#pragma unroll
        for (int k = 0; k < GROUP; k++) {
            const uint16_t one = dtype == DTYPE_FLOAT16
                                     ? __half_as_ushort(__float2half_rn(values[k]))
                                     : __bfloat16_as_ushort(__float2bfloat16_rn(values[k]));

            bits[k / 2] |= (uint32_t)one << (k % 2 * 16);
        }
        *(uint2 *)((uint16_t *)operand.data + at) = make_uint2(bits[0], bits[1]);
    }
    return true;
}

template <class FACTS, class T, int WIDTH, bool WHOLE>
__device__ static inline void load_group(const struct pointwise &p, uint32_t input,
                                         struct group<T, WIDTH, WHOLE> &g)
{
    const struct pointwise_operand &operand = p.in[input];
    const uint32_t dtype = FACTS::in_dtype(p, input);
    int64_t offsets[WIDTH];

    group_offsets<FACTS>(p, operand, g.first, offsets);
    if constexpr (WIDTH == GROUP)
        if (FACTS::in_vector(p, input) && g.valid() == GROUP &&
            load_vector<T>(operand, dtype, offsets[0], g.operand))
            return;
    elements_load<WIDTH>(dtype, operand.data, offsets, g.valid(), g.operand);
}

template <class FACTS, class T, int WIDTH, bool WHOLE>
__device__ static inline void store_group(const struct pointwise &p,
                                          const struct group<T, WIDTH, WHOLE> &g)
{
    const uint32_t dtype = FACTS::out_dtype(p);
    int64_t offsets[WIDTH];

    group_offsets<FACTS>(p, p.out, g.first, offsets);
    if constexpr (WIDTH == GROUP)
        if (FACTS::out_vector(p) && g.valid() == GROUP &&
            store_vector<T>(p.out, dtype, offsets[0], g.value))
            return;
    elements_store<WIDTH>(dtype, p.out.data, offsets, g.valid(), g.value);
}

/* ---- the walk over all groups ---- */

/* steps(g) computes g.value, from what load_group() brings. */
template <class T, class STEPS>
__device__ static inline void pointwise_groups(const struct pointwise &p, STEPS steps)
{
    for (GRID_STRIDE(i, (p.walk.count + GROUP - 1) / GROUP)) {
        struct group<T, GROUP, false> g(i * GROUP, p.walk.count - i * GROUP);

        steps(g);
        store_group<facts_none>(p, g);
    }
}

/* ---- steps that are known when the kernel is compiled ---- */

template <class STEP, class T, class N, int WIDTH>
__device__ static inline void apply_step(struct group<T, WIDTH, true> &g, N a, N b)
{
#pragma unroll
    for (int k = 0; k < WIDTH; k++)
        g.value[k] = STEP::of(g.value[k], g.operand[k], a, b);
}

template <class FACTS, class T, int WIDTH, class STEPS>
__device__ static inline void pointwise_whole(const struct pointwise &p, int64_t first, STEPS steps)
{
    struct group<T, WIDTH, true> g(first, WIDTH);

    steps(g);
    store_group<FACTS>(p, g);
}

/* The same for steps that take groups of any width: those that are whole, and the last elements one
 * by one.  Asking of each element whether it is there would multiply the code. */
template <class FACTS, class T, class STEPS>
__device__ static inline void pointwise_fused(const struct pointwise &p, STEPS steps)
{
    for (GRID_STRIDE(i, (p.walk.count + GROUP - 1) / GROUP)) {
        if ((i + 1) * GROUP <= p.walk.count) {
            pointwise_whole<FACTS, T, GROUP>(p, i * GROUP, steps);
            continue;
        }
#pragma unroll 1
        for (int64_t k = i * GROUP; k < p.walk.count; k++)
            pointwise_whole<FACTS, T, 1>(p, k, steps);
    }
}

#endif
