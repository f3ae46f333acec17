/* BYTES tensors: uint32 length and bytes, element after element, on the wire; arrays of struct
 * bytes inside. */
#ifndef SERVE_CODEC_BYTES_H
#define SERVE_CODEC_BYTES_H

#include "serve/infer.h"

/* Turns the wire form of an input into an array that points into it; memory of the call. */
MUST_CHECK enum status bytes_decode(struct call *call, struct infer_input *input, const char *model,
                                    struct error *err);
/* The wire form of `count` elements, in memory of the call; STATUS_NO_MEMORY. */
MUST_CHECK enum status bytes_encode(struct call *call, const struct bytes *elements, size_t count,
                                    struct piece *out_piece);

#endif
