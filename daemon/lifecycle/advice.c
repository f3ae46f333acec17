#define LOG_COMPONENT "lifecycle"
#include "lifecycle/advice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/host_source.h"
#include "govern/marks.h"
#include "models/folder.h"
#include "observe/log.h"

/* ---- before a start: by files ---- */

/* The newest version's files stand for its weights. */
static uint64_t newest_bytes(const char *repository, const char *name)
{
    uint64_t bytes = 0;
    int64_t *versions;
    char path[4096];
    struct error ignored;
    size_t count;

    (void)snprintf(path, sizeof(path), "%s/%s", repository, name);
    if (folder_versions(path, &versions, &count, &ignored) != STATUS_OK)
        return 0;
    if (count > 0) {
        (void)snprintf(path, sizeof(path), "%s/%s/%" PRId64, repository, name, versions[count - 1]);
        bytes = folder_bytes(path);
    }
    free(versions);
    return bytes;
}

static void find_largest(const char *repository, struct marks_facts *facts, char *name, size_t room)
{
    struct error ignored;
    char **names;
    size_t count;

    if (folder_models(repository, &names, &count, &ignored) != STATUS_OK)
        return; /* the start says why */
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = newest_bytes(repository, names[i]);

        if (bytes <= facts->largest_bytes)
            continue;
        facts->largest_bytes = bytes;
        (void)snprintf(name, room, "%s", names[i]);
        facts->largest_model = name;
    }
    folder_free_names(names, count);
}

static void print(void *arg, const char *sentence)
{
    fprintf(arg, "sluiced: warning: %s\n", sentence);
}

/* "auto" is the CPU where there is no driver of a CUDA device (Linux', WSL's). */
static bool is_host_device(const char *name)
{
    if (strcmp(name, "auto") == 0)
        return access("/dev/nvidiactl", F_OK) != 0 && access("/dev/dxg", F_OK) != 0;
    return strcmp(name, "cpu") == 0 || strcmp(name, "null") == 0;
}

static struct marks_facts facts_of(const struct config *config, const struct budget *budget)
{
    struct mem_source *host = host_source();
    struct marks_facts facts = {
        .config = budget_govern_config(config, budget),
        .limit_bytes = budget->asked_bytes,
        .total_bytes = budget->total_bytes,
    };
    uint64_t total;

    if (is_host_device(config->device.device) &&
        host->ops->query(host, &facts.free_bytes, &total) != STATUS_OK)
        facts.free_bytes = facts.total_bytes;
    return facts;
}

/* What a start would say, as far as it does not depend on the GPU's capability. */
static enum status check_precision(const struct config *config, struct error *err)
{
    const char *device = config->device.device;
    enum status status;

    if (strcmp(device, "auto") == 0 && is_host_device(device))
        device = "cpu";
    status = device_check_precision(device, config->device.precision, err);
    return status == STATUS_OK ? STATUS_OK : error_prefix(err, STATUS_INVALID, "Device.Precision");
}

enum status advice_check(const struct config *config, FILE *to, struct error *err)
{
    struct budget budget = {.asked_bytes = config->memory.limit.bytes,
                            .limit_bytes = config->memory.limit.bytes};
    struct marks_facts facts;
    char largest[256];

    TRY(check_precision(config, err));
    if (is_host_device(config->device.device))
        TRY(budget_compute(config, host_source(), host_source(), &budget, err));
    else
        TRY(budget_host_bytes(config, host_source(), &budget.host_bytes, err));
    if (budget.limit_bytes == 0)
        return STATUS_OK; /* a share of a device that is not asked */
    facts = facts_of(config, &budget);
    find_largest(config->models.repository, &facts, largest, sizeof(largest));
    (void)marks_check(&facts, print, to);
    return STATUS_OK;
}

/* ---- after a load: by what is held ---- */

static void log_sentence(void *arg, const char *sentence)
{
    (void)arg;
    log_warn("%s", sentence);
}

/* What is held while nothing runs, the largest batch, the largest model. */
static void read_pools(const struct ledger_pool *pools, size_t count, struct marks_facts *facts)
{
    for (size_t i = 0; i < count; i++) {
        const struct ledger_pool *pool = &pools[i];

        if (pool->kind != MEM_ACTIVATION && pool->kind != MEM_IO)
            facts->weights_bytes += pool->bytes;
        if (pool->largest_use > facts->peak_bytes) {
            facts->peak_bytes = pool->largest_use;
            facts->peak_model = pool->owner;
        }
        if (pool->kind == MEM_WEIGHTS && pool->bytes > facts->largest_bytes) {
            facts->largest_bytes = pool->bytes;
            facts->largest_model = pool->owner;
        }
    }
}

void advice_after_load(struct advice *advice, const struct advice_sources *sources)
{
    uint64_t loads = repository_load_counts(sources->repository).ok;
    struct marks_facts facts;
    struct ledger_map map;

    if (loads == advice->loads || ledger_copy_map(sources->ledger, &map) != STATUS_OK)
        return;
    advice->loads = loads;
    facts = facts_of(sources->config, sources->budget);
    facts.total_bytes = 0; /* the device was asked at the start, and the governor watches it */
    read_pools(map.pools, map.pool_count, &facts);
    (void)marks_check(&facts, log_sentence, NULL);
    ledger_map_deinit(&map);
}
