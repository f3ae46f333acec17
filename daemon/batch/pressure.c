/* Memory between queues and the governor: who waits for it, how large batches may be, what lanes
 * give back.
 *
 * A queue whose next batch does not fit holds a ticket: the time since when it waits.  After 50 ms
 * it is next, the oldest ticket first: nothing new starts before it while something runs that will
 * make room.  So a large batch is not starved by small ones, and nothing is kept from running for
 * long.
 */
#include <string.h>

#include "base/clock.h"
#include "batch/internal.h"

enum { MEMORY_PATIENCE_US = 50000, RAISE_SHARE = 32 };

/* ---- tickets ---- */

/* Only what the governor can do something about is a stall. */
static void set_stalls(struct model_queue *queue, bool stalls, int64_t now_us)
{
    struct batcher *batcher = queue->batcher;

    if (queue->hold.stalls == stalls)
        return;
    queue->hold.stalls = stalls;
    if (stalls && batcher->holds++ == 0)
        batcher->held_since_us = now_us;
    if (!stalls && --batcher->holds == 0)
        batcher->stall_us += now_us - batcher->held_since_us;
}

bool hold_begin(struct model_queue *queue, const struct memory_lack *lack, int64_t now_us)
{
    bool begins = queue->hold.since_us == CLOCK_NEVER;

    if (begins) {
        queue->hold.since_us = now_us;
        queue->hold.expiry_us = 0;
    }
    queue->hold.retry_us = now_us + MEMORY_RETRY_US;
    queue->hold.lack = *lack;
    set_stalls(queue, !lack->of_host, now_us);
    return begins;
}

void hold_end(struct model_queue *queue, int64_t now_us)
{
    set_stalls(queue, false, now_us);
    queue->hold = (struct memory_hold){.since_us = CLOCK_NEVER};
}

int64_t hold_expiry(const struct model_queue *queue)
{
    int64_t limit_us = atomic_load_explicit(&queue->batcher->memory_wait_us, memory_order_relaxed);

    if (queue->hold.since_us == CLOCK_NEVER || limit_us == CLOCK_NEVER)
        return CLOCK_NEVER;
    return queue->hold.expiry_us > 0 ? queue->hold.expiry_us : queue->hold.since_us + limit_us;
}

struct overdue {
    int64_t since_us, limit_us, now_us;
    int64_t next_us; /* when the next one is */
};

static bool is_overdue(const struct request *request, void *arg)
{
    struct overdue *overdue = arg;
    int64_t from_us =
        request->queued_us > overdue->since_us ? request->queued_us : overdue->since_us;

    if (request->deadline_us != CLOCK_NEVER)
        return false;
    if (from_us + overdue->limit_us <= overdue->now_us)
        return true;
    if (from_us + overdue->limit_us < overdue->next_us)
        overdue->next_us = from_us + overdue->limit_us;
    return false;
}

static void die_of_memory(struct request *request, const struct model_queue *queue)
{
    const struct memory_lack *lack = &queue->hold.lack;

    memory_error(&request->error, queue, request->rows, lack);
    request->status = STATUS_NO_MEMORY;
    atomic_fetch_add(&queue->batcher->refused, !lack->of_host);
}

void hold_sweep(struct model_queue *queue, int64_t now_us, struct list *leaving)
{
    struct overdue overdue = {.since_us = queue->hold.since_us,
                              .limit_us = atomic_load(&queue->batcher->memory_wait_us),
                              .now_us = now_us};
    struct request *request;
    struct list late;

    if (now_us < hold_expiry(queue))
        return;
    list_init(&late);
    overdue.next_us = now_us + overdue.limit_us; /* of one that comes now */
    wait_queue_extract(&queue->waiting, is_overdue, &overdue, &late);
    queue->hold.expiry_us = overdue.next_us;
    LIST_FOR_EACH (request, &late, struct request, link) {
        die_of_memory(request, queue);
        list_remove(&request->link);
        list_append(leaving, &request->link);
    }
}

const struct model_queue *hold_first_in_need(const struct batcher *batcher, int64_t now_us)
{
    const struct model_queue *queue, *first = NULL;

    /* Of all queues: the one whose request is being tried is not active just now. */
    LIST_FOR_EACH (queue, &batcher->all, struct model_queue, all_link)
        if (queue->hold.since_us != CLOCK_NEVER && !queue->parked &&
            now_us - queue->hold.since_us >= MEMORY_PATIENCE_US &&
            (first == NULL || queue->hold.since_us < first->hold.since_us))
            first = queue;
    if (first != NULL && first->hold.retry_us > now_us && atomic_load(&batcher->running) == 0)
        return NULL; /* it was just tried, and nothing runs that would make room */
    return first;
}

void hold_blame(struct model_queue *queue, struct list *leaving)
{
    struct request *request;

    if (queue->hold.since_us == CLOCK_NEVER)
        return;
    LIST_FOR_EACH (request, leaving, struct request, link) {
        if (request->wait.queue != queue || request->status != STATUS_DEADLINE)
            continue;
        die_of_memory(request, queue);
    }
}

void hold_retry_all(struct batcher *batcher)
{
    struct model_queue *queue;

    LIST_FOR_EACH (queue, &batcher->active, struct model_queue, active_link)
        queue->hold.retry_us = 0;
}

void batcher_set_memory_wait(struct batcher *batcher, int64_t limit_us)
{
    struct model_queue *queue;

    pthread_mutex_lock(&batcher->lock);
    atomic_store(&batcher->memory_wait_us, limit_us > 0 ? limit_us : CLOCK_NEVER);
    LIST_FOR_EACH (queue, &batcher->all, struct model_queue, all_link)
        queue->hold.expiry_us = 0;
    pthread_mutex_unlock(&batcher->lock);
    batcher_wake(batcher);
}

static uint64_t wanted_bytes(const struct batcher *batcher)
{
    const struct model_queue *queue;
    uint64_t most = 0;

    LIST_FOR_EACH (queue, &batcher->all, struct model_queue, all_link) {
        const struct memory_lack *lack = &queue->hold.lack;

        if (queue->hold.stalls && lack->needed_bytes > lack->available_bytes &&
            lack->needed_bytes - lack->available_bytes > most)
            most = lack->needed_bytes - lack->available_bytes;
    }
    return most;
}

void batcher_read_pressure(struct batcher *batcher, int64_t now_us,
                           struct batch_pressure *out_pressure)
{
    struct batch_pressure pressure = {.waits_total = atomic_load(&batcher->waits),
                                      .refused_total = atomic_load(&batcher->refused),
                                      .never_total = atomic_load(&batcher->never)};
    const struct model_queue *queue;

    pthread_mutex_lock(&batcher->lock);
    pressure.stall_us = batcher->stall_us;
    if (batcher->holds > 0 && now_us > batcher->held_since_us)
        pressure.stall_us += now_us - batcher->held_since_us;
    pressure.wanted_bytes = wanted_bytes(batcher);
    LIST_FOR_EACH (queue, &batcher->all, struct model_queue, all_link)
        pressure.capped |= queue->cap_rows != INT64_MAX;
    pthread_mutex_unlock(&batcher->lock);
    *out_pressure = pressure;
}

void batcher_on_wait(struct batcher *batcher, void (*waits)(void *arg), void *arg)
{
    batcher->on_wait = waits;
    batcher->on_wait_arg = arg;
}

/* ---- caps ---- */

static void halve_cap(struct model_queue *queue)
{
    int64_t rows = queue->largest_rows < queue->cap_rows ? queue->largest_rows : queue->cap_rows;

    queue->largest_rows = 0;
    if (rows == 0 || queue->max_batch_size <= 1)
        return;
    if (queue->cap_rows == INT64_MAX)
        queue->cap_from_rows = rows;
    queue->cap_rows = rows > 1 ? rows / 2 : 1;
}

static void raise_cap(struct model_queue *queue)
{
    int64_t more = queue->cap_from_rows / RAISE_SHARE;

    if (queue->cap_rows == INT64_MAX)
        return;
    queue->cap_rows += more > 1 ? more : 1;
    if (queue->cap_rows >= queue->max_batch_size)
        queue->cap_rows = INT64_MAX;
}

static void for_all(struct batcher *batcher, void (*change)(struct model_queue *queue))
{
    struct model_queue *queue;

    pthread_mutex_lock(&batcher->lock);
    LIST_FOR_EACH (queue, &batcher->all, struct model_queue, all_link)
        change(queue);
    pthread_mutex_unlock(&batcher->lock);
}

void batcher_halve_caps(struct batcher *batcher)
{
    for_all(batcher, halve_cap);
}

void batcher_raise_caps(struct batcher *batcher)
{
    for_all(batcher, raise_cap);
}

/* ---- cached memory ---- */

uint64_t batcher_device_free(const struct batcher *batcher, uint64_t most)
{
    struct mem_source *memory = batcher->device->memory;
    uint64_t free_bytes, total_bytes;

    if (memory->ops->query == NULL ||
        memory->ops->query(memory, &free_bytes, &total_bytes) != STATUS_OK)
        return most;
    return free_bytes < most ? free_bytes : most;
}

static uint64_t cached_of(const struct lane_arena *arena)
{
    size_t committed = lane_arena_committed(arena), used = lane_arena_used(arena);

    return committed > used ? committed - used : 0;
}

uint64_t batcher_cached_bytes(struct batcher *batcher)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < batcher->lanes; i++)
        bytes += cached_of(batcher->lane[i].arena) + cached_of(batcher->lane[i].io);
    return bytes;
}

/* The arena with cached bytes that was used longest ago, of those not yet in `seen`. */
static struct lane_arena *stalest(struct batcher *batcher, uint64_t seen, unsigned *out_bit)
{
    struct lane_arena *best = NULL;

    for (unsigned bit = 0; bit < 2 * batcher->lanes; bit++) {
        struct lane *lane = &batcher->lane[bit / 2];
        struct lane_arena *arena = bit % 2 == 0 ? lane->arena : lane->io;

        if ((seen >> bit & 1) != 0 || cached_of(arena) == 0)
            continue;
        if (best == NULL || lane_arena_last_use_us(arena) < lane_arena_last_use_us(best)) {
            best = arena;
            *out_bit = bit;
        }
    }
    return best;
}

static uint64_t trim_lanes(struct batcher *batcher, uint64_t keep_bytes, uint64_t most_bytes)
{
    uint64_t freed = 0, seen = 0, cached = batcher_cached_bytes(batcher);
    struct lane_arena *arena;
    unsigned bit;

    while (freed < most_bytes && cached > keep_bytes &&
           (arena = stalest(batcher, seen, &bit)) != NULL) {
        uint64_t excess = cached - keep_bytes, committed = lane_arena_committed(arena), part;
        uint64_t cut = cached_of(arena) < excess ? cached_of(arena) : excess;

        seen |= UINT64_C(1) << bit;
        part =
            lane_arena_trim_some(arena, committed > cut ? committed - cut : 0, most_bytes - freed);
        freed += part;
        cached -= part < cached ? part : cached;
    }
    return freed;
}

uint64_t batcher_trim_some(struct batcher *batcher, uint64_t keep_bytes, uint64_t most_bytes)
{
    uint64_t freed = trim_lanes(batcher, keep_bytes, most_bytes);

    device_give_back(batcher->device);
    return freed;
}

uint64_t batcher_recycle(struct batcher *batcher)
{
    return trim_lanes(batcher, 0, UINT64_MAX);
}

uint64_t batcher_trim(struct batcher *batcher, uint64_t keep_bytes)
{
    return batcher_trim_some(batcher, keep_bytes, UINT64_MAX);
}
