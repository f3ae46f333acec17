/* What a fused step does to each result (ops/epilogue.h), on the device. */
#ifndef DEVICE_CUDA_KERNELS_ACTIVATE_CUH
#define DEVICE_CUDA_KERNELS_ACTIVATE_CUH

#include <math.h>
#include <stdint.h>

#include "ops/epilogue.h"

/* A NaN stays one. */
template <class T> __device__ static inline T clamp_between(T x, T low, T high)
{
    const T floored = x < low ? low : x;

    return floored > high ? high : floored;
}

template <class T> __device__ static inline T soft_plus(T x)
{
    return x > T(0) ? x + log1p(exp(-x)) : log1p(exp(x));
}

template <class T> __device__ static inline T activate(uint32_t act, T x, T a, T b)
{
    switch (act) {
    case ACT_RELU:
        return x < T(0) ? T(0) : x;
    case ACT_LEAKY_RELU:
        return x < T(0) ? a * x : x;
    case ACT_CLIP:
        return clamp_between(x, a, b);
    case ACT_SIGMOID:
        return T(1) / (T(1) + exp(-x));
    case ACT_TANH:
        return tanh(x);
    case ACT_SILU:
        return x / (T(1) + exp(-a * x));
    case ACT_HARD_SIGMOID:
        return clamp_between(a * x + b, T(0), T(1));
    case ACT_HARD_SWISH:
        return x * clamp_between(a * x + b, T(0), T(1));
    case ACT_GELU_ERF:
        return x / T(2) * erfc(-x * T(0.70710678118654752440));
    case ACT_GELU_TANH:
        return x / T(2) * (T(1) + tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
    case ACT_MISH:
        return x * tanh(soft_plus(x));
    case ACT_ELU:
        return x < T(0) ? a * expm1(x) : x;
    case ACT_SOFTPLUS:
        return soft_plus(x);
    default:
        return x;
    }
}

#endif
