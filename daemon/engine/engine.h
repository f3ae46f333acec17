/* graph + device + shapes → plan; plan + lane + buffers → answers.
 *
 *   network  one model version on one device: its graph after the model passes, its packed weights,
 *            its plans by input shapes (least recently used goes first, counted in bytes)
 *   plan     immutable: steps with kernels prepared, an offset for every activation, the exact peak
 *   run      one batch on one lane
 *
 * An operator whose output shape is only known when it ran ends a segment; the next segment is
 * planned from the shapes found, out of the same plan cache.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdio.h>

#include "device/device.h"
#include "graph/graph.h"
#include "memory/lane_arena.h"
#include "memory/ledger.h"

struct network;
struct plan;

/* How the memory of plans is packed (graph/planner.h). */
struct network_planning {
    enum {
        PLANNING_QUICK,   /* milliseconds at most */
        PLANNING_AUTO,    /* ahead of requests a search, where quick is over 1 % above the bound */
        PLANNING_THOROUGH /* … where quick is above the bound at all */
    } mode;
    int64_t budget_us;  /* of wall time for a plan's search; 0: a second */
    const char *folder; /* where searches keep what they found, made when it is not there; NULL:
                         * nowhere.  Borrowed for the network's life, as the next is */
    const atomic_bool *cancelled; /* ends searches; NULL: nothing does */
};

struct network_config {
    const char *name;        /* owner of its bytes in the ledger */
    size_t plan_cache_bytes; /* 0: a default of 64 MiB */
    size_t plan_cache_count; /* 0: a default of 64 */
    struct network_planning planning;
};

/* Runs the model passes and keeps the graph (adopts it, also on failure).  STATUS_UNSUPPORTED names
 * node, operator, reason.  Threads: any (loader). */
MUST_CHECK enum status network_create(struct graph *graph, struct device *device,
                                      struct ledger *ledger, const struct network_config *config,
                                      struct network **out_network, struct error *err);
void network_destroy(struct network *network); /* no plan of it may be held; NULL is fine */
/* While `*give_up` is true no plan is made: STATUS_UNAVAILABLE, also in the middle of one.  For the
 * time of a load, when nobody else uses the network; NULL ends it. */
void network_watch(struct network *network, const atomic_bool *give_up);

/* What the model's file declares, unknown dimensions as SHAPE_UNKNOWN.  Borrowed. */
struct network_port {
    const char *name;
    enum dtype dtype;
    struct shape shape;
};
size_t network_inputs(const struct network *network, const struct network_port **out_ports);
size_t network_outputs(const struct network *network, const struct network_port **out_ports);
/* The model's account in the ledger: its weights, and whom lanes name as the user of their arenas.
 * Borrowed. */
struct ledger_account *network_account(const struct network *network);
uint64_t
network_resident_bytes(const struct network *network); /* weights, packed forms; plans apart */
/* Of these, forms for Winograd's convolutions: they may be several times their weights. */
uint64_t network_winograd_bytes(const struct network *network);
/* Its constants as the graph has them after its passes, branches left out: packed they take as much
 * or more.  Of a network that is not GONE. */
uint64_t network_constant_bytes(const struct network *network);
/* Whether the file that it was read from is as it was then: STATUS_PRECONDITION, and the sentence
 * that requests would get.  Of a network that is not GONE. */
MUST_CHECK enum status network_check_file(const struct network *network, struct error *err);
size_t network_plan_bytes(const struct network *network); /* host bytes of cached plans */

/* ---- residency (resident.c) ----
 *
 *   DEVICE ──network_leave()──> HOST ──network_strip()──> GONE
 *          <─network_return()──      <─network_refill()──
 *
 *   HOST   nothing is booked on the device: no plans, no packed weights.  The graph after its
 *          passes, constants that cannot come back, and the open file stay in host memory.
 *   GONE   nothing is left but the object, its name and its ports, which never change.
 *
 * Whoever moves a network has made sure that nobody plans, runs or holds a plan of it; the figures
 * may be read by any thread at any time.  network_create() leaves it on the device. */
enum network_place { NETWORK_GONE, NETWORK_HOST, NETWORK_DEVICE };
enum network_place network_place(const struct network *network);
/* On the device, and that has memory of its own: host bytes that a copy of its packed weights would
 * take; else 0.  network_copy() makes it, before network_leave(); the way back copies then instead
 * of packing.  It counts for network_host_bytes() and goes with the return or the strip. */
uint64_t network_copy_bytes(struct network *network);
MUST_CHECK enum status network_copy(struct network *network);
void network_drop_copy(struct network *network); /* of a network that left */
/* Returns the bytes given back to the device (0 if it was not there).  The shapes of the plans last
 * used are remembered. */
uint64_t network_leave(struct network *network);
/* Returns the host bytes given back, as far as they are known.  Only from HOST. */
uint64_t network_strip(struct network *network);
/* A graph of the same file, adopted also on failure.  STATUS_PRECONDITION: its ports are others.
 * A failure leaves the network GONE. */
MUST_CHECK enum status network_refill(struct network *network, struct graph *graph,
                                      struct error *err);
/* Books constants, makes the plans it had.  STATUS_NO_MEMORY: over budget; STATUS_PRECONDITION: the
 * file was changed in place.  A failure leaves the network on the HOST. */
MUST_CHECK enum status network_return(struct network *network, struct error *err);
/* Of a network that left: activations of the smallest run it had plans for.  For whoever moves it.
 */
uint64_t network_least_run_bytes(const struct network *network);
uint64_t network_host_bytes(const struct network *network); /* HOST: about so many; else 0 */
/* Drops the plans only: host memory, and what they made large constants stay for.  Nobody may plan
 * or run meanwhile; returns their bytes. */
uint64_t network_drop_plans(struct network *network);

/* Whether plans made from now on are made ahead of requests, so that a search may take its budget;
 * not so at first.  Any thread. */
void network_set_ahead(struct network *network, bool ahead);

/* The plan for these input shapes (one per network input, all known); from the cache or made now.
 * Holds a reference for the caller.  Errors name the node.  Threads: any. */
MUST_CHECK enum status network_plan(struct network *network, const struct shape *input_shapes,
                                    struct plan **out_plan, struct error *err);
/* The same, only if it is there already; NULL otherwise.  Never waits for a plan being made. */
struct plan *network_find_plan(struct network *network, const struct shape *input_shapes);
void plan_unref(struct plan *plan);

struct plan_facts {
    uint64_t peak_bytes;      /* arena bytes of the run, scratch included; outputs and inputs not */
    uint64_t requested_bytes; /* tensors alive at the peak's step, before alignment */
    uint64_t lower_bound_bytes; /* the largest sum of bytes alive at one step */
    uint64_t host_bytes;        /* of the host's memory, for steps that run there beside a device */
    uint64_t order_saves_bytes; /* it is lower by this than in the model's own order of nodes */
    uint32_t peak_step;
    uint32_t steps;
    bool exact;           /* false: later segments may ask for more */
    bool batch_exact;     /* every step keeps "same row, same bits" */
    int64_t predicted_us; /* moving average of measured run time; -1: never ran */
};
void plan_read(const struct plan *plan, struct plan_facts *out_facts);
struct run_buffer;
/* Bytes of the lane's arena that a run with its outputs bound like `out` asks for: the peak, room
 * for outputs nobody wants (those with no data and 0 bytes), and more once a step was caught
 * writing behind its memory.  Admission goes by this. */
uint64_t plan_run_bytes(const struct plan *plan, const struct run_buffer *out);
/* Shapes of the outputs; a bound where `*out_bound` (per output, may be NULL).  SHAPE_UNKNOWN
 * dimensions where only the run can tell, see run_place_fn; rank 0 with *out_bound where not even
 * the rank is known. */
const struct shape *plan_output_shapes(const struct plan *plan, const bool **out_bound);
/* The input whose bytes the output is, unchanged: a run may be given one buffer for both, and
 * copies nothing then.  SIZE_MAX: none. */
size_t plan_passed_input(const struct plan *plan, size_t output);
/* Whether a run may be given memory there that another process writes to meanwhile: all it can do
 * is spoil the answer.  Else a copy must be bound. */
bool plan_takes_foreign_input(const struct plan *plan, size_t input);
bool plan_takes_foreign_output(const struct plan *plan, size_t output);

/* One tensor bound from outside.  Host or device memory as the device wants it (CPU: host).  An
 * output whose room goes on for a line behind the next multiple of 64 is guarded: the run writes
 * the line. */
enum { RUN_GUARD_BYTES = 64 };
struct run_buffer {
    void *data;
    size_t bytes;
};

/* Asks for more arena bytes between segments (admission again); STATUS_NO_MEMORY ends the run. */
typedef enum status (*run_admit_fn)(void *arg, uint64_t total_bytes);

/* Memory for an output whose shape no plan could tell beforehand (a dimension of
 * plan_output_shapes() is SHAPE_UNKNOWN, behind If or NonZero): called once its shape is known,
 * with the dense bytes, for outputs bound with data NULL and bytes RUN_PLACE.  NULL ends the run
 * with STATUS_NO_MEMORY. */
#define RUN_PLACE SIZE_MAX
typedef void *(*run_place_fn)(void *arg, size_t output, const struct shape *shape, size_t bytes);

/* Called once everything of the run is given to the lane, before it is waited for: what is put on
 * the lane here (copies of outputs to the host) is waited for together with it. */
typedef enum status (*run_finish_fn)(void *arg);

struct run {
    struct device_lane *lane;
    struct lane_arena *arena;
    size_t inputs;
    const struct run_buffer *in; /* in the plan's shapes, dense; read only */
    size_t outputs;
    struct run_buffer *out;   /* data NULL: not wanted when bytes is 0, asked of `place` when it is
                                 RUN_PLACE.  Else room for plan_output_shapes() each */
    struct shape *out_shapes; /* out: true shapes; may be NULL when none is a bound or unknown */
    const atomic_bool *cancelled; /* looked at between steps; may be NULL */
    run_admit_fn admit;           /* may be NULL: always yes */
    void *admit_arg;
    run_place_fn place; /* NULL: such outputs end in STATUS_INVALID */
    void *place_arg;
    run_finish_fn finish; /* may be NULL */
    void *finish_arg;
    struct string_heap *strings; /* for STRING outputs: must outlive their use.  May be NULL */
    _Atomic uint64_t *progress;  /* steps forward with every step; may be NULL */
    struct profile *profile;     /* measures each step; nothing is recorded or replayed.  May be
                                    NULL */
};

/* Runs the plan: begins the arena, computes, waits, ends the arena.  STATUS_NO_MEMORY, _CANCELLED,
 * _DEVICE_LOST, _INVALID (an index out of range in the data), _INTERNAL (a kernel wrote behind its
 * memory: counted in the ledger, logged once a plan); outputs are undefined then. */
MUST_CHECK enum status plan_run(struct plan *plan, struct run *run, struct error *err);

struct string_heap *string_heap_create(void);
void string_heap_destroy(struct string_heap *heap); /* NULL is fine */

/* The plan as a table for people or as JSON: steps with kernel, shape, bytes, offset, estimated
 * share of time, refusals of better kernels; which step is the peak. */
void plan_explain(const struct plan *plan, FILE *to, bool as_json);

/* ---- measured times (profile.c) ---- */

enum { PROFILE_RUNS = 64 }; /* later ones are not kept */

/* Of the runs it was given to, one at a time; what is told are medians.  The device's peaks are
 * measured in front of the first run.  Holds references to the plans, those behind cuts too. */
struct profile *profile_create(void);               /* NULL: no memory */
void profile_destroy(struct profile *profile);      /* NULL is fine */
size_t profile_runs(const struct profile *profile); /* kept so far */
/* A table for people, or JSON: what plan_explain() says of each plan that ran, and of each step its
 * time, operations, bytes, rates and share of the peak; the time between the steps. */
void profile_write(const struct profile *profile, FILE *to, bool as_json);

#endif
