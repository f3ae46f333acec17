/* The fused activations on vectors, and one loop for each. */
#ifndef DEVICE_CPU_ACTIVATE_H
#define DEVICE_CPU_ACTIVATE_H

#include "device/cpu/vmath.h"
#include "ops/epilogue.h"

INLINE vf vhard_sigmoid(vf x, float a, float b)
{
    return vmin(vset1(1.f), vmax(vzero(), vfma(vset1(a), x, vset1(b))));
}

/* One activation; `act` should be a constant where it is inlined into a loop. */
INLINE vf vactivate(enum activation act, vf x, float a, float b)
{
    switch (act) {
    case ACT_RELU:
        return vmax(vzero(), x);
    case ACT_LEAKY_RELU:
        return vselect_lt(x, vzero(), vmul(x, vset1(a)), x);
    case ACT_CLIP:
        return vmin(vset1(b), vmax(vset1(a), x));
    case ACT_SIGMOID:
        return vsigmoid(x);
    case ACT_TANH:
        return vtanh(x);
    case ACT_SILU:
        return vswish(x, vset1(a));
    case ACT_HARD_SIGMOID:
        return vhard_sigmoid(x, a, b);
    case ACT_HARD_SWISH:
        return vmul(x, vhard_sigmoid(x, a, b));
    case ACT_GELU_ERF:
        return vgelu(x);
    case ACT_GELU_TANH:
        return vgelu_tanh(x);
    case ACT_MISH:
        return vmish(x);
    case ACT_ELU:
        return vselect_lt(x, vzero(), vmul(vset1(a), vexpm1_negative(x)), x);
    case ACT_SOFTPLUS:
        return vsoftplus(x);
    case ACT_NONE:
    case ACT_COUNT:
        break;
    }
    return x;
}

/* Expands `code` with the constant ACTIVATION for whatever `act` is: one loop for each. */
#define WITH_ACTIVATION(act, code)                                                                 \
    switch (act) {                                                                                 \
        ACTIVATION_CASE_(ACT_RELU, code)                                                           \
        ACTIVATION_CASE_(ACT_LEAKY_RELU, code)                                                     \
        ACTIVATION_CASE_(ACT_CLIP, code)                                                           \
        ACTIVATION_CASE_(ACT_SIGMOID, code)                                                        \
        ACTIVATION_CASE_(ACT_TANH, code)                                                           \
        ACTIVATION_CASE_(ACT_SILU, code)                                                           \
        ACTIVATION_CASE_(ACT_HARD_SIGMOID, code)                                                   \
        ACTIVATION_CASE_(ACT_HARD_SWISH, code)                                                     \
        ACTIVATION_CASE_(ACT_GELU_ERF, code)                                                       \
        ACTIVATION_CASE_(ACT_GELU_TANH, code)                                                      \
        ACTIVATION_CASE_(ACT_MISH, code)                                                           \
        ACTIVATION_CASE_(ACT_ELU, code)                                                            \
        ACTIVATION_CASE_(ACT_SOFTPLUS, code)                                                       \
        ACTIVATION_CASE_(ACT_NONE, code)                                                           \
    case ACT_COUNT:                                                                                \
        break;                                                                                     \
    }
#define ACTIVATION_CASE_(name, code)                                                               \
    case name: {                                                                                   \
        const enum activation ACTIVATION = name;                                                   \
        code                                                                                       \
    } break;

#endif
