#include "onnx/wire.h"

#include <string.h>

struct wire wire_over(struct bytes bytes)
{
    const unsigned char *start = (const unsigned char *)bytes.data;

    return (struct wire){.at = start, .end = bytes.size > 0 ? start + bytes.size : start};
}

static bool fail(struct wire *wire)
{
    wire->bad = true;
    wire->at = wire->end;
    return false;
}

bool wire_varint(struct wire *wire, uint64_t *out_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        unsigned char byte;

        if (wire->at == wire->end)
            return shift == 0 ? false : fail(wire);
        byte = *wire->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *out_value = value;
            return true;
        }
    }
    return fail(wire);
}

static bool wire_fixed(struct wire *wire, size_t bytes, uint64_t *out_value)
{
    uint64_t value = 0;

    if (wire->at == wire->end)
        return false;
    if ((size_t)(wire->end - wire->at) < bytes)
        return fail(wire);
    memcpy(&value, wire->at,
           bytes); /* the wire is little endian, and so is every machine we build for */
    wire->at += bytes;
    *out_value = value;
    return true;
}

static bool read_bytes(struct wire *wire, struct bytes *out_bytes)
{
    uint64_t size;

    if (!wire_varint(wire, &size) || size > (uint64_t)(wire->end - wire->at))
        return fail(wire);
    *out_bytes = (struct bytes){(const char *)wire->at, (size_t)size};
    wire->at += size;
    return true;
}

bool wire_next(struct wire *wire, struct wire_field *out_field)
{
    struct wire_field field = {0};
    uint64_t key;
    bool read;

    if (!wire_varint(wire, &key))
        return false;
    if (key >> 3 == 0 || key >> 3 > UINT32_C(0x1fffffff))
        return fail(wire);
    field.number = (uint32_t)(key >> 3);
    field.type = (enum wire_type)(key & 7);
    switch (field.type) {
    case WIRE_VARINT:
        read = wire_varint(wire, &field.number_value);
        break;
    case WIRE_64:
        read = wire_fixed(wire, 8, &field.number_value);
        break;
    case WIRE_32:
        read = wire_fixed(wire, 4, &field.number_value);
        break;
    case WIRE_BYTES:
        read = read_bytes(wire, &field.bytes);
        break;
    default: /* groups: no ONNX message has them */
        read = false;
    }
    if (!read)
        return fail(wire);
    *out_field = field;
    return true;
}

static bool next_element(struct wire *packed, enum wire_type element, uint64_t *out_value)
{
    if (element == WIRE_VARINT)
        return wire_varint(packed, out_value);
    return wire_fixed(packed, element == WIRE_64 ? 8 : 4, out_value);
}

bool wire_count(const struct wire_field *field, enum wire_type element, size_t *out_count)
{
    struct wire packed;
    size_t count = 0;
    uint64_t value;

    if (field->type == element) {
        *out_count = 1;
        return true;
    }
    if (field->type != WIRE_BYTES)
        return false;
    packed = wire_over(field->bytes);
    while (next_element(&packed, element, &value))
        count++;
    *out_count = count;
    return !packed.bad;
}

struct wire_list wire_list(const struct wire_field *field, enum wire_type element)
{
    struct wire_list list = {.element = element};

    if (field->type == WIRE_BYTES) {
        list.packed = wire_over(field->bytes);
    } else {
        list.has_single = true;
        list.single = field->number_value;
    }
    return list;
}

bool wire_list_next(struct wire_list *list, uint64_t *out_value)
{
    if (list->has_single) {
        list->has_single = false;
        *out_value = list->single;
        return true;
    }
    return list->packed.at != NULL && next_element(&list->packed, list->element, out_value);
}
