/* Messages as JSON documents, driven by their descriptors: ModelConfig as Triton's HTTP API spells
 * it.
 *
 * Field names as in the .proto file; enums by name; 64-bit integers as numbers; maps as objects.
 * Written are all fields of plain types (defaults too), repeated ones also when empty, sub-messages
 * and members of a oneof only when set.  Read are also lowerCamel names, enums by number, integers
 * as strings.
 */
#ifndef MODELS_JSON_FORMAT_H
#define MODELS_JSON_FORMAT_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "base/error.h"

/* A new reference, or NULL when malloc refuses. */
json_t *json_format_write(const ProtobufCMessage *message);
/* STATUS_INVALID names the place ("input[1].dims[0]") and what is wrong.  The message is the
 * caller's: message_destroy(). */
MUST_CHECK enum status json_format_read(const ProtobufCMessageDescriptor *type, const json_t *json,
                                        ProtobufCMessage **out_message, struct error *err);
/* Sets in the message what the text says; all else stays as it is.  A failure leaves it half
 * filled. */
MUST_CHECK enum status json_format_fill_text(ProtobufCMessage *message, const char *text,
                                             struct error *err);
/* As json_format_read(), out of text. */
MUST_CHECK enum status json_format_read_text(const ProtobufCMessageDescriptor *type,
                                             const char *text, ProtobufCMessage **out_message,
                                             struct error *err);

#endif
