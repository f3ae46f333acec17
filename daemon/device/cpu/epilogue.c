#include "device/cpu/epilogue.h"

#include <math.h>
#include <string.h>

extern const struct epilogue_ops epilogue_ops_base, epilogue_ops_avx2, epilogue_ops_avx512;

const struct epilogue_ops *epilogue_ops_for(enum cpu_isa isa)
{
    static const struct epilogue_ops *const table[CPU_ISA_COUNT] = {
        &epilogue_ops_base, &epilogue_ops_avx2, &epilogue_ops_avx512};

    return table[isa];
}

static double hard_sigmoid(double x, double a, double b)
{
    return fmax(0, fmin(1, a * x + b));
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

double epilogue_activate(const struct epilogue *epilogue, double x)
{
    const double a = (double)epilogue->a, b = (double)epilogue->b;

    if (isnan(x))
        return x;
    switch (epilogue->act) {
    case ACT_RELU:
        return fmax(0, x);
    case ACT_LEAKY_RELU:
        return x < 0 ? a * x : x;
    case ACT_CLIP:
        return fmin(b, fmax(a, x));
    case ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case ACT_TANH:
        return tanh(x);
    case ACT_SILU:
        return x / (1 + exp(-a * x));
    case ACT_HARD_SIGMOID:
        return hard_sigmoid(x, a, b);
    case ACT_HARD_SWISH:
        return x * hard_sigmoid(x, a, b);
    case ACT_GELU_ERF:
        return x * erfc(-x * M_SQRT1_2) / 2;
    case ACT_GELU_TANH:
        return x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case ACT_MISH:
        return x * tanh(softplus(x));
    case ACT_ELU:
        return x < 0 ? a * expm1(x) : x;
    case ACT_SOFTPLUS:
        return softplus(x);
    case ACT_NONE:
    case ACT_COUNT:
        break;
    }
    return x;
}

void epilogue_clear_padding(const struct epilogue *epilogue, float *y, const struct operand *out,
                            size_t block)
{
    const struct shape *shape = &out->shape;
    const size_t used = (size_t)shape->dims[1] % block;
    const size_t cells = (size_t)shape_product(shape, 2, shape->rank);
    const size_t blocks = ((size_t)shape->dims[1] + block - 1) / block;
    const size_t image = (size_t)operand_stride(out, (int64_t)(blocks * cells * block));

    if (out->layout != LAYOUT_BLOCKED || used == 0 || epilogue_activate(epilogue, 0) == 0)
        return;
    for (size_t n = 0; n < (size_t)shape->dims[0]; n++) {
        float *last = y + n * image + (blocks - 1) * cells * block;

        for (size_t cell = 0; cell < cells; cell++)
            memset(last + cell * block + used, 0, (block - used) * sizeof(float));
    }
}
