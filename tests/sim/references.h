/* What each instruction of test_operations.c must compute, in plain arithmetic of the host:
 * operands and result are bits, the low ones of 64. */
#ifndef SLUICE_TESTS_SIM_REFERENCES_H
#define SLUICE_TESTS_SIM_REFERENCES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static float f32(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, 4);
    return value;
}

static uint64_t b32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return isnan(value) ? 0x7FFFFFFF : bits;
}

static double f64(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static uint64_t b64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return isnan(value) ? 0x7FFFFFFFFFFFFFFF : bits;
}

/* Half precision by its definition: sign, five bits of exponent, ten of fraction. */
static double f16(uint64_t bits)
{
    int exponent = bits >> 10 & 31;
    int fraction = bits & 1023;
    double value = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

/* The nearest, ties to even, found by search. */
static uint64_t b16(double value)
{
    uint64_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    unsigned low = 0;
    unsigned high = 0x7C00;

    if (isnan(value))
        return 0x7FFF;
    if (size >= 65520)
        return sign | 0x7C00;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (f16(middle) <= size)
            low = middle;
        else
            high = middle;
    }
    double under = size - f16(low);
    double over = (high == 0x7C00 ? 65536 : f16(high)) - size;
    unsigned nearest = under < over ? low : over < under ? high : (low & 1 ? high : low);
    return sign | nearest;
}

static double bf16(uint64_t bits)
{
    return f32(bits << 16);
}

static uint64_t bb16(double value)
{
    uint64_t low = b32((float)value) >> 16; /* the float is exact or one of two neighbours away */
    uint64_t best = 0x7FFF;
    double distance = INFINITY;

    if (isnan(value))
        return 0x7FFF;
    if (isinf(value))
        return b32((float)value) >> 16;
    for (uint64_t bits = low == 0 || low == 0x8000 ? low : low - 1; bits <= low + 2; bits++) {
        double other = (bits & 0x7FFF) == 0x7F80 ? copysign(0x1p128, bf16(bits)) : bf16(bits);
        double off = fabs(other - value);
        if (isnan(other))
            continue;
        if (off < distance || (off == distance && (bits & 1) == 0)) {
            distance = off;
            best = bits;
        }
    }
    return best;
}

#define REFERENCE(name, expression)                                                                \
    static uint64_t name(uint64_t a, uint64_t b, uint64_t c)                                       \
    {                                                                                              \
        (void)a, (void)b, (void)c;                                                                 \
        return (uint64_t)(expression);                                                             \
    }
#define U32(x) ((uint32_t)(x))
#define S32(x) ((int32_t)(x))
#define S64(x) ((int64_t)(x))
#define S16(x) ((int16_t)(x))

REFERENCE(r_add32, U32(a + b))
REFERENCE(r_sub64, a - b)
REFERENCE(r_add16, (uint16_t)(a + b))
REFERENCE(r_mul32, U32(U32(a) * (uint64_t)U32(b)))
REFERENCE(r_mulhi_s32, U32((S64(S32(a)) * S32(b)) >> 32))
REFERENCE(r_mulhi_u64, (uint64_t)(((unsigned __int128)a * b) >> 64))
REFERENCE(r_mulhi_s64, (uint64_t)(((__int128)S64(a) * S64(b)) >> 64))
REFERENCE(r_wide_s32, S64(S32(a)) * S32(b))
REFERENCE(r_wide_u16, U32((uint16_t)a *(uint32_t)(uint16_t)b))
REFERENCE(r_mad, U32(a *b + c))
REFERENCE(r_mad_wide, (uint64_t)U32(a) * U32(b) + c)
REFERENCE(r_mad_hi, U32(((uint64_t)U32(a) * U32(b) >> 32) + c))
REFERENCE(r_div_s32, b == 0 ? UINT32_MAX : U32(S64(S32(a)) / S32(b)))
REFERENCE(r_rem_u64, b == 0 ? a : a % b)
REFERENCE(r_min_s32, U32(S32(a) < S32(b) ? a : b))
REFERENCE(r_max_u64, a > b ? a : b)
REFERENCE(r_abs_s32, U32(S32(a) < 0 ? 0 - a : a))
REFERENCE(r_neg_s64, 0 - a)
REFERENCE(r_sad, U32(c + (U32(a) > U32(b) ? a - b : b - a)))
REFERENCE(r_addsat, U32(S64(S32(a)) + S32(b) > INT32_MAX   ? INT32_MAX
                        : S64(S32(a)) + S32(b) < INT32_MIN ? INT32_MIN
                                                           : S32(a) + S32(b)))
REFERENCE(r_and, U32(a &b))
REFERENCE(r_xor64, a ^ b)
REFERENCE(r_not16, (uint16_t)~a)
REFERENCE(r_shl32, b >= 32 ? 0 : U32(a << b))
REFERENCE(r_shr_s32, U32(S32(a) >> (b > 31 ? 31 : b)))
REFERENCE(r_shr_u64, U32(b) >= 64 ? 0 : a >> U32(b))
REFERENCE(r_popc64, __builtin_popcountll(a))
REFERENCE(r_clz, U32(a) == 0 ? 32 : __builtin_clz(U32(a)))
REFERENCE(r_bfind, U32(a) == 0 ? UINT32_MAX : 31 - __builtin_clz(U32(a)))

static uint64_t r_brev(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t result = 0;
    (void)b, (void)c;
    for (int i = 0; i < 32; i++)
        result |= (a >> i & 1) << (31 - i);
    return result;
}

static uint64_t r_bfe_s32(uint64_t a, uint64_t b, uint64_t c)
{
    uint32_t result = 0;
    unsigned start = b & 255;
    unsigned length = c & 255;
    unsigned sign_at = start + length - 1 < 31 ? start + length - 1 : 31;
    unsigned sign = length == 0 ? 0 : a >> sign_at & 1;
    for (unsigned i = 0; i < 32; i++)
        result |= (uint32_t)(i < length && start + i < 32 ? a >> (start + i) & 1 : sign) << i;
    return result;
}

static uint64_t r_bfi(uint64_t a, uint64_t b, uint64_t c)
{
    uint32_t result = (uint32_t)b; /* start 5, length c */
    for (unsigned i = 0; i < (c & 255) && 5 + i < 32; i++)
        result = (result & ~(1u << (5 + i))) | (uint32_t)(a >> i & 1) << (5 + i);
    return result;
}

static uint64_t r_prmt(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t result = 0;
    unsigned char bytes[8];
    uint32_t low = (uint32_t)a;
    uint32_t high = (uint32_t)b;
    memcpy(bytes, &low, 4);
    memcpy(bytes + 4, &high, 4);
    for (int i = 0; i < 4; i++) {
        unsigned s = c >> (4 * i) & 15;
        unsigned byte = bytes[s & 7];
        if (s & 8)
            byte = byte & 0x80 ? 255 : 0;
        result |= (uint64_t)byte << (8 * i);
    }
    return result;
}

REFERENCE(r_shf_l, U32((((b & UINT32_MAX) << 32 | U32(a)) << (c & 31)) >> 32))
REFERENCE(r_shf_r, U32((((b & UINT32_MAX) << 32 | U32(a)) >> (c > 32 ? 32 : c))))

static uint64_t r_lop3(uint64_t a, uint64_t b, uint64_t c)
{
    return U32((a & b) | (~a & c)); /* table 0xCA */
}

static uint64_t r_dp4a(uint64_t a, uint64_t b, uint64_t c)
{
    int64_t sum = S32(c);
    for (int i = 0; i < 32; i += 8)
        sum += (int8_t)(a >> i) * (int8_t)(b >> i);
    return U32(sum);
}

static uint64_t r_dp4a_us(uint64_t a, uint64_t b, uint64_t c)
{
    int64_t sum = S32(c);
    for (int i = 0; i < 32; i += 8)
        sum += (uint8_t)(a >> i) * (int8_t)(b >> i);
    return U32(sum);
}

/* The product is 96 bits: the middle 32 with the carry of the low ones. */
static uint64_t r_carry(uint64_t a, uint64_t b, uint64_t c)
{
    unsigned __int128 sum = (unsigned __int128)a + b;
    (void)c;
    return (uint64_t)sum ^ (uint64_t)(sum >> 64);
}

REFERENCE(r_fadd, b32(f32(a) + f32(b)))
REFERENCE(r_fmul, b32(f32(a) * f32(b)))
REFERENCE(r_ffma, b32(fmaf(f32(a), f32(b), f32(c))))
REFERENCE(r_fdiv, b32(f32(a) / f32(b)))
REFERENCE(r_fsqrt, b32(sqrtf(f32(a))))
REFERENCE(r_frcp, b32(1.0f / f32(a)))
REFERENCE(r_fmin, isnan(f32(a))      ? b32(f32(b))
                  : isnan(f32(b))    ? a
                  : f32(a) == f32(b) ? a | b
                                     : (f32(a) < f32(b) ? a : b))
REFERENCE(r_fmax, isnan(f32(a))      ? b32(f32(b))
                  : isnan(f32(b))    ? a
                  : f32(a) == f32(b) ? a & b
                                     : (f32(a) > f32(b) ? a : b))
REFERENCE(r_fabs, a & 0x7FFFFFFF)
REFERENCE(r_copysign, (b & 0x7FFFFFFF) | (a & 0x80000000))
REFERENCE(r_sat, isnan(f32(a) + f32(b)) || f32(a) + f32(b) < 0 ? 0
                 : f32(a) + f32(b) > 1                         ? b32(1)
                                                               : b32(f32(a) + f32(b)))

static float flush(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}
REFERENCE(r_fmul_ftz, b32(flush(flush(f32(a)) * flush(f32(b)))))

/* The exact result in long double, moved to the neighbour that the mode asks for. */
static float directed(long double exact, int mode)
{
    float nearest = (float)exact;
    if (isnan(nearest) || (long double)nearest == exact)
        return nearest;
    bool above = (long double)nearest > exact;
    bool down = mode == 2 || (mode == 1 && exact > 0);
    if (down)
        return above ? nextafterf(nearest, -INFINITY) : nearest;
    return above ? nearest : nextafterf(nearest, INFINITY);
}
REFERENCE(r_fadd_rz, b32(directed((long double)f32(a) + f32(b), 1)))
REFERENCE(r_fmul_rm, b32(directed((long double)f32(a) * f32(b), 2)))
REFERENCE(r_fmul_rp, b32(directed((long double)f32(a) * f32(b), 3)))

REFERENCE(r_ex2, b32((float)exp2((double)f32(a))))
REFERENCE(r_lg2, b32((float)log2((double)f32(a))))
REFERENCE(r_sin, b32((float)sin((double)f32(a))))
REFERENCE(r_cos, b32((float)cos((double)f32(a))))
REFERENCE(r_tanh, b32((float)tanh((double)f32(a))))
REFERENCE(r_rsqrt, b32((float)(1 / sqrt((double)f32(a)))))

REFERENCE(r_dadd, b64(f64(a) + f64(b)))
REFERENCE(r_dfma, b64(fma(f64(a), f64(b), f64(c))))
REFERENCE(r_ddiv, b64(f64(a) / f64(b)))
REFERENCE(r_dsqrt, b64(sqrt(f64(a))))

REFERENCE(r_hadd, b16(f16(a) + f16(b)))
REFERENCE(r_hmul, b16(f16(a) * f16(b)))
/* Exact in long double: 22 bits of product, 64 to hold the sum of what is not far apart. */
static uint64_t r_hfma(uint64_t a, uint64_t b, uint64_t c)
{
    __float128 exact = (__float128)f16(a) * (__float128)f16(b) + (__float128)f16(c);
    double near = (double)exact;
    uint64_t bits = b16(near);
    if (near == (double)exact && (__float128)near != exact) {
        /* Not exact in double: the sticky rest decides ties. */
        double other = nextafter(near, exact > near ? INFINITY : -INFINITY);
        if (b16(other) != bits)
            bits = b16((near + other) / 2 == near ? other : near);
    }
    return bits;
}
REFERENCE(r_hadd2, b16(f16(a & 0xFFFF) + f16(b & 0xFFFF)) |
                       b16(f16(a >> 16 & 0xFFFF) + f16(b >> 16 & 0xFFFF)) << 16)
REFERENCE(r_badd, bb16(bf16(a) + bf16(b)))
REFERENCE(r_bmul, bb16(bf16(a) * bf16(b)))
REFERENCE(r_bmax2,
          (bf16(a & 0xFFFF) > bf16(b & 0xFFFF) ? a & 0xFFFF : b & 0xFFFF) |
              (bf16(a >> 16 & 0xFFFF) > bf16(b >> 16 & 0xFFFF) ? a & 0xFFFF0000 : b & 0xFFFF0000))

REFERENCE(r_s64_s8, S64((int8_t)a))
REFERENCE(r_u32_s16, U32(S16(a)))
REFERENCE(r_f32_s64, b32((float)S64(a)))
REFERENCE(r_f32_u32_rz, b32(directed((long double)U32(a), 1)))
REFERENCE(r_f64_u64, b64((double)a))
REFERENCE(r_f16_f32, b16(f32(a)))
REFERENCE(r_f32_f16, b32((float)f16(a)))
REFERENCE(r_bf16_f32, bb16(f32(a)))
REFERENCE(r_f32_f64, b32((float)f64(a)))
REFERENCE(r_f16x2, b16(f32(a)) << 16 | b16(f32(b)))
REFERENCE(r_rni_f32, b32(rintf(f32(a))))
REFERENCE(r_rmi_f32, b32(floorf(f32(a))))
REFERENCE(r_rzi_s32, isnan(f32(a))        ? 0
                     : f32(a) >= 0x1p31f  ? INT32_MAX
                     : f32(a) <= -0x1p31f ? 0x80000000u
                                          : U32((int32_t)f32(a)))
REFERENCE(r_rzi_u8, isnan(f32(a)) || f32(a) < 0 ? 0 : f32(a) > 255 ? 255 : (unsigned)f32(a))
REFERENCE(r_rni_s64_f64, isnan(f64(a))       ? (uint64_t)1 << 63
                         : f64(a) >= 0x1p63  ? INT64_MAX
                         : f64(a) <= -0x1p63 ? (uint64_t)1 << 63
                                             : (uint64_t)(int64_t)rint(f64(a)))
REFERENCE(r_sat_u8_s32, S32(a) < 0 ? 0 : S32(a) > 255 ? 255 : a)

REFERENCE(r_lt_s32, S32(a) < S32(b) ? 7 : 9)
REFERENCE(r_hi_u32, U32(a) > U32(b) ? 7 : 9)
REFERENCE(r_geu_f32, !(f32(a) < f32(b)) ? 7 : 9)
REFERENCE(r_ne_f32, f32(a) < f32(b) || f32(a) > f32(b) ? 7 : 9)
REFERENCE(r_num_f32, !isnan(f32(a)) && !isnan(f32(b)) ? 7 : 9)
REFERENCE(r_gt_f16, f16(a) > f16(b) ? 7 : 9)
REFERENCE(r_set, f16(a) == f16(b) ? b16(1) : 0)
REFERENCE(r_pack, U32((uint16_t)a | b << 16))
REFERENCE(r_slct, S32(c) >= 0 ? U32(a) : U32(b))

/* Eight bits: four of exponent, three of fraction; all ones is NaN, there is no infinity. */
static double e4m3(uint64_t bits)
{
    int exponent = bits >> 3 & 15;
    int fraction = bits & 7;
    double value = (bits & 0x7F) == 0x7F ? NAN
                   : exponent == 0       ? ldexp(fraction, -9)
                                         : ldexp(8 + fraction, exponent - 10);
    return bits & 0x80 ? -value : value;
}

static uint64_t b4m3(double value) /* the nearest, the largest for what is larger */
{
    uint64_t best = 0;

    if (isnan(value))
        return 0x7F;
    if (fabs(value) >= 448)
        return signbit(value) ? 0xFE : 0x7E;
    for (uint64_t bits = 0; bits < 0x7F; bits++) {
        double off = fabs(e4m3(bits) - fabs(value)) - fabs(e4m3(best) - fabs(value));
        if (off < 0 || (off == 0 && (bits & 1) == 0))
            best = bits;
    }
    return best | (signbit(value) ? 0x80 : 0);
}
REFERENCE(r_e4m3x2, b4m3(f32(a)) << 8 | b4m3(f32(b)))
REFERENCE(r_f16x2_e4m3x2, b16(e4m3(a & 0xFF)) | b16(e4m3(a >> 8 & 0xFF)) << 16)

/* Ties away from zero, 10 bits of fraction kept. */
REFERENCE(r_tf32, isnan(f32(a)) ? 0x7FFFFFFF : isinf(f32(a)) ? a : (a + 0x1000) & 0xFFFFE000)
REFERENCE(r_pack_u8, U32(c) << 16 |
                         U32(S32(a) < 0     ? 0
                             : S32(a) > 255 ? 255
                                            : S32(a))
                             << 8 |
                         U32(S32(b) < 0     ? 0
                             : S32(b) > 255 ? 255
                                            : S32(b)))
REFERENCE(r_dp2a, U32((int64_t)S32(c) + S16(a) * (int8_t)b + S16(a >> 16) * (int8_t)(b >> 8)))
REFERENCE(r_borrow, (a - b) ^ (a < b ? UINT64_MAX : 0))
/* The upper word of a b + c, by way of the lower one's carry. */
REFERENCE(r_madc, U32(((uint64_t)U32(a) * U32(b) + U32(c)) >> 32))
REFERENCE(r_bmsk, U32(((uint64_t)1 << (b & 31)) - 1) << (a & 31))
REFERENCE(r_finite, isfinite(f32(a)) ? 7 : 9)
REFERENCE(r_mul24, U32((a & 0xFFFFFF) * (b & 0xFFFFFF)))
REFERENCE(r_bfma, bb16(fma(bf16(a), bf16(b), bf16(c))))

#endif
