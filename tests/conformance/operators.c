/* Names of operators out of a model: op_type (field 4) of graph (7) → node (1). */
#include "operators.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool read_varint(const unsigned char **at, const unsigned char *end, uint64_t *out_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        unsigned char byte = *(*at)++;

        value |= (uint64_t)(byte & 0x7F) << shift;
        if ((byte & 0x80) == 0) {
            *out_value = value;
            return true;
        }
    }
    return false;
}

typedef void (*field_fn)(void *arg, const unsigned char *bytes, size_t size);

/* Calls fn for every length-delimited field `wanted` of a message. */
static void each_field(const unsigned char *at, size_t size, uint64_t wanted, field_fn fn,
                       void *arg)
{
    const unsigned char *end = at + size;
    uint64_t key, length;

    while (at < end && read_varint(&at, end, &key)) {
        switch (key & 7) {
        case 0:
            if (!read_varint(&at, end, &length))
                return;
            break;
        case 1:
            at += 8;
            break;
        case 2:
            if (!read_varint(&at, end, &length) || length > (size_t)(end - at))
                return;
            if (key >> 3 == wanted)
                fn(arg, at, (size_t)length);
            at += length;
            break;
        case 5:
            at += 4;
            break;
        default:
            return;
        }
    }
}

static void note_operator(void *arg, const unsigned char *bytes, size_t size)
{
    char *name = arg;

    if (name[0] == '\0')
        snprintf(name, OPERATORS_TEXT, "%.*s", (int)size, (const char *)bytes);
    else if (strlen(name) != size || memcmp(name, bytes, size) != 0)
        snprintf(name, OPERATORS_TEXT, "(several)");
}

static void note_node(void *arg, const unsigned char *bytes, size_t size)
{
    each_field(bytes, size, 4, note_operator, arg);
}

static void note_graph(void *arg, const unsigned char *bytes, size_t size)
{
    each_field(bytes, size, 1, note_node, arg);
}

void operators_of_model(const unsigned char *bytes, size_t size, char *name)
{
    each_field(bytes, size, 7, note_graph, name);
}
