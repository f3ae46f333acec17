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

static inline float half_float(uint16_t bits)
{
    _Float16 value;

    __builtin_memcpy(&value, &bits, sizeof(value));
    return (float)value;
}

static inline uint16_t float_half(float value)
{
    _Float16 narrow = (_Float16)value;
    uint16_t bits;

    __builtin_memcpy(&bits, &narrow, sizeof(bits));
    return value != value ? 0x7FFF : bits;
}

static inline float brain_float(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    __builtin_memcpy(&value, &wide, sizeof(value));
    return value;
}

static inline uint16_t float_brain(float value)
{
    uint32_t bits;

    __builtin_memcpy(&bits, &value, sizeof(bits));
    return value != value ? 0x7FFF : (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Subnormal numbers become zeros of their sign. */
static inline float flushed(float value)
{
    uint32_t bits;

    __builtin_memcpy(&bits, &value, sizeof(bits));
    bits = (bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
}

#endif
