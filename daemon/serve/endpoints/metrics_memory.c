/* GET /metrics: the ledger's statistics.  `pool` is all, a kind or a lane; models have families of
 * their own, so that a sum over pools of one sort is what it says. */
#include <stdlib.h>
#include <string.h>

#include "observe/metrics.h"
#include "serve/endpoints/memory_stats.h"
#include "serve/internal.h"

enum { LABELS_MAX = 512, NAME_MAX_BYTES = 300 };

/* "reserved_bytes" → "reserved" */
static int measure_length(const char *name)
{
    return (int)(strlen(name) - strlen("_bytes"));
}

struct stat_family {
    enum metric metric;
    size_t offset; /* in struct mem_stat */
};

static double value_of(const struct mem_stat *stat, const struct stat_family *family)
{
    uint64_t value;

    memcpy(&value, (const char *)stat + family->offset, sizeof(value));
    return (double)value;
}

static void write_measures(FILE *to, const struct stat_family *family, const char *owner_labels,
                           const struct mem_stats *stats)
{
    char labels[LABELS_MAX];

    for (unsigned i = 0; i < MEM_MEASURES; i++) {
        const char *name = mem_measure_name(i);

        (void)snprintf(labels, sizeof(labels), "%s,measure=\"%.*s\"", owner_labels,
                       measure_length(name), name);
        metrics_write_value(to, family->metric, labels,
                            value_of(mem_stats_measure(stats, i), family));
    }
}

static void write_pool(FILE *to, const struct stat_family *family, const char *pool,
                       const struct mem_stats *stats)
{
    char labels[LABELS_MAX], name[NAME_MAX_BYTES];

    (void)snprintf(labels, sizeof(labels), "pool=\"%s\"", metrics_escape(pool, name, sizeof(name)));
    write_measures(to, family, labels, stats);
}

static void write_device(FILE *to, const struct ledger_stats_view *view,
                         const struct ledger_pool *pools, size_t count)
{
    static const struct stat_family families[] = {
        {METRIC_MEMORY_STAT_CURRENT_BYTES, offsetof(struct mem_stat, current)},
        {METRIC_MEMORY_STAT_PEAK_BYTES, offsetof(struct mem_stat, peak)},
        {METRIC_MEMORY_STAT_ALLOCATED_BYTES_TOTAL, offsetof(struct mem_stat, allocated)},
        {METRIC_MEMORY_STAT_FREED_BYTES_TOTAL, offsetof(struct mem_stat, freed)},
    };

    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        metrics_write_head(to, families[f].metric);
        write_pool(to, &families[f], "all", &view->all);
        for (unsigned kind = 0; kind < MEM_CACHED; kind++)
            write_pool(to, &families[f], mem_kind_name(kind), &view->kinds[kind]);
        for (size_t i = 0; i < count; i++)
            if (pools[i].kind != MEM_WEIGHTS)
                write_pool(to, &families[f], pools[i].owner, &pools[i].stats);
    }
}

static void write_counts(FILE *to, const struct mem_stats *all)
{
    const struct {
        enum metric metric;
        uint64_t value;
    } counts[] = {
        {METRIC_MEMORY_ALLOC_RETRIES_TOTAL, all->alloc_retries},
        {METRIC_MEMORY_OOMS_TOTAL, all->ooms},
        {METRIC_MEMORY_DEVICE_ALLOCS_TOTAL, all->device_allocs},
        {METRIC_MEMORY_DEVICE_FREES_TOTAL, all->device_frees},
    };

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        metrics_write_head(to, counts[i].metric);
        metrics_write_value(to, counts[i].metric, "", (double)counts[i].value);
    }
}

/* model="resnet",version="1" of the account "resnet/1". */
static void label_model(const char *owner, char labels[LABELS_MAX])
{
    const char *slash = strrchr(owner, '/');
    size_t length = slash != NULL ? (size_t)(slash - owner) : strlen(owner);
    char name[LEDGER_OWNER_BYTES], escaped[NAME_MAX_BYTES];

    memcpy(name, owner, length);
    name[length] = '\0';
    (void)snprintf(labels, LABELS_MAX, "model=\"%s\",version=\"%s\"",
                   metrics_escape(name, escaped, sizeof(escaped)), slash != NULL ? slash + 1 : "");
}

/* While a version is being replaced two accounts have its name: the one opened last stands for it.
 */
static bool is_replaced(const struct ledger_pool *pools, size_t count, size_t at)
{
    for (size_t i = at + 1; i < count; i++)
        if (pools[i].kind == MEM_WEIGHTS && strcmp(pools[i].owner, pools[at].owner) == 0)
            return true;
    return false;
}

static void write_models(FILE *to, const struct ledger_pool *pools, size_t count)
{
    static const struct stat_family families[] = {
        {METRIC_MODEL_MEMORY_CURRENT_BYTES, offsetof(struct mem_stat, current)},
        {METRIC_MODEL_MEMORY_PEAK_BYTES, offsetof(struct mem_stat, peak)},
    };
    char labels[LABELS_MAX];

    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        metrics_write_head(to, families[f].metric);
        for (size_t i = 0; i < count; i++) {
            if (pools[i].kind != MEM_WEIGHTS || is_replaced(pools, count, i))
                continue;
            label_model(pools[i].owner, labels);
            write_measures(to, &families[f], labels, &pools[i].on_behalf);
        }
    }
    metrics_write_head(to, METRIC_MODEL_MEMORY_OOMS_TOTAL);
    for (size_t i = 0; i < count; i++) {
        if (pools[i].kind != MEM_WEIGHTS || is_replaced(pools, count, i))
            continue;
        label_model(pools[i].owner, labels);
        metrics_write_value(to, METRIC_MODEL_MEMORY_OOMS_TOTAL, labels,
                            (double)pools[i].on_behalf.ooms);
    }
}

void memory_stats_write_metrics(FILE *to, struct server *server)
{
    struct ledger *ledger = warden_ledger(server->warden);
    struct ledger_stats_view view;
    size_t count = 0;
    struct ledger_pool *pools = memory_stats_pools(ledger, &count); /* NULL: only the device's */

    ledger_read_stats(ledger, &view);
    write_device(to, &view, pools, count);
    write_counts(to, &view.all);
    write_models(to, pools, count);
    free(pools);
}
