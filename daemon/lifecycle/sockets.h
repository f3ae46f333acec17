/* Sockets that systemd opened for us. */
#ifndef LIFECYCLE_SOCKETS_H
#define LIFECYCLE_SOCKETS_H

#include <stddef.h>

#include "base/status.h"
#include "serve/server.h"

struct sockets {
    size_t count;
    struct activated_fd *fds;
    char **names; /* of `fds` */
};

/* Those with a name that the server knows; others are closed with a warning.  None is fine. */
MUST_CHECK enum status sockets_take(struct sockets *out_sockets);
/* Frees names and table, not the descriptors. */
void sockets_deinit(struct sockets *sockets);

#endif
