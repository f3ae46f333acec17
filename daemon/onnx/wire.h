/* Protocol buffers' wire form, walked in place: no schema, no copy.
 * https://protobuf.dev/programming-guides/encoding/ */
#ifndef ONNX_WIRE_H
#define ONNX_WIRE_H

#include "base/error.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct wire {
    const unsigned char *at;
    const unsigned char *end;
    bool bad; /* what followed was cut off or no wire form; sticky */
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t number_value; /* WIRE_VARINT, WIRE_64, WIRE_32 */
    struct bytes bytes;    /* WIRE_BYTES: borrowed from the buffer */
};

struct wire wire_over(struct bytes bytes);
/* The next field; false at the end and when the bytes are bad (look at wire->bad). */
bool wire_next(struct wire *wire, struct wire_field *out_field);
/* The next bare varint, for packed lists. */
bool wire_varint(struct wire *wire, uint64_t *out_value);

/* A repeated number may come packed (one WIRE_BYTES field) or one by one (type `element`): counts
 * the elements of this field. False when the field cannot be such a list. */
bool wire_count(const struct wire_field *field, enum wire_type element, size_t *out_count);
/* Walks the elements of such a field: starts with wire_list(). */
struct wire_list {
    struct wire packed;
    uint64_t single;
    bool has_single;
    enum wire_type element;
};
struct wire_list wire_list(const struct wire_field *field, enum wire_type element);
bool wire_list_next(struct wire_list *list, uint64_t *out_value);

#endif
