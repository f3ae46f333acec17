/* Setting and reading protobuf-c messages by their descriptors: what the text and the JSON form
 * share.
 *
 * Messages are made of malloc's memory, so protobuf_c_message_free_unpacked(message, NULL) frees
 * them whole at any time, also when they are half filled.
 */
#ifndef MODELS_MESSAGE_H
#define MODELS_MESSAGE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "base/error.h"

/* NULL when malloc refuses. */
ProtobufCMessage *message_create(const ProtobufCMessageDescriptor *type);
void message_destroy(ProtobufCMessage *message); /* NULL is fine */

/* One value of one field.  Which member counts follows from the field's type: `integer` for signed
 * ones and enums, `natural` for unsigned ones and bool. */
union message_value {
    int64_t integer;
    uint64_t natural;
    double number;
    char *text; /* malloc's */
    ProtobufCMessage *message;
};

/* Sets a single field, or adds to a repeated one.  Adopts text and message, also on failure.
 * A map entry replaces the one of the same key; a member of a oneof replaces the other.
 * STATUS_NO_MEMORY: the field is as it was. */
MUST_CHECK enum status message_put(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                                   union message_value value);

/* How many values the field has: 0 or 1 for a single one (a scalar at its default has none). */
size_t message_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
/* The value at `index`; text and message are borrowed.  Of an unset scalar: its default. */
union message_value message_get(const ProtobufCMessage *message,
                                const ProtobufCFieldDescriptor *field, size_t index);

bool message_field_is_repeated(const ProtobufCFieldDescriptor *field);
bool message_field_is_map(const ProtobufCFieldDescriptor *field);
bool message_field_is_message(const ProtobufCFieldDescriptor *field);
bool message_field_is_oneof(const ProtobufCFieldDescriptor *field);

/* Checks that an integer fits the field's type.  STATUS_INVALID with a sentence without a place. */
MUST_CHECK enum status message_check_integer(const ProtobufCFieldDescriptor *field,
                                             bool is_negative, uint64_t magnitude,
                                             union message_value *out_value, struct error *err);
/* The field of that name, or the nearest name there is (NULL: nothing is near). */
const ProtobufCFieldDescriptor *message_field(const ProtobufCMessageDescriptor *type,
                                              const char *name, const char **out_nearest);

#endif
