/* Included by bytes_base.c, bytes_avx2.c and bytes_avx512.c. */
#include "device/cpu/bytes/bytes.h"
#include "device/cpu/simd.h"

extern const struct byte_loops SIMD_NAME(byte_loops);

enum { CHANNELS = 2 * VW, BYTES = 4 * VW };

#if defined(__AVX512F__)
#define vi_load(p)          _mm512_loadu_si512(p)
#define vi_madd(a, b)       _mm512_madd_epi16(a, b)
#define vi_low_pairs(a, b)  _mm512_unpacklo_epi16(a, b)
#define vi_high_pairs(a, b) _mm512_unpackhi_epi16(a, b)
#define vi_max_u8(a, b)     _mm512_max_epu8(a, b)
#define vi_set1_u8(x)       _mm512_set1_epi8(x)
#define vi_xor(a, b)        _mm512_xor_si512(a, b)
#define vi_store(p, x)      _mm512_storeu_si512(p, x)
#define REGISTER            "v"
INLINE void store_channels(uint8_t *to, vi low, vi high, int64_t count)
{
    __mmask32 mask = count >= CHANNELS ? ~(__mmask32)0 : ((__mmask32)1 << count) - 1;

    _mm512_mask_cvtepi16_storeu_epi8(to, mask, _mm512_packs_epi32(low, high));
}
INLINE vi widen_bytes(const uint8_t *from, bool is_signed)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)from);

    return is_signed ? _mm512_cvtepi8_epi32(x) : _mm512_cvtepu8_epi32(x);
}
#elif defined(__AVX2__)
#define vi_load(p)          _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define vi_madd(a, b)       _mm256_madd_epi16(a, b)
#define vi_low_pairs(a, b)  _mm256_unpacklo_epi16(a, b)
#define vi_high_pairs(a, b) _mm256_unpackhi_epi16(a, b)
#define vi_max_u8(a, b)     _mm256_max_epu8(a, b)
#define vi_set1_u8(x)       _mm256_set1_epi8(x)
#define vi_xor(a, b)        _mm256_xor_si256(a, b)
#define vi_store(p, x)      _mm256_storeu_si256((__m256i *)(void *)(p), x)
#define REGISTER            "x"
INLINE void store_channels(uint8_t *to, vi low, vi high, int64_t count)
{
    __m256i x = _mm256_and_si256(_mm256_packs_epi32(low, high), _mm256_set1_epi16(255));
    __m128i y;

    x = _mm256_permute4x64_epi64(_mm256_packus_epi16(x, x), 0x08);
    y = _mm256_castsi256_si128(x);
    if (count >= CHANNELS)
        _mm_storeu_si128((__m128i *)(void *)to, y);
    else
        memcpy(to, &y, (size_t)count);
}
INLINE vi widen_bytes(const uint8_t *from, bool is_signed)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)from);

    return is_signed ? _mm256_cvtepi8_epi32(x) : _mm256_cvtepu8_epi32(x);
}
#else
#define vi_load(p)          _mm_loadu_si128((const __m128i *)(const void *)(p))
#define vi_madd(a, b)       _mm_madd_epi16(a, b)
#define vi_low_pairs(a, b)  _mm_unpacklo_epi16(a, b)
#define vi_high_pairs(a, b) _mm_unpackhi_epi16(a, b)
#define vi_max_u8(a, b)     _mm_max_epu8(a, b)
#define vi_set1_u8(x)       _mm_set1_epi8(x)
#define vi_xor(a, b)        _mm_xor_si128(a, b)
#define vi_store(p, x)      _mm_storeu_si128((__m128i *)(void *)(p), x)
#define REGISTER            "x"
INLINE void store_channels(uint8_t *to, vi low, vi high, int64_t count)
{
    __m128i x = _mm_and_si128(_mm_packs_epi32(low, high), _mm_set1_epi16(255));

    x = _mm_packus_epi16(x, x);
    memcpy(to, &x, (size_t)(count < CHANNELS ? count : CHANNELS));
}
INLINE vi widen_bytes(const uint8_t *from, bool is_signed)
{
    return is_signed
               ? _mm_setr_epi32((int8_t)from[0], (int8_t)from[1], (int8_t)from[2], (int8_t)from[3])
               : _mm_setr_epi32(from[0], from[1], from[2], from[3]);
}
#endif

/* saturate(round(x) + zero) as whole numbers */
INLINE vi in_range(vf x, const struct byte_range *range)
{
    const vf low = vset1(range->low - range->zero), high = vset1(range->high - range->zero);

    /* bounds are whole numbers: cutting off before rounding is the same */
    return vi_add(vi_convert(vmin(high, vmax(low, x))), vi_set1((int32_t)range->zero));
}

/* ---- depthwise ---- */

struct sums {
    vi low, high;
};

/* Two taps of a vector of channels: their weights, side by side. */
INLINE struct sums pair_of(const int16_t *w, int64_t columns)
{
    const vi a = vi_load(w), b = vi_load(w + columns);

    return (struct sums){vi_low_pairs(a, b), vi_high_pairs(a, b)};
}

INLINE struct sums add_pair(struct sums s, const char *x, const int64_t *offsets, bool is_single,
                            struct sums w)
{
    const vi a = vi_load(x + offsets[0]), b = is_single ? vi_set1(0) : vi_load(x + offsets[1]);

    s.low = vi_add(s.low, vi_madd(vi_low_pairs(a, b), w.low));
    s.high = vi_add(s.high, vi_madd(vi_high_pairs(a, b), w.high));
    return s;
}

/* One vector of channels of a whole line. `nine`: so many taps, known to the compiler, whose
 * weights and offsets are our own: stores of bytes might change any other. */
INLINE void depthwise_channels(const struct byte_depthwise *p, int64_t channel, const bool nine)
{
    const int64_t columns = (p->channels + CHANNELS - 1) / CHANNELS * CHANNELS;
    const int64_t taps = nine ? 9 : p->taps, all = p->channels, stride = p->stride;
    const int16_t *w = p->weights + channel, *x = p->x + channel;
    const struct sums start = {vi_load(p->factors->starts + channel),
                               vi_load(p->factors->starts + channel + VW)};
    const vf low = vload(p->factors->scales + channel),
             high = vload(p->factors->scales + channel + VW);
    const struct byte_range range = p->factors->range;
    uint8_t *y = p->y + channel;
    struct sums own[5];
    int64_t offsets[9];

    UNROLL for (int64_t t = 0; nine && t < 9; t++)
    {
        offsets[t] = p->offsets[t];
        own[t / 2] = t % 2 == 0 ? pair_of(w + t * columns, columns) : own[t / 2];
    }
    for (int64_t i = 0; i < p->places; i++, x += stride, y += all) {
        struct sums s = start;

        UNROLL for (int64_t t = 0; t < taps; t += 2) s =
            add_pair(s, (const char *)x, (nine ? offsets : p->offsets) + t, t + 1 == taps,
                     nine ? own[t / 2] : pair_of(w + t * columns, columns));
        store_channels(y, in_range(vmul(vf_convert(s.low), low), &range),
                       in_range(vmul(vf_convert(s.high), high), &range), all - channel);
    }
}

static void depthwise(const struct byte_depthwise *p)
{
    for (int64_t c = 0; c < p->channels; c += CHANNELS) {
        if (p->taps == 9)
            depthwise_channels(p, c, true);
        else
            depthwise_channels(p, c, false);
    }
}

/* ---- element by element ---- */

static void maximum(const uint8_t *x, uint8_t *y, size_t count, bool is_signed)
{
    const uint8_t flip = is_signed ? 0x80 : 0;
    const vi shift = vi_set1_u8((char)flip);
    size_t i = 0;

    for (; i + BYTES <= count; i += BYTES) {
        vi a = vi_xor(vi_load(x + i), shift), b = vi_xor(vi_load(y + i), shift);

        vi_store(y + i, vi_xor(vi_max_u8(a, b), shift));
    }
    for (; i < count; i++)
        if ((x[i] ^ flip) > (y[i] ^ flip))
            y[i] = x[i];
}

INLINE vf dequantised(const uint8_t *q, bool is_signed, vi zero, vf scale)
{
    vf x = vmul(vf_convert(vi_sub(widen_bytes(q, is_signed), zero)), scale);

    /* apart: a fused multiply-add would not be what separate steps give */
    __asm__("" : "+" REGISTER(x));
    return x;
}

/* x / scale, rounded once.  In doubles a product with the reciprocal is off by 2^-52 of itself at
 * most; a quotient of two floats is no nearer than 2^-49 to where rounding to a float turns. */
INLINE vf quotient(vf x, float scale)
{
#if defined(__AVX512F__)
    const __m512d r = _mm512_set1_pd(1 / (double)scale);
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));

    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(_mm512_mul_pd(low, r))),
                              _mm512_cvtpd_ps(_mm512_mul_pd(high, r)), 1);
#else
    return vdiv(x, vset1(scale));
#endif
}

/* The steps, one after the other. */
INLINE vi combined(const struct byte_pair *pair, const uint8_t *a, const uint8_t *b)
{
    vf x = dequantised(a, pair->a_signed, vi_set1(pair->a_zero), vset1(pair->a_scale));
    vf y = dequantised(b, pair->b_signed, vi_set1(pair->b_zero), vset1(pair->b_scale));
    vf z = pair->multiplies ? vmul(x, y) : vadd(x, y);

    return in_range(quotient(z, pair->y_scale), &pair->range);
}

/* The short form; false where a lane is so near to a half that the steps decide. */
INLINE bool combine_nearly(const struct byte_pair *pair, const uint8_t *a, const uint8_t *b,
                           vi *out)
{
    const struct byte_range *range = &pair->range;
    const vf low = vset1(range->low - range->zero), high = vset1(range->high - range->zero);
    const vi p = widen_bytes(a, pair->a_signed), q = widen_bytes(b, pair->b_signed);
    vf x;
    vi whole;

    if (pair->multiplies)
        x = vmul(vmul(vf_convert(vi_sub(p, vi_set1(pair->a_zero))),
                      vf_convert(vi_sub(q, vi_set1(pair->b_zero)))),
                 vset1(pair->a_factor));
    else
        x = vfma(vf_convert(p), vset1(pair->a_factor),
                 vfma(vf_convert(q), vset1(pair->b_factor), vset1(pair->offset)));
    x = vmin(high, vmax(low, x));
    whole = vi_convert(x);
    *out = vi_add(whole, vi_set1((int32_t)range->zero));
    return all_below(vabs(vsub(x, vf_convert(whole))), vset1(0.5f - pair->off));
}

INLINE void store_low_bytes(uint8_t *y, vi x, size_t count)
{
    int32_t lanes[VW];

#if defined(__AVX512F__)
    if (count == VW) {
        _mm_storeu_si128((__m128i *)(void *)y, _mm512_cvtepi32_epi8(x));
        return;
    }
#endif
    vi_store(lanes, x);
    for (size_t k = 0; k < count; k++)
        y[k] = (uint8_t)lanes[k];
}

static void combine(const struct byte_pair *parameters, const uint8_t *a, const uint8_t *b,
                    uint8_t *y, size_t count)
{
    /* of our own: stores of bytes might change any other */
    const struct byte_pair own = *parameters, *pair = &own;
    size_t i = 0;

    for (; i + NARROWED * VW + 16 <= count; i += NARROWED * VW) {
        bool is_sure = true;
        vi x[NARROWED];

        UNROLL for (int v = 0; v < NARROWED; v++) is_sure &=
            combine_nearly(pair, a + i + v * VW, b + i + v * VW, &x[v]);
        if (!is_sure)
            UNROLL for (int v = 0; v < NARROWED; v++) x[v] =
                combined(pair, a + i + v * VW, b + i + v * VW);
        vi_store_narrowed(y + i, x);
    }
    /* A vector of bytes is read whole only where it is there; 16 bytes at most. */
    for (; i + 16 <= count; i += VW)
        store_low_bytes(y + i, combined(pair, a + i, b + i), VW);
    while (i < count) {
        uint8_t left[16] = {0}, right[16] = {0};
        const size_t n = count - i < VW ? count - i : VW;

        memcpy(left, a + i, n);
        memcpy(right, b + i, n);
        store_low_bytes(y + i, combined(pair, left, right), n);
        i += n;
    }
}

#if defined(__AVX512F__)
/* Half of the table in two registers; the top bit says which half. */
__attribute__((target("avx512vbmi"))) static void
look_up_wide(const uint8_t *table, const uint8_t *x, uint8_t *y, size_t count)
{
    const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
    const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);

    for (size_t i = 0; i < count; i += 64) {
        const __mmask64 mask = count - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (count - i)) - 1;
        const __m512i at = _mm512_maskz_loadu_epi8(mask, x + i);
        const __m512i low = _mm512_permutex2var_epi8(t0, at, t1);
        const __m512i high = _mm512_permutex2var_epi8(t2, at, t3);

        _mm512_mask_storeu_epi8(y + i, mask,
                                _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
    }
}
#endif

static void look_up(const uint8_t *table, const uint8_t *x, uint8_t *y, size_t count)
{
#if defined(__AVX512F__)
    if (__builtin_cpu_supports("avx512vbmi")) {
        look_up_wide(table, x, y, count);
        return;
    }
#endif
    for (size_t i = 0; i < count; i++)
        y[i] = table[x[i]];
}

/* ---- weights of float products ---- */

INLINE vf weight_at(const struct byte_weights *w, int64_t row, int64_t column)
{
    return dequantised(w->bytes + row * w->stride + column, w->is_signed,
                       vi_load(w->zeros + column), vload(w->scales + column));
}

static void unpack(const struct byte_weights *w, int64_t row, int64_t from, int64_t count,
                   float *to)
{
    for (int64_t j = 0; j < count; j += VW)
        vstore(to + j, weight_at(w, row, from + j));
}

/* R rows by two vectors of columns. */
INLINE void weigh_rows(const int R, const struct byte_weights *w, const float *a, const float *bias,
                       int64_t column, int64_t to, float *c, int64_t ldc)
{
    vf s[4][2];

    UNROLL for (int r = 0; r < R; r++)
    {
        UNROLL for (int v = 0; v < 2; v++) s[r][v] =
            bias != NULL ? vload(bias + column + v * VW) : vzero();
    }
    for (int64_t k = 0; k < w->k; k++) {
        const vf low = weight_at(w, k, column), high = weight_at(w, k, column + VW);

        UNROLL for (int r = 0; r < R; r++)
        {
            const vf x = vset1(a[r * w->k + k]);

            vmac(s[r][0], x, low);
            vmac(s[r][1], x, high);
        }
    }
    UNROLL for (int r = 0; r < R; r++)
    {
        for (int v = 0; v < 2; v++) {
            const int64_t at = column + v * VW, left = to - at;

            if (left >= VW)
                vstore(c + r * ldc + at, s[r][v]);
            else if (left > 0)
                vstore_part(c + r * ldc + at, s[r][v], (size_t)left);
        }
    }
}

static void weigh(const struct byte_weights *w, int64_t m, const float *a, const float *bias,
                  int64_t from, int64_t to, float *c, int64_t ldc)
{
    for (int64_t j = from; j < to; j += 2 * VW) {
        int64_t row = 0;

        for (; row + 4 <= m; row += 4)
            weigh_rows(4, w, a + row * w->k, bias, j, to, c + row * ldc, ldc);
        for (; row < m; row++)
            weigh_rows(1, w, a + row * w->k, bias, j, to, c + row * ldc, ldc);
    }
}

const struct byte_loops SIMD_NAME(byte_loops) = {.channels = CHANNELS,
                                                 .depthwise = depthwise,
                                                 .maximum = maximum,
                                                 .combine = combine,
                                                 .unpack = unpack,
                                                 .weigh = weigh,
                                                 .look_up = look_up};
