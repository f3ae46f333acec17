/* The last steps of requests: answered, counted, their queue's end told. */
#include "base/clock.h"
#include "batch/lanes.h"

/* The last step of a request; afterwards it is somebody else's. */
void lanes_answer(struct request *request)
{
    struct model_queue *queue = request->wait.queue;

    request->finished_us = clock_now_us();
    stats_request(&queue->stats, request);
    request->done(request);
}

/* Nobody asks for the model any more: the attendant is called if it may not be idle for long.  Lock
 * held. */
static void note_rest(struct model_queue *queue)
{
    struct batcher *batcher = queue->batcher;
    int64_t patience_us = atomic_load_explicit(&queue->patience_us, memory_order_relaxed);

    queue->idle_since_us = clock_now_us();
    if (batcher->attend != NULL && patience_us != CLOCK_NEVER &&
        queue->idle_since_us + patience_us < atomic_load(&batcher->attend_at_us))
        batcher->attend(batcher->attend_arg);
}

/* `count` requests of the queue are answered, with `batch` the one that others had to wait for.
 * When they were the last of a closed queue, the queue may be gone when this returns. */
static void settle(struct model_queue *queue, size_t count, bool batch)
{
    struct batcher *batcher = queue->batcher;
    void (*drained)(void *arg) = NULL;
    struct lane *lane = NULL;
    void *arg = NULL;

    pthread_mutex_lock(&batcher->lock);
    queue->pending -= count;
    queue->requests += count;
    if (batch && queue->answering) {
        queue->answering = false;
        if (queue->waiting.count > 0)
            lane = lanes_wake_one(batcher);
    }
    if (queue->pending == 0)
        note_rest(queue);
    if (queue->closed && queue->pending == 0) {
        drained = queue->drained;
        arg = queue->drained_arg;
        queue->drained = NULL;
    }
    pthread_mutex_unlock(&batcher->lock);
    lanes_finish_wake(lane);
    if (drained != NULL)
        drained(arg);
}

void lanes_settle(struct model_queue *queue, size_t count)
{
    settle(queue, count, false);
}

/* Answers those at the head of the list that are of one queue. */
static void answer_queue(struct list *requests, bool batch)
{
    struct request *request = LIST_FIRST(requests, struct request, link);
    struct model_queue *queue = request->wait.queue;
    size_t count = 0;

    for (; request != NULL && request->wait.queue == queue; count++) {
        list_remove(&request->link);
        lanes_answer(request);
        request = LIST_FIRST(requests, struct request, link);
    }
    settle(queue, count, batch);
}

void lanes_answer_all(struct list *requests)
{
    while (!list_is_empty(requests))
        answer_queue(requests, false);
}

void lanes_answer_batch(struct list *requests)
{
    if (!list_is_empty(requests))
        answer_queue(requests, true);
}
