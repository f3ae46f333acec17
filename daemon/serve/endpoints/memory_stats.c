/* sluice.v1.Admin: MemoryStats and MemoryResetPeaks, under the names of PyTorch's memory_stats().
 */
#include "serve/endpoints/memory_stats.h"

#include <stdlib.h>

#include "serve/endpoints/admin.h"

#define INT(value) ((json_int_t)(value))

struct ledger_pool *memory_stats_pools(struct ledger *ledger, size_t *out_count)
{
    size_t room = ledger_list_pools(ledger, NULL, 0) + 8, count; /* some may open meanwhile */
    struct ledger_pool *pools = calloc(room, sizeof(*pools));

    if (pools == NULL)
        return NULL;
    count = ledger_list_pools(ledger, pools, room);
    *out_count = count < room ? count : room;
    return pools;
}

static json_t *describe_stat(const struct mem_stat *stat)
{
    return json_pack("{s:I,s:I,s:I,s:I}", "current", INT(stat->current), "peak", INT(stat->peak),
                     "allocated", INT(stat->allocated), "freed", INT(stat->freed));
}

/* measure → numbers */
static json_t *describe_stats(const struct mem_stats *stats)
{
    json_t *object = json_object();

    for (unsigned i = 0; i < MEM_MEASURES; i++)
        (void)json_object_set_new(object, mem_measure_name(i),
                                  describe_stat(mem_stats_measure(stats, i)));
    return object;
}

static void add_counts(json_t *object, const struct mem_stats *stats)
{
    (void)json_object_set_new(object, "num_alloc_retries", json_integer(INT(stats->alloc_retries)));
    (void)json_object_set_new(object, "num_ooms", json_integer(INT(stats->ooms)));
    (void)json_object_set_new(object, "num_device_alloc", json_integer(INT(stats->device_allocs)));
    (void)json_object_set_new(object, "num_device_free", json_integer(INT(stats->device_frees)));
}

/* measure → pool → numbers, as torch.cuda.memory_stats_as_nested_dict() has it. */
static json_t *describe_device(const struct ledger_stats_view *view)
{
    json_t *object = json_object();

    for (unsigned i = 0; i < MEM_MEASURES; i++) {
        json_t *pools = json_object();

        (void)json_object_set_new(pools, "all", describe_stat(mem_stats_measure(&view->all, i)));
        for (unsigned kind = 0; kind < MEM_CACHED; kind++)
            (void)json_object_set_new(pools, mem_kind_name(kind),
                                      describe_stat(mem_stats_measure(&view->kinds[kind], i)));
        (void)json_object_set_new(object, mem_measure_name(i), pools);
    }
    add_counts(object, &view->all);
    return object;
}

static json_t *describe_pool(const struct ledger_pool *pool, const struct mem_stats *stats)
{
    json_t *object = json_pack("{s:s,s:s,s:o}", "name", pool->owner, "kind",
                               mem_kind_name(pool->kind), "stats", describe_stats(stats));

    if (object != NULL)
        add_counts(object, stats);
    return object;
}

void run_admin_memory_stats(struct call *call)
{
    struct ledger *ledger = warden_ledger(call->server->warden);
    json_t *lanes = json_array(), *models = json_array(), *model;
    struct ledger_stats_view view;
    size_t count = 0;
    struct ledger_pool *pools = memory_stats_pools(ledger, &count);

    if (pools == NULL) {
        json_decref(lanes);
        json_decref(models);
        admin_reply(call, NULL);
        return;
    }
    ledger_read_stats(ledger, &view);
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(lanes, describe_pool(&pools[i], &pools[i].stats));
        if (pools[i].kind != MEM_WEIGHTS)
            continue;
        model = describe_pool(&pools[i], &pools[i].on_behalf);
        (void)json_object_set_new(model, "largest_use_bytes",
                                  json_integer(INT(pools[i].largest_use)));
        (void)json_array_append_new(models, model);
    }
    free(pools);
    admin_reply(call, json_pack("{s:s,s:o,s:o,s:o}", "device", call->server->device, "stats",
                                describe_device(&view), "pools", lanes, "models", models));
}

void run_admin_memory_reset_peaks(struct call *call)
{
    struct ledger *ledger = warden_ledger(call->server->warden);
    const char *pool = admin_request(call)->pool;

    if (pool[0] == '\0') {
        ledger_reset_peaks(ledger);
    } else if (!ledger_reset_peaks_of(ledger, pool)) {
        call_fail(call, STATUS_NOT_FOUND,
                  "no pool '%.200s': a kind (weights, activation, …), a lane ('lane 0') or a model "
                  "is allowed",
                  pool);
        return;
    }
    admin_reply(call, json_pack("{s:s}", "pool", pool[0] == '\0' ? "all" : pool));
}
