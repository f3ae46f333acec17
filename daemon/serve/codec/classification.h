/* The classification extension: the best classes of each row as "value:index[:label]". */
#ifndef SERVE_CODEC_CLASSIFICATION_H
#define SERVE_CODEC_CLASSIFICATION_H

#include "serve/codec/infer_response.h"

/* Replaces the numbers in `tensor` by a BYTES tensor of the `classes` best; memory of the call. */
MUST_CHECK enum status classify(struct call *call, const struct model_port *port, bool has_batch,
                                size_t classes, struct response_tensor *tensor, struct error *err);

#endif
