/* What the files of sluice.v1.Admin share. */
#ifndef SERVE_ENDPOINTS_ADMIN_H
#define SERVE_ENDPOINTS_ADMIN_H

#include <jansson.h>

#include "admin.pb-c.h"
#include "serve/endpoint.h"
#include "serve/internal.h"

static inline const Sluice__V1__AdminRequest *admin_request(const struct call *call)
{
    return (const Sluice__V1__AdminRequest *)(const void *)call->message;
}

/* Answers with the document, which it releases.  NULL: malloc refused. */
void admin_reply(struct call *call, json_t *document);
/* Answers with ready text. */
void admin_reply_text(struct call *call, const char *text);
/* Where the model is, since when, what its way back takes: into a row of the answer to Models. */
void admin_add_residency(json_t *row, const struct model_residency *residency);

#endif
