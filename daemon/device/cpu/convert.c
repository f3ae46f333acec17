#include "device/cpu/convert.h"

#include <math.h>
#include <string.h>

/* Defined for every value, NaN included. */
static int64_t whole(double value)
{
    return value >= -9223372036854775808.0 && value < 9223372036854775808.0 ? (int64_t)value
                                                                            : INT64_MIN;
}

static uint64_t whole_unsigned(double value)
{
    return value >= 0x1p63 && value < 0x1p64 ? (uint64_t)value : (uint64_t)whole(value);
}

/* A double cut to a float whose last bit tells that something was lost (rounding to odd), so that
 * rounding it again to 16 bits gives what one rounding would. */
static float float_to_odd(double value)
{
    float rounded = (float)value;
    uint32_t bits;

    if ((double)rounded == value || !isfinite(rounded))
        return rounded;
    memcpy(&bits, &rounded, sizeof(bits));
    if ((bits & 1) == 0)
        bits += fabs((double)rounded) < fabs(value) ? 1 : UINT32_MAX;
    memcpy(&rounded, &bits, sizeof(bits));
    return rounded;
}

#define SAME(x)           (x)
#define WHOLE(x)          whole((double)(x))
#define WHOLE_UNSIGNED(x) whole_unsigned((double)(x))

#define CONVERT(from, to, how)                                                                     \
    static void from_##from##_to_##to(const void *in, void *out, size_t count)                     \
    {                                                                                              \
        const from *x = in;                                                                        \
        to *y = out;                                                                               \
                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            y[i] = (to)how(x[i]);                                                                  \
    }
#define TRUTH(from)                                                                                \
    static void from_##from##_to_bool(const void *in, void *out, size_t count)                     \
    {                                                                                              \
        const from *x = in;                                                                        \
        uint8_t *y = out;                                                                          \
                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            y[i] = x[i] != 0;                                                                      \
    }
#define CONVERT_ALL(from, how, how_unsigned)                                                       \
    CONVERT(from, float, SAME)                                                                     \
    CONVERT(from, double, SAME)                                                                    \
    CONVERT(from, int8_t, how)                                                                     \
    CONVERT(from, int16_t, how)                                                                    \
    CONVERT(from, int32_t, how)                                                                    \
    CONVERT(from, int64_t, how)                                                                    \
    CONVERT(from, uint8_t, how)                                                                    \
    CONVERT(from, uint16_t, how)                                                                   \
    CONVERT(from, uint32_t, how)                                                                   \
    CONVERT(from, uint64_t, how_unsigned)                                                          \
    TRUTH(from)

CONVERT_ALL(float, WHOLE, WHOLE_UNSIGNED)
CONVERT_ALL(double, WHOLE, WHOLE_UNSIGNED)
CONVERT_ALL(int8_t, SAME, SAME)
CONVERT_ALL(int16_t, SAME, SAME)
CONVERT_ALL(int32_t, SAME, SAME)
CONVERT_ALL(int64_t, SAME, SAME)
CONVERT_ALL(uint8_t, SAME, SAME)
CONVERT_ALL(uint16_t, SAME, SAME)
CONVERT_ALL(uint32_t, SAME, SAME)
CONVERT_ALL(uint64_t, SAME, SAME)

typedef void (*convert_fn)(const void *in, void *out, size_t count);

#define ROW(from)                                                                                  \
    {                                                                                              \
        [DTYPE_FLOAT] = from_##from##_to_float, [DTYPE_DOUBLE] = from_##from##_to_double,          \
        [DTYPE_INT8] = from_##from##_to_int8_t, [DTYPE_INT16] = from_##from##_to_int16_t,          \
        [DTYPE_INT32] = from_##from##_to_int32_t, [DTYPE_INT64] = from_##from##_to_int64_t,        \
        [DTYPE_UINT8] = from_##from##_to_uint8_t, [DTYPE_UINT16] = from_##from##_to_uint16_t,      \
        [DTYPE_UINT32] = from_##from##_to_uint32_t, [DTYPE_UINT64] = from_##from##_to_uint64_t,    \
        [DTYPE_BOOL] = from_##from##_to_bool                                                       \
    }

static const convert_fn table[DTYPE_COUNT][DTYPE_COUNT] = {
    [DTYPE_FLOAT] = ROW(float),     [DTYPE_DOUBLE] = ROW(double),   [DTYPE_INT8] = ROW(int8_t),
    [DTYPE_INT16] = ROW(int16_t),   [DTYPE_INT32] = ROW(int32_t),   [DTYPE_INT64] = ROW(int64_t),
    [DTYPE_UINT8] = ROW(uint8_t),   [DTYPE_UINT16] = ROW(uint16_t), [DTYPE_UINT32] = ROW(uint32_t),
    [DTYPE_UINT64] = ROW(uint64_t), [DTYPE_BOOL] = ROW(uint8_t),
};

static bool is_narrow(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16;
}

/* From or to a 16-bit float by way of floats, a chunk at a time. */
static void convert_narrow(const struct loops *loops, enum dtype from, const char *in,
                           enum dtype to, char *out, size_t count)
{
    size_t in_bytes = dtype_bytes(from), out_bytes = dtype_bytes(to);
    float chunk[LOOPS_CHUNK];

    for (size_t i = 0; i < count; i += LOOPS_CHUNK) {
        size_t n = count - i < LOOPS_CHUNK ? count - i : LOOPS_CHUNK;
        const char *x = in + i * in_bytes;

        if (is_narrow(from))
            widen(loops, from, x, chunk, n);
        else if (from == DTYPE_DOUBLE)
            for (size_t k = 0; k < n; k++)
                chunk[k] = float_to_odd(((const double *)(const void *)x)[k]);
        else
            table[from][DTYPE_FLOAT](x, chunk, n);
        if (is_narrow(to))
            narrow(loops, to, chunk, out + i * out_bytes, n);
        else
            table[DTYPE_FLOAT][to](chunk, out + i * out_bytes, n);
    }
}

void convert(const struct loops *loops, enum dtype from, const void *in, enum dtype to, void *out,
             size_t count)
{
    if (from == to)
        memcpy(out, in, count * dtype_bytes(from));
    else if (is_narrow(from) || is_narrow(to))
        convert_narrow(loops, from, in, to, out, count);
    else
        table[from][to](in, out, count);
}
