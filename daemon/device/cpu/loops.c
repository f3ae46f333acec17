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

void loops_unary(const struct loops *loops, enum dtype dtype, enum unary_loop loop, float a,
                 float b, const void *x, void *y, size_t count)
{
    float wide[LOOPS_CHUNK];

    if (dtype == DTYPE_FLOAT) {
        loops->unary[loop](x, y, count, a, b);
        return;
    }
    for (size_t i = 0; i < count; i += LOOPS_CHUNK) {
        size_t n = count - i < LOOPS_CHUNK ? count - i : LOOPS_CHUNK;

        widen(loops, dtype, (const uint16_t *)x + i, wide, n);
        loops->unary[loop](wide, wide, n, a, b);
        narrow(loops, dtype, wide, (uint16_t *)y + i, n);
    }
}
