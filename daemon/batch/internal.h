/* What the files of batch/ share: lanes, queues, the batch on a lane. */
#ifndef BATCH_INTERNAL_H
#define BATCH_INTERNAL_H

#include <pthread.h>

#include "batch/batcher.h"
#include "batch/size.h"
#include "batch/wait_queue.h"

struct lane;

#define OUTPUT_UNWANTED SIZE_MAX       /* in batch->out_offset: nobody asked for it */
#define OUTPUT_PLACED   (SIZE_MAX - 1) /* the run finds its shape and asks for room */
#define OUTPUT_PASSED   (SIZE_MAX - 2) /* it is an input: nothing is written */
#define OUTPUT_ROOM     (SIZE_MAX - 3) /* the run writes it where the client wants it */
#define OUTPUT_SPECIAL  OUTPUT_ROOM    /* from here on: it has no place in the response */

/* One batch on its way through a lane.  Everything it points to outlives it or is in lane->scratch.
 */
struct batch {
    struct model_queue *queue;
    struct list requests;
    struct list surplus; /* taken, but did not fit; they go back to the queue */
    size_t count;        /* of requests */
    int64_t rows;        /* of the requests */
    int64_t plan_rows; /* ≥ rows: those behind are padding.  0: the model has no batch dimension */
    bool is_whole;     /* one request and no padding: its tensors are the plan's */
    struct plan *plan;
    const struct shape *out_shapes; /* the plan's */
    const bool *out_bound;          /* the plan's; may be NULL */
    bool *binds;                    /* per input: bound where it is, else copied together */
    uint64_t io_bytes;              /* of the lane's io memory */
    char *io_base;
    uint64_t peak_bytes;                    /* whole pages held for the activations */
    uint64_t reserved_bytes;                /* in the ledger, given back by batch_release() */
    uint64_t needed_bytes, available_bytes; /* when it was not admitted */
    uint64_t run_bytes;                     /* of activations the plan itself asks for */
    bool may_restart;                       /* its requests may go back to their queue */
    uint64_t segment_bytes;                 /* the most a later segment asked for; 0: none did */
    uint64_t restart_bytes; /* a later segment found no room: it starts again with so many; or 0 */
    bool lacks_host;        /* what it lacks is room for its answers */
    bool fits_never;        /* what it lacked while it ran is not to be had by waiting either */
    struct response_buffer *response;
    size_t *out_offset; /* per output, in the response; or one of those above */
    char **out_base;    /* per output: where its elements are for the host */
    struct run_buffer *in, *out;
    struct shape *true_shapes; /* per output, as the run found them */
    int64_t ticket_us; /* its queue waited for memory since, when it was taken; CLOCK_NEVER: not */
    int64_t started_ns, gathered_ns, computed_ns, sliced_ns;
    bool ran_whole; /* as one and well */
};

struct lane {
    struct batcher *batcher;
    unsigned index;
    pthread_t thread;
    bool has_thread;
    struct device_lane *device_lane;
    struct lane_arena *arena; /* activations */
    struct lane_arena *io; /* gathered inputs; on devices with memory of their own also outputs */
    struct arena scratch;  /* small things of the batch that runs */
    struct batch batch;
    atomic_uint wakes; /* futex: changes with every wake */
    /* under batcher->lock */
    bool taken;       /* somebody runs a batch here: its thread, or a submitter */
    bool asleep;      /* its thread waits and nobody has woken it yet */
    int64_t until_us; /* … at most until then */
};

/* What a batch was not admitted for want of. */
struct memory_lack {
    uint64_t needed_bytes, available_bytes;
    bool of_host; /* room for its answers, not memory of the device */
};

/* A queue that could not be admitted waits for memory. */
struct memory_hold {
    int64_t since_us; /* CLOCK_NEVER: it does not wait */
    int64_t retry_us;
    int64_t
        expiry_us; /* when the next of its requests without a deadline has waited for too long */
    struct memory_lack lack;
    bool stalls; /* it counts for batcher->holds: the device's memory is what lacks */
};

struct model_queue {
    struct batcher *batcher;
    struct list all_link; /* in batcher->all */
    struct network *network;
    char *name;
    int64_t max_batch_size;
    atomic_bool batching; /* once true it stays */
    bool keeps_order;
    unsigned instances;
    size_t inputs, outputs;
    const struct network_port *in_port, *out_port; /* the network's */
    struct model_stats stats;
    /* under batcher->lock */
    struct list active_link; /* in batcher->active while requests wait */
    struct wait_queue waiting;
    size_t pending; /* requests accepted and not done yet */
    unsigned running;
    bool answering;       /* it keeps its order, and a batch has ended but is not answered yet */
    int64_t used_us;      /* device time, in the virtual time of pick.h */
    int64_t predicted_us; /* the last batch took so long */
    struct size_choice sizes;
    struct memory_hold hold;
    int64_t cap_rows;      /* at most so many a batch; INT64_MAX: no cap */
    int64_t cap_from_rows; /* what it had before the first halving */
    int64_t largest_rows;  /* of batches since the last halving */
    /* What runs with a cut asked for in all, as a share of what their plan said, in 1/256: falls
     * slowly.  Any lane. */
    atomic_uint growth;
    bool closed;
    _Atomic bool parked;  /* its model is away; changes under the lock */
    atomic_uint visitors; /* look at the network without the lock */
    _Atomic int64_t patience_us;
    int64_t idle_since_us; /* CLOCK_NEVER: requests are pending */
    int64_t stop_until_us; /* nothing starts before: it is to be parked */
    uint64_t requests;     /* answered */
    void (*drained)(void *arg);
    void *drained_arg;
    struct model_queue *heir; /* takes what comes when it is closed; NULL: nobody does */
    bool heir_is_other;       /* … but only requests that named no version */
};

struct batcher {
    pthread_mutex_t lock;
    struct device *device;
    struct ledger *ledger;
    struct host_pool *host_pool;
    _Atomic int64_t inline_limit_us;
    _Atomic int64_t memory_wait_us;
    _Atomic int64_t last_batch_us;
    atomic_uint running;
    _Atomic uint64_t progress;
    _Atomic uint64_t waits, refused, never;
    void (*on_wait)(void *arg); /* NULL: nobody wants to know */
    void *on_wait_arg;
    atomic_bool device_lost;
    unsigned lanes;
    struct lane *lane;
    _Atomic int64_t expiry_us; /* batcher_expiry_us(); written under lock */
    /* under lock */
    struct list active;
    struct list all;
    unsigned holds;                  /* queues that wait for memory of the device */
    int64_t held_since_us, stall_us; /* the first of them began then; former times, summed */
    size_t queues;
    struct pick_candidate *candidates; /* room for one a queue */
    struct model_queue **candidate_queues;
    size_t candidate_room;
    int64_t virtual_us; /* device time used by whoever ran last: newcomers start here */
    bool stopping;
    /* residency: set before there are queues */
    void (*attend)(void *arg);
    void *attend_arg;
    batcher_make_way_fn make_way;
    void *make_way_arg;
    _Atomic int64_t attend_at_us;
};

/* park.c: whether waiting may help a batch that lacks `bytes` beside all weights.  Lock not held.
 */
bool batcher_make_way(struct batcher *batcher, const struct model_queue *queue, uint64_t bytes);

/* ---- admit.c: plan, reserve, room for the answers ---- */

enum admission { ADMIT_RUN, ADMIT_WAIT, ADMIT_FAIL };
/* Prepares lane->batch (queue, requests, count, rows are set).  RUN: everything it needs is held,
 * and what does not fit is in `surplus`.  WAIT: needed_bytes and available_bytes say why.  FAIL:
 * `err`. On WAIT and FAIL nothing is held. */
enum admission batch_admit(struct lane *lane, struct batch *batch, struct error *err);
/* The same for a plan that is there already; the batch adopts the reference. */
enum admission batch_admit_plan(struct lane *lane, struct batch *batch, struct plan *plan,
                                struct error *err);
/* Gives back plan, reservation and response, whichever are held. */
void batch_release(struct lane *lane, struct batch *batch);
/* Input shapes for `rows` rows, out of the scratch; NULL: no memory. */
struct shape *batch_shapes(struct arena *scratch, const struct model_queue *queue,
                           const struct request *first, int64_t rows);
/* Lanes' cached memory becomes free for others of this process, who want it at once: the device
 * need not have it back in between.  Returns the bytes. */
uint64_t batcher_recycle(struct batcher *batcher);
uint64_t whole_pages(uint64_t bytes, uint64_t page);
void memory_error(struct error *err, const struct model_queue *queue, int64_t rows,
                  const struct memory_lack *lack);
/* What the batch was not admitted for, or ended for want of. */
struct memory_lack batch_lack(const struct batch *batch);
/* Room for answers, or for steps on the host, that the pool refused: notes how much was needed and
 * there.  `charged_bytes`: what it would have counted for. */
void batch_lacks_host(struct batch *batch, struct host_pool *pool, uint64_t bytes,
                      uint64_t charged_bytes);

/* `more` bytes of the device for the batch that runs.  It gets them now, or the run ends with
 * STATUS_NO_MEMORY: nobody waits while he holds (I3).  batch->fits_never says whether others have
 * what it lacks. */
MUST_CHECK enum status batch_reserve_more(struct lane *lane, struct batch *batch, uint64_t more);
/* The same for a later segment, which wants `total_bytes` of activations.  Where it could ever
 * fit, batch->restart_bytes then says what it is to start again with. */
enum status batch_admit_segment(struct lane *lane, struct batch *batch, uint64_t total_bytes);
/* The batch ran well: remembers what its segments took. */
void batch_learn_growth(struct batch *batch);
enum { GROWTH_NONE = 256 };

/* ---- heir.c; lock held ---- */

/* Who takes the requests that come to a closed queue; NULL: nobody does. */
struct model_queue *heir_of(const struct model_queue *queue, const struct request *request);
/* Puts one that waits since then into the heir's queue; not OK: the request says why not. */
MUST_CHECK enum status heir_take(struct model_queue *heir, struct request *request,
                                 int64_t since_us);

/* ---- pressure.c: waiting for memory, caps; all under batcher->lock ---- */

enum {
    MEMORY_RETRY_US = 10000
}; /* a queue that waits asks again then, or when a batch has ended */
/* Returns whether the wait begins here. */
bool hold_begin(struct model_queue *queue, const struct memory_lack *lack, int64_t now_us);
void hold_end(struct model_queue *queue, int64_t now_us);
/* When hold_sweep() has something to do; CLOCK_NEVER: it does not wait for memory. */
int64_t hold_expiry(const struct model_queue *queue);
/* Requests without a deadline that have waited for memory for too long leave, and say so. */
void hold_sweep(struct model_queue *queue, int64_t now_us, struct list *leaving);
/* The queue whose turn has come but for memory that others hold; NULL: none. */
const struct model_queue *hold_first_in_need(const struct batcher *batcher, int64_t now_us);
/* Requests that expire while their queue waits for memory die of that, and say so. */
void hold_blame(struct model_queue *queue, struct list *leaving);
void hold_retry_all(struct batcher *batcher);

/* ---- execute.c: gather, run, slice ---- */

/* Runs an admitted batch and leaves status, outputs and times in its requests; releases it. */
void batch_execute(struct lane *lane, struct batch *batch);
/* Marks every request as failed. */
void batch_fail(struct batch *batch, const struct error *err);

/* ---- response.c ---- */

MUST_CHECK enum status response_create(struct host_pool *pool, size_t bytes,
                                       struct response_buffer **out_response);
void *response_data(struct response_buffer *response);
/* What a response of `bytes` counts against the pool's limit; UINT64_MAX: there is none so large.
 */
uint64_t response_charge(size_t bytes);
/* More room, for an output whose size the plan could not tell; NULL: the pool refuses. */
void *response_extend(struct response_buffer *response, size_t bytes);
struct string_heap *
response_strings(struct response_buffer *response); /* made when asked for; NULL */

/* ---- statistics.c ---- */

void stats_init(struct model_stats *stats);
/* A batch that ran, well or not. */
void stats_batch(struct model_stats *stats, const struct batch *batch, bool is_well);
/* A request that is done; finished_us and status are set. */
void stats_request(struct model_stats *stats, const struct request *request);

#endif
