/* A changed configuration, while serving. */
#define LOG_COMPONENT "lifecycle"
#include "device/host_source.h"
#include "lifecycle/daemon.h"
#include "lifecycle/notify.h"
#include "observe/log.h"

static void apply(struct daemon *daemon)
{
    const struct config *config = daemon_values(daemon);
    struct govern_config govern = budget_govern_config(config, &daemon->budget);

    if (ledger_set_history(daemon->ledger, config->memory.history) != STATUS_OK)
        log_warn("no memory for a history of %u events, the old one stays", config->memory.history);
    host_pool_set_limit(daemon->host_pool, daemon->budget.host_bytes);
    warden_configure(daemon->warden, &govern);
    batcher_set_inline_limit(daemon->batcher, config->device.inline_limit);
    batcher_set_memory_wait(daemon->batcher, config->memory.memory_wait);
    repository_set_poll_interval(daemon->repository, config->models.poll_interval);
    repository_set_residency(daemon->repository, config->models.model_idle,
                             config->models.model_drop, config->memory.host_cache);
    server_configure(daemon->server, config);
    timers_arm(daemon->govern, 0);
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

void reload_drop(const struct daemon *daemon, struct config_set *set)
{
    if (set != daemon->started)
        config_destroy(set);
}

enum status reload_config(void *arg, struct error *err)
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
        config_keep_started(set, daemon->started, restart, sizeof(restart));
        reload_drop(daemon, daemon->former);
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

void reload_on_signal(evutil_socket_t fd, short what, void *arg)
{
    struct error err;

    (void)fd;
    (void)what;
    (void)!reload_config(arg, &err); /* it says itself how it went */
}
