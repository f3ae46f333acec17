/* InferTensorContents: numbers spelled out as protobuf fields, turned into dense arrays. */
#ifndef SERVE_CODEC_TYPED_CONTENTS_H
#define SERVE_CODEC_TYPED_CONTENTS_H

#include "serve/infer.h"

/* Gives `input` (dtype known) its data out of the message `contents`; memory of the call. */
MUST_CHECK enum status typed_contents_decode(struct call *call, struct slice contents,
                                             struct infer_input *input, struct error *err);

#endif
