#include "device/cpu/loops.h"

const struct loops *loops_for(const struct device *device)
{
    switch (cpu_isa_of(device)) {
    case CPU_AVX512:
        return &loops_avx512;
    case CPU_AVX2:
        return &loops_avx2;
    case CPU_BASELINE:
    case CPU_ISA_COUNT:
        break;
    }
    return &loops_base;
}

void widen(const struct loops *loops, enum dtype dtype, const void *x, float *y, size_t count)
{
    const uint16_t *from = x;

    if (dtype == DTYPE_FLOAT16) {
        loops->float_from_half(from, y, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        y[i] = float_from_bfloat16(from[i]);
}

void narrow(const struct loops *loops, enum dtype dtype, const float *x, void *y, size_t count)
{
    uint16_t *to = y;

    if (dtype == DTYPE_FLOAT16) {
        loops->half_from_float(x, to, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        to[i] = bfloat16_from_float(x[i]);
}
