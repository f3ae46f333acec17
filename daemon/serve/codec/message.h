/* Protobuf messages of small calls: out of a body, into an answer, always within the call's memory.
 */
#ifndef SERVE_CODEC_MESSAGE_H
#define SERVE_CODEC_MESSAGE_H

#include <protobuf-c/protobuf-c.h>

#include "base/error.h"

struct call;

/* Fills call->message from the body: protobuf, or path, query and JSON. */
MUST_CHECK enum status message_read_request(struct call *call, struct error *err);
MUST_CHECK enum status message_pack(struct call *call, const ProtobufCMessage *message,
                                    void **out_bytes, size_t *out_size);
#endif
