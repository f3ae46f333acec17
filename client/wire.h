/* The wire form of protobuf, as far as the infer messages need it
 * (protobuf.dev/programming-guides/encoding): varints and length-delimited fields.
 *
 * The writer counts when it has no buffer, so that one function serves for size and bytes.
 * The reader never looks beyond `end`.
 */
#ifndef CLIENT_WIRE_H
#define CLIENT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct wire_writer {
    unsigned char *to; /* NULL: only count */
    size_t bytes;
};

static inline void wire_put_varint(struct wire_writer *writer, uint64_t value)
{
    do {
        unsigned char byte = (unsigned char)(value & 0x7F);

        value >>= 7;
        if (writer->to != NULL)
            writer->to[writer->bytes] = (unsigned char)(byte | (value != 0 ? 0x80 : 0));
        writer->bytes++;
    } while (value != 0);
}

static inline void wire_put_tag(struct wire_writer *writer, unsigned field, enum wire_type type)
{
    wire_put_varint(writer, (uint64_t)field << 3 | (unsigned)type);
}

/* Tag and length of a field whose `bytes` bytes follow. */
static inline void wire_put_length(struct wire_writer *writer, unsigned field, size_t bytes)
{
    wire_put_tag(writer, field, WIRE_BYTES);
    wire_put_varint(writer, bytes);
}

static inline void wire_put_text(struct wire_writer *writer, unsigned field, const char *text)
{
    size_t length = strlen(text);

    wire_put_length(writer, field, length);
    if (writer->to != NULL)
        memcpy(writer->to + writer->bytes, text, length);
    writer->bytes += length;
}

struct wire_reader {
    const unsigned char *at;
    const unsigned char *end;
    bool is_bad; /* truncated or malformed; reading stops there */
};

static inline uint64_t wire_get_varint(struct wire_reader *reader)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (reader->at == reader->end)
            break;
        value |= (uint64_t)(*reader->at & 0x7F) << shift;
        if ((*reader->at++ & 0x80) == 0)
            return value;
    }
    reader->is_bad = true;
    return 0;
}

/* The next field: its number, and for length-delimited ones its bytes.  False at the end or when
 * the message is bad. */
struct wire_field {
    unsigned number;
    enum wire_type type;
    uint64_t value;           /* WIRE_VARINT */
    struct wire_reader bytes; /* WIRE_BYTES */
};

static inline bool wire_get_field(struct wire_reader *reader, struct wire_field *out_field)
{
    uint64_t tag, length;

    if (reader->is_bad || reader->at == reader->end)
        return false;
    tag = wire_get_varint(reader);
    *out_field =
        (struct wire_field){.number = (unsigned)(tag >> 3), .type = (enum wire_type)(tag & 7)};
    switch (out_field->type) {
    case WIRE_VARINT:
        out_field->value = wire_get_varint(reader);
        return !reader->is_bad;
    case WIRE_64:
    case WIRE_32:
        length = out_field->type == WIRE_64 ? 8 : 4;
        break;
    case WIRE_BYTES:
        length = wire_get_varint(reader);
        break;
    default:
        reader->is_bad = true;
        return false;
    }
    if (reader->is_bad || length > (uint64_t)(reader->end - reader->at)) {
        reader->is_bad = true;
        return false;
    }
    out_field->bytes = (struct wire_reader){.at = reader->at, .end = reader->at + length};
    reader->at += length;
    return true;
}

#endif
