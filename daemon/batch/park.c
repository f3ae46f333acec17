/* Queues whose models are away: parked, resumed, refused.
 *
 * Parking and visiting exclude each other without the lock on the visitor's way: each announces
 * itself first and looks for the other afterwards, so at least one of two that meet gives way.
 */
#include "base/clock.h"
#include "batch/lanes.h"

/* A queue that is to be parked starts nothing for so long. */
enum { STOP_US = 100000 };

void batcher_set_attend(struct batcher *batcher, void (*attend)(void *arg), void *arg)
{
    pthread_mutex_lock(&batcher->lock);
    batcher->attend = attend;
    batcher->attend_arg = arg;
    pthread_mutex_unlock(&batcher->lock);
}

void batcher_attend_at(struct batcher *batcher, int64_t at_us)
{
    atomic_store(&batcher->attend_at_us, at_us);
}

void batcher_set_make_way(struct batcher *batcher, batcher_make_way_fn make_way, void *arg)
{
    pthread_mutex_lock(&batcher->lock);
    batcher->make_way = make_way;
    batcher->make_way_arg = arg;
    pthread_mutex_unlock(&batcher->lock);
}

bool batcher_make_way(struct batcher *batcher, const struct model_queue *queue, uint64_t bytes)
{
    batcher_make_way_fn make_way;
    int64_t waited_us = 0;
    void *arg;

    pthread_mutex_lock(&batcher->lock);
    make_way = batcher->make_way;
    arg = batcher->make_way_arg;
    if (queue->hold.since_us != CLOCK_NEVER)
        waited_us = clock_now_us() - queue->hold.since_us;
    pthread_mutex_unlock(&batcher->lock);
    return make_way != NULL && make_way(arg, queue, bytes, waited_us);
}

/* What is only being answered needs no network any more. */
static bool is_busy(const struct model_queue *queue)
{
    return queue->running > 0 || queue->waiting.count > 0;
}

/* Nothing of the queue's runs or can begin to. */
static bool is_free(struct model_queue *queue, enum park park)
{
    if (park == PARK_IDLE)
        return !is_busy(queue);
    if (queue->running > 0)
        queue->stop_until_us = clock_now_us() + STOP_US;
    return queue->running == 0;
}

enum status queue_park(struct model_queue *queue, enum park park)
{
    struct batcher *batcher = queue->batcher;
    bool free = false;

    pthread_mutex_lock(&batcher->lock);
    if (!queue->parked && is_free(queue, park)) {
        atomic_store(&queue->parked, true);
        free = atomic_load(&queue->visitors) == 0;
        atomic_store(&queue->parked, free);
    }
    pthread_mutex_unlock(&batcher->lock);
    return free ? STATUS_OK : STATUS_UNAVAILABLE;
}

void queue_resume(struct model_queue *queue)
{
    struct batcher *batcher = queue->batcher;

    pthread_mutex_lock(&batcher->lock);
    atomic_store(&queue->parked, false);
    queue->stop_until_us = 0;
    hold_end(queue, clock_now_us());
    pthread_mutex_unlock(&batcher->lock);
    batcher_wake(batcher);
}

bool queue_visit(struct model_queue *queue)
{
    atomic_fetch_add(&queue->visitors, 1);
    if (!atomic_load(&queue->parked))
        return true;
    atomic_fetch_sub(&queue->visitors, 1);
    return false;
}

void queue_leave(struct model_queue *queue)
{
    atomic_fetch_sub(&queue->visitors, 1);
}

void queue_blame(struct model_queue *queue, uint64_t needed_bytes, uint64_t available_bytes)
{
    const struct memory_lack lack = {.needed_bytes = needed_bytes,
                                     .available_bytes = available_bytes};
    struct batcher *batcher = queue->batcher;
    struct lane *lane = NULL;

    pthread_mutex_lock(&batcher->lock);
    if (queue->waiting.count > 0 && /* nobody may have waited long enough */
        hold_begin(queue, &lack, clock_now_us())) {
        queue_note_expiry(batcher, queue);
        lane = lanes_wake_one(batcher); /* it sleeps past the end of this wait */
    }
    pthread_mutex_unlock(&batcher->lock);
    lanes_finish_wake(lane);
}

void queue_set_patience(struct model_queue *queue, int64_t patience_us)
{
    atomic_store_explicit(&queue->patience_us, patience_us, memory_order_relaxed);
}

void queue_read_use(struct model_queue *queue, struct queue_use *out_use)
{
    struct batcher *batcher = queue->batcher;

    pthread_mutex_lock(&batcher->lock);
    *out_use = (struct queue_use){
        .pending = queue->pending,
        .waiting = queue->waiting.count,
        .is_busy = is_busy(queue),
        .idle_since_us = queue->idle_since_us,
        .requests = queue->requests,
    };
    pthread_mutex_unlock(&batcher->lock);
}

static bool is_any(const struct request *request, void *arg)
{
    (void)request;
    (void)arg;
    return true;
}

void queue_refuse(struct model_queue *queue, const struct error *err)
{
    struct batcher *batcher = queue->batcher;
    struct request *request;
    struct list leaving;

    list_init(&leaving);
    pthread_mutex_lock(&batcher->lock);
    wait_queue_extract(&queue->waiting, is_any, NULL, &leaving);
    queue_note_idle(queue, clock_now_us());
    pthread_mutex_unlock(&batcher->lock);
    LIST_FOR_EACH (request, &leaving, struct request, link) {
        request->status = err->status;
        request->error = *err;
    }
    lanes_answer_all(&leaving);
}
