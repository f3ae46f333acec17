/* What the files of engine/ share.
 *
 *   network ── program (whole model) ── plans by input shapes
 *           └─ program (what is left behind a cut) ── plans by the shapes and values found
 *
 * A plan is made in this order (compile.c): clone the program's graph, infer and fold (prepare.c),
 * cut off what cannot be known yet (cut.c), PLAN passes, layouts (layout.c), kernels (select.c),
 * places in memory (share.c, reorder.c, place.c), steps (steps in compile.c).  It is immutable
 * afterwards; run.c walks its steps.
 */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include <pthread.h>

#include "device/kernel.h"
#include "device/weights.h"
#include "engine/engine.h"
#include "graph/fusion.h"
#include "graph/pass.h"

enum {
    ALIGNMENT = 64,
    VALUE_BYTES_MAX = 4096,                /* of a value that becomes part of a plan's key */
    DROP_BYTES_MIN = CONSTANT_HEAVY_BYTES, /* smaller constants stay in memory */
    FOLD_BYTES_MAX = 4 << 20,              /* of a value folded when a plan is made */
    PLAN_CACHE_BYTES = 64 << 20,
    PLAN_CACHE_COUNT = 64,
    GUARD_BYTES = RUN_GUARD_BYTES
};

/* Runs single nodes on the CPU device, for folding (fold.c). */
struct folder;
enum status folder_create(struct folder **out_folder, struct error *err);
void folder_destroy(struct folder *folder); /* NULL is fine */
enum status folder_fold(void *folder, const struct graph *graph, const struct node *node,
                        struct constant **out, struct error *err); /* a pass_fold_fn */
/* The same for a node that lives as long as the network: large results may leave memory and are
 * computed again when they are needed (constant_drop). */
enum status folder_fold_model(void *folder, const struct graph *graph, const struct node *node,
                              struct constant **out, struct error *err);

/* A graph whose input shapes may vary, and what plans of it look like to others. */
struct program {
    struct program *next; /* of the network, the whole model first */
    struct graph *graph;
    uint64_t fingerprint_bytes; /* tells programs behind a cut apart; 0 for the whole model */
    unsigned char *fingerprint;
    bool *wants_value; /* per input: its value is part of a plan's key */
};

struct network {
    struct arena arena; /* name and ports: they stay wherever the rest is */
    const char *name;
    struct device *device;
    struct ledger *ledger;
    struct ledger_account *account; /* weights */
    struct weights_cache *weights;
    _Atomic uint64_t winograd_bytes; /* of these */
    /* Without host_memory, else NULL (constants.c): packed forms of steps that run on the host, and
     * constants of single plans on the device. */
    struct weights_cache *host_weights, *plan_constants;
    struct weights_copy *copy;  /* of `weights`, while it is away; NULL: none */
    const atomic_bool *give_up; /* network_watch() */
    struct folder *folder;
    size_t held_count; /* constants of the model, by address */
    struct held *held;
    size_t held_bytes;      /* of those in memory in their own form */
    bool has_settled;       /* held_drop_rest() */
    struct constant **kept; /* folded for one plan and packed: their identity stays taken */
    size_t kept_count, kept_room;
    size_t inputs, outputs;
    struct network_port *in, *out;
    /* residency (resident.c) */
    _Atomic enum network_place place;
    _Atomic uint64_t host_bytes; /* of graph and constants, when it left the device */
    size_t shape_lists;          /* of plans it had when it left, last used first */
    uint64_t least_run_bytes;    /* of the plans it had when it left */
    struct shape *shapes;        /* `inputs` for each of them */
    struct network_planning planning;
    atomic_bool ahead;            /* plans are made ahead of requests now */
    pthread_mutex_t compile_lock; /* one plan is made at a time; guards `programs`, `folder` */
    struct program *programs;
    pthread_rwlock_t cache_lock; /* guards the three below */
    struct list plans;
    size_t plan_count;
    _Atomic size_t plan_bytes;
    size_t max_plan_bytes;
    size_t max_plan_count;
    _Atomic uint64_t use_clock; /* stamps plans for the LRU */
};

/* Where an operand is: bases[base] + offset. */
struct slot {
    uint32_t base;
    int64_t offset;
};
enum {
    BASE_NONE,
    BASE_ABSOLUTE,
    BASE_ARENA,
    BASE_HOST,       /* host memory of the lane, for steps that run on the host */
    BASE_FIRST_BOUND /* then inputs, then outputs */
};

struct refusal {
    const char *kernel;
    const char *why; /* in the plan's arena */
};

/* Where a step's work is done.  STEP_COPY: between host and device; the host must wait before it
 * reads or overwrites what the copy touches. */
enum step_place { STEP_DEVICE, STEP_HOST, STEP_COPY };

struct step {
    const struct kernel *kernel;
    enum step_place place;
    void *state;
    struct kernel_call call;
    struct slot *in;
    struct slot *out;
    struct slot scratch;
    size_t guard_count;       /* lines that must be as they were when the step is over: guard.c */
    const struct slot *guard; /* behind its scratch and its outputs */
    struct shape *found; /* room for the true shapes; NULL unless an output's shape is a bound */
    size_t found_first;  /* index into the run's list of found shapes */
    bool has_bound;
    uint64_t scratch_bytes;
    uint64_t work;                             /* estimate, in the unit of node_work() */
    uint64_t flops, read_bytes, written_bytes; /* step_cost() */
    const char *name;
    const char *note;
    size_t refusals;
    const struct refusal *refused;
};

/* A value that lives on behind the cut. */
struct carry {
    struct slot slot;
    struct constant *constant; /* one reference, when it is a constant of this plan; else NULL */
    enum dtype dtype;
    struct shape shape;
    int64_t found; /* index into the run's found shapes; -1: `shape` is true */
};

struct plan {
    struct list link; /* in network->plans */
    atomic_uint references;
    _Atomic uint64_t last_use;
    struct network *network;
    struct program *program;
    struct graph *graph; /* owns attributes and names */
    struct arena arena;
    size_t bytes;

    size_t inputs;
    struct shape *in_shapes;
    struct constant **in_values; /* NULL, or per input: its value, part of the key */
    size_t outputs;              /* of the program */
    struct shape *out_shapes;
    bool *out_bound;
    uint64_t *out_bytes; /* of out_shapes */
    int64_t *out_found;  /* per output: index into found shapes, -1 when exact or behind the cut */
    bool *out_deferred;  /* made behind the cut */
    bool *in_foreign, *out_foreign; /* foreign.c */

    size_t step_count;
    struct step *steps;
    size_t max_operands; /* of one step, ins and outs apart */
    size_t found_count;
    uint64_t peak_bytes;
    uint64_t lower_bound_bytes;
    uint64_t order_saves_bytes;    /* the bound is lower by this than in the model's own order */
    uint64_t host_bytes;           /* behind BASE_HOST */
    struct recordings *recordings; /* record.c; NULL: it is never recorded */
    size_t upload_count; /* constants of its own on the device: keys in network->plan_constants */
    struct constant **uploads;
    uint64_t requested_bytes; /* alive at the peak's node, before alignment */
    uint32_t peak_node;       /* while being made: index into the making's order */
    uint32_t peak_step;
    bool batch_exact;
    bool makes_strings;
    _Atomic uint64_t overrun_bytes; /* asked for beyond the peak since a step passed its bytes */
    _Atomic int64_t predicted_us;

    /* Behind the cut; rest is NULL when there is none. */
    struct program *rest;
    size_t carry_count;
    struct carry *carries;  /* one per input of rest */
    size_t *rest_outputs;   /* output i of rest is output rest_outputs[i] here */
    uint64_t carried_bytes; /* arena below this must stay */
};

/* plan_cache.c */
struct plan *plan_cache_find(struct network *network, const struct program *program,
                             const struct shape *shapes, const void *const *values);
void plan_cache_add(struct network *network, struct plan *plan); /* takes a reference of its own */
void plan_cache_clear(struct network *network);
/* foreign.c: which inputs and outputs may be memory that others write to.  Steps, outputs and
 * carries are known. */
enum status plan_note_foreign(struct plan *plan);
void plan_destroy(struct plan *plan); /* compile.c; NULL and half-made ones are fine */

/* guard.c: see there.  A frame's bases, as slots are resolved with them; a base that is NULL has no
 * guard. */
void guards_set(const struct step *step, char *const *guard_bases);
bool guards_are_whole(const struct step *step, char *const *guard_bases);
/* A step wrote behind what its plan gave it: counts it (I4), asks for more from now on, logs the
 * first one of the plan.  Returns STATUS_INTERNAL and names the step. */
enum status guards_broken(struct plan *plan, const struct step *step, struct error *err);
/* Whether the device's memory can be guarded by the host. */
bool guards_apply(const struct device *device);

/* record.c: see there.  NULL when the plan cannot be recorded on the device. */
struct recordings *recordings_create(const struct plan *plan, struct device *device);
void recordings_destroy(struct recordings *recordings); /* no run of the plan; NULL is fine */
/* What a run with these bases is to do: run its steps, record them, or replay. */
enum recording_use { RECORDING_NONE, RECORDING_RECORD, RECORDING_REPLAY };
enum recording_use recordings_use(struct recordings *recordings, struct device_lane *lane,
                                  char *const *bases);
/* Around the steps; when either does not answer OK they are run without, unless the device is lost.
 * `recorded` is how the steps fared. */
MUST_CHECK enum status recordings_begin(struct recordings *recordings, struct device_lane *lane);
MUST_CHECK enum status recordings_end(struct recordings *recordings, struct device_lane *lane,
                                      enum status recorded);
MUST_CHECK enum status recordings_replay(struct recordings *recordings, struct device_lane *lane);

/* A plan from the cache or made now; values: per input, its elements when the program wants them.
 */
enum status program_plan(struct network *network, struct program *program,
                         const struct shape *shapes, const void *const *values,
                         struct plan **out_plan, struct error *err);

/* network.c: a graph becomes the network's whole model, in host memory; adopts it, also on failure
 * (network_strip() then). */
MUST_CHECK enum status network_adopt(struct network *network, struct graph *graph,
                                     struct error *err);
/* quantised.c: STATUS_UNSUPPORTED when the device demands products of bytes and the model, behind
 * its passes, has products with weights and none of bytes. */
MUST_CHECK enum status network_check_quantised(const struct network *network,
                                               const struct graph *graph, struct error *err);
void programs_destroy(struct program *program); /* and those behind it; NULL is fine */

/* ---- held.c ---- */

/* Lists the constants of the whole model; books those that never leave memory (STATUS_NO_MEMORY:
 * over budget; held_unbook() then). */
MUST_CHECK enum status held_list(struct network *network);
MUST_CHECK enum status held_book(struct network *network);
/* The others are in memory as they were read until the first plan has packed them, one by one; what
 * it did not need leaves memory here, once. */
void held_drop_rest(struct network *network);
/* Nothing is booked any more, what may leave memory has left; no plan is there, no packed form. */
void held_unbook(struct network *network);
size_t held_host_bytes(const struct network *network); /* of elements in memory now */
void held_forget(struct network *network);             /* the list itself */

/* The constant's elements are read by a plan's steps; STATUS_NO_MEMORY: over budget. */
enum status network_hold(struct network *network, struct constant *constant);
/* Packed forms are found by the address of their constant.  One that is not the model's own, but
 * folded for a plan, must live as long as the network once a form of it was made: network_keep()
 * for up to as many as were reserved. */
MUST_CHECK enum status network_reserve(struct network *network, size_t constants);
void network_keep(struct network *network, struct constant *constant);
/* Takes the elements out of memory unless a step reads them or they cannot come back. */
void network_drop(struct network *network, struct constant *constant);

/* ---- a plan being made ---- */

/* crew.c: calls fn(arg, 0 … count - 1), each once and begun in this order, on up to `threads`
 * threads; returns when all are done. */
struct crew_size {
    unsigned threads;
    bool is_much; /* worth threads from the beginning; else they come when it has taken a while */
};
typedef void (*crew_fn)(void *arg, size_t index);
void crew_run(const struct crew_size *size, size_t count, crew_fn fn, void *arg);

/* One candidate of a node. */
struct choice {
    const struct kernel *kernel; /* NULL: none yet, or done by placing values (view, concat) */
    struct kernel_prepare prepare;
    size_t refusals;
    struct refusal *refused;
    void **constants; /* per input: a constant's elements on the device; NULL entries: none */
};

/* Bytes that values share: each value has a set of its own at first; sets are then laid into others
 * (a view into what it views, a part into its concatenation, a result over its dead input). */
enum where { IN_ARENA, IN_HOST, IN_INPUT, IN_OUTPUT };
struct set {
    uint32_t parent; /* itself: a root */
    uint64_t offset; /* within the parent */
    uint64_t pitch;  /* bytes from one of its rows to the next there; 0: nothing lies between */
    bool is_rigid;   /* what lies in it knows its rows to be dense: they stay together */
    uint64_t bytes;
    enum where where;
    uint32_t bound;       /* index of the input or output */
    uint32_t first, last; /* steps; first > last: never used */
    uint64_t arena_offset;
};

/* A value that a rest wants, found again after the passes. */
struct carried {
    enum { CARRIED_CONSTANT, CARRIED_INPUT, CARRIED_OUTPUT } kind;
    size_t index; /* of the graph's inputs or outputs */
};

struct making {
    struct network *network;
    struct program *program;
    struct plan *plan;
    struct graph *graph;
    struct arena *arena; /* the plan's */
    size_t folded_count; /* constants that depend on this plan's shapes */
    size_t folded_room;
    const struct constant **folded;
    enum layout *layouts; /* by value id */
    size_t layout_room;
    size_t trial_room; /* operands to try kernels with */
    struct operand *trial_operands;
    const struct operand **trial_list;
    struct operand **operands; /* by value id */
    size_t nodes;
    struct node **order;    /* the nodes that remain */
    struct choice *choices; /* per node of order */
    bool *placed;           /* per node of order: done by placing, no step */
    struct set *sets;       /* by value id */
    bool shares_least;      /* only parts that are sets of their own and whose rows stay together */
    bool shares_more;       /* there are others */
    bool sharing_costs;     /* … and the peak would be lower without them */
    uint64_t *scratch_offsets; /* per node of order */
    size_t own_outputs;        /* graph outputs that are the program's; carried ones follow */
    size_t *output_of;         /* graph output → program output */
    struct carried *carries;   /* as many as the plan's */
    bool *host_values;         /* by value id: its bytes are the host's (spaces.c) */
    size_t host_room;          /* values behind it are the device's */
    const struct exiles *exiles;
    uint32_t exile; /* see making_exile(); UINT32_MAX: none */
    /* While kernels are prepared, on several threads: guards the arena, `operands` and what the
     * network holds. */
    pthread_mutex_t lock;
};

/* Nodes that must run on the host although a kernel of the device did not refuse them: it could not
 * be prepared.  Named by their first output's id, which is the same each time a plan is made. */
struct exiles {
    size_t count, room;
    uint32_t *ids;
    bool shares_least; /* besides: the plan's peak was higher than it need be, see making_place() */
};

/* prepare.c: true shapes for everything that can be known; folds; takes branches. */
enum status making_infer(struct making *making, struct error *err);
enum status making_remember_folded(struct making *making, const struct constant *constant);
bool node_is_branching(const struct node *node); /* If */
/* cut.c: moves what cannot be known into the plan's `rest`. */
enum status making_cut(struct making *making, struct error *err);
/* layout.c: a layout for every value, reorder nodes where they differ. */
enum status making_layouts(struct making *making, struct error *err);
/* spaces.c: which nodes run on the host, and the copies between its memory and the device's. */
enum status making_spaces(struct making *making, struct error *err);
bool making_value_on_host(const struct making *making, const struct value *value);
bool making_on_host(const struct making *making, const struct node *node); /* copies are not */
/* No kernel of the device can be prepared for the node.  True when the host has one: the plan must
 * be made again, with making->exile among the exiles. */
bool making_exile(struct making *making, const struct node *node);
/* constants.c: the constants that a chosen kernel reads are where it can read them. */
enum status making_constants(struct making *making, const struct node *node, struct choice *choice,
                             struct error *err);
enum status network_open_host(struct network *network); /* its two further caches */
void network_close_host(struct network *network);
void plan_forget_uploads(struct plan *plan);
enum status making_constant_lost(enum status status, struct error *err); /* says why */
/* Whose kernels compute the node, and the packed forms that they use. */
struct device *making_device(const struct making *making, const struct node *node);
struct weights_cache *making_weights(const struct making *making, const struct node *node);
bool network_owns(const struct network *network, struct constant *constant); /* held.c */
/* share.c: sets; lays views, slices and concatenations into each other. */
enum status making_share(struct making *making, struct error *err);
/* groups.c: nodes that become steps, in groups whose kernels may be prepared at once, those with
 * most weights first: first[g] is the first node of a group, next[n] the one behind n. */
#define GROUP_END UINT32_MAX
struct groups {
    size_t count;
    uint32_t *first, *next;
    void *memory;
};
MUST_CHECK enum status groups_make(const struct making *making, struct groups *out_groups);
void groups_free(struct groups *groups);
/* select.c: kernels for the nodes that are left. */
enum status making_select(struct making *making, struct error *err);
/* place.c: order, lifetimes, results over dead inputs, offsets, the peak.  Parts of larger values
 * may keep those in memory for longer: *out_pays is false when the peak would be lower if less were
 * shared (making->shares_least). */
enum status making_place(struct making *making, bool *out_pays, struct error *err);

/* ---- packing ---- */

/* pack.c: offsets for all buffers.  STATUS_NO_MEMORY, STATUS_INVALID as planner_plan(). */
struct plan_buffer;
struct planner_result;
MUST_CHECK enum status network_pack(const struct network *network, struct plan_buffer *buffers,
                                    size_t count, struct planner_result *out_result);
/* What a search found, and how long it took: a longer one may find a lower peak. */
struct kept_packing {
    uint64_t peak_bytes;
    int64_t searched_us; /* SEARCHED_OUT: no search would */
};
#define SEARCHED_OUT INT64_MAX
/* store.c: a packing of these buffers that was kept.  STATUS_NOT_FOUND: none, or none that is sound
 * (logged); the offsets are undefined then. */
MUST_CHECK enum status store_find(const char *folder, struct plan_buffer *buffers, size_t count,
                                  struct kept_packing *out_kept);
/* Keeps one; a failure is logged and harmless. */
void store_keep(const char *folder, const struct plan_buffer *buffers, size_t count,
                const struct kept_packing *kept);

/* ---- between share.c, place.c and reorder.c ---- */

/* The set that the value's bytes are in, and where in it. */
struct set *making_root(const struct making *making, const struct value *value,
                        uint64_t *out_offset);
/* Elements from one of the value's rows to the next in its root; 0: it is dense. */
int64_t making_stride(const struct making *making, const struct value *value);
/* Whether the value is all of its root. */
bool making_covers(const struct making *making, const struct value *value);
bool making_same_layout(const struct making *making, const struct value *a, const struct value *b);
/* Where a part lies in its whole. */
struct spot {
    uint64_t rows;   /* 1: the part is dense; else its rows, `pitch` bytes from one to the next */
    uint64_t pitch;  /* 0: dense */
    uint64_t offset; /* bytes before (the first row of) the part */
};
/* The spot of what begins at `start` of the axis; false when parts cannot lie in the whole, or this
 * one's beginning is inside a block of channels, or where the device's kernels do not want a value
 * to begin. */
bool making_spot(const struct making *making, const struct value *whole, size_t axis, int64_t start,
                 struct spot *out_spot);
/* A set that was laid into another is a root again. */
void making_take_out(struct making *making, struct set *set);
/* join.c: whether all who make or use the value, but for `maker`, take the strides of things as
 * they are. */
MUST_CHECK enum status making_may_spread(struct making *making, const struct node *maker,
                                         const struct value *value, bool *out_may);
/* Lays the parts of a Concat into it; *out_joined when all are. */
MUST_CHECK enum status making_join(struct making *making, struct node *node, size_t axis,
                                   bool *out_joined);
/* Lays a root into another root. */
void making_lay(struct making *making, struct set *child, struct set *root, uint64_t offset);
/* select.c: whether the kernel that computes the node where all operands are dense does so with the
 * strides that they have now. */
MUST_CHECK enum status making_takes_strides(struct making *making, const struct node *node,
                                            bool *out_takes);
/* In an arena, the device's or the host's: not bound by whoever runs the plan. */
static inline bool set_is_inner(const struct set *set)
{
    return set->where == IN_ARENA || set->where == IN_HOST;
}
/* Lifetimes of all roots, by the order that there is. */
void making_live(struct making *making);
/* Inputs over which the kernel of order[n] could make its result, best first. */
enum { OVERLAYS_MAX = 3 };
size_t making_overlays(const struct making *making, size_t n, size_t inputs[OVERLAYS_MAX]);
/* Whether bytes and neighbours allow it, once that input is needed no more. */
bool making_may_overlay(const struct making *making, const struct node *node, size_t index);
/* Makes results over inputs that die, by the lifetimes that there are. */
void making_overlay(struct making *making);
/* The largest sum of bytes of the arena alive at one step, as things stand. */
MUST_CHECK enum status making_bound(const struct making *making, uint64_t *out_bytes);
/* reorder.c: another order of the nodes, if the bound falls by it. */
MUST_CHECK enum status making_reorder(struct making *making);
struct slot making_slot(const struct making *making, const struct value *value);
/* The guard behind all that shares the value's bytes; BASE_NONE: it has none. */
struct slot making_guard(const struct making *making, const struct value *value);

enum layout making_layout(const struct making *making, const struct value *value);
enum status making_set_layout(struct making *making, const struct value *value, enum layout layout);

/* Layouts of a node's operands: of in[0], of out[0], of everything else (see kernel.h). */
struct node_layouts {
    enum layout body, first, result;
};
/* The best kernel's rank in the list for these layouts, -1 when there is none, and what it makes.
 */
enum status making_try(struct making *making, const struct node *node, enum layout body,
                       enum layout first, struct node_layouts *out_layouts, int *out_rank);
uint64_t node_work(const struct node *node); /* work.c */
/* The same in a batch of one, dimension 0 of all that is computed being the batch: what decides how
 * a row is computed may not depend on the rows beside it. */
uint64_t node_row_work(const struct node *node);
struct shape value_row_shape(const struct value *value);
/* Operations and bytes of a step by the geometry of its operands; each byte counts once. */
void step_cost(struct step *step, const struct node *node);

/* ---- profile.c ---- */

/* Before the run's time begins. */
void profile_enter(struct profile *profile, struct run *run, const struct plan *plan);
/* Room for the times of this plan's steps in the run that is going on; NULL: it is not measured. */
int64_t *profile_times(struct profile *profile, struct plan *plan);
/* The run is over: its times count if it ran well. */
void profile_leave(struct profile *profile, int64_t run_ns, bool well);

/* ---- explain.c: pieces for profile.c ---- */

void explain_json_head(const struct plan *plan, FILE *to);
void explain_json_step(const struct plan *plan, size_t index, double time_share, FILE *to);
void explain_json_tail(const struct plan *plan, FILE *to);
const struct operand *step_result(const struct step *step); /* the first output; NULL: none */
enum { STEP_NOTE_BYTES = 256 };
/* What was noted when the plan was made, and what the kernel says now. */
const char *step_note(const struct step *step, char text[STEP_NOTE_BYTES]);
uint64_t value_bytes(const struct making *making, const struct value *value);
bool value_is_blockable(const struct making *making, const struct value *value);
/* What such a value has instead of PLAIN: BLOCKED for float32, NHWC for bytes and 16-bit floats. */
enum layout value_other_layout(const struct value *value);
const struct kernel *const *making_kernels(const struct making *making, const struct node *node);
/* Kernels of the engine itself (copies.c): what identity nodes must copy when no kernel does it, in
 * host memory and within the device, and the copies between both. */
extern const struct kernel kernel_engine_copy, kernel_engine_move;
extern const struct kernel kernel_engine_to_device, kernel_engine_to_host;

static inline uint64_t round_up(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

#endif
