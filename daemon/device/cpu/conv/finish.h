/* The end of a fused convolution, for kernels that store tiles of vectors: what fits two clamps is
 * done in registers, everything else on the rows that were just stored and lie in L1. */
#ifndef DEVICE_CPU_FINISH_H
#define DEVICE_CPU_FINISH_H

#include "device/cpu/activate.h"

INLINE bool finish_is_clamp(const struct epilogue *epilogue)
{
    return epilogue->act == ACT_NONE || epilogue->act == ACT_RELU || epilogue->act == ACT_CLIP;
}

/* Whether finish_row() has to pass over what was stored. */
INLINE bool finish_is_needed(const struct epilogue *epilogue, const float *residual)
{
    return !finish_is_clamp(epilogue) || (residual != NULL && epilogue->residual_after);
}

/* Between what results are clamped before they are stored. */
INLINE float finish_low(const struct epilogue *epilogue, bool needed)
{
    return needed || epilogue->act == ACT_NONE ? -__builtin_inff()
           : epilogue->act == ACT_RELU         ? 0
                                               : epilogue->a;
}
INLINE float finish_high(const struct epilogue *epilogue, bool needed)
{
    return needed || epilogue->act != ACT_CLIP ? __builtin_inff() : epilogue->b;
}

/* `count` floats, whole vectors; `residual` (NULL: none) is added after the activation. */
static __attribute__((noinline, unused)) void finish_row(const struct epilogue *epilogue, float *y,
                                                         const float *residual, int64_t count)
{
    const float a = epilogue->a, b = epilogue->b;

    WITH_ACTIVATION(
        epilogue->act, for (int64_t j = 0; j < count; j += VW) {
            vf value = vactivate(ACTIVATION, vload(y + j), a, b);

            if (residual != NULL)
                value = vadd(value, vload(residual + j));
            vstore(y + j, value);
        })
}

#endif
