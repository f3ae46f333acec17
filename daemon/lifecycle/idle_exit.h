/* When a daemon that systemd starts on demand may leave (ExitIdle=).  Pure. */
#ifndef LIFECYCLE_IDLE_EXIT_H
#define LIFECYCLE_IDLE_EXIT_H

#include "serve/server.h"

struct idle_exit {
    int64_t since_us; /* nobody uses the server since; 0: somebody does, or it was not looked at */
    uint64_t accepted_seen;
};

/* Whether nobody has used the server for `after_us` (0 or CLOCK_NEVER: never leave).  Asked every
 * second or so: a connection that came and went between two calls counts. */
bool idle_exit_is_due(struct idle_exit *idle, const struct server_use *use, int64_t after_us,
                      int64_t now_us);

#endif
