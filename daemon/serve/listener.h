/* Listening sockets: "host:port", "[v6]:port", "unix:/path", or descriptors from systemd. */
#ifndef SERVE_LISTENER_H
#define SERVE_LISTENER_H

#include <event2/event_struct.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/list.h"

struct server;

enum listener_role { ROLE_GRPC, ROLE_HTTP, ROLE_METRICS, ROLE_ADMIN, ROLE_COUNT };
const char *listener_role_name(enum listener_role role); /* "grpc" …, as in SD_LISTEN_FDNAMES */

struct listener {
    struct list link;
    struct server *server;
    struct event event;
    enum listener_role role;
    int fd;
    bool is_unix;
    bool paused;
    bool is_activated; /* came from systemd */
    char *unlink_path; /* a Unix socket we made; NULL: none */
    char address[160]; /* as bound: port 0 is replaced by what the kernel chose */
};

/* Binds every address `text` resolves to.  A Unix socket that nobody answers on is replaced. */
MUST_CHECK enum status listener_open(struct server *server, enum listener_role role,
                                     const char *text, struct error *err);
/* Takes a listening descriptor; adopts it on success. */
MUST_CHECK enum status listener_adopt(struct server *server, enum listener_role role, int fd,
                                      struct error *err);
void listener_destroy(struct listener *listener);
/* Before the end: accepts who has connected already.  Leaves those to the next daemon who wait at a
 * socket of systemd; nobody new finds a Unix socket of ours. */
void listener_take_backlog(struct listener *listener);
/* Stops and resumes accepting (connection limit, out of descriptors). */
void listener_pause(struct listener *listener, bool paused);

#endif
