/* GET /metrics: every family in Prometheus' text form, read from where the numbers live. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "observe/metrics.h"
#include "serve/endpoint.h"
#include "serve/endpoints/memory_stats.h"
#include "serve/internal.h"

enum { LABELS_MAX = 512 };

static void write_one(FILE *to, enum metric metric, double value)
{
    metrics_write_head(to, metric);
    metrics_write_value(to, metric, "", value);
}

static void write_labelled(FILE *to, enum metric metric, const char *label, const char *value,
                           double number)
{
    char labels[LABELS_MAX];

    (void)snprintf(labels, sizeof(labels), "%s=\"%s\"", label, value);
    metrics_write_value(to, metric, labels, number);
}

static void write_memory(FILE *to, struct server *server)
{
    static const char *const who[] = {"governor", "decay", "operator"};
    struct warden_view view;

    warden_read(server->warden, &view);
    metrics_write_head(to, METRIC_MEMORY_BYTES);
    for (unsigned kind = 0; kind < MEM_KINDS; kind++)
        write_labelled(to, METRIC_MEMORY_BYTES, "kind", mem_kind_name(kind),
                       (double)view.ledger.kind_bytes[kind]);
    write_one(to, METRIC_MEMORY_BUDGET_BYTES, (double)view.ledger.budget_bytes);
    write_one(to, METRIC_MEMORY_ALLOCATED_BYTES, (double)view.ledger.allocated_bytes);
    write_one(to, METRIC_MEMORY_LEVEL, (double)view.level);
    metrics_write_head(to, METRIC_MEMORY_WATERMARK_BYTES);
    write_labelled(to, METRIC_MEMORY_WATERMARK_BYTES, "level", "low", (double)view.low_bytes);
    write_labelled(to, METRIC_MEMORY_WATERMARK_BYTES, "level", "high", (double)view.high_bytes);
    write_labelled(to, METRIC_MEMORY_WATERMARK_BYTES, "level", "critical",
                   (double)view.critical_bytes);
    write_one(to, METRIC_MEMORY_TRANSITIONS_TOTAL, (double)view.transitions_total);
    write_one(to, METRIC_MEMORY_EXTERNAL_BYTES, (double)view.external_bytes);
    write_one(to, METRIC_MEMORY_STALL_SECONDS_TOTAL, (double)view.stall_us_total / 1e6);
    write_one(to, METRIC_MEMORY_REFAULT_BYTES_TOTAL, (double)view.refault_bytes_total);
    write_one(to, METRIC_MEMORY_EVICT_BYTES_TOTAL, (double)view.evict_bytes_total);
    write_one(to, METRIC_MEMORY_SYSTEM_PRESSES_TOTAL, (double)view.system_presses_total);
    metrics_write_head(to, METRIC_EMPTY_CACHE_TOTAL);
    for (size_t i = 0; i < 3; i++)
        write_labelled(to, METRIC_EMPTY_CACHE_TOTAL, "by", who[i], (double)view.empty_cache_by[i]);
    write_one(to, METRIC_EMPTY_CACHE_FREED_BYTES_TOTAL, (double)view.empty_cache_freed_bytes_total);
    metrics_write_head(to, METRIC_RESERVATIONS_TOTAL);
    write_labelled(to, METRIC_RESERVATIONS_TOTAL, "outcome", "ok",
                   (double)view.ledger.reservations_ok);
    write_labelled(to, METRIC_RESERVATIONS_TOTAL, "outcome", "refused",
                   (double)view.ledger.reservations_refused);
    write_one(to, METRIC_PLAN_VIOLATIONS_TOTAL, (double)view.ledger.plan_violations);
    metrics_write_head(to, METRIC_HOST_BYTES);
    write_labelled(to, METRIC_HOST_BYTES, "state", "in_use", (double)view.host.in_use_bytes);
    write_labelled(to, METRIC_HOST_BYTES, "state", "cached", (double)view.host.cached_bytes);
}

static void write_regions(FILE *to, const struct server *server)
{
    struct regions_use use;

    regions_read_use(server->regions, &use);
    metrics_write_head(to, METRIC_SHARED_MEMORY_BYTES);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++)
        write_labelled(to, METRIC_SHARED_MEMORY_BYTES, "kind", region_kind_name(kind),
                       (double)use.bytes[kind]);
    metrics_write_head(to, METRIC_SHARED_MEMORY_REGIONS);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++)
        write_labelled(to, METRIC_SHARED_MEMORY_REGIONS, "kind", region_kind_name(kind),
                       (double)use.count[kind]);
}

/* ---- models: a family at a time, over all models ---- */

struct series {
    FILE *to;
    enum metric metric;
};

static void label_model(const struct model_info *info, const char *more, char *labels)
{
    char name[LABELS_MAX / 2];

    (void)snprintf(labels, LABELS_MAX, "model=\"%s\",version=\"%s\"%s",
                   metrics_escape(info->name, name, sizeof(name)), info->version, more);
}

static void write_outcome(FILE *to, const struct model_info *info, const char *outcome,
                          uint64_t count)
{
    char labels[LABELS_MAX], more[64];

    (void)snprintf(more, sizeof(more), ",outcome=\"%s\"", outcome);
    label_model(info, more, labels);
    metrics_write_value(to, METRIC_REQUESTS_TOTAL, labels, (double)count);
}

/* Each request under one outcome.  In the statistics, as in Triton's, `fail` has the cancelled and
 * the rejected ones too; one that is being counted may be missing there for a moment. */
static void write_outcomes(FILE *to, const struct model_info *info, struct model_stats *stats)
{
    uint64_t cancelled = atomic_load(&stats->cancel.count);
    uint64_t rejected = atomic_load(&stats->rejected.count);
    uint64_t failed = atomic_load(&stats->fail.count), others = cancelled + rejected;

    write_outcome(to, info, "success", atomic_load(&stats->success.count));
    write_outcome(to, info, "fail", failed > others ? failed - others : 0);
    write_outcome(to, info, "cancel", cancelled);
    write_outcome(to, info, "rejected", rejected);
}

static void write_residency(FILE *to, const struct model_info *info)
{
    char labels[LABELS_MAX], more[64];

    for (unsigned where = RESIDENCY_DEVICE; where <= RESIDENCY_DROPPED; where++) {
        (void)snprintf(more, sizeof(more), ",where=\"%s\"", residency_name((enum residency)where));
        label_model(info, more, labels);
        metrics_write_value(to, METRIC_MODEL_RESIDENCY, labels, info->residency.where == where);
    }
}

static void write_reloads(FILE *to, const struct model_info *info)
{
    char labels[LABELS_MAX];

    label_model(info, ",outcome=\"ok\"", labels);
    metrics_write_value(to, METRIC_MODEL_RELOADS_TOTAL, labels, (double)info->residency.reloads);
    label_model(info, ",outcome=\"failed\"", labels);
    metrics_write_value(to, METRIC_MODEL_RELOADS_TOTAL, labels,
                        (double)info->residency.failed_reloads);
}

static const struct histogram *histogram_of(struct model_stats *stats, enum metric metric)
{
    switch (metric) {
    case METRIC_REQUEST_DURATION_SECONDS:
        return &stats->request_seconds;
    case METRIC_QUEUE_DURATION_SECONDS:
        return &stats->queue_seconds;
    case METRIC_COMPUTE_DURATION_SECONDS:
        return &stats->compute_seconds;
    default:
        return &stats->batch_size;
    }
}

static void write_series(void *arg, const struct model_info *info, struct model *model)
{
    struct series *series = arg;
    char labels[LABELS_MAX];
    struct model_stats *stats;

    label_model(info, "", labels);
    if (series->metric == METRIC_MODEL_READY) {
        metrics_write_value(series->to, series->metric, labels, info->state == MODEL_READY);
        return;
    }
    if (model == NULL)
        return;
    stats = queue_stats(model_queue(model));
    switch (series->metric) {
    case METRIC_MODEL_RESIDENT_BYTES:
        metrics_write_value(series->to, series->metric, labels, (double)info->resident_bytes);
        break;
    case METRIC_PLAN_CACHE_BYTES:
        metrics_write_value(series->to, series->metric, labels,
                            (double)network_plan_bytes(model_network(model)));
        break;
    case METRIC_QUEUE_REQUESTS:
        metrics_write_value(series->to, series->metric, labels,
                            (double)queue_waiting(model_queue(model)));
        break;
    case METRIC_REQUESTS_TOTAL:
        write_outcomes(series->to, info, stats);
        break;
    case METRIC_MODEL_RESIDENCY:
        write_residency(series->to, info);
        break;
    case METRIC_MODEL_HOST_BYTES:
        metrics_write_value(series->to, series->metric, labels, (double)info->residency.host_bytes);
        break;
    case METRIC_MODEL_EVICTIONS_TOTAL:
        metrics_write_value(series->to, series->metric, labels, (double)info->residency.evictions);
        break;
    case METRIC_MODEL_RELOADS_TOTAL:
        write_reloads(series->to, info);
        break;
    case METRIC_MODEL_RELOAD_SECONDS_TOTAL:
        metrics_write_value(series->to, series->metric, labels,
                            (double)info->residency.reloads_us / 1e6);
        break;
    default:
        metrics_write_histogram(series->to, series->metric, labels,
                                histogram_of(stats, series->metric));
    }
}

static void write_models(FILE *to, struct server *server)
{
    static const enum metric families[] = {
        METRIC_REQUEST_DURATION_SECONDS, METRIC_QUEUE_DURATION_SECONDS,
        METRIC_COMPUTE_DURATION_SECONDS, METRIC_BATCH_SIZE,
        METRIC_REQUESTS_TOTAL,           METRIC_QUEUE_REQUESTS,
        METRIC_MODEL_RESIDENT_BYTES,     METRIC_MODEL_READY,
        METRIC_PLAN_CACHE_BYTES,         METRIC_MODEL_RESIDENCY,
        METRIC_MODEL_HOST_BYTES,         METRIC_MODEL_EVICTIONS_TOTAL,
        METRIC_MODEL_RELOADS_TOTAL,      METRIC_MODEL_RELOAD_SECONDS_TOTAL,
    };

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        struct series series = {.to = to, .metric = families[i]};

        metrics_write_head(to, families[i]);
        repository_for_each(server->repository, write_series, &series);
    }
}

static void write_loads(FILE *to, struct server *server)
{
    struct load_counts loads = repository_load_counts(server->repository);

    metrics_write_head(to, METRIC_MODEL_LOADS_TOTAL);
    write_labelled(to, METRIC_MODEL_LOADS_TOTAL, "outcome", "ok", (double)loads.ok);
    write_labelled(to, METRIC_MODEL_LOADS_TOTAL, "outcome", "failed", (double)loads.failed);
}

static void write_process(FILE *to, struct server *server)
{
    double age = (double)(clock_now_us() - server->started_us) / 1e6;

    metrics_write_head(to, METRIC_CONNECTIONS);
    for (unsigned role = 0; role < ROLE_COUNT; role++)
        write_labelled(to, METRIC_CONNECTIONS, "listener", listener_role_name(role),
                       server->role_connections[role]);
    metrics_write_head(to, METRIC_BUILD_INFO);
    write_labelled(to, METRIC_BUILD_INFO, "version", SLUICE_VERSION, 1);
    write_one(to, METRIC_START_TIME_SECONDS, (double)clock_wall_ms() / 1e3 - age);
}

void run_metrics(struct call *call)
{
    char *text = NULL, *copy;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    if (to == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return;
    }
    write_memory(to, call->server);
    write_regions(to, call->server);
    memory_stats_write_metrics(to, call->server);
    write_models(to, call->server);
    write_loads(to, call->server);
    write_process(to, call->server);
    if (fclose(to) == 0 && (copy = arena_copy(&call->request.arena, text, size)) != NULL)
        call_reply_text(call, "text/plain; version=0.0.4; charset=utf-8", copy, size);
    else
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
    free(text);
}
