/* A queue whose model was replaced: another takes its place.
 *
 *   closed queue ── what comes late ──> heir        away for good: what waits, too
 *
 * The heir's model has the same inputs and outputs, so a request fits it as it is, but for its
 * number of rows.  It keeps the time since when it waits.
 */
#include <inttypes.h>

#include "base/clock.h"
#include "batch/lanes.h"

void queue_set_heir(struct model_queue *queue, struct model_queue *heir, bool is_other)
{
    pthread_mutex_lock(&queue->batcher->lock);
    queue->heir = heir;
    queue->heir_is_other = is_other;
    pthread_mutex_unlock(&queue->batcher->lock);
}

struct model_queue *heir_of(const struct model_queue *queue, const struct request *request)
{
    struct model_queue *heir = NULL;

    while (queue->closed && queue->heir != NULL && (request->any_version || !queue->heir_is_other))
        queue = heir = queue->heir;
    return heir == NULL || heir->closed ? NULL : heir;
}

static bool has_heir(const struct request *request, void *arg)
{
    return heir_of(arg, request) != NULL;
}

enum status heir_take(struct model_queue *heir, struct request *request, int64_t since_us)
{
    if (heir->max_batch_size > 0 && request->rows > heir->max_batch_size)
        return request->status =
                   error_set(&request->error, STATUS_INVALID,
                             "inference request batch-size must be <= %" PRId64 " for '%s'",
                             heir->max_batch_size, heir->name);
    return wait_queue_put(&heir->waiting, request, since_us);
}

void queue_pass_on(struct model_queue *queue)
{
    struct batcher *batcher = queue->batcher;
    struct list moving, refused;
    struct request *request;
    struct lane *lane = NULL;

    list_init(&moving);
    list_init(&refused);
    pthread_mutex_lock(&batcher->lock);
    wait_queue_extract(&queue->waiting, has_heir, queue, &moving);
    if (list_is_empty(&moving)) {
        pthread_mutex_unlock(&batcher->lock);
        return;
    }
    LIST_FOR_EACH (request, &moving, struct request, link) {
        struct model_queue *heir = heir_of(queue, request);

        list_remove(&request->link);
        if (heir_take(heir, request, request->queued_us) != STATUS_OK) {
            list_append(&refused, &request->link);
            continue;
        }
        request->wait.queue = heir;
        queue->pending--;
        heir->pending++;
        heir->idle_since_us = CLOCK_NEVER;
        queue_note_arrival(batcher, heir);
    }
    queue_note_idle(queue, clock_now_us());
    lane = lanes_wake_one(batcher);
    pthread_mutex_unlock(&batcher->lock);
    lanes_finish_wake(lane);
    lanes_answer_all(&refused);
    lanes_settle(queue, 0);
}

struct model_queue *request_queue(const struct request *request)
{
    return request->wait.queue;
}
