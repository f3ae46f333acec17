/* IEEE 754 binary16 and float, rounded to nearest even.  clang 14 has no _Float16 on x86. */
#ifndef CTL_HALF_H
#define CTL_HALF_H

#include <math.h>
#include <stdint.h>

static inline float float_of_half(uint16_t half)
{
    int exponent = half >> 10 & 0x1F;
    float fraction = (float)(half & 0x3FF);
    float magnitude = exponent == 0x1F ? (fraction != 0 ? NAN : INFINITY)
                      : exponent == 0  ? ldexpf(fraction, -24)
                                       : ldexpf(fraction + 1024, exponent - 25);

    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

static inline uint16_t half_of_float(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float magnitude = fabsf(value);
    int exponent = -13;

    if (isnan(value))
        return (uint16_t)(sign | 0x7E00);
    if (magnitude >= 65520) /* rounds to 65536: out of range */
        return (uint16_t)(sign | 0x7C00);
    if (magnitude >= 0x1p-14F) /* below: subnormal, multiples of 2^-24 */
        (void)frexpf(magnitude, &exponent);
    /* The leading bit of the 11 counts into the exponent's field, as does a carry. */
    return (uint16_t)(sign |
                      (((exponent + 13) << 10) + (int)lrintf(ldexpf(magnitude, 11 - exponent))));
}

#endif
