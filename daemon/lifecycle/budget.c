#include "lifecycle/budget.h"

#include "serve/server.h"

static uint64_t total_of(struct mem_source *memory)
{
    uint64_t free_bytes, total;

    return memory->ops->query(memory, &free_bytes, &total) == STATUS_OK ? total : 0;
}

static enum status amount_bytes(const struct amount *amount, uint64_t whole, const char *key,
                                uint64_t *out_bytes, struct error *err)
{
    if (amount->fraction > 0 && whole == 0)
        return error_set(err, STATUS_INVALID,
                         "Memory.%s is a share, but the memory cannot tell its size: give bytes",
                         key);
    *out_bytes =
        amount->fraction > 0 ? (uint64_t)(amount->fraction * (double)whole) : amount->bytes;
    return STATUS_OK;
}

enum status budget_host_bytes(const struct config *config, struct mem_source *host_memory,
                              uint64_t *out_bytes, struct error *err)
{
    uint64_t message = config->server.max_message_bytes, needed = server_request_charge(message);
    uint64_t bytes = 0;

    TRY(amount_bytes(&config->memory.host_limit, total_of(host_memory), "HostLimit", &bytes, err));
    if (needed > bytes)
        return error_set(err, STATUS_INVALID,
                         "Memory.HostLimit is %llu bytes, but a request of %llu bytes "
                         "(Server.MaxMessageBytes) takes %llu: raise the one or lower the other",
                         (unsigned long long)bytes, (unsigned long long)message,
                         (unsigned long long)needed);
    *out_bytes = bytes;
    return STATUS_OK;
}

enum status budget_compute(const struct config *config, struct mem_source *device_memory,
                           struct mem_source *host_memory, struct budget *out_budget,
                           struct error *err)
{
    const struct config_memory *memory = &config->memory;
    struct budget budget = {.total_bytes = total_of(device_memory)};

    TRY(amount_bytes(&memory->limit, budget.total_bytes, "Limit", &budget.limit_bytes, err));
    TRY(amount_bytes(&memory->headroom, budget.total_bytes, "Headroom", &budget.headroom_bytes,
                     err));
    TRY(budget_host_bytes(config, host_memory, &budget.host_bytes, err));
    budget.asked_bytes = budget.limit_bytes;
    if (budget.total_bytes > 0) {
        if (budget.headroom_bytes >= budget.total_bytes)
            return error_set(err, STATUS_INVALID,
                             "Memory.Headroom leaves nothing of the device's %llu bytes",
                             (unsigned long long)budget.total_bytes);
        if (budget.limit_bytes > budget.total_bytes - budget.headroom_bytes)
            budget.limit_bytes = budget.total_bytes - budget.headroom_bytes;
    }
    *out_budget = budget;
    return STATUS_OK;
}

struct govern_config budget_govern_config(const struct config *config, const struct budget *budget)
{
    const struct config_memory *memory = &config->memory;

    return (struct govern_config){
        .budget_bytes = budget->limit_bytes,
        .headroom_bytes = budget->headroom_bytes,
        .low = memory->low_watermark,
        .high = memory->high_watermark,
        .critical = memory->critical_watermark,
        .dwell_us = memory->dwell,
        .floor_bytes = memory->floor,
        .idle_after_us = memory->idle_after,
        .idle_decay_us = memory->idle_decay,
        .trim_minimum_bytes = memory->trim_minimum,
    };
}
