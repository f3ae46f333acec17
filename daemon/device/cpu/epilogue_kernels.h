/* Included by epilogue_base.c, epilogue_avx2.c and epilogue_avx512.c. */
#include "device/cpu/activate.h"
#include "device/cpu/epilogue.h"

extern const struct epilogue_ops SIMD_NAME(epilogue_ops);

static void apply(const struct epilogue *epilogue, float *y, const float *residual, size_t count)
{
    const float a = epilogue->a, b = epilogue->b;
    const bool before = residual != NULL && !epilogue->residual_after;
    const bool after = residual != NULL && epilogue->residual_after;

    WITH_ACTIVATION(
        epilogue->act, for (size_t i = 0; i < count; i += VW) {
            size_t part = count - i < VW ? count - i : VW;
            vf x = part == VW ? vload(y + i) : vload_part(y + i, part);
            vf r = residual == NULL ? vzero()
                   : part == VW     ? vload(residual + i)
                                    : vload_part(residual + i, part);

            if (before)
                x = vadd(x, r);
            x = vactivate(ACTIVATION, x, a, b);
            if (after)
                x = vadd(x, r);
            if (part == VW)
                vstore(y + i, x);
            else
                vstore_part(y + i, x, part);
        })
}

const struct epilogue_ops SIMD_NAME(epilogue_ops) = {.apply = apply};
