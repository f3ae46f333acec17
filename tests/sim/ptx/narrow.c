#include "narrow.h"

#include <math.h>
#include <string.h>

static const struct format formats[TYPES] = {
    [TYPE_F64] = {53, -1022, 0x1.fffffffffffffp1023L, true},
    [TYPE_F32] = {24, -126, 0x1.fffffep127L, true},
    [TYPE_TF32] = {11, -126, 0x1.ffcp127L, true},
    [TYPE_F16] = {11, -14, 65504, true},
    [TYPE_BF16] = {8, -126, 0x1.fep127L, true},
    [TYPE_E4M3X2] = {4, -6, 448, false},
    [TYPE_E5M2X2] = {3, -14, 57344, true},
};

const struct format *format_of(enum type type)
{
    return &formats[type];
}

long double round_integral(long double value, enum rounding mode)
{
    switch (mode) {
    case ROUND_ZERO:
        return truncl(value);
    case ROUND_DOWN:
        return floorl(value);
    case ROUND_UP:
        return ceill(value);
    case ROUND_AWAY:
        return roundl(value);
    default:
        return rintl(value);
    }
}

long double round_format(long double value, const struct format *format, enum rounding mode,
                         bool finite)
{
    if (isnan(value) || value == 0)
        return value;
    if (isinf(value))
        return finite || !format->has_infinity ? copysignl(format->most, value) : value;
    int exponent = ilogbl(value);
    if (exponent < format->least)
        exponent = format->least;
    long double step = ldexpl(1, exponent - format->precision + 1);
    long double rounded = round_integral(value / step, mode) * step;
    if (rounded == 0)
        return copysignl(0, value);
    if (fabsl(rounded) <= format->most)
        return rounded;
    bool inwards =
        mode == ROUND_ZERO || (mode == ROUND_DOWN && value > 0) || (mode == ROUND_UP && value < 0);
    if (finite || inwards)
        return copysignl(format->most, value);
    return format->has_infinity ? copysignl(INFINITY, value) : NAN;
}

static long double small_value(unsigned bits, int mantissa, int bias, bool infinities)
{
    int exponent = (int)(bits & 0x7F) >> mantissa;
    int fraction = (int)bits & ((1 << mantissa) - 1);
    int top = 0x7F >> mantissa;
    long double value;

    if (exponent == top && (infinities || fraction == (1 << mantissa) - 1))
        value = infinities && fraction == 0 ? INFINITY : NAN;
    else if (exponent == 0)
        value = ldexpl(fraction, 1 - bias - mantissa);
    else
        value = ldexpl((1 << mantissa) + fraction, exponent - bias - mantissa);
    return (bits & 0x80) != 0 ? -value : value;
}

static uint64_t small_bits(long double value, int mantissa, int bias, bool infinities)
{
    uint64_t sign = signbit(value) != 0 ? 0x80 : 0;

    if (isnan(value))
        return 0x7F;
    if (isinf(value))
        return sign | (infinities ? 0x7Cu : 0x7Fu);
    long double size = fabsl(value);
    if (size == 0)
        return sign;
    int exponent = ilogbl(size);
    if (exponent < 1 - bias)
        return sign | (uint64_t)ldexpl(size, bias - 1 + mantissa);
    uint64_t fraction = (uint64_t)ldexpl(size, mantissa - exponent) - (1u << mantissa);
    return sign | (uint64_t)(exponent + bias) << mantissa | fraction;
}

long double bits_value(enum type type, uint64_t bits)
{
    double wide;
    float narrow;
    uint32_t low = (uint32_t)bits;

    switch (type) {
    case TYPE_F64:
        memcpy(&wide, &bits, sizeof(wide));
        return wide;
    case TYPE_F16:
        return half_float((uint16_t)bits);
    case TYPE_BF16:
        return brain_float((uint16_t)bits);
    case TYPE_E4M3X2:
        return small_value(low, 3, 7, false);
    case TYPE_E5M2X2:
        return small_value(low, 2, 15, true);
    default:
        memcpy(&narrow, &low, sizeof(narrow));
        return narrow;
    }
}

uint64_t value_bits(enum type type, long double value)
{
    double wide = (double)value;
    float narrow = (float)value;
    uint64_t bits = 0;

    switch (type) {
    case TYPE_F64:
        memcpy(&bits, &wide, sizeof(wide));
        return bits;
    case TYPE_F16:
        return float_half(narrow);
    case TYPE_BF16:
        return float_brain(narrow);
    case TYPE_E4M3X2:
        return small_bits(value, 3, 7, false);
    case TYPE_E5M2X2:
        return small_bits(value, 2, 15, true);
    default:
        if (isnan(value))
            return 0x7FFFFFFF;
        memcpy(&bits, &narrow, sizeof(narrow));
        return bits;
    }
}
