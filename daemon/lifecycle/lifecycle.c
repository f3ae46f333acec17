/* One process, from start to end.
 *
 *   STARTING ──loads of the start are over──> RUNNING ──SIGTERM, admin──> DRAINING ──drained──>
 * gone │ ^                           └─ DrainTimeout, SIGHUP, admin reload second signal
 *
 * Everything lives on the first I/O thread's loop: signals, the governor's timer, the watchdog's,
 * and the status line's.  The watchdog is fed from there only while the lanes make progress too, so
 * a loop that hangs and a lane that hangs look the same to systemd: dead.
 */
#define LOG_COMPONENT "lifecycle"
#include "lifecycle/lifecycle.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/host_source.h"
#include "lifecycle/advice.h"
#include "lifecycle/budget.h"
#include "lifecycle/idle_exit.h"
#include "lifecycle/notify.h"
#include "lifecycle/planning.h"
#include "lifecycle/pressure.h"
#include "lifecycle/sockets.h"
#include "lifecycle/status_line.h"
#include "observe/log.h"
#include "serve/server.h"

enum {
    EXIT_BAD_CONFIG = 78,  /* sysexits.h: EX_CONFIG */
    EXIT_DEVICE_LOST = 75, /* EX_TEMPFAIL: a new process may find the device well again */
    STATUS_PERIOD_US = 1000000,
    GOVERN_PERIOD_LEAST_US = 10000,
    SETTLE_PERIOD_US = 1000, /* how soon after the last load the daemon is ready; doubles up to: */
    SETTLE_PERIOD_MAX_US = 64000,
    STOP_SECONDS = 10, /* what is left to tear down may take so long */
};

enum phase { PHASE_STARTING, PHASE_RUNNING, PHASE_DRAINING };

struct daemon {
    const struct config_source *source;
    struct config_set *config;
    struct config_set *former; /* before the last reload: somebody may still print it */
    struct budget budget;
    struct advice advice;
    enum phase phase;
    int64_t started_us;

    struct event_base *base;
    struct device *device;
    struct ledger *ledger;
    struct host_pool *host_pool;
    struct batcher *batcher;
    struct warden *warden;
    struct repository *repository;
    struct server *server;
    struct pressure *pressure;

    bool is_activated; /* systemd holds the listening sockets */
    struct idle_exit idle;
    int64_t governed_us; /* the governor's last tick */
    struct event *terminate, *interrupt, *hangup;
    struct event *settle, *govern, *watchdog, *status, *drain_limit;
    int64_t settle_us;
    bool is_drained; /* nothing is in flight any more */
    int64_t watchdog_us;
    uint64_t progress; /* of the lanes, when the watchdog was fed last */
    char plan_folder[PLANNING_FOLDER_BYTES];
    char device_text[256];
    char status_text[256];
};

static const struct config *values(const struct daemon *daemon)
{
    return config_values(daemon->config);
}

static void describe_state(struct daemon *daemon, char *text, size_t room)
{
    status_line(daemon->repository, daemon->warden, daemon->phase == PHASE_STARTING, text, room);
}

/* ---- timers ---- */

static struct timeval to_timeval(int64_t us)
{
    if (us < 1)
        us = 1;
    return (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
}

static void arm(struct event *timer, int64_t us)
{
    struct timeval after = to_timeval(us);

    evtimer_add(timer, &after);
}

static void on_govern(evutil_socket_t fd, short what, void *arg)
{
    struct daemon *daemon = arg;
    int64_t now_us = clock_now_us();
    int64_t early_us = daemon->governed_us + GOVERN_PERIOD_LEAST_US - now_us;

    (void)fd;
    (void)what;
    if (early_us > 0) { /* batches that wait call for it, however many there are */
        arm(daemon->govern, early_us);
        return;
    }
    daemon->governed_us = now_us;
    if (daemon->pressure != NULL && pressure_poll(daemon->pressure))
        warden_system_presses(daemon->warden);
    arm(daemon->govern, warden_tick(daemon->warden, now_us) - now_us);
}

static void on_pressure(void *arg)
{
    struct daemon *daemon = arg;

    warden_system_presses(daemon->warden);
    arm(daemon->govern, 0);
}

/* A batch waits for memory: the governor need not wait for its tick.  Any thread. */
static void on_wait(void *arg)
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
    arm(daemon->watchdog, daemon->watchdog_us / 4);
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
    arm(daemon->settle, daemon->settle_us);
    if (daemon->settle_us < SETTLE_PERIOD_MAX_US)
        daemon->settle_us *= 2;
}

static void drain(void *arg);

/* A lost device stays lost for this process: it answers what it has and leaves. */
static void look_at_device(struct daemon *daemon)
{
    if (daemon->phase == PHASE_DRAINING || !batcher_lost_device(daemon->batcher))
        return;
    log_error("the device is lost, stopping for a new start");
    drain(daemon);
}

/* systemd keeps the sockets: a connection that comes while we leave waits there and starts the next
 * daemon.  Nothing is accepted between this look and the closing of our descriptors. */
static void look_whether_idle(struct daemon *daemon)
{
    int64_t after_us = values(daemon)->server.exit_idle;
    struct server_use use;

    if (!daemon->is_activated || daemon->phase != PHASE_RUNNING)
        return;
    server_read_use(daemon->server, &use);
    if (!idle_exit_is_due(&daemon->idle, &use, after_us, clock_now_us()) ||
        !repository_is_settled(daemon->repository))
        return;
    log_info("nobody came for %.0f s (ExitIdle=), leaving until the next connection",
             (double)after_us / 1e6);
    drain(daemon);
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
    advice_after_load(&daemon->advice, &(struct advice_sources){.config = values(daemon),
                                                                .budget = &daemon->budget,
                                                                .repository = daemon->repository,
                                                                .ledger = daemon->ledger});
    look_whether_idle(daemon);
    arm(daemon->status, STATUS_PERIOD_US);
}

/* ---- drain and stop ---- */

static void on_drained(void *arg)
{
    struct daemon *daemon = arg;

    log_info("drained");
    daemon->is_drained = true;
    event_base_loopbreak(daemon->base);
}

static void on_drain_limit(evutil_socket_t fd, short what, void *arg)
{
    struct daemon *daemon = arg;

    (void)fd;
    (void)what;
    log_warn("%zu requests still in flight after the drain timeout, stopping without them",
             server_busy(daemon->server));
    event_base_loopbreak(daemon->base);
}

static void drain(void *arg)
{
    struct daemon *daemon = arg;
    int64_t limit_us = values(daemon)->server.drain_timeout;

    if (daemon->phase == PHASE_DRAINING)
        return;
    daemon->phase = PHASE_DRAINING;
    log_info("draining: %zu requests in flight", server_busy(daemon->server));
    notify_stopping(limit_us == CLOCK_NEVER ? limit_us : limit_us + STOP_SECONDS * 1000000);
    if (limit_us != CLOCK_NEVER)
        arm(daemon->drain_limit, limit_us);
    if (daemon->repository != NULL)
        repository_stop_loading(daemon->repository);
    server_drain(daemon->server, on_drained, daemon);
}

static void on_stop_signal(evutil_socket_t signal_number, short what, void *arg)
{
    struct daemon *daemon = arg;

    (void)what;
    if (daemon->phase != PHASE_DRAINING) {
        log_info("%s", strsignal((int)signal_number));
        drain(daemon);
        return;
    }
    log_warn("a second signal while draining: stopping at once");
    event_base_loopbreak(daemon->base);
}

/* ---- reload ---- */

static void apply(struct daemon *daemon)
{
    const struct config *config = values(daemon);
    struct govern_config govern = budget_govern_config(config, &daemon->budget);

    if (ledger_set_history(daemon->ledger, config->memory.history) != STATUS_OK)
        log_warn("no memory for a history of %u events, the old one stays", config->memory.history);
    host_pool_set_limit(daemon->host_pool, daemon->budget.host_bytes);
    warden_configure(daemon->warden, &govern);
    batcher_set_inline_limit(daemon->batcher, config->device.inline_limit);
    repository_set_poll_interval(daemon->repository, config->models.poll_interval);
    repository_set_residency(daemon->repository, config->models.model_idle,
                             config->models.model_drop, config->memory.host_cache);
    server_configure(daemon->server, config);
    arm(daemon->govern, 0);
}

static enum status read_config(const struct daemon *daemon, struct config_set **out_set,
                               struct budget *out_budget, struct error *err)
{
    struct config_set *set;
    enum status status;

    TRY(config_read(daemon->source, &set, err));
    status =
        budget_compute(config_values(set), daemon->device->memory, host_source(), out_budget, err);
    if (status == STATUS_OK)
        *out_set = set;
    else
        config_destroy(set);
    return status;
}

/* Reads everything again; a bad configuration leaves the old one in force. */
static enum status reload(void *arg, struct error *err)
{
    struct daemon *daemon = arg;
    struct config_set *set;
    enum status status;
    char restart[512];

    if (daemon->phase == PHASE_DRAINING)
        return error_set(err, STATUS_UNAVAILABLE, "the daemon is stopping");
    if (daemon->phase == PHASE_RUNNING)
        notify_reloading();
    status = read_config(daemon, &set, &daemon->budget, err);
    if (status == STATUS_OK) {
        config_restart_changes(daemon->config, set, restart, sizeof(restart));
        config_destroy(daemon->former);
        daemon->former = daemon->config;
        daemon->config = set;
        apply(daemon);
        log_info("configuration reloaded");
        if (restart[0] != '\0')
            log_warn("changed, but only a restart applies: %s", restart);
        (void)error_set(err, STATUS_OK, "%s", restart);
    } else {
        log_error("reload refused, the old configuration stays: %s", err->text);
    }
    if (daemon->phase == PHASE_RUNNING)
        notify_ready(daemon->status_text);
    return status;
}

static void on_hangup(evutil_socket_t fd, short what, void *arg)
{
    struct error err;

    (void)fd;
    (void)what;
    (void)!reload(arg, &err); /* it says itself how it went */
}

static const struct config_set *config_in_force(void *arg)
{
    return ((struct daemon *)arg)->config;
}

/* ---- start, bottom-up ---- */

/* Before anything else: a signal that comes while we start is kept for the loop. */
static enum status watch_signals(struct daemon *daemon, struct error *err)
{
    const struct {
        struct event **event;
        int number;
        event_callback_fn call;
    } signals[] = {{&daemon->terminate, SIGTERM, on_stop_signal},
                   {&daemon->interrupt, SIGINT, on_stop_signal},
                   {&daemon->hangup, SIGHUP, on_hangup}};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        *signals[i].event = evsignal_new(daemon->base, signals[i].number, signals[i].call, daemon);
        if (*signals[i].event == NULL || event_add(*signals[i].event, NULL) != 0)
            return error_set(err, STATUS_IO, "cannot watch signals: %s", strerror(errno));
    }
    return STATUS_OK;
}

static enum status open_device(struct daemon *daemon, struct error *err)
{
    const struct config *config = values(daemon);
    const struct device_config wanted = {
        .name = config->device.device,
        .lanes = config->device.lanes,
        .threads = config->device.threads,
        .precision = config->device.precision,
    };

    TRY(device_open(&wanted, &daemon->device, err));
    daemon->device->ops->describe(daemon->device, daemon->device_text, sizeof(daemon->device_text));
    log_info("device %s", daemon->device_text);
    return STATUS_OK;
}

static enum status pin_pages(void *arg, void *buffer, size_t bytes)
{
    struct device *device = arg;

    return device->ops->pin(device, buffer, bytes);
}

static void unpin_pages(void *arg, void *buffer)
{
    struct device *device = arg;

    device->ops->unpin(device, buffer);
}

static enum status start_memory(struct daemon *daemon, struct error *err)
{
    TRY(budget_compute(values(daemon), daemon->device->memory, host_source(), &daemon->budget,
                       err));
    if (ledger_create(daemon->budget.limit_bytes, &daemon->ledger) != STATUS_OK ||
        ledger_set_history(daemon->ledger, values(daemon)->memory.history) != STATUS_OK ||
        host_pool_create(daemon->budget.host_bytes, &daemon->host_pool) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to begin with");
    if (daemon->device->ops->pin != NULL)
        host_pool_set_pins(daemon->host_pool, &(struct host_pool_pins){.pin = pin_pages,
                                                                       .unpin = unpin_pages,
                                                                       .arg = daemon->device});
    return STATUS_OK;
}

static enum status start_batcher(struct daemon *daemon, struct error *err)
{
    const struct config *config = values(daemon);
    const struct batcher_config wanted = {
        .device = daemon->device,
        .ledger = daemon->ledger,
        .host_pool = daemon->host_pool,
        .lanes = daemon->device->lanes,
        .inline_limit_us = config->device.inline_limit,
    };
    struct govern_config govern = budget_govern_config(config, &daemon->budget);

    /* Lanes may call for it as long as they live. */
    daemon->govern = evtimer_new(daemon->base, on_govern, daemon);
    if (daemon->govern == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the governor's timer");
    TRY(batcher_create(&wanted, &daemon->batcher, err));
    batcher_on_wait(daemon->batcher, on_wait, daemon);
    if (warden_create(&govern, daemon->device, daemon->ledger, daemon->host_pool, daemon->batcher,
                      &daemon->warden) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the governor");
    return STATUS_OK;
}

static bool may_wake(void *warden)
{
    return warden_may_load(warden);
}

static enum status start_repository(struct daemon *daemon, struct error *err)
{
    const struct config *config = values(daemon);
    const char *control = config->models.control_mode;
    const struct repository_config wanted = {
        .path = config->models.repository,
        .control = strcmp(control, "explicit") == 0 ? CONTROL_EXPLICIT
                   : strcmp(control, "poll") == 0   ? CONTROL_POLL
                                                    : CONTROL_NONE,
        .poll_interval_us = config->models.poll_interval,
        .load = config->models.load,
        .plan_cache_bytes = config->models.plan_cache,
        .planning = planning_read(config, daemon->plan_folder),
        .model_idle_us = config->models.model_idle,
        .model_drop_us = config->models.model_drop,
        .host_cache_bytes = config->memory.host_cache,
        .device = daemon->device,
        .ledger = daemon->ledger,
        .batcher = daemon->batcher,
    };

    TRY(repository_create(&wanted, &daemon->repository, err));
    repository_set_gate(daemon->repository, may_wake, daemon->warden);
    warden_set_evict(daemon->warden, repository_evict, repository_evictable, daemon->repository);
    return STATUS_OK;
}

static enum status start_server(struct daemon *daemon, struct error *err)
{
    struct sockets sockets;
    struct server_config wanted = {
        .base = daemon->base,
        .config = values(daemon),
        .repository = daemon->repository,
        .batcher = daemon->batcher,
        .warden = daemon->warden,
        .host_pool = daemon->host_pool,
        .device = daemon->device_text,
        .hooks = {.arg = daemon, .reload = reload, .drain = drain, .config = config_in_force},
    };
    enum status status = sockets_take(&sockets);

    if (status != STATUS_OK)
        return error_set(err, status, "cannot take the sockets that systemd passed");
    daemon->is_activated = sockets.count > 0;
    if (!daemon->is_activated && values(daemon)->server.exit_idle > 0)
        log_warn("ExitIdle= is for daemons that systemd starts on a connection, ignoring");
    wanted.activated = sockets.count;
    wanted.activated_fds = sockets.fds;
    status = server_create(&wanted, &daemon->server, err);
    sockets_deinit(&sockets);
    return status;
}

static enum status start_events(struct daemon *daemon, struct error *err)
{
    struct event_base *base = daemon->base;
    struct event *const *events[] = {&daemon->settle, &daemon->govern, &daemon->watchdog,
                                     &daemon->status, &daemon->drain_limit};

    daemon->settle = evtimer_new(base, on_settle, daemon);
    daemon->watchdog = evtimer_new(base, on_watchdog, daemon);
    daemon->status = evtimer_new(base, on_status, daemon);
    daemon->drain_limit = evtimer_new(base, on_drain_limit, daemon);
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        if (*events[i] == NULL)
            return error_set(err, STATUS_NO_MEMORY, "no memory for events");
    }
    if (pressure_create(base, on_pressure, daemon, &daemon->pressure) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to watch memory pressure");
    daemon->settle_us = SETTLE_PERIOD_US;
    arm(daemon->settle, 0);
    arm(daemon->govern, 0);
    arm(daemon->status, 0);
    daemon->watchdog_us = notify_watchdog_us();
    if (daemon->watchdog_us > 0)
        arm(daemon->watchdog, 0);
    return STATUS_OK;
}

static enum status start(struct daemon *daemon, struct error *err)
{
    signal(SIGPIPE, SIG_IGN);
    evthread_use_pthreads();
    daemon->base = event_base_new();
    if (daemon->base == NULL)
        return error_set(err, STATUS_IO, "cannot make an event loop: %s", strerror(errno));
    TRY(watch_signals(daemon, err));
    TRY(open_device(daemon, err));
    TRY(start_memory(daemon, err));
    TRY(start_batcher(daemon, err));
    TRY(start_repository(daemon, err));
    TRY(start_server(daemon, err));
    return start_events(daemon, err);
}

/* ---- stop, in reverse ---- */

static void free_event(struct event *event)
{
    if (event != NULL)
        event_free(event);
}

/* A load under way is waited for, but not for ever. */
static void on_alarm(int signal_number)
{
    (void)signal_number;
    _exit(EXIT_FAILURE);
}

static void stop(struct daemon *daemon)
{
    signal(SIGALRM, on_alarm);
    alarm(STOP_SECONDS);
    pressure_destroy(daemon->pressure);
    free_event(daemon->drain_limit);
    free_event(daemon->status);
    free_event(daemon->watchdog);
    free_event(daemon->hangup);
    free_event(daemon->interrupt);
    free_event(daemon->terminate);
    free_event(daemon->settle);
    server_destroy(daemon->server);
    if (daemon->repository != NULL)
        repository_destroy(daemon->repository);
    if (daemon->warden != NULL)
        warden_destroy(daemon->warden);
    batcher_destroy(daemon->batcher);
    free_event(daemon->govern);
    host_pool_destroy(daemon->host_pool);
    ledger_destroy(daemon->ledger);
    device_close(daemon->device);
    if (daemon->base != NULL)
        event_base_free(daemon->base);
    config_destroy(daemon->former);
    config_destroy(daemon->config);
    libevent_global_shutdown();
    alarm(0);
}

int lifecycle_run(const struct config_source *source)
{
    struct daemon daemon = {.source = source, .started_us = clock_now_us()};
    int exit_status = EXIT_SUCCESS;
    enum status status;
    struct error err;

    log_init(NULL);
    if (config_read(source, &daemon.config, &err) != STATUS_OK) {
        log_error("%s", err.text);
        return EXIT_BAD_CONFIG;
    }
    status = start(&daemon, &err);
    if (status == STATUS_OK) {
        event_base_dispatch(daemon.base);
        /* Requests in flight belong to lanes that may never come back: nothing can be torn down. */
        if (batcher_lost_device(daemon.batcher))
            exit_status = EXIT_DEVICE_LOST;
        if (!daemon.is_drained)
            _exit(exit_status == EXIT_SUCCESS ? EXIT_FAILURE : exit_status);
    } else {
        log_error("cannot start: %s", err.text);
        exit_status = EXIT_FAILURE;
    }
    stop(&daemon);
    return exit_status;
}
