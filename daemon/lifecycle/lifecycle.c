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
#include <event2/thread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/host_source.h"
#include "lifecycle/daemon.h"
#include "lifecycle/sockets.h"
#include "observe/log.h"

enum {
    EXIT_BAD_CONFIG = 78,  /* sysexits.h: EX_CONFIG */
    EXIT_DEVICE_LOST = 75, /* EX_TEMPFAIL: a new process may find the device well again */
};

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
    } signals[] = {{&daemon->terminate, SIGTERM, drain_on_signal},
                   {&daemon->interrupt, SIGINT, drain_on_signal},
                   {&daemon->hangup, SIGHUP, reload_on_signal}};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        *signals[i].event = evsignal_new(daemon->base, signals[i].number, signals[i].call, daemon);
        if (*signals[i].event == NULL || event_add(*signals[i].event, NULL) != 0)
            return error_set(err, STATUS_IO, "cannot watch signals: %s", strerror(errno));
    }
    return STATUS_OK;
}

static enum status open_device(struct daemon *daemon, struct error *err)
{
    TRY(planning_open_device(daemon_values(daemon), &daemon->device, err));
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
    TRY(budget_compute(daemon_values(daemon), daemon->device->memory, host_source(),
                       &daemon->budget, err));
    if (ledger_create(daemon->budget.limit_bytes, &daemon->ledger) != STATUS_OK ||
        ledger_set_history(daemon->ledger, daemon_values(daemon)->memory.history) != STATUS_OK ||
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
    const struct config *config = daemon_values(daemon);
    const struct batcher_config wanted = {
        .device = daemon->device,
        .ledger = daemon->ledger,
        .host_pool = daemon->host_pool,
        .lanes = daemon->device->lanes,
        .inline_limit_us = config->device.inline_limit,
    };
    struct govern_config govern = budget_govern_config(config, &daemon->budget);

    /* Lanes may call for it as long as they live. */
    daemon->govern = evtimer_new(daemon->base, timers_on_govern, daemon);
    if (daemon->govern == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the governor's timer");
    TRY(batcher_create(&wanted, &daemon->batcher, err));
    batcher_on_wait(daemon->batcher, timers_on_wait, daemon);
    batcher_set_memory_wait(daemon->batcher, config->memory.memory_wait);
    if (warden_create(&govern, daemon->device, daemon->ledger, daemon->host_pool, daemon->batcher,
                      &daemon->warden) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the governor");
    return STATUS_OK;
}

static uint64_t may_hold(void *warden)
{
    return warden_may_hold(warden);
}

static enum status start_repository(struct daemon *daemon, struct error *err)
{
    const struct config *config = daemon_values(daemon);
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
    repository_set_gate(daemon->repository, may_hold, daemon->warden);
    warden_set_evict(daemon->warden, repository_evict, repository_evictable, daemon->repository);
    return STATUS_OK;
}

static enum status start_server(struct daemon *daemon, struct error *err)
{
    struct sockets sockets;
    struct server_config wanted = {
        .base = daemon->base,
        .config = daemon_values(daemon),
        .repository = daemon->repository,
        .batcher = daemon->batcher,
        .warden = daemon->warden,
        .host_pool = daemon->host_pool,
        .importer = daemon->device,
        .device = daemon->device_text,
        .hooks = {.arg = daemon,
                  .reload = reload_config,
                  .drain = drain_begin,
                  .config = config_in_force},
    };
    enum status status = sockets_take(&sockets);

    if (status != STATUS_OK)
        return error_set(err, status, "cannot take the sockets that systemd passed");
    daemon->is_activated = sockets.count > 0;
    if (!daemon->is_activated && daemon_values(daemon)->server.exit_idle > 0)
        log_warn("ExitIdle= is for daemons that systemd starts on a connection, ignoring");
    wanted.activated = sockets.count;
    wanted.activated_fds = sockets.fds;
    status = server_create(&wanted, &daemon->server, err);
    sockets_deinit(&sockets);
    return status;
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
    return timers_start(daemon, err);
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
    reload_drop(daemon, daemon->former);
    reload_drop(daemon, daemon->config);
    config_destroy(daemon->started);
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
    daemon.started = daemon.config;
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
