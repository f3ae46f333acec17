/* Elements of the simulated libraries' matrices and tensors: to float and back, rounded to the
 * nearest even, as the hardware stores them. */
#ifndef SLUICE_TESTS_SIM_ELEMENT_H
#define SLUICE_TESTS_SIM_ELEMENT_H

#include <stdint.h>
#include <string.h>

enum element {
    ELEMENT_NONE,
    ELEMENT_FLOAT,
    ELEMENT_HALF,
    ELEMENT_BFLOAT,
    ELEMENT_BYTE, /* int8, int32: whole numbers, which the functions below are not for */
    ELEMENT_WHOLE
};

static inline size_t element_bytes(enum element element)
{
    if (element == ELEMENT_BYTE)
        return 1;
    return element == ELEMENT_FLOAT || element == ELEMENT_WHOLE ? 4 : 2;
}

static inline float element_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t element_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float element_from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, rest = half & 1023;

    if (exponent == 0)
        return element_from_bits(sign | element_bits((float)rest * 0x1p-24f));
    if (exponent == 31)
        return element_from_bits(sign | 0x7F800000u | rest << 13);
    return element_from_bits(sign | (exponent + 112) << 23 | rest << 13);
}

static inline uint16_t element_to_half(float value)
{
    uint32_t bits = element_bits(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    uint32_t round;

    if (size > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u);
    if (size >= 0x477FF000u) /* 65520 and more */
        return (uint16_t)(sign | 0x7C00u);
    if (size < 0x38800000u) /* below 2^-14: adding 0.5 leaves the 24 bits of the result, rounded */
        return (uint16_t)(sign | (element_bits(element_from_bits(size) + 0.5f) - 0x3F000000u));
    round = size + 0xFFFu + (size >> 13 & 1);
    return (uint16_t)(sign | ((round >> 13) - (112u << 10)));
}

static inline uint16_t element_to_bfloat(float value)
{
    uint32_t bits = element_bits(value);

    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

/* What tensor cores keep of a float: 10 bits behind the point. */
static inline float element_to_tf32(float value)
{
    uint32_t bits = element_bits(value);

    if ((bits & 0x7F800000u) == 0x7F800000u)
        return value;
    return element_from_bits((bits + 0x1000u) & ~0x1FFFu);
}

static inline float element_get(enum element element, const void *data, int64_t index)
{
    if (element == ELEMENT_FLOAT)
        return ((const float *)data)[index];
    if (element == ELEMENT_HALF)
        return element_from_half(((const uint16_t *)data)[index]);
    return element_from_bits((uint32_t)((const uint16_t *)data)[index] << 16);
}

static inline void element_put(enum element element, void *data, int64_t index, float value)
{
    if (element == ELEMENT_FLOAT)
        ((float *)data)[index] = value;
    else if (element == ELEMENT_HALF)
        ((uint16_t *)data)[index] = element_to_half(value);
    else
        ((uint16_t *)data)[index] = element_to_bfloat(value);
}

#endif
