#include "serve/codec/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "serve/call.h"
#include "serve/codec/decimal.h"

enum { FIRST_BYTES = 512, POOLED_FROM = 16 << 10 };

void text_init(struct text *text, struct call *call)
{
    *text = (struct text){.call = call};
}

/* Room for `more` bytes at data + size, or NULL. */
static char *text_reserve(struct text *text, size_t more)
{
    size_t capacity = text->capacity ? text->capacity : FIRST_BYTES;
    char *grown;

    if (text->failed)
        return NULL;
    if (text->capacity - text->size >= more)
        return text->data + text->size;
    while (capacity - text->size < more)
        capacity *= 2;
    grown = capacity < POOLED_FROM ? call_take(text->call, capacity)
                                   : call_take_pooled(text->call, capacity);
    if (grown == NULL) {
        text->failed = true;
        return NULL;
    }
    if (text->size > 0)
        memcpy(grown, text->data, text->size);
    text->data = grown;
    text->capacity = capacity;
    return text->data + text->size;
}

static void text_append(struct text *text, const void *bytes, size_t size)
{
    char *to = text_reserve(text, size);

    if (to == NULL || size == 0)
        return;
    memcpy(to, bytes, size);
    text->size += size;
}

void text_string(struct text *text, const char *string)
{
    text_append(text, string, strlen(string));
}

void text_char(struct text *text, char c)
{
    text_append(text, &c, 1);
}

void text_unsigned(struct text *text, uint64_t value)
{
    char digits[20];
    size_t count = 0;

    do
        digits[sizeof(digits) - ++count] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    text_append(text, digits + sizeof(digits) - count, count);
}

void text_signed(struct text *text, int64_t value)
{
    if (value < 0)
        text_char(text, '-');
    text_unsigned(text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

static bool put_special(struct text *text, double value)
{
    if (isnan(value))
        text_string(text, "NaN");
    else if (isinf(value))
        text_string(text, value > 0 ? "Infinity" : "-Infinity");
    else if (value == (double)(int32_t)value && !(value == 0 && signbit(value)))
        text_signed(text, (int32_t)value), text_string(text, ".0");
    else
        return false;
    return true;
}

void text_float(struct text *text, float value)
{
    char *to;

    if (!isfinite(value) || fabsf(value) < 1e9F)
        if (put_special(text, (double)value))
            return;
    to = text_reserve(text, DECIMAL_BYTES);
    if (to != NULL)
        text->size += decimal_float(value, to);
}

void text_double(struct text *text, double value)
{
    char *to;

    if (!isfinite(value) || fabs(value) < 1e9)
        if (put_special(text, value))
            return;
    to = text_reserve(text, DECIMAL_BYTES);
    if (to != NULL)
        text->size += decimal_double(value, to);
}

static void put_escaped(struct text *text, unsigned char c)
{
    static const char names[] = "btn\0fr"; /* of 8, 9, 10, -, 12, 13 */
    char escape[8];

    if (c == '"' || c == '\\')
        (void)snprintf(escape, sizeof(escape), "\\%c", c);
    else if (c >= 8 && c <= 13 && c != 11)
        (void)snprintf(escape, sizeof(escape), "\\%c", names[c - 8]);
    else
        (void)snprintf(escape, sizeof(escape), "\\u%04x", c);
    text_string(text, escape);
}

void text_json_string(struct text *text, const char *data, size_t size)
{
    size_t plain = 0; /* start of a run that needs no escape */

    text_char(text, '"');
    for (size_t i = 0; i < size;) {
        unsigned char c = (unsigned char)data[i];
        size_t length = c < 0x80 ? 1 : utf8_length(data + i, size - i);

        if (length > 0 && c >= ' ' && c != '"' && c != '\\' && c != 127) {
            i += length;
            continue;
        }
        text_append(text, data + plain, i - plain);
        if (length == 0)
            text_string(text, "\xEF\xBF\xBD");
        else
            put_escaped(text, c);
        plain = ++i;
    }
    if (size > plain)
        text_append(text, data + plain, size - plain);
    text_char(text, '"');
}
