/* What is looked at from time to time: the governor, the watchdog, the state, whether the start is
 * over, whether anybody still comes. */
#define LOG_COMPONENT "lifecycle"
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "lifecycle/daemon.h"
#include "lifecycle/notify.h"
#include "lifecycle/status_line.h"
#include "observe/log.h"

enum {
    STATUS_PERIOD_US = 1000000,
    GOVERN_PERIOD_LEAST_US = 10000,
    SETTLE_PERIOD_US = 1000, /* how soon after the last load the daemon is ready; doubles up to: */
    SETTLE_PERIOD_MAX_US = 64000,
};

static void describe_state(struct daemon *daemon, char *text, size_t room)
{
    status_line(daemon->repository, daemon->warden, daemon->phase == PHASE_STARTING, text, room);
}

static struct timeval to_timeval(int64_t us)
{
    if (us < 1)
        us = 1;
    return (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

void timers_arm(struct event *timer, int64_t us)
{
    struct timeval after = to_timeval(us);

    evtimer_add(timer, &after);
}

static void hear_pressure(struct daemon *daemon)
{
    warden_system_presses(daemon->warden);
    repository_system_presses(daemon->repository);
}

/* A lost device stays lost for this process: it answers what it has and leaves. */
static void look_at_device(struct daemon *daemon)
{
    if (daemon->phase == PHASE_DRAINING || !batcher_lost_device(daemon->batcher))
        return;
    log_error("the device is lost, stopping for a new start");
    drain_begin(daemon);
}

void timers_on_govern(evutil_socket_t fd, short what, void *arg)
{
    struct daemon *daemon = arg;
    int64_t now_us = clock_now_us();
    int64_t early_us = daemon->governed_us + GOVERN_PERIOD_LEAST_US - now_us;

    (void)fd;
    (void)what;
    look_at_device(daemon);
    if (early_us > 0) { /* batches that wait call for it, however many there are */
        timers_arm(daemon->govern, early_us);
        return;
    }
    daemon->governed_us = now_us;
    if (daemon->pressure != NULL && pressure_poll(daemon->pressure))
        hear_pressure(daemon);
    repository_note_fixed(daemon->repository);
    timers_arm(daemon->govern, warden_tick(daemon->warden, now_us) - now_us);
}

static void on_pressure(void *arg)
{
    struct daemon *daemon = arg;

    hear_pressure(daemon);
    timers_arm(daemon->govern, 0);
}

void timers_on_wait(void *arg)
{
    struct daemon *daemon = arg;

    event_active(daemon->govern, EV_TIMEOUT, 0);
}

static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
    struct daemon *daemon = arg;
    uint64_t progress = batcher_progress(daemon->batcher);

    (void)fd;
    (void)what;
    if (progress != daemon->progress)
        notify_watchdog();
    daemon->progress = progress;
    timers_arm(daemon->watchdog, daemon->watchdog_us / 4);
}

static void become_ready(struct daemon *daemon)
{
    daemon->phase = PHASE_RUNNING;
    describe_state(daemon, daemon->status_text, sizeof(daemon->status_text));
    notify_ready(daemon->status_text);
    log_info("ready after %.1f ms: %s", (double)(clock_now_us() - daemon->started_us) / 1000,
             daemon->status_text);
}

/* Looks whether the loads of the start are over.  (The server has the repository's one callback.)
 */
static void on_settle(evutil_socket_t fd, short what, void *arg)
{
    struct daemon *daemon = arg;

    (void)fd;
    (void)what;
    if (daemon->phase != PHASE_STARTING)
        return;
    if (repository_is_settled(daemon->repository)) {
        become_ready(daemon);
        return;
    }
    timers_arm(daemon->settle, daemon->settle_us);
    if (daemon->settle_us < SETTLE_PERIOD_MAX_US)
        daemon->settle_us *= 2;
}

/* systemd keeps the sockets: a connection that comes while we leave waits there and starts the next
 * daemon.  Nothing is accepted between this look and the closing of our descriptors. */
static void look_whether_idle(struct daemon *daemon)
{
    int64_t after_us = daemon_values(daemon)->server.exit_idle;
    struct server_use use;

    if (!daemon->is_activated || daemon->phase != PHASE_RUNNING)
        return;
    server_read_use(daemon->server, &use);
    if (!idle_exit_is_due(&daemon->idle, &use, after_us, clock_now_us()) ||
        !repository_is_settled(daemon->repository))
        return;
    log_info("nobody came for %.0f s (ExitIdle=), leaving until the next connection",
             (double)after_us / 1e6);
    drain_begin(daemon);
}

static void on_status(evutil_socket_t fd, short what, void *arg)
{
    struct daemon *daemon = arg;
    char text[sizeof(daemon->status_text)];

    (void)fd;
    (void)what;
    describe_state(daemon, text, sizeof(text));
    if (daemon->phase == PHASE_STARTING)
        notify_loading(text);
    else if (daemon->phase == PHASE_RUNNING && strcmp(text, daemon->status_text) != 0)
        notify_status(text);
    snprintf(daemon->status_text, sizeof(daemon->status_text), "%s", text);
    look_at_device(daemon);
    advice_after_load(&daemon->advice, &(struct advice_sources){.config = daemon_values(daemon),
                                                                .budget = &daemon->budget,
                                                                .repository = daemon->repository,
                                                                .ledger = daemon->ledger});
    look_whether_idle(daemon);
    timers_arm(daemon->status, STATUS_PERIOD_US);
}

enum status timers_start(struct daemon *daemon, struct error *err)
{
    struct event_base *base = daemon->base;
    struct event *const *events[] = {&daemon->settle, &daemon->govern, &daemon->watchdog,
                                     &daemon->status, &daemon->drain_limit};

    daemon->settle = evtimer_new(base, on_settle, daemon);
    daemon->watchdog = evtimer_new(base, on_watchdog, daemon);
    daemon->status = evtimer_new(base, on_status, daemon);
    daemon->drain_limit = evtimer_new(base, drain_on_limit, daemon);
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        if (*events[i] == NULL)
            return error_set(err, STATUS_NO_MEMORY, "no memory for events");
    }
    if (pressure_create(base, on_pressure, daemon, &daemon->pressure) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to watch memory pressure");
    daemon->settle_us = SETTLE_PERIOD_US;
    timers_arm(daemon->settle, 0);
    timers_arm(daemon->govern, 0);
    timers_arm(daemon->status, 0);
    daemon->watchdog_us = notify_watchdog_us();
    if (daemon->watchdog_us > 0)
        timers_arm(daemon->watchdog, 0);
    return STATUS_OK;
}
