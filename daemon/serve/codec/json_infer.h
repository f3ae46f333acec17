/* Inference over REST: JSON with tensors inside or, by the binary extension, behind it.
 *
 * Requests are read by an own scanner: arrays of numbers are the hot path and go straight into
 * dense memory.  Answers: JSON, then binary tensors by reference.
 */
#ifndef SERVE_CODEC_JSON_INFER_H
#define SERVE_CODEC_JSON_INFER_H

#include "serve/codec/infer_response.h"

/* Fills call->infer from call->body and the path. */
MUST_CHECK enum status json_infer_decode(struct call *call, struct error *err);
/* Answers the call. */
MUST_CHECK enum status json_infer_encode(struct call *call, const struct response_tensor *tensors,
                                         size_t count, struct error *err);

#endif
