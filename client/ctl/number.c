#include "number.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"

struct integer_type {
    const char *name;
    unsigned bytes;
    bool is_signed;
};

/* NULL: a float. */
static const struct integer_type *integer_type(const char *datatype)
{
    static const struct integer_type types[] = {
        {"INT8", 1, true},    {"INT16", 2, true},   {"INT32", 4, true},
        {"INT64", 8, true},   {"UINT8", 1, false},  {"UINT16", 2, false},
        {"UINT32", 4, false}, {"UINT64", 8, false}, {"BOOL", 1, false},
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, datatype) == 0)
            return &types[i];
    return NULL;
}

/* ---- reading ---- */

static bool read_integer(const char *text, const struct integer_type *type, void *at, char **end)
{
    unsigned bits = 8 * type->bytes;
    uint64_t most = strcmp(type->name, "BOOL") == 0 ? 1
                    : bits == 64                    ? UINT64_MAX
                                                    : (UINT64_C(1) << bits) - 1;

    errno = 0;
    if (type->is_signed) {
        int64_t value = strtoll(text, end, 10), last = (int64_t)(most >> 1);

        memcpy(at, &value, type->bytes); /* little-endian: the low bytes */
        return errno == 0 && value <= last && value >= -last - 1;
    } else {
        uint64_t value = strtoull(text, end, 10);

        memcpy(at, &value, type->bytes);
        return errno == 0 && value <= most && strchr(text, '-') != text;
    }
}

static bool read_float(const char *text, const char *datatype, void *at, char **end)
{
    double value = strtod(text, end), most = HUGE_VAL;

    number_put(value, datatype, at);
    if (isnan(value) || isinf(value)) /* too large a number is infinite, too: no word */
        return isalpha((unsigned char)text[strspn(text, "+-")]);
    if (strcmp(datatype, "FP16") == 0)
        most = 65520; /* what this and more rounds to is infinite */
    else if (strcmp(datatype, "BF16") == 0)
        most = 0x1.FFp127;
    else if (strcmp(datatype, "FP32") == 0)
        most = 0x1.FFFFFFp127;
    return fabs(value) < most;
}

bool number_read(const char *text, const char *datatype, void *at, const char **out_end)
{
    const struct integer_type *integer = integer_type(datatype);
    char *end = NULL;
    bool fits;

    if (isspace((unsigned char)*text))
        return false;
    fits = integer != NULL ? read_integer(text, integer, at, &end)
                           : read_float(text, datatype, at, &end);
    *out_end = end;
    return fits && end != text;
}

/* ---- storing ---- */

static uint16_t bfloat_of_float(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

void number_put(double value, const char *datatype, void *at)
{
    const struct integer_type *integer = integer_type(datatype);
    uint16_t half;
    float single = (float)value;

    if (integer != NULL) {
        int64_t whole = (int64_t)value;

        memcpy(at, &whole, integer->bytes);
    } else if (strcmp(datatype, "FP32") == 0) {
        memcpy(at, &single, sizeof(single));
    } else if (strcmp(datatype, "FP64") == 0) {
        memcpy(at, &value, sizeof(value));
    } else {
        half = strcmp(datatype, "FP16") == 0 ? half_of_float(single) : bfloat_of_float(single);
        memcpy(at, &half, sizeof(half));
    }
}

/* ---- printing ---- */

static double float_at(const char *datatype, const void *at)
{
    uint16_t half;
    uint32_t bits;
    float single;
    double value;

    if (strcmp(datatype, "FP64") == 0) {
        memcpy(&value, at, sizeof(value));
        return value;
    }
    if (strcmp(datatype, "FP32") == 0) {
        memcpy(&single, at, sizeof(single));
        return (double)single;
    }
    memcpy(&half, at, sizeof(half));
    if (strcmp(datatype, "FP16") == 0)
        return (double)float_of_half(half);
    bits = (uint32_t)half << 16;
    memcpy(&single, &bits, sizeof(single));
    return (double)single;
}

void number_print(FILE *to, const char *datatype, const void *at)
{
    const struct integer_type *integer = integer_type(datatype);
    double value;

    if (integer != NULL) {
        uint64_t whole = 0;
        unsigned unused = 64 - 8 * integer->bytes;

        memcpy(&whole, at, integer->bytes);
        if (integer->is_signed) /* the sign comes from the top byte */
            (void)fprintf(to, "%" PRId64, (int64_t)(whole << unused) >> unused);
        else
            (void)fprintf(to, "%" PRIu64, whole);
        return;
    }
    value = float_at(datatype, at);
    if (isnan(value))
        (void)fputs("NaN", to);
    else if (isinf(value))
        (void)fputs(value < 0 ? "-Infinity" : "Infinity", to);
    else
        (void)fprintf(to, strcmp(datatype, "FP64") == 0 ? "%.17g" : "%.9g", value);
}
