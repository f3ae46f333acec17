/* The quick path: value · 10^k, rounded to an integer of few digits, is the answer if that integer
 * divided by 10^k is the value again.  Integers below 2^53 and powers of ten up to 10^22 are exact
 * doubles, so the division is rounded once, as a reader's would be.  A float is rounded twice,
 * which is the same unless the double lies half-way between two floats: then, and outside these
 * bounds, printf does it. */
#include "serve/codec/decimal.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POWERS = 23,
    PLAIN_FROM = -5, /* decimal exponents written without "e": as printf's %g, and one less */
    PLAIN_TO = 15,
    MAX_DIGITS = 20,
};

static const double powers[POWERS] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static bool has_power(int k)
{
    return k > -POWERS && k < POWERS;
}

static double scale(double value, int k)
{
    return k >= 0 ? value * powers[k] : value / powers[-k];
}

/* Of value ≥ 10^e the largest e, or one less. */
static int decimal_exponent(double value)
{
    int binary;

    (void)frexp(value, &binary);
    return (int)floor((binary - 1) * 0.30102999566398120);
}

static size_t write_digits(uint64_t number, char *out)
{
    char digits[MAX_DIGITS];
    size_t count = 0;

    do
        digits[MAX_DIGITS - ++count] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    memcpy(out, digits + MAX_DIGITS - count, count);
    return count;
}

static size_t write_exponent(int exponent, char *out)
{
    return (size_t)snprintf(out, 8, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
}

/* number / 10^k */
static size_t write_decimal(bool negative, uint64_t number, int k, char *out)
{
    char digits[MAX_DIGITS], *at = out;
    size_t count;
    int exponent;

    while (number % 10 == 0 && number > 0) {
        number /= 10;
        k--;
    }
    count = write_digits(number, digits);
    exponent = (int)count - 1 - k;
    if (negative)
        *at++ = '-';
    if (k <= 0 || exponent < PLAIN_FROM || exponent > PLAIN_TO) {
        *at++ = digits[0];
        if (count > 1)
            *at++ = '.';
        memcpy(at, digits + 1, count - 1);
        at += count - 1;
        return (size_t)(at - out) + write_exponent(exponent, at);
    }
    if (exponent < 0) { /* 0.00digits */
        *at++ = '0';
        *at++ = '.';
        memset(at, '0', (size_t)(-exponent - 1));
        at += -exponent - 1;
        memcpy(at, digits, count);
        return (size_t)(at - out) + count;
    }
    memcpy(at, digits, (size_t)exponent + 1); /* dig.its */
    at += exponent + 1;
    *at++ = '.';
    memcpy(at, digits + exponent + 1, count - (size_t)exponent - 1);
    return (size_t)(at - out) + count - (size_t)exponent - 1;
}

/* Half-way between two normal floats. */
static bool is_tie(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return (bits & 0x1fffffff) == 0x10000000;
}

static bool reads_back(double decimal, double value, bool is_float)
{
    if (!is_float)
        return decimal == value;
    return !is_tie(decimal) && (double)(float)decimal == value;
}

/* value > 0; 0: the quick path does not do. */
static size_t quick(bool negative, double value, bool is_float, int digits, int most, char *out)
{
    int exponent = decimal_exponent(value);

    for (; digits <= most; digits++) {
        int k = digits - 1 - exponent;
        uint64_t number;

        if (!has_power(k))
            return 0;
        number = (uint64_t)(scale(value, k) + 0.5);
        if (reads_back(scale((double)number, -k), value, is_float))
            return write_decimal(negative, number, k, out);
    }
    return 0;
}

size_t decimal_float(float value, char out[DECIMAL_BYTES])
{
    enum { LEAST = 6, MOST = 9 };
    float size = fabsf(value);
    size_t length = 0;

    if (isnormal(value))
        length = quick(signbit(value) != 0, (double)size, true, LEAST, MOST, out);
    for (int digits = LEAST; length == 0; digits++) {
        int written = snprintf(out, DECIMAL_BYTES, "%.*g", digits, (double)value);

        if (digits == MOST || strtof(out, NULL) == value)
            length = (size_t)written;
    }
    return length;
}

size_t decimal_double(double value, char out[DECIMAL_BYTES])
{
    enum { LEAST = 14, QUICK = 15, MOST = 17 };
    size_t length = 0;

    if (isnormal(value))
        length = quick(signbit(value) != 0, fabs(value), false, LEAST, QUICK, out);
    for (int digits = LEAST + 1; length == 0; digits++) {
        int written = snprintf(out, DECIMAL_BYTES, "%.*g", digits, value);

        if (digits == MOST || strtod(out, NULL) == value)
            length = (size_t)written;
    }
    return length;
}
