/* ModelInferRequest out of its bytes: an own walker, so that tensors are never copied.
 *
 * Small things go to the call's arena; tensors stay where they were received.  Typed contents are
 * turned into raw form once.
 */
#ifndef SERVE_CODEC_INFER_REQUEST_H
#define SERVE_CODEC_INFER_REQUEST_H

#include "serve/infer.h"

enum { INFER_TENSORS_MAX = 1024 };

/* Where the first raw tensor's bytes begin, as far as `size` bytes of the message tell; else 0. */
size_t infer_request_raw_offset(const uint8_t *bytes, size_t size);
/* Fills call->infer from call->body. */
MUST_CHECK enum status infer_request_decode(struct call *call, struct error *err);

#endif
