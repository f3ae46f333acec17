#include "batch/wait_queue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "batch/bucket.h"

/* How many requests of other shapes a walk passes over before it stops looking for more of one. */
enum { WALK_MISSES = 256 };
/* Lead before a deadline while no batch has been measured. */
enum { WAIT_FIRST_LEAD_US = 5000 };

static enum status make_levels(struct wait_queue *queue, const struct queue_config *config,
                               struct error *err)
{
    uint64_t levels = config->priority_levels == 0 ? 1 : config->priority_levels;

    if (levels > WAIT_MAX_LEVELS)
        return error_set(err, STATUS_INVALID,
                         "model '%s': priority_levels is %" PRIu64 ", at most %d", config->name,
                         levels, WAIT_MAX_LEVELS);
    if (config->default_priority > levels)
        return error_set(err, STATUS_INVALID,
                         "model '%s': default_priority_level is %" PRIu64 ", at most %" PRIu64,
                         config->name, config->default_priority, levels);
    queue->has_levels = config->priority_levels > 0;
    queue->default_level = config->default_priority == 0 ? 0 : (size_t)config->default_priority - 1;
    queue->levels = (size_t)levels;
    queue->level = calloc(queue->levels, sizeof(*queue->level));
    if (queue->level == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < queue->levels; i++) {
        list_init(&queue->level[i].waiting);
        list_init(&queue->level[i].delayed);
        queue->level[i].policy = config->policy;
    }
    for (size_t i = 0; i < config->level_policies; i++) {
        uint64_t level = config->level_policy[i].level;

        if (level < 1 || level > levels)
            return error_set(err, STATUS_INVALID,
                             "model '%s': a queue policy for priority level %" PRIu64
                             ", levels are 1 to %" PRIu64,
                             config->name, level, levels);
        queue->level[level - 1].policy = config->level_policy[i].policy;
    }
    return STATUS_OK;
}

static enum status copy_preferred(struct wait_queue *queue, const struct queue_config *config)
{
    if (config->preferred_count == 0)
        return STATUS_OK;
    queue->preferred = calloc(config->preferred_count, sizeof(*queue->preferred));
    if (queue->preferred == NULL)
        return STATUS_NO_MEMORY;
    memcpy(queue->preferred, config->preferred,
           config->preferred_count * sizeof(*queue->preferred));
    queue->preferred_count = config->preferred_count;
    return STATUS_OK;
}

enum status wait_queue_init(struct wait_queue *queue, const struct queue_config *config,
                            struct error *err)
{
    enum status status;

    *queue = (struct wait_queue){
        .single = !config->batching || config->max_batch_size == 0,
        .has_rows = config->max_batch_size > 0,
        .max_rows = config->max_batch_size,
        .delay_us = config->max_queue_delay_us,
        .lead_us = WAIT_FIRST_LEAD_US,
        .max_bytes = config->max_queue_bytes,
        .earliest_us = CLOCK_NEVER,
    };
    status = make_levels(queue, config, err);
    if (status == STATUS_OK)
        status = copy_preferred(queue, config);
    if (status == STATUS_NO_MEMORY)
        status = error_set(err, status, "model '%s': no memory for its queue", config->name);
    if (status != STATUS_OK)
        wait_queue_deinit(queue);
    return status;
}

void wait_queue_deinit(struct wait_queue *queue)
{
    free(queue->level);
    free(queue->preferred);
    queue->level = NULL;
    queue->preferred = NULL;
}

/* ---- equal shapes ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

static uint64_t shape_key(const struct wait_queue *queue, const struct request *request)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < request->inputs; i++) {
        const struct shape *shape = &request->in[i].shape;

        hash = mix(hash, shape->rank);
        for (size_t axis = queue->has_rows ? 1 : 0; axis < shape->rank; axis++)
            hash = mix(hash, (uint64_t)shape->dims[axis]);
    }
    return hash;
}

/* Whether two requests may share a batch. */
static bool fit_together(const struct wait_queue *queue, const struct request *a,
                         const struct request *b)
{
    size_t first = queue->has_rows ? 1 : 0;

    if (a->wait.shape_key != b->wait.shape_key || a->inputs != b->inputs)
        return false;
    for (size_t i = 0; i < a->inputs; i++) {
        const struct shape *left = &a->in[i].shape, *right = &b->in[i].shape;

        if (left->rank != right->rank || left->rank < first)
            return false;
        if (left->rank > first && memcmp(&left->dims[first], &right->dims[first],
                                         (left->rank - first) * sizeof(left->dims[0])) != 0)
            return false;
    }
    return true;
}

/* ---- in ---- */

static size_t level_of(const struct wait_queue *queue, uint64_t priority)
{
    if (priority == 0 || priority > queue->levels)
        return queue->default_level;
    return (size_t)priority - 1;
}

static int64_t later(int64_t now_us, int64_t by_us)
{
    int64_t then;

    return __builtin_add_overflow(now_us, by_us, &then) ? CLOCK_NEVER : then;
}

/* A request may shorten its policy's timeout, never lengthen it. */
static int64_t timeout_at(const struct queue_policy *policy, const struct request *request,
                          int64_t now_us)
{
    int64_t timeout_us = policy->default_timeout_us;

    if (policy->allow_timeout_override && request->queue_timeout_us > 0 &&
        (timeout_us == 0 || request->queue_timeout_us < timeout_us))
        timeout_us = request->queue_timeout_us;
    return timeout_us == 0 ? CLOCK_NEVER : later(now_us, timeout_us);
}

static uint64_t input_bytes(const struct request *request)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < request->inputs; i++)
        bytes += request->in[i].bytes;
    return bytes;
}

static int64_t expiry(const struct request *request)
{
    int64_t timeout_us = request->wait.delayed ? CLOCK_NEVER : request->wait.timeout_us;

    return request->deadline_us < timeout_us ? request->deadline_us : timeout_us;
}

static void note_expiry(struct wait_queue *queue, const struct request *request)
{
    int64_t at_us = expiry(request);

    if (at_us < queue->earliest_us)
        queue->earliest_us = at_us;
}

static enum status refuse(struct request *request, enum status status, const char *text)
{
    request->status = error_set(&request->error, status, "%s", text);
    return status;
}

enum status wait_queue_put(struct wait_queue *queue, struct request *request, int64_t now_us)
{
    size_t index = level_of(queue, request->priority);
    struct wait_level *level = &queue->level[index];
    uint64_t bytes = input_bytes(request);

    if (level->policy.max_queue_size > 0 && level->count >= level->policy.max_queue_size)
        return refuse(request, STATUS_UNAVAILABLE, "Exceeds maximum queue size");
    if (queue->max_bytes > 0 &&
        (bytes > queue->max_bytes || queue->bytes > queue->max_bytes - bytes))
        return refuse(request, STATUS_UNAVAILABLE, "Exceeds maximum queue size in bytes");
    request->wait = (struct request_wait){.shape_key = shape_key(queue, request),
                                          .bytes = bytes,
                                          .timeout_us = timeout_at(&level->policy, request, now_us),
                                          .level = index};
    request->queued_us = now_us;
    list_append(&level->waiting, &request->link);
    level->count++;
    queue->count++;
    queue->bytes += bytes;
    note_expiry(queue, request);
    return STATUS_OK;
}

/* ---- out, unserved ---- */

static void unlink_request(struct wait_queue *queue, struct request *request)
{
    list_remove(&request->link);
    queue->level[request->wait.level].count--;
    queue->count--;
    queue->bytes -= request->wait.bytes;
}

/* Why the request must leave now; STATUS_OK: it may stay. */
static enum status reason_to_leave(const struct wait_level *level, const struct request *request,
                                   int64_t now_us)
{
    if (atomic_load_explicit(&request->cancelled, memory_order_relaxed))
        return STATUS_CANCELLED;
    if (request->deadline_us <= now_us)
        return STATUS_DEADLINE;
    if (!request->wait.delayed && request->wait.timeout_us <= now_us &&
        !level->policy.delay_on_timeout)
        return STATUS_UNAVAILABLE;
    return STATUS_OK;
}

static const char *leaving_text(enum status reason)
{
    switch (reason) {
    case STATUS_CANCELLED:
        return "request cancelled";
    case STATUS_DEADLINE:
        return "Deadline expired while the request waited";
    default:
        return "Request timeout expired";
    }
}

static void sweep_list(struct wait_queue *queue, struct wait_level *level, struct list *list,
                       int64_t now_us, struct list *leaving)
{
    struct request *request;

    LIST_FOR_EACH (request, list, struct request, link) {
        enum status reason = reason_to_leave(level, request, now_us);

        if (reason != STATUS_OK) {
            unlink_request(queue, request);
            (void)refuse(request, reason, leaving_text(reason));
            list_append(leaving, &request->link);
            continue;
        }
        if (!request->wait.delayed && request->wait.timeout_us <= now_us) {
            request->wait.delayed = true;
            list_remove(&request->link);
            list_append(&level->delayed, &request->link);
        }
        note_expiry(queue, request);
    }
}

void wait_queue_sweep(struct wait_queue *queue, int64_t now_us, bool all, struct list *leaving)
{
    if (!all && now_us < queue->earliest_us)
        return;
    queue->earliest_us = CLOCK_NEVER;
    for (size_t i = 0; i < queue->levels; i++) {
        struct wait_level *level = &queue->level[i];

        /* First those delayed earlier, so that the newly delayed are looked at once. */
        sweep_list(queue, level, &level->delayed, now_us, leaving);
        sweep_list(queue, level, &level->waiting, now_us, leaving);
    }
}

static void extract_list(struct wait_queue *queue, struct list *list, wait_test_fn test, void *arg,
                         struct list *out)
{
    struct request *request;

    LIST_FOR_EACH (request, list, struct request, link) {
        if (!test(request, arg))
            continue;
        unlink_request(queue, request);
        list_append(out, &request->link);
    }
}

void wait_queue_extract(struct wait_queue *queue, wait_test_fn test, void *arg, struct list *out)
{
    for (size_t i = 0; i < queue->levels; i++) {
        extract_list(queue, &queue->level[i].delayed, test, arg, out);
        extract_list(queue, &queue->level[i].waiting, test, arg, out);
    }
}

int64_t wait_queue_next_expiry(const struct wait_queue *queue)
{
    return queue->count == 0 ? CLOCK_NEVER : queue->earliest_us;
}

/* ---- out, served ---- */

/* Requests that share a batch, in the order of service. */
struct walk {
    const struct wait_queue *queue;
    int64_t cap_rows;
    const struct request *head;
    int64_t rows; /* of those accepted */
    unsigned misses;
    bool ended; /* no more room, or looked far enough */
};

static bool walk_accepts(struct walk *walk, const struct request *request)
{
    if (walk->head == NULL) {
        walk->head = request;
        walk->rows = request->rows;
        walk->ended = walk->queue->single || walk->rows >= walk->cap_rows;
        return true;
    }
    if (!fit_together(walk->queue, walk->head, request)) {
        walk->ended = ++walk->misses >= WALK_MISSES;
        return false;
    }
    if (request->rows > walk->cap_rows - walk->rows) {
        walk->ended = true;
        return false;
    }
    walk->rows += request->rows;
    walk->ended = walk->rows >= walk->cap_rows;
    return true;
}

/* What a walk over the queue has seen. */
struct tally {
    int64_t preferred_rows; /* the largest preferred size met exactly; 0: none */
    int64_t bucket_rows;    /* the largest bucket met exactly; 0: none */
    int64_t oldest_us;
    int64_t deadline_us;
    int64_t expiry_us; /* the earliest deadline or policy timeout */
};

static bool is_preferred(const struct wait_queue *queue, int64_t rows)
{
    for (size_t i = 0; i < queue->preferred_count; i++)
        if (queue->preferred[i] == rows)
            return true;
    return false;
}

static void tally_add(struct tally *tally, const struct walk *walk, const struct request *request)
{
    if (is_preferred(walk->queue, walk->rows))
        tally->preferred_rows = walk->rows;
    if (bucket_is(walk->rows, walk->queue->max_rows))
        tally->bucket_rows = walk->rows;
    if (request->queued_us < tally->oldest_us)
        tally->oldest_us = request->queued_us;
    if (request->deadline_us < tally->deadline_us)
        tally->deadline_us = request->deadline_us;
    if (expiry(request) < tally->expiry_us)
        tally->expiry_us = expiry(request);
}

static void walk_list(struct walk *walk, struct tally *tally, const struct list *list)
{
    struct request *request;

    LIST_FOR_EACH (request, list, struct request, link) {
        if (walk->ended)
            return;
        if (walk_accepts(walk, request))
            tally_add(tally, walk, request);
    }
}

/* Rows to run of `walk->rows` that are there: see the top of wait_queue.h. */
static int64_t without_surplus(const struct walk *walk, const struct tally *tally)
{
    int64_t padding = bucket_up(walk->rows, walk->queue->max_rows) - walk->rows;

    if (!walk->queue->single && tally->bucket_rows > 0 && padding > walk->rows / 4)
        return tally->bucket_rows;
    return walk->rows;
}

static int64_t rank_of(const struct wait_queue *queue, const struct request *head)
{
    if (!queue->has_levels)
        return 0;
    return (int64_t)head->wait.level - (int64_t)queue->default_level;
}

/* How long the batch may wait for more company. */
static int64_t wait_until(const struct wait_queue *queue, const struct tally *tally, int64_t now_us)
{
    int64_t until_us;

    if (queue->delay_us == 0 || queue->single)
        return now_us;
    until_us = later(tally->oldest_us, queue->delay_us);
    if (tally->expiry_us != CLOCK_NEVER && tally->expiry_us - queue->lead_us < until_us)
        until_us = tally->expiry_us - queue->lead_us;
    return until_us;
}

struct wait_offer wait_queue_offer(const struct wait_queue *queue, int64_t now_us, int64_t cap_rows)
{
    struct walk walk = {.queue = queue, .cap_rows = cap_rows};
    struct tally tally = {
        .oldest_us = CLOCK_NEVER, .deadline_us = CLOCK_NEVER, .expiry_us = CLOCK_NEVER};
    struct wait_offer offer = {.at_us = CLOCK_NEVER, .deadline_us = CLOCK_NEVER};
    int64_t until_us;

    for (size_t i = 0; i < queue->levels && !walk.ended; i++) {
        walk_list(&walk, &tally, &queue->level[i].waiting);
        walk_list(&walk, &tally, &queue->level[i].delayed);
    }
    if (walk.head == NULL)
        return offer;
    offer.rank = rank_of(queue, walk.head);
    offer.deadline_us = tally.deadline_us;
    until_us = wait_until(queue, &tally, now_us);
    if (tally.preferred_rows > 0 && !queue->single)
        offer.rows = tally.preferred_rows;
    else if (walk.ended || until_us <= now_us)
        offer.rows = without_surplus(&walk, &tally);
    else
        offer.at_us = until_us;
    return offer;
}

static void take_from(struct wait_queue *queue, struct walk *walk, struct list *list,
                      struct list *batch, size_t *count)
{
    struct request *request;

    LIST_FOR_EACH (request, list, struct request, link) {
        if (walk->ended)
            return;
        if (!walk_accepts(walk, request))
            continue;
        unlink_request(queue, request);
        list_append(batch, &request->link);
        ++*count;
    }
}

size_t wait_queue_take(struct wait_queue *queue, const struct wait_offer *offer, struct list *batch)
{
    struct walk walk = {.queue = queue, .cap_rows = offer->rows};
    size_t count = 0;

    for (size_t i = 0; i < queue->levels && !walk.ended; i++) {
        take_from(queue, &walk, &queue->level[i].waiting, batch, &count);
        take_from(queue, &walk, &queue->level[i].delayed, batch, &count);
    }
    return count;
}

void wait_queue_put_back(struct wait_queue *queue, struct list *batch)
{
    while (!list_is_empty(batch)) {
        struct request *request = CONTAINER_OF(batch->prev, struct request, link);
        struct wait_level *level = &queue->level[request->wait.level];

        list_remove(&request->link);
        list_prepend(request->wait.delayed ? &level->delayed : &level->waiting, &request->link);
        level->count++;
        queue->count++;
        queue->bytes += request->wait.bytes;
        note_expiry(queue, request);
    }
}
