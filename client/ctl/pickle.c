#include "pickle.h"

#include <stdint.h>
#include <string.h>

/* Opcodes of CPython's Lib/pickle.py; all there before protocol 2 but for those marked. */
enum {
    PROTO = 0x80, /* 2 */
    STOP = '.',
    MARK = '(',
    EMPTY_DICT = '}',
    EMPTY_LIST = ']',
    SETITEMS = 'u',
    APPENDS = 'e',
    TUPLE2 = 0x86, /* 2 */
    NONE = 'N',
    NEWTRUE = 0x88,  /* 2 */
    NEWFALSE = 0x89, /* 2 */
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    LONG1 = 0x8a, /* 2 */
    BINFLOAT = 'G',
    BINUNICODE = 'X',
};

static void put_little_endian(FILE *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        (void)putc((int)(value >> 8 * i & 0xff), to);
}

static bool put_string(FILE *to, const char *text, size_t size)
{
    if (size > UINT32_MAX)
        return false;
    (void)putc(BINUNICODE, to);
    put_little_endian(to, size, 4);
    return fwrite(text, 1, size, to) == size;
}

static void put_integer(FILE *to, int64_t value)
{
    if (value >= 0 && value <= UINT8_MAX) {
        (void)putc(BININT1, to);
        put_little_endian(to, (uint64_t)value, 1);
    } else if (value >= 0 && value <= UINT16_MAX) {
        (void)putc(BININT2, to);
        put_little_endian(to, (uint64_t)value, 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        (void)putc(BININT, to);
        put_little_endian(to, (uint64_t)value, 4);
    } else {
        (void)putc(LONG1, to);
        (void)putc(8, to);
        put_little_endian(to, (uint64_t)value, 8);
    }
}

static void put_real(FILE *to, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    (void)putc(BINFLOAT, to);
    for (int i = 7; i >= 0; i--) /* big-endian */
        (void)putc((int)(bits >> 8 * i & 0xff), to);
}

static bool put_value(FILE *to, const json_t *value, const char *tuple_key, bool as_tuple);

static bool put_array(FILE *to, const json_t *array, const char *tuple_key, bool as_tuple)
{
    const json_t *item;
    size_t i;

    if (!as_tuple) {
        (void)putc(EMPTY_LIST, to);
        (void)putc(MARK, to);
    }
    json_array_foreach(array, i, item)
    {
        if (!put_value(to, item, tuple_key, false))
            return false;
    }
    (void)putc(as_tuple ? TUPLE2 : APPENDS, to);
    return true;
}

static bool put_object(FILE *to, const json_t *object, const char *tuple_key)
{
    const char *key;
    json_t *value;

    (void)putc(EMPTY_DICT, to);
    (void)putc(MARK, to);
    json_object_foreach((json_t *)object, key, value)
    {
        bool as_tuple =
            tuple_key != NULL && strcmp(key, tuple_key) == 0 && json_array_size(value) == 2;

        if (!put_string(to, key, strlen(key)) || !put_value(to, value, tuple_key, as_tuple))
            return false;
    }
    (void)putc(SETITEMS, to);
    return true;
}

static bool put_value(FILE *to, const json_t *value, const char *tuple_key, bool as_tuple)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return put_object(to, value, tuple_key);
    case JSON_ARRAY:
        return put_array(to, value, tuple_key, as_tuple);
    case JSON_STRING:
        return put_string(to, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
        put_integer(to, json_integer_value(value));
        return true;
    case JSON_REAL:
        put_real(to, json_real_value(value));
        return true;
    case JSON_TRUE:
        (void)putc(NEWTRUE, to);
        return true;
    case JSON_FALSE:
        (void)putc(NEWFALSE, to);
        return true;
    case JSON_NULL:
        (void)putc(NONE, to);
        return true;
    }
    return false;
}

bool pickle_write(const json_t *document, const char *tuple_key, FILE *to)
{
    (void)putc(PROTO, to);
    (void)putc(2, to);
    if (!put_value(to, document, tuple_key, false))
        return false;
    (void)putc(STOP, to);
    return ferror(to) == 0;
}
