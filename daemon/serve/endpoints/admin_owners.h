/* The list of owners in the answer to Memory. */
#ifndef SERVE_ENDPOINTS_ADMIN_OWNERS_H
#define SERVE_ENDPOINTS_ADMIN_OWNERS_H

#include <jansson.h>

#include "models/warden.h"

struct server;

/* A new array, largest first; empty without memory. */
json_t *admin_list_owners(struct server *server, const struct warden_view *view);

#endif
