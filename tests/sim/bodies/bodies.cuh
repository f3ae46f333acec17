/* What a .cu file of the plug-in needs where the host's compiler reads it; included before it.
 * Launches have been rewritten (translate.py). */
#ifndef TESTS_SIM_BODIES_CUH
#define TESTS_SIM_BODIES_CUH

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "bodies.h"

#undef __shared__
#undef __global__
#undef __device__
#undef __launch_bounds__
#define __shared__ static /* one block at a time */
#define __global__
#define __device__
#define __launch_bounds__(...)

#define threadIdx       (bodies_self.thread)
#define blockIdx        (bodies_self.block)
#define blockDim        (bodies_self.threads)
#define gridDim         (bodies_self.blocks)
#define __syncthreads() bodies_barrier()

/* Kernels run where they are launched. */
template <class BODY>
static void bodies_launch(dim3 blocks, dim3 threads, size_t shared_bytes, cudaStream_t stream,
                          const BODY &body)
{
    (void)shared_bytes, (void)stream;
    bodies_run(
        blocks, threads, [](void *arg) { (*static_cast<const BODY *>(arg))(); },
        const_cast<BODY *>(&body));
}

/* Intrinsics that the toolkit's headers give to nvcc alone. */
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
template <class TO, class FROM> static inline TO bodies_bits(FROM from)
{
    TO to;

    static_assert(sizeof(to) == sizeof(from), "bits for bits");
    memcpy(&to, &from, sizeof(to));
    return to;
}
static inline unsigned __float_as_uint(float value)
{
    return bodies_bits<unsigned>(value);
}
static inline float __uint_as_float(unsigned bits)
{
    return bodies_bits<float>(bits);
}
static inline long long __double_as_longlong(double value)
{
    return bodies_bits<long long>(value);
}

/* Among threads of a warp; the whole block must come, for it waits as at a barrier. */
template <class T> static inline T __shfl_xor_sync(unsigned lanes, T value, int mask)
{
    static T given[1024];
    const unsigned thread = threadIdx.x;
    T taken;

    (void)lanes;
    given[thread] = value;
    bodies_barrier();
    taken = given[thread ^ static_cast<unsigned>(mask)];
    bodies_barrier();
    return taken;
}

/* Of the whole block. */
static inline int __syncthreads_or(int value)
{
    static int given[1024];
    int any = 0;

    given[threadIdx.x] = value;
    bodies_barrier();
    for (unsigned i = 0; i < blockDim.x; i++)
        any |= given[i];
    bodies_barrier();
    return any != 0;
}

static inline unsigned atomicAdd(unsigned *at, unsigned value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

template <class T> static inline T atomicMax(T *at, T value)
{
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);

    while (old < value &&
           !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return old;
}

#endif
