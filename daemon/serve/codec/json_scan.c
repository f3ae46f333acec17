#include "serve/codec/json_scan.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

struct json_scan scan_over(void *text, size_t size)
{
    return (struct json_scan){.start = text, .at = text, .end = (char *)text + size};
}

bool scan_fail(struct json_scan *scan, const char *why)
{
    if (scan->why == NULL)
        scan->why = why;
    return false;
}

/* ---- structure ---- */

static inline void skip_space(struct json_scan *scan)
{
    while (scan->at < scan->end &&
           (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t'))
        scan->at++;
}

/* The next character that is no space; 0 at the end. */
char scan_peek(struct json_scan *scan)
{
    skip_space(scan);
    return scan->at < scan->end && scan->why == NULL ? *scan->at : '\0';
}

bool scan_enter(struct json_scan *scan, char open)
{
    if (scan_peek(scan) != open)
        return scan_fail(scan, open == '{' ? "expected an object" : "expected an array");
    if (++scan->depth > JSON_DEPTH_MAX)
        return scan_fail(scan, "nested too deeply");
    scan->at++;
    scan->is_fresh = true;
    return true;
}

/* True when one more member or element follows; else the container is left. */
static bool next(struct json_scan *scan, char close)
{
    bool is_first = scan->is_fresh;
    char c = scan_peek(scan);

    scan->is_fresh = false;
    if (scan->why != NULL)
        return false;
    if (c == close) {
        scan->at++;
        scan->depth--;
        return false;
    }
    if (is_first)
        return true;
    if (c != ',')
        return scan_fail(scan, "expected ',' or a closing bracket");
    scan->at++;
    return scan_peek(scan) != close || scan_fail(scan, "expected a value behind ','");
}

bool scan_next_element(struct json_scan *scan)
{
    return next(scan, ']');
}

bool scan_next_member(struct json_scan *scan, struct slice *out_name)
{
    if (!next(scan, '}') || !scan_string(scan, out_name))
        return false;
    if (scan_peek(scan) != ':')
        return scan_fail(scan, "expected ':'");
    scan->at++;
    return true;
}

bool scan_finish(struct json_scan *scan)
{
    (void)scan_peek(scan);
    return scan->why == NULL && (scan->at == scan->end || scan_fail(scan, "more than one value"));
}

/* ---- strings ---- */

static int hex4(const char *at)
{
    int value = 0;

    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static char *put_utf8(char *to, unsigned c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    } else {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3F));
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    }
    return to;
}

/* \uXXXX, with its partner when it is half of a pair; `at` is behind "\u".  NULL: malformed. */
static const char *unescape_unicode(const char *at, const char *end, char **to)
{
    int high = end - at >= 4 ? hex4(at) : -1, low;

    if (high < 0 || (high >= 0xDC00 && high <= 0xDFFF))
        return NULL;
    at += 4;
    if (high >= 0xD800 && high <= 0xDBFF) {
        low = end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex4(at + 2) : -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return NULL;
        high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
    }
    *to = put_utf8(*to, (unsigned)high);
    return at;
}

static const char *unescape(const char *at, const char *end, char **to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *found;

    if (at == end)
        return NULL;
    if (*at == 'u')
        return unescape_unicode(at + 1, end, to);
    found = memchr(names, *at, sizeof(names) - 1);
    if (found == NULL)
        return NULL;
    *(*to)++ = values[found - names];
    return at + 1;
}

bool scan_string(struct json_scan *scan, struct slice *out_text)
{
    char *start, *to, sink[4];
    const char *at;

    if (scan_peek(scan) != '"')
        return scan_fail(scan, "expected a string");
    start = to = ++scan->at;
    at = start;
    while (at < scan->end && *at != '"') {
        size_t length = (unsigned char)*at < 0x80 ? 1 : utf8_length(at, (size_t)(scan->end - at));

        if (length == 0 || (unsigned char)*at < ' ')
            return scan_fail(scan, "a string holds a control character or no UTF-8");
        if (scan->is_skipping)
            to = sink;
        if (*at == '\\') {
            at = unescape(at + 1, scan->end, &to);
            if (at == NULL)
                return scan_fail(scan, "a string holds a malformed escape");
            continue;
        }
        if (to != at)
            memmove(to, at, length);
        to += length;
        at += length;
    }
    if (at == scan->end)
        return scan_fail(scan, "a string does not end");
    *out_text = (struct slice){start, scan->is_skipping ? 0 : (size_t)(to - start)};
    scan->at = (char *)(uintptr_t)at + 1;
    return true;
}

/* ---- numbers ---- */

struct number {
    bool is_negative;
    bool is_integer; /* no fraction, no exponent, fits `magnitude` */
    uint64_t magnitude;
    double value;
};

static const double powers_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                       1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                       1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { EXACT_POWER = 22 };

static bool take_word(struct json_scan *scan, const char *word)
{
    size_t size = strlen(word);

    if ((size_t)(scan->end - scan->at) < size || memcmp(scan->at, word, size) != 0)
        return false;
    scan->at += size;
    return true;
}

static bool special_number(struct json_scan *scan, struct number *number)
{
    if (take_word(scan, "NaN"))
        number->value = (double)NAN;
    else if (take_word(scan, "Infinity"))
        number->value = (double)(number->is_negative ? -INFINITY : INFINITY);
    else
        return scan_fail(scan, "expected a number");
    return true;
}

static inline bool is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* Decimal digits into a 64-bit mantissa; false in *exact once it does not hold them all. */
static const char *take_digits(const char *at, const char *end, uint64_t *mantissa, bool *exact)
{
    for (; is_digit(at, end); at++)
        if (__builtin_mul_overflow(*mantissa, (uint64_t)10, mantissa) ||
            __builtin_add_overflow(*mantissa, (uint64_t)(*at - '0'), mantissa))
            *exact = false;
    return at;
}

static const char *take_exponent(const char *at, const char *end, int *exponent)
{
    bool is_negative;
    int value = 0;

    at++;
    is_negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    if (!is_digit(at, end))
        return NULL;
    for (; is_digit(at, end); at++)
        if (value < 100000)
            value = value * 10 + (*at - '0');
    *exponent += is_negative ? -value : value;
    return at;
}

/* Mantissa times a power of ten: right by one operation where both are exact doubles. */
static double to_double(const char *digits, uint64_t mantissa, bool exact, int exponent)
{
    if (exact && mantissa <= UINT64_C(1) << 53 && exponent >= -EXACT_POWER &&
        exponent <= EXACT_POWER)
        return exponent < 0 ? (double)mantissa / powers_of_ten[-exponent]
                            : (double)mantissa * powers_of_ten[exponent];
    return strtod(digits, NULL); /* they end in a character of no number */
}

static bool scan_number(struct json_scan *scan, struct number *out_number)
{
    struct number number = {0};
    const char *digits, *at, *fraction;
    bool exact = true;
    int exponent = 0;

    number.is_negative = scan_peek(scan) == '-';
    scan->at += number.is_negative;
    digits = scan->at;
    *out_number = number;
    if (!is_digit(digits, scan->end))
        return special_number(scan, out_number);
    if (*digits == '0' && is_digit(digits + 1, scan->end))
        return scan_fail(scan, "a number begins with 0");
    at = take_digits(digits, scan->end, &number.magnitude, &exact);
    number.is_integer = exact;
    if (at < scan->end && *at == '.') {
        number.is_integer = false;
        fraction = at + 1;
        at = take_digits(fraction, scan->end, &number.magnitude, &exact);
        if (at == fraction)
            return scan_fail(scan, "a number ends in '.'");
        exponent = at - fraction < 1000 ? -(int)(at - fraction) : -1000; /* beyond is strtod's */
    }
    if (at < scan->end && (*at == 'e' || *at == 'E')) {
        number.is_integer = false;
        at = take_exponent(at, scan->end, &exponent);
        if (at == NULL)
            return scan_fail(scan, "a number has no exponent behind 'e'");
    }
    if (at == scan->end)
        return scan_fail(scan, "the text ends in a number");
    number.value = to_double(digits, number.magnitude, exact, exponent);
    if (isinf(number.value)) /* infinity has a word of its own */
        return scan_fail(scan, "a number is outside the range of its type");
    if (number.is_negative)
        number.value = -number.value;
    scan->at = (char *)(uintptr_t)at;
    *out_number = number;
    return true;
}

static bool number_to_integer(struct json_scan *scan, const struct number *number, uint64_t most,
                              uint64_t least, int64_t *out_value)
{
    if (!number->is_integer)
        return scan_fail(scan, "expected an integer");
    if (number->magnitude > (number->is_negative ? least : most))
        return scan_fail(scan, "an integer is outside the range of its type");
    *out_value = (int64_t)(number->is_negative ? 0 - number->magnitude : number->magnitude);
    return true;
}

bool scan_integer(struct json_scan *scan, int64_t *out_value)
{
    struct number number;

    return scan_number(scan, &number) &&
           number_to_integer(scan, &number, INT64_MAX, (uint64_t)INT64_MAX + 1, out_value);
}

bool scan_double(struct json_scan *scan, double *out_value)
{
    struct number number;

    if (!scan_number(scan, &number))
        return false;
    *out_value = number.value;
    return true;
}

bool scan_bool(struct json_scan *scan, bool *out_value)
{
    char c = scan_peek(scan);

    if ((c == 't' && take_word(scan, "true")) || (c == 'f' && take_word(scan, "false"))) {
        *out_value = c == 't';
        return true;
    }
    return scan_fail(scan, "expected true or false");
}

static bool skip_value(struct json_scan *scan)
{
    struct slice text;
    struct number number;
    bool flag;

    switch (scan_peek(scan)) {
    case '{':
        if (scan_enter(scan, '{'))
            while (scan_next_member(scan, &text) && skip_value(scan)) {
            }
        break;
    case '[':
        if (scan_enter(scan, '['))
            while (scan_next_element(scan) && skip_value(scan)) {
            }
        break;
    case '"':
        (void)scan_string(scan, &text);
        break;
    case 't':
    case 'f':
        (void)scan_bool(scan, &flag);
        break;
    case 'n':
        if (!take_word(scan, "null"))
            (void)scan_fail(scan, "unknown word");
        break;
    default:
        (void)scan_number(scan, &number);
    }
    return scan->why == NULL;
}

bool scan_skip(struct json_scan *scan)
{
    bool good;

    scan->is_skipping = true;
    good = skip_value(scan);
    scan->is_skipping = false;
    return good;
}

/* ---- tensors ---- */

static bool store_float(struct json_scan *scan, enum dtype dtype, double value, void *to)
{
    float narrow = (float)value;
    uint16_t half;

    if (dtype == DTYPE_DOUBLE) {
        memcpy(to, &value, sizeof(value));
        return true;
    }
    if (isinf(narrow) && !isinf(value))
        return scan_fail(scan, "a number is outside the range of its type");
    if (dtype == DTYPE_FLOAT) {
        memcpy(to, &narrow, sizeof(narrow));
        return true;
    }
    half = dtype == DTYPE_FLOAT16 ? half_from_float(narrow) : bfloat16_from_float(narrow);
    if (isfinite(narrow) &&
        !isfinite(dtype == DTYPE_FLOAT16 ? float_from_half(half) : float_from_bfloat16(half)))
        return scan_fail(scan, "a number is outside the range of its type");
    memcpy(to, &half, sizeof(half));
    return true;
}

static bool read_integer(struct json_scan *scan, enum dtype dtype, void *to)
{
    bool is_signed =
        (DTYPE_BIT(INT8) | DTYPE_BIT(INT16) | DTYPE_BIT(INT32) | DTYPE_BIT(INT64)) >> dtype & 1;
    unsigned bits = (unsigned)dtype_bytes(dtype) * 8;
    uint64_t most = is_signed ? (UINT64_C(1) << (bits - 1)) - 1 : UINT64_MAX >> (64 - bits);
    struct number number;
    int64_t value;

    if (!scan_number(scan, &number) ||
        !number_to_integer(scan, &number, most, is_signed ? most + 1 : 0, &value))
        return false;
    memcpy(to, &value, bits / 8); /* little-endian: the low bytes */
    return true;
}

static bool read_flag(struct json_scan *scan, void *to)
{
    int64_t number = 0;
    bool flag = false;
    char c = scan_peek(scan);

    if (c == 't' || c == 'f') {
        (void)scan_bool(scan, &flag);
    } else if (scan_integer(scan, &number)) {
        flag = number == 1;
        if (number != 0 && number != 1)
            return scan_fail(scan, "expected true or false");
    }
    *(uint8_t *)to = flag;
    return scan->why == NULL;
}

static bool read_element(struct json_scan *scan, enum dtype dtype, void *to)
{
    struct number number;
    struct slice text;

    switch (dtype) {
    case DTYPE_FLOAT:
    case DTYPE_DOUBLE:
    case DTYPE_FLOAT16:
    case DTYPE_BFLOAT16:
        return scan_number(scan, &number) && store_float(scan, dtype, number.value, to);
    case DTYPE_BOOL:
        return read_flag(scan, to);
    case DTYPE_STRING:
        if (!scan_string(scan, &text))
            return false;
        *(struct bytes *)to = (struct bytes){text.data, text.size};
        return true;
    default:
        return read_integer(scan, dtype, to);
    }
}

bool scan_tensor(struct json_scan *scan, enum dtype dtype, void *to, size_t room, size_t *out_count)
{
    size_t size = dtype_bytes(dtype), count = 0;
    unsigned outside = scan->depth;
    char *at = to;

    if (!scan_enter(scan, '['))
        return false;
    while (scan->depth > outside) {
        struct bytes ignored[1] = {0};

        if (!scan_next_element(scan)) {
            if (scan->why != NULL)
                return false;
            continue; /* one level was left */
        }
        if (*scan->at == '[') {
            if (!scan_enter(scan, '['))
                return false;
            continue;
        }
        if (!read_element(scan, dtype, count < room ? at : (char *)ignored))
            return false;
        at += count < room ? size : 0;
        count++;
    }
    *out_count = count;
    return true;
}
