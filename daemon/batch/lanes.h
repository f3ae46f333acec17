/* What the files of batch/ need of the lane threads and of each other's steps. */
#ifndef BATCH_LANES_H
#define BATCH_LANES_H

#include "batch/internal.h"

/* STATUS_NO_MEMORY: some may run; lanes_stop() joins them. */
MUST_CHECK enum status lanes_start(struct batcher *batcher);
void lanes_stop(struct batcher *batcher);
void lanes_wake_all(struct batcher *batcher);
/* Answers requests that have left their queues, status and error set.  Lock not held. */
void lanes_answer_all(struct list *requests);
/* The same for those of a batch that has ended: a queue that keeps its order starts the next one
 * only now. */
void lanes_answer_batch(struct list *requests);
/* One of them; the caller counts with lanes_settle().  The request is somebody else's afterwards.
 */
void lanes_answer(struct request *request);
/* `count` requests of the queue are answered.  When they were the last of a closed queue, the queue
 * may be gone when this returns. */
void lanes_settle(struct model_queue *queue, size_t count);

/* ---- lock held ---- */

/* A free lane whose thread sleeps; NULL: none. */
struct lane *lanes_sleeping(struct batcher *batcher);
/* Wakes it; the result is for lanes_finish_wake() once the lock is free. */
struct lane *lanes_wake_one(struct batcher *batcher);
/* Something waits in the queue; or what expires first in it has changed. */
void queue_note_active(struct batcher *batcher, struct model_queue *queue);
/* Nothing waits in it any more; does nothing while something does. */
void queue_note_idle(struct model_queue *queue, int64_t now_us);
int64_t queue_next_expiry(const struct model_queue *queue); /* CLOCK_NEVER: nothing does */
void queue_note_expiry(struct batcher *batcher, const struct model_queue *queue);
/* A request was put into it. */
void queue_note_arrival(struct batcher *batcher, struct model_queue *queue);
/* The most rows that its next batch may have. */
int64_t queue_cap_rows(const struct model_queue *queue);
bool queue_may_start(const struct model_queue *queue);
void lane_start_batch(struct lane *lane, struct model_queue *queue);

/* ---- lock not held ---- */

void lanes_finish_wake(struct lane *lane); /* NULL is fine */
/* Runs lane->batch, which is taken; answers everybody. */
void lane_run_taken(struct lane *lane, enum admission admission, bool is_inline, struct error *err);

#endif
