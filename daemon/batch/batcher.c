/* The batcher and its queues as objects: made, configured, read, trimmed, destroyed. */
#include "batch/batcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "batch/lanes.h"
#include "batch/pick.h"

/* Addresses for one arena: more than any device has, and little enough for many lanes. */
static const size_t range_bytes[] = {(size_t)1 << 40, (size_t)1 << 36, (size_t)1 << 32};

static enum status open_arena(struct batcher *batcher, enum mem_kind kind, unsigned index,
                              struct lane_arena **out_arena)
{
    enum status status = STATUS_NO_MEMORY;
    char owner[32];

    (void)snprintf(owner, sizeof(owner), "lane %u%s", index, kind == MEM_IO ? " io" : "");
    for (size_t i = 0; i < sizeof(range_bytes) / sizeof(range_bytes[0]); i++) {
        status = lane_arena_create_for(kind, batcher->device->memory, batcher->ledger, owner,
                                       range_bytes[i], out_arena);
        if (status == STATUS_OK)
            break;
    }
    return status;
}

static enum status open_lane(struct batcher *batcher, unsigned index)
{
    struct lane *lane = &batcher->lane[index];

    lane->batcher = batcher;
    lane->index = index;
    lane->until_us = CLOCK_NEVER;
    arena_init(&lane->scratch);
    TRY(batcher->device->ops->lane_open(batcher->device, index, &lane->device_lane));
    lane->device_lane->host_pool = batcher->host_pool;
    TRY(open_arena(batcher, MEM_ACTIVATION, index, &lane->arena));
    return open_arena(batcher, MEM_IO, index, &lane->io);
}

static void close_lane(struct lane *lane)
{
    lane_arena_destroy(lane->io);
    lane_arena_destroy(lane->arena);
    if (lane->device_lane != NULL)
        lane->batcher->device->ops->lane_close(lane->device_lane);
    arena_deinit(&lane->scratch);
}

/* What batcher_trim_some() can tell apart; one thread each is no use beyond the cores anyhow. */
enum { MAX_LANES = 32 };

enum status batcher_create(const struct batcher_config *config, struct batcher **out_batcher,
                           struct error *err)
{
    struct batcher *batcher;
    enum status status = STATUS_OK;

    if (config->lanes > MAX_LANES)
        return error_set(err, STATUS_INVALID, "%u lanes, at most %d", config->lanes, MAX_LANES);
    batcher = calloc(1, sizeof(*batcher));
    if (batcher == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the batcher");
    pthread_mutex_init(&batcher->lock, NULL);
    batcher->device = config->device;
    batcher->ledger = config->ledger;
    batcher->host_pool = config->host_pool;
    batcher->inline_limit_us = config->inline_limit_us;
    batcher->memory_wait_us = CLOCK_NEVER;
    batcher->lanes = config->lanes == 0 ? 1 : config->lanes;
    list_init(&batcher->active);
    list_init(&batcher->all);
    atomic_init(&batcher->expiry_us, CLOCK_NEVER);
    batcher->lane = calloc(batcher->lanes, sizeof(*batcher->lane));
    if (batcher->lane == NULL)
        status = STATUS_NO_MEMORY;
    for (unsigned i = 0; i < batcher->lanes && status == STATUS_OK; i++)
        status = open_lane(batcher, i);
    if (status == STATUS_OK)
        status = lanes_start(batcher);
    if (status != STATUS_OK) {
        batcher_destroy(batcher);
        return error_set(err, status, "cannot open %u lanes on the device: %s", config->lanes,
                         status_words(status));
    }
    *out_batcher = batcher;
    return STATUS_OK;
}

void batcher_destroy(struct batcher *batcher)
{
    if (batcher == NULL)
        return;
    if (batcher->lane != NULL)
        lanes_stop(batcher);
    for (unsigned i = 0; batcher->lane != NULL && i < batcher->lanes; i++)
        if (batcher->lane[i].batcher != NULL)
            close_lane(&batcher->lane[i]);
    free(batcher->lane);
    free(batcher->candidates);
    free(batcher->candidate_queues);
    pthread_mutex_destroy(&batcher->lock);
    free(batcher);
}

struct host_pool *batcher_host_pool(const struct batcher *batcher)
{
    return batcher->host_pool;
}

void batcher_set_inline_limit(struct batcher *batcher, int64_t limit_us)
{
    atomic_store(&batcher->inline_limit_us, limit_us);
}

void batcher_end_delays(struct batcher *batcher)
{
    struct model_queue *queue;

    pthread_mutex_lock(&batcher->lock);
    LIST_FOR_EACH (queue, &batcher->all, struct model_queue, all_link)
        queue->waiting.delay_us = 0;
    pthread_mutex_unlock(&batcher->lock);
    batcher_wake(batcher);
}

/* ---- queues ---- */

/* Room in the candidate tables for one more queue.  Lock held. */
static enum status grow_candidates(struct batcher *batcher)
{
    size_t room = batcher->candidate_room == 0 ? 16 : batcher->candidate_room * 2;
    void *candidates, *queues;

    if (batcher->queues < batcher->candidate_room)
        return STATUS_OK;
    candidates = realloc(batcher->candidates, room * sizeof(*batcher->candidates));
    if (candidates == NULL)
        return STATUS_NO_MEMORY;
    batcher->candidates = candidates;
    queues = realloc(batcher->candidate_queues, room * sizeof(*batcher->candidate_queues));
    if (queues == NULL)
        return STATUS_NO_MEMORY;
    batcher->candidate_queues = queues;
    batcher->candidate_room = room;
    return STATUS_OK;
}

static enum status enter_queue(struct batcher *batcher, struct model_queue *queue)
{
    enum status status;

    pthread_mutex_lock(&batcher->lock);
    status = grow_candidates(batcher);
    if (status == STATUS_OK) {
        batcher->queues++;
        list_append(&batcher->all, &queue->all_link);
    }
    pthread_mutex_unlock(&batcher->lock);
    return status;
}

static unsigned instances_of(const struct queue_config *config)
{
    /* One at a time, and the next only when all of it is answered (queue_may_start()). */
    return config->preserve_ordering ? 1 : config->instances;
}

enum status queue_create(struct batcher *batcher, const struct queue_config *config,
                         struct model_queue **out_queue, struct error *err)
{
    struct model_queue *queue = calloc(1, sizeof(*queue));
    enum status status = STATUS_NO_MEMORY;

    if (queue == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory for its queue",
                         config->name);
    status = wait_queue_init(&queue->waiting, config, err);
    if (status != STATUS_OK)
        goto fail;
    queue->name = strdup(config->name);
    if (queue->name == NULL) {
        status =
            error_set(err, STATUS_NO_MEMORY, "model '%s': no memory for its queue", config->name);
        goto fail;
    }
    queue->batcher = batcher;
    queue->network = config->network;
    queue->max_batch_size = config->max_batch_size;
    atomic_init(&queue->batching, config->batching && config->max_batch_size > 0);
    queue->keeps_order = config->preserve_ordering;
    queue->instances = instances_of(config);
    queue->inputs = network_inputs(config->network, &queue->in_port);
    queue->outputs = network_outputs(config->network, &queue->out_port);
    queue->hold.since_us = CLOCK_NEVER;
    queue->idle_since_us = clock_now_us();
    atomic_init(&queue->patience_us, CLOCK_NEVER);
    list_init(&queue->active_link);
    queue->cap_rows = INT64_MAX;
    atomic_init(&queue->growth, GROWTH_NONE);
    stats_init(&queue->stats);
    status = enter_queue(batcher, queue);
    if (status != STATUS_OK) {
        (void)error_set(err, status, "model '%s': no memory for its queue", config->name);
        goto fail;
    }
    *out_queue = queue;
    return STATUS_OK;

fail:
    wait_queue_deinit(&queue->waiting);
    free(queue->name);
    free(queue);
    return status;
}

void queue_begin_batching(struct model_queue *queue)
{
    if (queue->max_batch_size == 0)
        return;
    pthread_mutex_lock(&queue->batcher->lock);
    queue->waiting.single = false;
    atomic_store(&queue->batching, true);
    pthread_mutex_unlock(&queue->batcher->lock);
}

void queue_destroy(struct model_queue *queue)
{
    struct batcher *batcher;

    if (queue == NULL)
        return;
    batcher = queue->batcher;
    pthread_mutex_lock(&batcher->lock);
    batcher->queues--;
    list_remove(&queue->all_link);
    pthread_mutex_unlock(&batcher->lock);
    wait_queue_deinit(&queue->waiting);
    free(queue->name);
    free(queue);
}

struct model_stats *queue_stats(struct model_queue *queue)
{
    return &queue->stats;
}

size_t queue_waiting(struct model_queue *queue)
{
    size_t count;

    pthread_mutex_lock(&queue->batcher->lock);
    count = queue->waiting.count;
    pthread_mutex_unlock(&queue->batcher->lock);
    return count;
}

struct network *queue_network(const struct model_queue *queue)
{
    return queue->network;
}

/* ---- figures ---- */

int64_t batcher_last_batch_us(struct batcher *batcher)
{
    return atomic_load(&batcher->last_batch_us);
}

unsigned batcher_running(struct batcher *batcher)
{
    return atomic_load(&batcher->running);
}

uint64_t batcher_progress(struct batcher *batcher)
{
    if (atomic_load(&batcher->running) == 0)
        atomic_fetch_add(&batcher->progress, 1); /* idle lanes are no stuck lanes */
    return atomic_load(&batcher->progress);
}

bool batcher_lost_device(struct batcher *batcher)
{
    return atomic_load(&batcher->device_lost) || device_is_lost(batcher->device);
}
