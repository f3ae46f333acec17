/* Included by mix_channels_avx2.c and mix_channels_avx512.c: some pixels at a time, each source's
 * lanes laid over those of the ones before. */
#include "device/cpu/conv/mix_channels.h"
#include "device/cpu/simd.h"

extern const struct mix_ops SIMD_NAME(mix_ops);

enum { PIXELS = 4 };

#if defined(__AVX512F__)
typedef __mmask16 taken_lanes;

INLINE taken_lanes load_taken(const int32_t *taken)
{
    return _mm512_movepi32_mask(_mm512_loadu_si512(taken));
}
INLINE vi load_lanes(const int32_t *lane)
{
    return _mm512_loadu_si512(lane);
}
INLINE vf lay_over(vf y, taken_lanes taken, vi lanes, vf x)
{
    return _mm512_mask_permutexvar_ps(y, taken, lanes, x);
}
#else
typedef __m256 taken_lanes;

INLINE taken_lanes load_taken(const int32_t *taken)
{
    return _mm256_castsi256_ps(_mm256_loadu_si256((const vi *)(const void *)taken));
}
INLINE vi load_lanes(const int32_t *lane)
{
    return _mm256_loadu_si256((const vi *)(const void *)lane);
}
INLINE vf lay_over(vf y, taken_lanes taken, vi lanes, vf x)
{
    return _mm256_blendv_ps(y, _mm256_permutevar8x32_ps(x, lanes), taken);
}
#endif

INLINE void mix_pixels(const int count, const struct mix_source *sources, size_t sources_count,
                       const float *const *x, size_t at, float *y)
{
    vf made[PIXELS];

    UNROLL for (int i = 0; i < count; i++) made[i] = vzero();
    for (size_t s = 0; s < sources_count; s++) {
        const taken_lanes taken = load_taken(sources[s].taken);
        const vi lanes = load_lanes(sources[s].lane);
        const float *from = x[s] + at;

        UNROLL for (int i = 0; i < count; i++) made[i] =
            lay_over(made[i], taken, lanes, vload(from + i * VW));
    }
    UNROLL for (int i = 0; i < count; i++) vstore(y + at + i * VW, made[i]);
}

static void mix(const struct mix_source *sources, size_t count, const float *const *x, size_t cells,
                float *y)
{
    size_t cell = 0;

    for (; cell + PIXELS <= cells; cell += PIXELS)
        mix_pixels(PIXELS, sources, count, x, cell * VW, y);
    for (; cell < cells; cell++)
        mix_pixels(1, sources, count, x, cell * VW, y);
}

const struct mix_ops SIMD_NAME(mix_ops) = {.vector = VW, .mix = mix};
