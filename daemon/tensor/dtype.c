#include "tensor/dtype.h"

#include <string.h>

static const struct row {
    size_t bytes;
    const char *name;
    const char *oip_name;
    const char *triton_name;
} rows[DTYPE_COUNT] = {
#define DTYPE(name, number, bytes, onnx, oip, triton) [number] = {bytes, onnx, oip, triton},
#include "tensor/dtype.def"
#undef DTYPE
};

bool dtype_is_valid(enum dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT && rows[dtype].bytes > 0;
}

size_t dtype_bytes(enum dtype dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].bytes : 0;
}

const char *dtype_name(enum dtype dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].name : "none";
}

const char *dtype_oip_name(enum dtype dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].oip_name : "NONE";
}

const char *dtype_triton_name(enum dtype dtype)
{
    return dtype_is_valid(dtype) ? rows[dtype].triton_name : "TYPE_INVALID";
}

enum dtype dtype_from_oip_name(const char *name, size_t length)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (rows[i].bytes > 0 && strlen(rows[i].oip_name) == length &&
            memcmp(rows[i].oip_name, name, length) == 0)
            return (enum dtype)i;
    return DTYPE_NONE;
}

bool dtype_is_float(enum dtype dtype)
{
    return dtype_is_valid(dtype) && (DTYPE_FLOATS >> dtype & 1) != 0;
}

bool dtype_is_integer(enum dtype dtype)
{
    return dtype_is_valid(dtype) && (DTYPE_INTS >> dtype & 1) != 0;
}

static float float_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t bits_from_float(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

float float_from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1F;
    uint32_t fraction = half & 0x3FF;

    if (exponent == 0x1F)
        return float_from_bits(sign | 0x7F800000 | fraction << 13);
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in float */
        float magnitude = (float)fraction * 0x1p-24f;

        return sign != 0 ? -magnitude : magnitude;
    }
    return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t half_from_float(float value)
{
    uint32_t bits = bits_from_float(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7FFFFFFF;

    if (magnitude > 0x7F800000)
        return (uint16_t)(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
    if (magnitude >= 0x477FF000) /* rounds to 65536 or more: infinity */
        return (uint16_t)(sign | 0x7C00);
    if (magnitude < 0x38800000) { /* subnormal half: let the adder round to a multiple of 2^-24 */
        float rounded = float_from_bits(magnitude) + 0x1p-1f;

        return (uint16_t)(sign | (bits_from_float(rounded) - bits_from_float(0x1p-1f)));
    }
    magnitude += 0xFFF + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((magnitude >> 13) - (112 << 10)));
}

float float_from_bfloat16(uint16_t value)
{
    return float_from_bits((uint32_t)value << 16);
}

uint16_t bfloat16_from_float(float value)
{
    uint32_t bits = bits_from_float(value);

    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
