/* Rounding to formats narrower than the host's, and their bits. */
#ifndef SLUICE_TESTS_SIM_PTX_NARROW_H
#define SLUICE_TESTS_SIM_PTX_NARROW_H

#include "build.h"

enum rounding { ROUND_NEAREST, ROUND_ZERO, ROUND_DOWN, ROUND_UP, ROUND_AWAY };

/* What a binary format can hold. */
struct format {
    int precision;    /* bits of the significand, the hidden one included */
    int least;        /* exponent of the smallest normal number, 1.0 being 0 */
    long double most; /* largest finite number */
    bool has_infinity;
};

/* TYPE_F64, F32, F16, BF16, TF32, E4M3X2, E5M2X2 (one of the two). */
const struct format *format_of(enum type type);

/* `value` to an integer, by the mode. */
long double round_integral(long double value, enum rounding mode);
/* `value` to the format, exactly once; beyond its range infinity, or its largest number where the
 * mode, the format or `finite` says so. */
long double round_format(long double value, const struct format *format, enum rounding mode,
                         bool finite);

/* Bits to a number and back; the number must be one that the format has. */
long double bits_value(enum type type, uint64_t bits);
uint64_t value_bits(enum type type, long double value);

static inline uint32_t float_bits(float value)
{
    uint32_t bits;

    __builtin_memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float value;

    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Half precision without branches, so that 32 lanes become vectors: the exponent is moved by a
 * product with 2^112, which is exact and makes subnormal numbers right too. */
static inline float half_float(uint16_t bits)
{
    uint32_t size = bits & 0x7FFFu;
    uint32_t finite = float_bits(bits_float(size << 13) * 0x1p112f);
    uint32_t wide = size >= 0x7C00 ? size << 13 | 0x7F800000 : finite;

    return bits_float(wide | (uint32_t)(bits & 0x8000) << 16);
}

/* To nearest, ties to even.  Below 2^-14 the sum with 0.5 rounds to the steps of 2^-24. */
static inline uint16_t float_half(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t size = bits & 0x7FFFFFFF;
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t small = float_bits(bits_float(size) + 0.5f) - 0x3F000000;
    uint32_t normal = (size + 0xFFF + (size >> 13 & 1) - 0x38000000) >> 13;
    uint32_t half = size < 0x38800000 ? small : size >= 0x477FF000 ? 0x7C00 : normal;

    return (uint16_t)(size > 0x7F800000 ? 0x7FFF : sign | half);
}

static inline float brain_float(uint16_t bits)
{
    return bits_float((uint32_t)bits << 16);
}

static inline uint16_t float_brain(float value)
{
    uint32_t bits = float_bits(value);

    return value != value ? 0x7FFF : (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Subnormal numbers become zeros of their sign. */
static inline float flushed(float value)
{
    uint32_t bits = float_bits(value);

    return bits_float((bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits);
}

#endif
