/* Queues, batch forming and the lanes.
 *
 *   serve ──submit──> model_queue ──> scheduler ──> lane thread: admit, plan_run, slice ──done──>
 * serve
 *
 * Requests of one model whose input shapes agree behind the batch dimension form a batch, up to
 * max_batch_size, to what memory admits and to what pays (size.h).  Nothing waits while a lane is
 * idle unless max_queue_delay says so.  Which model runs next: priority, then earliest deadline,
 * then fair share by measured time.  Deadline and cancellation are looked at at dequeue, before
 * compute and between segments.  The rules are in wait_queue.c and pick.c, pure; threads are in
 * lanes.c.
 *
 * Threads: submit from any I/O thread; `done` is called on a lane thread (or, inline, on the
 * caller).
 */
#ifndef BATCH_BATCHER_H
#define BATCH_BATCHER_H

#include "batch/request.h"
#include "engine/engine.h"
#include "govern/governor.h"
#include "memory/host_pool.h"
#include "observe/metrics.h"

struct batcher;

struct batcher_config {
    struct device *device;
    struct ledger *ledger;
    struct host_pool *host_pool; /* response buffers come from here */
    unsigned lanes;
    int64_t inline_limit_us; /* 0: never on the caller's thread */
};

/* Starts the lane threads. */
MUST_CHECK enum status batcher_create(const struct batcher_config *config,
                                      struct batcher **out_batcher, struct error *err);
void batcher_destroy(struct batcher *batcher); /* queues must be closed; joins the threads */
/* What it was made with; borrowed. */
struct host_pool *batcher_host_pool(const struct batcher *batcher);
void batcher_set_inline_limit(struct batcher *batcher, int64_t limit_us);
/* How long a request without a deadline waits for memory before it gets STATUS_NO_MEMORY; 0: for
 * ever, as before the first call. */
void batcher_set_memory_wait(struct batcher *batcher, int64_t limit_us);

/* From now on no request waits for company (max_queue_delay): the daemon drains.  On the thread
 * that submits. */
void batcher_end_delays(struct batcher *batcher);

struct queue_policy {      /* Triton's ModelQueuePolicy */
    bool delay_on_timeout; /* timeout_action DELAY instead of REJECT */
    int64_t default_timeout_us;
    bool allow_timeout_override;
    uint32_t max_queue_size; /* requests; 0: unlimited */
};

struct level_policy { /* of one priority level, instead of the default one */
    uint64_t level;
    struct queue_policy policy;
};

struct queue_config {
    const char *name; /* model, for messages */
    struct network *network;
    int64_t max_batch_size; /* 0: the model has no batch dimension, requests run one by one */
    bool batching;          /* false: one request at a time even if it has a batch dimension */
    size_t preferred_count;
    const int64_t *preferred; /* preferred_batch_size, ascending */
    int64_t max_queue_delay_us;
    bool preserve_ordering;
    unsigned instances;       /* batches of this model at once; 0: as many as lanes */
    uint64_t priority_levels; /* 0: none */
    uint64_t default_priority;
    struct queue_policy policy;
    size_t level_policies;
    const struct level_policy *level_policy;
    uint64_t max_queue_bytes; /* 0: unlimited */
};

/* Statistics of one model version, in Triton's terms (ModelStatistics); read while serving. */
struct duration_stat {
    _Atomic uint64_t count;
    _Atomic uint64_t ns;
};
enum { BATCH_STATS = 16 };
struct batch_stat { /* one batch size, or the bucket of it */
    _Atomic int64_t size;
    struct duration_stat input, infer, output;
};
struct model_stats {
    struct duration_stat success, fail, queue, compute_input, compute_infer, compute_output, cancel,
        rejected;
    _Atomic uint64_t inference_count;  /* rows */
    _Atomic uint64_t execution_count;  /* batches */
    _Atomic int64_t last_inference_ms; /* since 1970 */
    struct batch_stat batches[BATCH_STATS];
    struct histogram request_seconds, queue_seconds, compute_seconds, batch_size;
};

MUST_CHECK enum status queue_create(struct batcher *batcher, const struct queue_config *config,
                                    struct model_queue **out_queue, struct error *err);
/* No new requests (they get STATUS_UNAVAILABLE); calls `drained` once the last one is done. */
void queue_close(struct model_queue *queue, void (*drained)(void *arg), void *arg);
/* Requests may share batches from now on: its model has proven it.  No effect without a batch
 * dimension. */
void queue_begin_batching(struct model_queue *queue);
void queue_destroy(struct model_queue *queue);              /* closed and drained; NULL is fine */
struct model_stats *queue_stats(struct model_queue *queue); /* borrowed */
size_t queue_waiting(struct model_queue *queue);
struct network *queue_network(const struct model_queue *queue);

/* ---- residency: a queue whose model is away ----
 *
 *   open ──queue_park()──> parked ──queue_resume()──> open
 *
 * A parked queue takes requests and lets them expire, but starts no batch and finds no plan: its
 * network is the caller's alone.  When a request waits there, and when a queue has been idle for as
 * long as its model may be, the batcher calls `attend`. */

/* `attend` is called by any thread with the batcher's lock held: it may post mail, nothing else.
 * Once, before any queue is made. */
void batcher_set_attend(struct batcher *batcher, void (*attend)(void *arg), void *arg);
/* When the attendant looks by itself: nothing calls it for what is due later. */
void batcher_attend_at(struct batcher *batcher, int64_t at_us);
/* Whether waiting may help a batch of the queue that lacks `bytes` although nothing else runs:
 * others' models may leave for it.  Called by lanes and submitters without a lock; must not wait.
 * waited_us: how long the queue has been waiting for memory.  Set like `attend`. */
typedef bool (*batcher_make_way_fn)(void *arg, const struct model_queue *queue, uint64_t bytes,
                                    int64_t waited_us);
void batcher_set_make_way(struct batcher *batcher, batcher_make_way_fn make_way, void *arg);

enum park {
    PARK_IDLE,   /* only when nothing waits and nothing runs: answers may be on their way */
    PARK_NEEDED, /* also when requests wait; while one runs no other starts, for a moment */
};
/* STATUS_UNAVAILABLE: the queue is not parked: it is in use, or visited. */
MUST_CHECK enum status queue_park(struct model_queue *queue, enum park park);
void queue_resume(struct model_queue *queue);
/* Answers all that wait in a parked queue with the error; it stays parked. */
void queue_refuse(struct model_queue *queue, const struct error *err);
/* Its model was replaced by that of `heir`, which has the same inputs and outputs and outlives it:
 * what comes once it is closed goes there; where the version is_other, only requests that may be
 * answered by any. */
void queue_set_heir(struct model_queue *queue, struct model_queue *heir, bool is_other);
/* What waits in a closed queue whose model does not come back goes to the heir, too, as far as it
 * may.  The queue may be gone when this returns, unless the caller holds its model. */
void queue_pass_on(struct model_queue *queue);
/* Requests that wait in a parked queue wait for memory: those that expire die of that, and say so.
 */
void queue_blame(struct model_queue *queue, uint64_t needed_bytes, uint64_t available_bytes);
/* Keeps the queue from being parked while the caller looks at its network; false: it is parked. */
bool queue_visit(struct model_queue *queue);
void queue_leave(struct model_queue *queue);
/* How long the model may be idle before the attendant is called for it; CLOCK_NEVER: for ever. */
void queue_set_patience(struct model_queue *queue, int64_t patience_us);

struct queue_use {
    size_t pending;        /* accepted and not answered */
    size_t waiting;        /* of these, in the queue */
    bool is_busy;          /* some wait or run: more than answers are on their way */
    int64_t idle_since_us; /* CLOCK_NEVER: it is not idle */
    uint64_t requests;     /* answered so far, well or not */
};
void queue_read_use(struct model_queue *queue, struct queue_use *out_use);

/* Hands the request over.  Always answered by `done`, sooner (refused, inline) or later. */
void batcher_submit(struct batcher *batcher, struct model_queue *queue, struct request *request);
/* Wakes the queues so that cancelled or expired requests leave at once; cheap. */
void batcher_wake(struct batcher *batcher);
/* When something that waits may expire (its deadline, or the timeout of its queue's policy):
 * whoever has a timer calls batcher_wake() then, for lanes that are busy do not look.
 * CLOCK_NEVER: nothing does.  Any thread, one atomic read. */
int64_t batcher_expiry_us(const struct batcher *batcher);

/* ---- for the governor (pressure.c) ---- */

struct batch_pressure {
    int64_t stall_us;       /* time so far while some queue waited for memory (PSI's "some") */
    uint64_t wanted_bytes;  /* what the queue that lacks most lacks now; 0: none waits */
    uint64_t waits_total;   /* batches that had to wait for memory */
    uint64_t refused_total; /* requests that failed for want of memory which others had */
    uint64_t never_total;   /* requests that no memory here would ever do for: not of refused */
    bool capped;            /* some queue's batches are smaller than they might be */
};
void batcher_read_pressure(struct batcher *batcher, int64_t now_us,
                           struct batch_pressure *out_pressure);
/* `waits` is called whenever a queue begins to wait for memory, and when a batch lost the device:
 * any thread, no lock held.  Before the first request. */
void batcher_on_wait(struct batcher *batcher, void (*waits)(void *arg), void *arg);
/* Batch caps, additive up and multiplicative down (AIMD): every queue that ran batches since the
 * last time gets half of the largest of them; or every capped one gets a row more (a thirty-second
 * of what it had, if that is more), until it has its max_batch_size again. */
void batcher_halve_caps(struct batcher *batcher);
void batcher_raise_caps(struct batcher *batcher);
/* What of `most` bytes the device itself has free, where it says so: others hold the rest. */
uint64_t batcher_device_free(const struct batcher *batcher, uint64_t most);
/* Sum over lanes. */
uint64_t batcher_cached_bytes(struct batcher *batcher);
int64_t batcher_last_batch_us(struct batcher *batcher);
unsigned batcher_running(struct batcher *batcher); /* batches running now */
/* Shrinks the lanes' cached memory to at most keep_bytes together, those unused for longest first;
 * returns bytes freed. */
uint64_t batcher_trim(struct batcher *batcher, uint64_t keep_bytes);
/* At most about `most_bytes` of that: a slice. */
uint64_t batcher_trim_some(struct batcher *batcher, uint64_t keep_bytes, uint64_t most_bytes);
/* Steps forward with every step of a batch and while lanes are idle: for the watchdog. */
uint64_t batcher_progress(struct batcher *batcher);
/* A batch ended in STATUS_DEVICE_LOST, or whatever else was asked of the device (a load, what it
 * has free): nothing runs any more, a new process must. */
bool batcher_lost_device(struct batcher *batcher);

#endif
