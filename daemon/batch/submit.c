/* How requests come in: the submitter's short cut, the queue, the end of a queue.
 *
 * A request so short that handing it over would cost more is run by whoever submits it, in a lane
 * that is free.  Any other goes into its queue, and wakes one sleeping lane if that would otherwise
 * sleep past the work.
 */
#include "base/clock.h"
#include "batch/lanes.h"

/* A plan that is there, has been measured and is short enough; NULL: hand the request over. */
static struct plan *short_plan(struct batcher *batcher, struct model_queue *queue,
                               struct request *request)
{
    int64_t limit_us = atomic_load_explicit(&batcher->inline_limit_us, memory_order_relaxed);
    struct plan_facts facts;
    struct shape *shapes;
    struct plan *plan;

    if (limit_us <= 0 || request->no_inline || !batcher->device->ops->host_memory ||
        queue->waiting.delay_us > 0)
        return NULL;
    shapes = batch_shapes(&request->arena, queue, request, request->rows);
    if (shapes == NULL)
        return NULL;
    plan = network_find_plan(queue->network, shapes);
    if (plan == NULL)
        return NULL;
    plan_read(plan, &facts);
    if (facts.predicted_us >= 0 && facts.predicted_us <= limit_us)
        return plan;
    plan_unref(plan);
    return NULL;
}

/* The plan is somebody's until it is given back: from then on a lane's, which counts as pending. */
static struct plan *visit_short_plan(struct batcher *batcher, struct model_queue *queue,
                                     struct request *request)
{
    struct plan *plan;

    if (!queue_visit(queue))
        return NULL;
    plan = short_plan(batcher, queue, request);
    if (plan == NULL)
        queue_leave(queue);
    return plan;
}

void queue_note_arrival(struct batcher *batcher, struct model_queue *queue)
{
    queue_note_active(batcher, queue);
    queue_note_expiry(batcher, queue);
    if (queue->parked && batcher->attend != NULL)
        batcher->attend(batcher->attend_arg);
}

/* Lock held. */
static void note_pending(struct model_queue *queue)
{
    queue->pending++;
    queue->idle_since_us = CLOCK_NEVER;
}

/* Lock held. */
static struct lane *free_lane(struct batcher *batcher)
{
    if (!list_is_empty(&batcher->active))
        return NULL;
    for (unsigned i = 0; i < batcher->lanes; i++)
        if (!batcher->lane[i].taken)
            return &batcher->lane[i];
    return NULL;
}

/* Runs the request here and now if a lane is free and memory is there. */
static bool submit_inline(struct batcher *batcher, struct model_queue *queue,
                          struct request *request)
{
    struct plan *plan = visit_short_plan(batcher, queue, request);
    struct error err = {.status = STATUS_OK};
    struct lane *lane = NULL;
    enum admission admission;

    if (plan == NULL)
        return false;
    pthread_mutex_lock(&batcher->lock);
    if (!queue->closed && queue_may_start(queue))
        lane = free_lane(batcher);
    if (lane != NULL) {
        lane_start_batch(lane, queue);
        note_pending(queue);
    }
    pthread_mutex_unlock(&batcher->lock);
    if (lane == NULL)
        plan_unref(plan);
    queue_leave(queue);
    if (lane == NULL)
        return false;
    request->wait = (struct request_wait){.queue = queue, .timeout_us = CLOCK_NEVER};
    request->queued_us = clock_now_us();
    list_append(&lane->batch.requests, &request->link);
    lane->batch.count = 1;
    lane->batch.rows = request->rows;
    batcher->device->ops->lane_enter(lane->device_lane);
    admission = batch_admit_plan(lane, &lane->batch, plan, &err);
    lane_run_taken(lane, admission, true, &err); /* on WAIT it is in the queue now */
    return true;
}

/* Whether a sleeping lane would sleep past what this request needs.  Lock held. */
static bool needs_wake(struct batcher *batcher, struct model_queue *queue, int64_t now_us)
{
    const struct lane *lane = lanes_sleeping(batcher);
    int64_t expiry_us = wait_queue_next_expiry(&queue->waiting);
    struct wait_offer offer;

    if (lane == NULL)
        return false;
    if (expiry_us < lane->until_us)
        return true;
    if (!queue_may_start(queue) || queue->hold.since_us != CLOCK_NEVER)
        return false;
    offer = wait_queue_offer(&queue->waiting, now_us, queue_cap_rows(queue));
    return offer.rows > 0 || offer.at_us < lane->until_us;
}

static void submit_queued(struct batcher *batcher, struct model_queue *queue,
                          struct request *request)
{
    int64_t now_us = clock_now_us();
    struct model_queue *heir = NULL;
    struct lane *lane = NULL;
    enum status status;

    pthread_mutex_lock(&batcher->lock);
    if (queue->closed)
        heir = heir_of(queue, request);
    if (heir != NULL)
        queue = heir;
    request->started_us = 0;
    note_pending(queue);
    if (heir != NULL)
        status = heir_take(heir, request, now_us);
    else if (queue->closed)
        status = request->status = error_set(&request->error, STATUS_UNAVAILABLE,
                                             "model '%s' is not at ready state", queue->name);
    else
        status = wait_queue_put(&queue->waiting, request, now_us);
    request->wait.queue = queue;
    if (status == STATUS_OK) {
        queue_note_arrival(batcher, queue);
        if (needs_wake(batcher, queue, now_us))
            lane = lanes_wake_one(batcher);
    }
    pthread_mutex_unlock(&batcher->lock);
    lanes_finish_wake(lane);
    if (status == STATUS_OK)
        return;
    lanes_answer(request);
    lanes_settle(queue, 1);
}

void batcher_submit(struct batcher *batcher, struct model_queue *queue, struct request *request)
{
    request->status = STATUS_OK;
    request->response = NULL;
    request->started_us = request->computed_us = 0;
    list_init(&request->link);
    if (!submit_inline(batcher, queue, request))
        submit_queued(batcher, queue, request);
}

int64_t batcher_expiry_us(const struct batcher *batcher)
{
    return atomic_load_explicit(&batcher->expiry_us, memory_order_relaxed);
}

void queue_close(struct model_queue *queue, void (*drained)(void *arg), void *arg)
{
    struct batcher *batcher = queue->batcher;
    bool now;

    pthread_mutex_lock(&batcher->lock);
    queue->closed = true;
    now = queue->pending == 0;
    queue->drained = now ? NULL : drained;
    queue->drained_arg = arg;
    pthread_mutex_unlock(&batcher->lock);
    if (now && drained != NULL)
        drained(arg);
}
