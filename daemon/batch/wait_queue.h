/* The requests of one model that wait, and the rules by which they leave.  Pure: no lock, no clock,
 * no memory of its own beyond the levels; the request's link is the queue.
 *
 *   level 1:  waiting (by arrival) ──> delayed (timed out under DELAY)
 *   level 2:  …
 *
 * Served in that order.  A request leaves in one of three ways:
 *   taken     as part of a batch: the first in line, and those behind it with equal shapes
 *   leaving   cancelled, past its deadline, or past its policy's timeout under REJECT
 *   refused   at the door: its level is full, or the queue holds too many bytes
 *
 * When to form (preferred sizes and max_queue_delay, as Triton documents them):
 *   a preferred size is there       -> exactly that many rows
 *   the batch is full, or the oldest waited max_queue_delay, or there is no delay -> what is there
 *   otherwise                       -> wait, at most until the oldest has waited that long, and
 * never so long that a request would expire of it Without preferred sizes a batch whose padding
 * would pass a quarter of it leaves its surplus to the next one.
 */
#ifndef BATCH_WAIT_QUEUE_H
#define BATCH_WAIT_QUEUE_H

#include "batch/batcher.h"

enum { WAIT_MAX_LEVELS = 256 };

struct wait_level {
    struct queue_policy policy;
    struct list waiting;
    struct list delayed;
    size_t count; /* of both */
};

struct wait_queue {
    bool single;      /* one request a batch */
    bool has_rows;    /* dimension 0 counts rows, shapes may differ there */
    int64_t max_rows; /* 0 when `single` for want of a batch dimension */
    int64_t delay_us;
    int64_t
        lead_us; /* how long before a deadline a batch must start; set as batches are measured */
    size_t preferred_count;
    int64_t *preferred;
    uint64_t max_bytes;
    size_t default_level;
    bool has_levels;
    size_t levels;
    struct wait_level *level;
    size_t count;
    uint64_t bytes;
    int64_t earliest_us; /* nothing expires before; may be too early, never too late */
};

/* STATUS_INVALID names the setting; STATUS_NO_MEMORY. */
MUST_CHECK enum status wait_queue_init(struct wait_queue *queue, const struct queue_config *config,
                                       struct error *err);
void wait_queue_deinit(struct wait_queue *queue);

/* Takes the request in, or refuses it: request->status and ->error are set, it stays the caller's.
 */
MUST_CHECK enum status wait_queue_put(struct wait_queue *queue, struct request *request,
                                      int64_t now_us);
/* Moves what must leave to `leaving`, status and error set.  `all`: look at every request for
 * cancellation, else only when something may have expired. */
void wait_queue_sweep(struct wait_queue *queue, int64_t now_us, bool all, struct list *leaving);

/* Takes out those of which `test` is true; what becomes of them is the caller's. */
typedef bool (*wait_test_fn)(const struct request *request, void *arg);
void wait_queue_extract(struct wait_queue *queue, wait_test_fn test, void *arg, struct list *out);

struct wait_offer {
    int64_t rows;  /* of the batch that could be formed now; 0: none */
    int64_t at_us; /* when to ask again, if rows is 0; CLOCK_NEVER: when something arrives */
    int64_t rank;  /* priority of the first in line against the model's default: lower first */
    int64_t deadline_us; /* the earliest in the batch */
};
/* What could be formed at `now_us` of at most cap_rows rows (the first in line always may). */
struct wait_offer wait_queue_offer(const struct wait_queue *queue, int64_t now_us,
                                   int64_t cap_rows);
/* Moves the requests of such an offer to the end of `batch`; returns how many. */
size_t wait_queue_take(struct wait_queue *queue, const struct wait_offer *offer,
                       struct list *batch);
/* Puts requests taken before back at the front, in their order. */
void wait_queue_put_back(struct wait_queue *queue, struct list *batch);
/* The earliest time at which a request may expire; CLOCK_NEVER: none. */
int64_t wait_queue_next_expiry(const struct wait_queue *queue);

#endif
