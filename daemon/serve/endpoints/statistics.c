/* ModelStatistics, in Triton's terms. */
#include "serve/endpoints/statistics.h"

#include <stdlib.h>
#include <string.h>

#include "serve/endpoint.h"
#include "serve/internal.h"

static Inference__StatisticDuration *copy_duration(struct call *call, struct duration_stat *stat)
{
    Inference__StatisticDuration *duration = call_take(call, sizeof(*duration));

    if (duration == NULL)
        return NULL;
    inference__statistic_duration__init(duration);
    if (stat != NULL) {
        duration->count = atomic_load(&stat->count);
        duration->ns = atomic_load(&stat->ns);
    }
    return duration;
}

static Inference__InferStatistics *copy_stats(struct call *call, struct model_stats *stats)
{
    Inference__InferStatistics *copy = call_take(call, sizeof(*copy));

    if (copy == NULL)
        return NULL;
    inference__infer_statistics__init(copy);
    copy->success = copy_duration(call, &stats->success);
    copy->fail = copy_duration(call, &stats->fail);
    copy->queue = copy_duration(call, &stats->queue);
    copy->compute_input = copy_duration(call, &stats->compute_input);
    copy->compute_infer = copy_duration(call, &stats->compute_infer);
    copy->compute_output = copy_duration(call, &stats->compute_output);
    copy->cache_hit = copy_duration(call, NULL);
    copy->cache_miss = copy_duration(call, NULL);
    return copy;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = (*(Inference__InferBatchStatistics *const *)a)->batch_size;
    uint64_t y = (*(Inference__InferBatchStatistics *const *)b)->batch_size;

    return (x > y) - (x < y);
}

static size_t copy_batches(struct call *call, struct model_stats *stats,
                           Inference__InferBatchStatistics ***out_list)
{
    Inference__InferBatchStatistics **list = call_take(call, BATCH_STATS * sizeof(*list));
    size_t count = 0;

    for (size_t i = 0; list != NULL && i < BATCH_STATS; i++) {
        struct batch_stat *stat = &stats->batches[i];
        Inference__InferBatchStatistics *batch;

        if (atomic_load(&stat->size) <= 0)
            continue;
        batch = call_take(call, sizeof(*batch));
        if (batch == NULL)
            break;
        inference__infer_batch_statistics__init(batch);
        batch->batch_size = (uint64_t)atomic_load(&stat->size);
        batch->compute_input = copy_duration(call, &stat->input);
        batch->compute_infer = copy_duration(call, &stat->infer);
        batch->compute_output = copy_duration(call, &stat->output);
        list[count++] = batch;
    }
    if (count > 1) /* they lie in order of their hash */
        qsort(list, count, sizeof(*list), by_size);
    *out_list = list;
    return count;
}

static Inference__ResidencyStatistics *copy_residency(struct call *call, struct model *model)
{
    Inference__ResidencyStatistics *copy = call_take(call, sizeof(*copy));
    struct model_residency residency;

    if (copy == NULL)
        return NULL;
    model_read_residency(model, &residency);
    inference__residency_statistics__init(copy);
    copy->residency = (char *)(uintptr_t)residency_name(residency.where);
    copy->evictions = residency.evictions;
    copy->reloads = residency.reloads;
    copy->failed_reloads = residency.failed_reloads;
    copy->reload_ns = (uint64_t)residency.reloads_us * 1000;
    return copy;
}

static Inference__ModelStatistics *copy_model(struct call *call, const char *name,
                                              const char *version, struct model *model)
{
    struct model_stats *stats = queue_stats(model_queue(model));
    Inference__ModelStatistics *copy = call_take(call, sizeof(*copy));

    if (copy == NULL)
        return NULL;
    inference__model_statistics__init(copy);
    copy->name = arena_copy_string(&call->request.arena, name, strlen(name));
    copy->version = arena_copy_string(&call->request.arena, version, strlen(version));
    copy->last_inference = (uint64_t)atomic_load(&stats->last_inference_ms);
    copy->inference_count = atomic_load(&stats->inference_count);
    copy->execution_count = atomic_load(&stats->execution_count);
    copy->inference_stats = copy_stats(call, stats);
    copy->n_batch_stats = copy_batches(call, stats, &copy->batch_stats);
    copy->residency_stats = copy_residency(call, model);
    return copy->name != NULL && copy->version != NULL ? copy : NULL;
}

struct collection {
    struct call *call;
    Inference__ModelStatistics **models;
    size_t count, room;
    bool failed;
};

static void count_model(void *arg, const struct model_info *info, struct model *model)
{
    (void)info;
    *(size_t *)arg += model != NULL;
}

static void add_model(void *arg, const struct model_info *info, struct model *model)
{
    struct collection *all = arg;
    Inference__ModelStatistics *copy;

    if (model == NULL || all->count == all->room)
        return;
    copy = copy_model(all->call, info->name, info->version, model);
    if (copy == NULL)
        all->failed = true;
    else
        all->models[all->count++] = copy;
}

bool statistics_collect(struct call *call, Inference__ModelStatisticsResponse *reply)
{
    struct repository *repository = call->server->repository;
    struct collection all = {.call = call};

    repository_for_each(repository, count_model, &all.room);
    all.models = call_take(call, (all.room + 1) * sizeof(*all.models));
    if (all.models == NULL)
        return false;
    repository_for_each(repository, add_model, &all);
    reply->model_stats = all.models;
    reply->n_model_stats = all.count;
    return !all.failed;
}

void run_model_statistics(struct call *call)
{
    const Inference__ModelStatisticsRequest *request = (const void *)call->message;
    Inference__ModelStatisticsResponse reply = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    Inference__ModelStatistics *one;
    struct error err;

    if (request->name[0] == '\0') {
        if (statistics_collect(call, &reply))
            call_reply_message(call, &reply.base);
        else
            call_fail(call, STATUS_NO_MEMORY, "out of memory for the answer");
        return;
    }
    if (repository_find(call->server->repository, request->name, request->version, &call->model,
                        &err) != STATUS_OK) {
        call_fail_with(call, &err);
        return;
    }
    one = copy_model(call, model_name(call->model), model_version(call->model), call->model);
    if (one == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory for the answer");
        return;
    }
    reply.model_stats = &one;
    reply.n_model_stats = 1;
    call_reply_message(call, &reply.base);
}
