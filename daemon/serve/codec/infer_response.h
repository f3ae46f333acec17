/* The answer of an inference: its head in the call's arena, tensors by reference. */
#ifndef SERVE_CODEC_INFER_RESPONSE_H
#define SERVE_CODEC_INFER_RESPONSE_H

#include "serve/infer.h"

/* One output as it leaves: raw bytes (BYTES in wire form). */
struct response_tensor {
    const char *name;
    enum dtype dtype;
    struct shape shape;
    struct piece raw;
    const struct bytes *elements;     /* BYTES: what `raw` was made from; for JSON */
    bool is_binary;                   /* REST */
    const struct shared_wish *shared; /* it lies there instead of in `raw`; NULL: it does not */
};

/* ModelInferResponse; inside a ModelStreamInferResponse when the call is a stream's message. */
MUST_CHECK enum status infer_response_encode(struct call *call,
                                             const struct response_tensor *tensors, size_t count,
                                             struct piece **out_pieces, size_t *out_count);
/* ModelStreamInferResponse with error_message and the request's id. */
MUST_CHECK enum status infer_response_encode_error(struct call *call, const char *text,
                                                   struct piece **out_pieces);

#endif
