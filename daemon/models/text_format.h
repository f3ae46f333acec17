/* protobuf's text format (config.pbtxt) into any message, driven by its descriptor.
 *
 *   name: "m"   input [ { dims: [ 1, 2 ] } ]   parameters { key: "a" value: { string_value: "b" } }
 *
 * The whole grammar but extensions and Any: nested { } and < >, lists, enums by name or number,
 * strings with escapes and concatenation, all number forms, comments.  Every error names file, line
 * and column.
 */
#ifndef MODELS_TEXT_FORMAT_H
#define MODELS_TEXT_FORMAT_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/error.h"

/* Sets in the message what the text says; all else stays as it is.  `text` need not be terminated.
 * A failure leaves it half filled. */
MUST_CHECK enum status text_format_fill(ProtobufCMessage *message, const char *text, size_t size,
                                        const char *file, struct error *err);
/* The same of an empty message, which is the caller's: message_destroy(). */
MUST_CHECK enum status text_format_read(const ProtobufCMessageDescriptor *type, const char *text,
                                        size_t size, const char *file,
                                        ProtobufCMessage **out_message, struct error *err);

#endif
