/* gzip and deflate of bodies and answers. */
#ifndef SERVE_CODEC_INFLATE_H
#define SERVE_CODEC_INFLATE_H

#include "base/error.h"

struct call;

/* Replaces a compressed body (call->coding) by what it inflates to, within MaxMessageBytes. */
MUST_CHECK enum status inflate_body(struct call *call, struct error *err);
/* Compresses the reply's pieces when the client takes it and it gets smaller; else leaves them. */
void deflate_reply(struct call *call);

#endif
