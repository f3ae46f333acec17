/* What batcher.c and park.c need of the lane threads; the rest of lanes.c is batcher.h's. */
#ifndef BATCH_LANES_H
#define BATCH_LANES_H

#include "batch/internal.h"

/* STATUS_NO_MEMORY: some may run; lanes_stop() joins them. */
MUST_CHECK enum status lanes_start(struct batcher *batcher);
void lanes_stop(struct batcher *batcher);
void lanes_wake_all(struct batcher *batcher);
/* Answers requests that have left their queues, status and error set.  Lock not held. */
void lanes_answer_all(struct list *requests);

#endif
