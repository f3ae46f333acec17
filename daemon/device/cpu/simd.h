/* Vector width in one place.
 *
 * VW floats a vector: 4 with SSE2 (every x86-64), 8 with AVX2+FMA, 16 with AVX-512F.  A file that
 * is compiled once per instruction set (x_base.c, x_avx2.c, x_avx512.c) is written with these names
 * and widens by its compiler flags.  With AVX the channel block of LAYOUT_BLOCKED is VW as well; at
 * the baseline it is two vectors.
 */
#ifndef DEVICE_CPU_SIMD_H
#define DEVICE_CPU_SIMD_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__)
#define SIMD_NAME(stem) stem##_avx512
enum { VW = 16 };
typedef __m512 vf;
typedef __m512i vi;
#define vload(p)       _mm512_loadu_ps(p)
#define vstore(p, x)   _mm512_storeu_ps(p, x)
#define vset1(x)       _mm512_set1_ps(x)
#define vzero()        _mm512_setzero_ps()
#define vadd(a, b)     _mm512_add_ps(a, b)
#define vsub(a, b)     _mm512_sub_ps(a, b)
#define vmul(a, b)     _mm512_mul_ps(a, b)
#define vdiv(a, b)     _mm512_div_ps(a, b)
#define vfma(a, b, c)  _mm512_fmadd_ps(a, b, c)  /* a * b + c */
#define vfnma(a, b, c) _mm512_fnmadd_ps(a, b, c) /* c - a * b */
#define vmax(a, b)     _mm512_max_ps(a, b)       /* b when either is NaN */
#define vmin(a, b)     _mm512_min_ps(a, b)
#define vsqrt(x)       _mm512_sqrt_ps(x)
#define vround(x)      _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define vfloor(x)      _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
#define vceil(x)       _mm512_roundscale_ps(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)
#define vabs(x)        _mm512_abs_ps(x)
/* The bits of `s` where those of `mask` are set, else those of `x`. */
#define vbits(mask, s, x)                                                                          \
    _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_set1_epi32(mask), _mm512_castps_si512(s), \
                                                  _mm512_castps_si512(x), 0xca))
#define vscale(x, n) _mm512_scalef_ps(x, n) /* x * 2^n */
/* x < y ? a : b; b when either is NaN */
#define vselect_lt(x, y, a, b) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a)
#define vselect_nan(x, a, b)   _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), b, a)
#define vi_set1(x)             _mm512_set1_epi32(x)
#define vi_add(a, b)           _mm512_add_epi32(a, b)
#define vi_sub(a, b)           _mm512_sub_epi32(a, b)
#define vi_sra(a, n)           _mm512_srai_epi32(a, n)
#define vi_sll(a, n)           _mm512_slli_epi32(a, n)
#define vi_from_f(x)           _mm512_castps_si512(x)
#define vf_from_i(x)           _mm512_castsi512_ps(x)
#define vf_convert(x)          _mm512_cvtepi32_ps(x)
#define vi_convert(x)          _mm512_cvtps_epi32(x)

#elif defined(__AVX2__) && defined(__FMA__)
#define SIMD_NAME(stem)             stem##_avx2
enum { VW = 8 };
typedef __m256 vf;
typedef __m256i vi;
#define vload(p)                    _mm256_loadu_ps(p)
#define vstore(p, x)                _mm256_storeu_ps(p, x)
#define vset1(x)                    _mm256_set1_ps(x)
#define vzero()                     _mm256_setzero_ps()
#define vadd(a, b)                  _mm256_add_ps(a, b)
#define vsub(a, b)                  _mm256_sub_ps(a, b)
#define vmul(a, b)                  _mm256_mul_ps(a, b)
#define vdiv(a, b)                  _mm256_div_ps(a, b)
#define vfma(a, b, c)               _mm256_fmadd_ps(a, b, c)
#define vfnma(a, b, c)              _mm256_fnmadd_ps(a, b, c)
#define vmax(a, b)                  _mm256_max_ps(a, b)
#define vmin(a, b)                  _mm256_min_ps(a, b)
#define vsqrt(x)                    _mm256_sqrt_ps(x)
#define vround(x)                   _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define vfloor(x)                   _mm256_floor_ps(x)
#define vceil(x)                    _mm256_ceil_ps(x)
#define vabs(x)                     _mm256_andnot_ps(_mm256_set1_ps(-0.f), x)
#define vbits(mask, s, x)           _mm256_blendv_bits(_mm256_castsi256_ps(_mm256_set1_epi32(mask)), s, x)
#define _mm256_blendv_bits(m, s, x) _mm256_or_ps(_mm256_and_ps(m, s), _mm256_andnot_ps(m, x))
#define vselect_lt(x, y, a, b)      _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ))
#define vselect_nan(x, a, b)        _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, x, _CMP_UNORD_Q))
#define vi_set1(x)                  _mm256_set1_epi32(x)
#define vi_add(a, b)                _mm256_add_epi32(a, b)
#define vi_sub(a, b)                _mm256_sub_epi32(a, b)
#define vi_sra(a, n)                _mm256_srai_epi32(a, n)
#define vi_sll(a, n)                _mm256_slli_epi32(a, n)
#define vi_from_f(x)                _mm256_castps_si256(x)
#define vf_from_i(x)                _mm256_castsi256_ps(x)
#define vf_convert(x)               _mm256_cvtepi32_ps(x)
#define vi_convert(x)               _mm256_cvtps_epi32(x)
INLINE vf vscale(vf x, vf n) /* n in -126 … 127 */
{
    vi e = vi_sll(vi_add(vi_convert(n), vi_set1(127)), 23);

    return vmul(x, vf_from_i(e));
}

#else
#define SIMD_NAME(stem)        stem##_base
enum { VW = 4 };
typedef __m128 vf;
typedef __m128i vi;
#define vload(p)               _mm_loadu_ps(p)
#define vstore(p, x)           _mm_storeu_ps(p, x)
#define vset1(x)               _mm_set1_ps(x)
#define vzero()                _mm_setzero_ps()
#define vadd(a, b)             _mm_add_ps(a, b)
#define vsub(a, b)             _mm_sub_ps(a, b)
#define vmul(a, b)             _mm_mul_ps(a, b)
#define vdiv(a, b)             _mm_div_ps(a, b)
#define vfma(a, b, c)          _mm_add_ps(_mm_mul_ps(a, b), c)
#define vfnma(a, b, c)         _mm_sub_ps(c, _mm_mul_ps(a, b))
#define vmax(a, b)             _mm_max_ps(a, b)
#define vmin(a, b)             _mm_min_ps(a, b)
#define vsqrt(x)               _mm_sqrt_ps(x)
#define vabs(x)                _mm_andnot_ps(_mm_set1_ps(-0.f), x)
INLINE vf v_bits(vf m, vf s, vf x)
{
    return _mm_or_ps(_mm_and_ps(m, s), _mm_andnot_ps(m, x));
}
#define vbits(mask, s, x)      v_bits(_mm_castsi128_ps(_mm_set1_epi32(mask)), s, x)
#define vselect_lt(x, y, a, b) v_bits(_mm_cmplt_ps(x, y), a, b)
#define vselect_nan(x, a, b)   v_bits(_mm_cmpunord_ps(x, x), a, b)
#define vi_set1(x)             _mm_set1_epi32(x)
#define vi_add(a, b)           _mm_add_epi32(a, b)
#define vi_sub(a, b)           _mm_sub_epi32(a, b)
#define vi_sra(a, n)           _mm_srai_epi32(a, n)
#define vi_sll(a, n)           _mm_slli_epi32(a, n)
#define vi_from_f(x)           _mm_castps_si128(x)
#define vf_from_i(x)           _mm_castsi128_ps(x)
#define vf_convert(x)          _mm_cvtepi32_ps(x)
#define vi_convert(x)          _mm_cvtps_epi32(x)
INLINE vf vscale(vf x, vf n)
{
    vi e = vi_sll(vi_add(vi_convert(n), vi_set1(127)), 23);

    return vmul(x, vf_from_i(e));
}
INLINE vf vround(vf x) /* from 2^23 on a float has no fraction */
{
    vf magic = vbits(INT32_MIN, x, vset1(0x1p23f));
    vf r = vbits(INT32_MIN, x, vsub(vadd(x, magic), magic));

    return vselect_lt(vabs(x), vset1(0x1p23f), r, x);
}
INLINE vf vfloor(vf x)
{
    vf r = vround(x);

    return vbits(INT32_MIN, x, vselect_lt(x, r, vsub(r, vset1(1.f)), r));
}
INLINE vf vceil(vf x)
{
    vf r = vround(x);

    return vbits(INT32_MIN, x, vselect_lt(r, x, vadd(r, vset1(1.f)), r));
}
#endif

#define vcopysign(x, s) vbits(INT32_MIN, s, x)

/* s += a * b in place.  Assembly because gcc 12 otherwise picks the 132/213 forms inside long
 * unrolled loops and shuffles accumulators through register moves (80 instead of 96 % of peak). */
#if defined(__AVX512F__)
#define vmac(s, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+v"(s) : "v"(a), "v"(b))
#elif defined(__FMA__)
#define vmac(s, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+x"(s) : "x"(a), "x"(b))
#else
#define vmac(s, a, b) ((s) = vfma(a, b, s))
#endif

#define UNROLL _Pragma("GCC unroll 16")

/* The low bytes of four vectors of 32-bit numbers within 16 bits, in one store. */
enum { NARROWED = 4 };
INLINE void vi_store_narrowed(uint8_t *to, const vi x[NARROWED])
{
#if defined(__AVX512F__)
    const vi order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const vi low = _mm512_set1_epi16(0xff);
    vi a = _mm512_and_si512(_mm512_packs_epi32(x[0], x[1]), low);
    vi b = _mm512_and_si512(_mm512_packs_epi32(x[2], x[3]), low);

    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(a, b)));
#elif defined(__AVX2__)
    const vi order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), low = _mm256_set1_epi16(0xff);
    vi a = _mm256_and_si256(_mm256_packs_epi32(x[0], x[1]), low);
    vi b = _mm256_and_si256(_mm256_packs_epi32(x[2], x[3]), low);

    _mm256_storeu_si256((vi *)(void *)to,
                        _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order));
#else
    const vi low = _mm_set1_epi16(0xff);
    vi a = _mm_and_si128(_mm_packs_epi32(x[0], x[1]), low);
    vi b = _mm_and_si128(_mm_packs_epi32(x[2], x[3]), low);

    _mm_storeu_si128((vi *)(void *)to, _mm_packus_epi16(a, b));
#endif
}

/* A function of the C library, lane by lane. */
INLINE vf vmap(float (*fn)(float), vf x)
{
    float lanes[VW];

    vstore(lanes, x);
    for (int i = 0; i < VW; i++)
        lanes[i] = fn(lanes[i]);
    return vload(lanes);
}

/* The first n < VW floats; the other lanes are zero. */
INLINE vf vload_part(const float *p, size_t n)
{
    float lanes[VW] = {0};

    memcpy(lanes, p, n * sizeof(float));
    return vload(lanes);
}
INLINE void vstore_part(float *p, vf x, size_t n)
{
    float lanes[VW];

    vstore(lanes, x);
    memcpy(p, lanes, n * sizeof(float));
}
/* Each lane below its bound; NaN is not. */
INLINE bool all_below(vf x, vf bound)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ) == 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(_mm256_cmp_ps(x, bound, _CMP_NLT_UQ)) == 0;
#else
    return _mm_movemask_ps(_mm_cmpnlt_ps(x, bound)) == 0;
#endif
}
/* Lanes folded in halves: always the same order. */
#if defined(__AVX512F__)
#define V_QUARTER_(combine, x)                                                                     \
    const __m256 h =                                                                               \
        _mm256_##combine##_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));            \
    __m128 q = _mm_##combine##_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1))
#elif defined(__AVX2__) && defined(__FMA__)
#define V_QUARTER_(combine, x)                                                                     \
    __m128 q = _mm_##combine##_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1))
#else
#define V_QUARTER_(combine, x) __m128 q = x
#endif
#define V_FOLD_(name, combine)                                                                     \
    INLINE float name(vf x)                                                                        \
    {                                                                                              \
        V_QUARTER_(combine, x);                                                                    \
        q = _mm_##combine##_ps(q, _mm_movehl_ps(q, q));                                            \
        return _mm_cvtss_f32(_mm_##combine##_ps(q, _mm_shuffle_ps(q, q, 1)));                      \
    }
V_FOLD_(vsum, add)
V_FOLD_(vlargest, max) /* no lane is NaN */

#endif
