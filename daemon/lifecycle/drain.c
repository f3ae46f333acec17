/* The way out: answer what is in flight, then leave the loop. */
#define LOG_COMPONENT "lifecycle"
#include <string.h>

#include "base/clock.h"
#include "lifecycle/daemon.h"
#include "lifecycle/notify.h"
#include "observe/log.h"

static void on_drained(void *arg)
{
    struct daemon *daemon = arg;

    log_info("drained");
    daemon->is_drained = true;
    event_base_loopbreak(daemon->base);
}

void drain_on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct daemon *daemon = arg;

    (void)fd;
    (void)what;
    log_warn("%zu requests still in flight after the drain timeout, stopping without them",
             server_busy(daemon->server));
    event_base_loopbreak(daemon->base);
}

void drain_begin(void *arg)
{
    struct daemon *daemon = arg;
    int64_t limit_us = daemon_values(daemon)->server.drain_timeout;

    if (daemon->phase == PHASE_DRAINING)
        return;
    daemon->phase = PHASE_DRAINING;
    log_info("draining: %zu requests in flight", server_busy(daemon->server));
    notify_stopping(limit_us == CLOCK_NEVER ? limit_us : limit_us + STOP_SECONDS * 1000000);
    if (limit_us != CLOCK_NEVER)
        timers_arm(daemon->drain_limit, limit_us);
    if (daemon->repository != NULL)
        repository_stop_loading(daemon->repository);
    server_drain(daemon->server, on_drained, daemon);
}

void drain_on_signal(evutil_socket_t signal_number, short what, void *arg)
{
    struct daemon *daemon = arg;

    (void)what;
    if (daemon->phase != PHASE_DRAINING) {
        log_info("%s", strsignal((int)signal_number));
        drain_begin(daemon);
        return;
    }
    log_warn("a second signal while draining: stopping at once");
    event_base_loopbreak(daemon->base);
}
