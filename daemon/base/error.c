#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Cuts a half UTF-8 character off the end of a text that filled its buffer. */
static void trim_to_character(char *text, size_t length)
{
    while (length > 0 && ((unsigned char)text[length - 1] & 0xC0) == 0x80)
        length--;
    if (length > 0 && (unsigned char)text[length - 1] >= 0xC0)
        length--;
    text[length] = '\0';
}

static void put_text(struct error *err, const char *format, va_list args)
{
    int written = vsnprintf(err->text, sizeof(err->text), format, args);

    if (written < 0)
        err->text[0] = '\0';
    else if ((size_t)written >= sizeof(err->text))
        trim_to_character(err->text, sizeof(err->text) - 1);
}

static void append_text(struct error *err, const char *text)
{
    size_t used = strlen(err->text);
    size_t room = sizeof(err->text) - 1 - used;
    size_t length = strlen(text);

    memcpy(err->text + used, text, length < room ? length : room);
    if (length <= room)
        err->text[used + length] = '\0';
    else
        trim_to_character(err->text, sizeof(err->text) - 1);
}

enum status error_set(struct error *err, enum status status, const char *format, ...)
{
    if (err != NULL) {
        va_list args;

        va_start(args, format);
        put_text(err, format, args);
        va_end(args);
        err->status = status;
    }
    return status;
}

enum status error_prefix(struct error *err, enum status status, const char *format, ...)
{
    if (err != NULL) {
        struct error inner = *err;
        va_list args;

        va_start(args, format);
        put_text(err, format, args);
        va_end(args);
        append_text(err, ": ");
        append_text(err, inner.text);
        err->status = status;
    }
    return status;
}
