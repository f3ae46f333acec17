/* What a fused step does to each result before it is stored: out = act(x + residual), or
 * act(x) + residual when `residual_after`.  Part of the attributes of conv, conv_transpose, matmul,
 * gemm, and of the element-wise chain's first member.  Made by graph passes, never read from files.
 */
#ifndef OPS_EPILOGUE_H
#define OPS_EPILOGUE_H

#include <stdbool.h>

enum activation {
    ACT_NONE,
    ACT_RELU,
    ACT_LEAKY_RELU, /* a: slope */
    ACT_CLIP,       /* a: low, b: high (ReLU6 is 0, 6) */
    ACT_SIGMOID,
    ACT_TANH,
    ACT_SILU,         /* x * sigmoid(a x), a = 1 for SiLU */
    ACT_HARD_SIGMOID, /* max(0, min(1, a x + b)) */
    ACT_HARD_SWISH,   /* x * max(0, min(1, a x + b)) */
    ACT_GELU_ERF,
    ACT_GELU_TANH,
    ACT_MISH,
    ACT_ELU, /* a: alpha */
    ACT_SOFTPLUS,
    ACT_COUNT
};

struct epilogue {
    enum activation act;
    float a;
    float b;
    bool has_residual;   /* the residual is the node's last input, of the output's shape */
    bool residual_after; /* added after the activation instead of before */
};

#endif
