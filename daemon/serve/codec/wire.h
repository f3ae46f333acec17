/* The protobuf wire form, walked in place: no allocation, no copy, hostile lengths refused. */
#ifndef SERVE_CODEC_WIRE_H
#define SERVE_CODEC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire {
    const uint8_t *at, *end;
    bool failed; /* the bytes are no message */
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;       /* VARINT, FIXED64, FIXED32 */
    const uint8_t *bytes; /* BYTES */
    size_t size;
};

static inline struct wire wire_over(const void *bytes, size_t size)
{
    return (struct wire){.at = bytes, .end = (const uint8_t *)bytes + size};
}

static inline bool wire_varint(struct wire *wire, uint64_t *out_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && wire->at < wire->end; shift += 7) {
        uint8_t byte = *wire->at++;

        value |= (uint64_t)(byte & 0x7F) << shift;
        if ((byte & 0x80) == 0) {
            *out_value = value;
            return true;
        }
    }
    wire->failed = true;
    return false;
}

static inline bool wire_fixed(struct wire *wire, size_t size, uint64_t *out_value)
{
    *out_value = 0;
    if ((size_t)(wire->end - wire->at) < size) {
        wire->failed = true;
        return false;
    }
    memcpy(out_value, wire->at, size);
    wire->at += size;
    return true;
}

/* The next field; false at the end or when the bytes are no message (`failed`). */
static inline bool wire_next(struct wire *wire, struct wire_field *out_field)
{
    uint64_t key, size;

    if (wire->at >= wire->end || wire->failed || !wire_varint(wire, &key))
        return false;
    out_field->number = (uint32_t)(key >> 3);
    out_field->type = (enum wire_type)(key & 7);
    out_field->bytes = NULL;
    out_field->size = 0;
    out_field->value = 0;
    if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF)
        wire->failed = true;
    switch (key & 7) {
    case WIRE_VARINT:
        (void)wire_varint(wire, &out_field->value);
        break;
    case WIRE_FIXED64:
        (void)wire_fixed(wire, 8, &out_field->value);
        break;
    case WIRE_FIXED32:
        (void)wire_fixed(wire, 4, &out_field->value);
        break;
    case WIRE_BYTES:
        if (!wire_varint(wire, &size) || size > (uint64_t)(wire->end - wire->at)) {
            wire->failed = true;
            break;
        }
        out_field->bytes = wire->at;
        out_field->size = (size_t)size;
        wire->at += size;
        break;
    default: /* groups have not been sent for fifteen years */
        wire->failed = true;
    }
    return !wire->failed;
}

/* ---- writing: the caller has made room ---- */

static inline size_t wire_varint_size(uint64_t value)
{
    return (size_t)(70 - __builtin_clzll(value | 1)) / 7;
}

static inline uint8_t *wire_put_varint(uint8_t *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *to++ = (uint8_t)(value | 0x80);
    *to++ = (uint8_t)value;
    return to;
}

/* Key and length of a BYTES field; its `size` bytes follow. */
static inline uint8_t *wire_put_head(uint8_t *to, unsigned number, size_t size)
{
    return wire_put_varint(wire_put_varint(to, number << 3 | WIRE_BYTES), size);
}

static inline uint8_t *wire_put_bytes(uint8_t *to, unsigned number, const void *bytes, size_t size)
{
    to = wire_put_head(to, number, size);
    if (size > 0)
        memcpy(to, bytes, size);
    return to + size;
}

static inline size_t wire_bytes_size(size_t size)
{
    return 1 + wire_varint_size(size) + size;
}

#endif
