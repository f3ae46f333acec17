/* The loops of loops.h for one instruction set; included by loops_base.c, _avx2.c and _avx512.c. */
#include <math.h>

#include "device/cpu/loops.h"
#include "device/cpu/vmath.h"

/* The last elements go through the same vector code, so that an element's place in its row, which
 * the batch shifts, does not show in its bits. */
#define LOOP(name, ns, on_vectors, on_doubles)                                                     \
    INLINE vf on_vector_##name(vf x, vf a, vf b)                                                   \
    {                                                                                              \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        return on_vectors;                                                                         \
    }                                                                                              \
    static void loop_##name(const float *x, float *y, size_t count, float a, float b)              \
    {                                                                                              \
        vf va = vset1(a), vb = vset1(b);                                                           \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + VW <= count; i += VW)                                                           \
            vstore(y + i, on_vector_##name(vload(x + i), va, vb));                                 \
        if (i < count)                                                                             \
            vstore_part(y + i, on_vector_##name(vload_part(x + i, count - i), va, vb), count - i); \
    }
#include "device/cpu/unary_loops.def"
#undef LOOP

#if defined(__F16C__)
static void from_half(const uint16_t *x, float *y, size_t count)
{
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
    for (; i < count; i++)
        y[i] = float_from_half(x[i]);
}

static void to_half(const float *x, uint16_t *y, size_t count)
{
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < count; i++)
        y[i] = half_from_float(x[i]);
}
#else
static void from_half(const uint16_t *x, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = float_from_half(x[i]);
}

static void to_half(const float *x, uint16_t *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = half_from_float(x[i]);
}
#endif

const struct loops SIMD_NAME(loops) = {
    .unary =
        {
#define LOOP(name, ns, on_vectors, on_doubles) [UNARY_##name] = loop_##name,
#include "device/cpu/unary_loops.def"
#undef LOOP
        },
    .float_from_half = from_half,
    .half_from_float = to_half,
};
