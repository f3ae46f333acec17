/* Small REST requests and answers: JSON documents as the messages of their endpoints.
 *
 * Path variables and query parameters are members like those of the body.  Where Triton's REST API
 * differs from the messages' plain JSON form (parameters and settings as bare values, an index as a
 * bare array) it is bent here.
 */
#ifndef SERVE_CODEC_JSON_MESSAGE_H
#define SERVE_CODEC_JSON_MESSAGE_H

#include <protobuf-c/protobuf-c.h>

#include "base/error.h"

struct call;

/* Fills call->message, which the call frees. */
MUST_CHECK enum status json_read_request(struct call *call, struct error *err);
/* The answer as call->route wants it, in memory of the call; STATUS_NO_MEMORY.  May set
 * call->reply.http_code. */
MUST_CHECK enum status json_write_answer(struct call *call, const ProtobufCMessage *message,
                                         void **out_text, size_t *out_size);

#endif
