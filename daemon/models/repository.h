/* The model repository: Triton's layout, versions, loads, unloads, polling.
 *
 *   REPO/NAME/config.pbtxt      (optional: derived from the file)
 *   REPO/NAME/VERSION/model.onnx
 *
 * A model version:  UNKNOWN -> LOADING -> READY -> UNLOADING -> UNAVAILABLE (with a reason)
 * Loads run on the loader thread while serving goes on; a version becomes visible only when it is
 * whole, and the old one of the same number leaves after that.  A failed load leaves no byte
 * behind. Batching is proven at load: two rows together and apart; a model that answers differently
 * is served one by one, and says why.  So is one of the start until it is proven (late_proof.c).
 *
 * Threads: any, but for the repository's own loader thread; lookups take a reference and never
 * wait.
 */
#ifndef MODELS_REPOSITORY_H
#define MODELS_REPOSITORY_H

#include "batch/batcher.h"
#include "config/config.h"
#include "models/keep_alive.h"

struct repository;
struct model; /* one version of one model, reference counted */
typedef struct Inference__ModelConfig Inference__ModelConfig; /* proto/model_config.pb-c.h */

enum model_state { MODEL_UNKNOWN, MODEL_READY, MODEL_UNAVAILABLE, MODEL_LOADING, MODEL_UNLOADING };
const char *model_state_name(enum model_state state); /* "READY" …, Triton's words */

struct repository_config {
    const char *path;
    enum { CONTROL_NONE, CONTROL_EXPLICIT, CONTROL_POLL } control;
    int64_t poll_interval_us;
    struct text_list load;
    size_t plan_cache_bytes;
    struct network_planning planning; /* its folder must outlive the repository */
    struct device *device;
    struct ledger *ledger;
    struct batcher *batcher;
    /* LIVE, see repository_set_residency() */
    int64_t model_idle_us, model_drop_us; /* 0: never */
    uint64_t host_cache_bytes;
};

/* Starts the loader thread; loads what the control mode wants in the background. */
MUST_CHECK enum status repository_create(const struct repository_config *config,
                                         struct repository **out_repository, struct error *err);
/* Gives up the load that runs and those that wait; they end with STATUS_UNAVAILABLE.  For good: the
 * daemon stops.  Any thread. */
void repository_stop_loading(struct repository *repository);
/* Unloads everything, waits for work in flight, joins the thread. */
void repository_destroy(struct repository *repository);
void repository_set_poll_interval(struct repository *repository, int64_t interval_us);
/* How long a model may be idle before its weights leave the device, before it is dropped (0: for
 * ever both), and how many host bytes models that left the device may keep. */
void repository_set_residency(struct repository *repository, int64_t model_idle_us,
                              int64_t model_drop_us, uint64_t host_cache_bytes);
/* True once the loads and proofs of the start are over (well or not). */
bool repository_is_settled(struct repository *repository);
/* Ready in the sense of ServerReady (strict: every model that should be loaded is READY). */
bool repository_is_ready(struct repository *repository, bool strict);
/* Called (on the loader thread) whenever a model's state changed; NULL: nobody is.  When it
 * returns, no call of the one before is under way.  `changed` must not come back here. */
void repository_on_change(struct repository *repository, void (*changed)(void *arg), void *arg);

/* Loads of versions since the start, by how they ended; a model that fails before its versions are
 * known counts as one. */
struct load_counts {
    uint64_t ok, failed;
};
struct load_counts repository_load_counts(struct repository *repository);

/* ---- lookups (I/O threads) ---- */

/* version "": the newest ready one.  STATUS_NOT_FOUND "Request for unknown model: 'm' is not
 * found"; STATUS_UNAVAILABLE "… is not at ready state", and while a model of which nothing serves
 * is loaded, or waits for that at the start; STATUS_INVALID for a version that is no number. */
MUST_CHECK enum status repository_find(struct repository *repository, const char *name,
                                       const char *version, struct model **out_model,
                                       struct error *err);
/* Known but perhaps not ready: for ModelReady and statistics of anything loaded. */
MUST_CHECK enum status repository_is_model_ready(struct repository *repository, const char *name,
                                                 const char *version, bool *out_ready,
                                                 struct error *err);
struct model *model_ref(struct model *model);
void model_unref(struct model *model); /* NULL is fine */

/* ---- one model; everything borrowed while a reference is held ---- */

struct model_port {
    const char *name;
    enum dtype dtype;
    struct shape shape; /* with the batch dimension (-1) in front when max_batch_size > 0 */
    bool optional;
    const char *label_file; /* outputs: labels by index, NULL: none */
    size_t labels;
    const char *const *label;
};
const char *model_name(const struct model *model);
const char *model_version(const struct model *model);  /* decimal */
const char *model_platform(const struct model *model); /* "onnx_onnxv1" */
size_t model_inputs(const struct model *model, const struct model_port **out_ports);
size_t model_outputs(const struct model *model, const struct model_port **out_ports);
int64_t model_max_batch_size(const struct model *model); /* 0: no batch dimension */
struct model_queue *model_queue(const struct model *model);
struct network *model_network(const struct model *model);
const Inference__ModelConfig *model_config(const struct model *model);
/* How long the model may be idle after this request: microseconds, 0 (leaves at once), CLOCK_NEVER,
 * or KEEP_ALIVE_DEFAULT; each request says it anew.  Any thread, cheap. */
void model_keep_alive(struct model *model, int64_t keep_us);
/* Checks a request against the model: inputs complete, dtypes fit (checked by serve), shapes, rows
 * ≤ max_batch_size, bytes; fills request->rows.  Texts as Triton's. */
MUST_CHECK enum status model_check_request(const struct model *model, struct request *request,
                                           struct error *err);

/* Of a request that was submitted to the model and is done: whoever answered, the model itself or
 * the one that took its place meanwhile, which now hears what the request says of its keep_alive.
 * Takes the caller's reference and returns one. */
struct model *model_that_answered(struct model *model, const struct request *request,
                                  int64_t keep_us);

/* ---- control ---- */

/* Done on the loader thread; `done` is called there with the outcome (freed_bytes for unload).
 * config_json: an override of config.pbtxt as JSON, or NULL. */
typedef void (*repository_done_fn)(void *arg, enum status status, const struct error *err,
                                   uint64_t freed_bytes);
void repository_load(struct repository *repository, const char *name, const char *config_json,
                     repository_done_fn done, void *arg);
void repository_unload(struct repository *repository, const char *name, repository_done_fn done,
                       void *arg);

/* ---- residency: a READY model may be away, and comes back for the next request ---- */

/* RESIDENCY_HOST: its weights left the device; reading, passes and proofs are not done again.
 * RESIDENCY_DROPPED: nothing but name, ports and queue is left; its file is read again. */
enum residency { RESIDENCY_DEVICE, RESIDENCY_HOST, RESIDENCY_DROPPED };
const char *residency_name(enum residency residency); /* "resident", "host", "dropped" */

/* How deep a model sleeps. */
enum sleep_level { SLEEP_ACTIVATIONS, SLEEP_WEIGHTS, SLEEP_ALL };

struct residency_answer {
    size_t models;        /* that moved */
    size_t busy;          /* in use: they leave when their requests are answered */
    size_t pinned;        /* never leave */
    uint64_t freed_bytes; /* of device memory */
    int64_t microseconds;
};
/* Done on the keeper's thread. */
typedef void (*residency_done_fn)(void *arg, const struct residency_answer *answer,
                                  const struct error *err);
/* name "": all.  STATUS_NOT_FOUND, STATUS_UNAVAILABLE (not READY).  Sleeping models wake with the
 * next request. */
void repository_sleep(struct repository *repository, const char *name, enum sleep_level level,
                      residency_done_fn done, void *arg);
/* Brings models back before somebody asks for them; the error of the first that failed.  It waits
 * for nobody: STATUS_NO_MEMORY when models in use are in the way, or when they could not stay. */
void repository_wake(struct repository *repository, const char *name, residency_done_fn done,
                     void *arg);
/* What may be held of the device so that no model has to leave at once (warden_may_hold()): no
 * model comes beyond it but for requests that wait. */
void repository_set_gate(struct repository *repository, uint64_t (*may_hold)(void *arg), void *arg);
/* For the governor (a warden_evict_fn, a warden_evictable_fn): idle models leave until about
 * `bytes` are free, coldest first; returns what is on its way.  Never waits. */
uint64_t repository_evict(void *repository, uint64_t bytes);
uint64_t repository_evictable(void *repository);

/* The system is short of memory: of the models in host memory the one used longest ago is dropped.
 * Any thread; never waits. */
void repository_system_presses(struct repository *repository);
/* Books what plans that requests brought hold of the device besides their memory.  Any thread. */
void repository_note_fixed(struct repository *repository);

/* ---- room for another program on the device ---- */

struct room_request {
    uint64_t bytes;   /* to give back to the device */
    int64_t until_us; /* the answer is due then (clock time) */
    /* Called on the keeper's thread before anything is given back, with `bytes`, but no more than
     * the budget; and afterwards with what of them was not: whoever lowers the budget
     * (ledger_set_budget_for_now()) keeps what was freed from being taken again. May be NULL. */
    void (*hold)(void *arg, uint64_t bytes);
    void (*unhold)(void *arg, uint64_t bytes);
    void *hold_arg;
};

/* The steps, cheapest first.  Plans and what stays in host memory count only on a device whose
 * memory is the host's. */
enum room_step { ROOM_ACTIVATIONS, ROOM_PLANS, ROOM_WEIGHTS, ROOM_HOST, ROOM_STEPS };
const char *room_step_name(enum room_step step); /* "activations", "plans", "weights", "host" */

enum { ROOM_LEFT_MAX = 32 };
struct room_left { /* what could not go */
    char name[128];
    uint64_t bytes;
    const char *why; /* "in use", "pinned", "moving", "idle" (time was up, or enough was free) */
};

struct room_answer {
    uint64_t freed_bytes;
    uint64_t freed[ROOM_STEPS]; /* sums to freed_bytes */
    uint64_t active_bytes;      /* of batches that run */
    size_t left_count;          /* largest first */
    struct room_left left[ROOM_LEFT_MAX];
    int64_t microseconds;
};
/* Done on the keeper's thread; both are borrowed for the call. */
typedef void (*room_done_fn)(void *arg, const struct room_answer *answer, const struct error *err);
/* Gives back as much as was asked for and can be had until the time is up.  Begins nothing new when
 * it is; STATUS_NO_MEMORY: no memory for the request itself. */
void repository_make_room(struct repository *repository, const struct room_request *request,
                          room_done_fn done, void *arg);

struct model_residency {
    enum residency where;
    bool is_moving, is_pinned;
    int64_t since_us, last_use_us; /* clock; last_use_us 0: never */
    int64_t keep_alive_us;         /* in force; CLOCK_NEVER: for ever */
    int64_t reload_us;             /* the last one took; 0: there was none */
    int64_t reloads_us;            /* all of them took */
    uint64_t device_bytes;         /* there, or when it was there last */
    uint64_t host_bytes;
    uint64_t evictions, reloads;
    uint64_t failed_reloads;  /* times it did not come back, however often it was tried */
    uint64_t reload_attempts; /* all tries, those that ended well too */
};

void model_read_residency(struct model *model, struct model_residency *out_residency);
/* Blocks until the model does not move (any more); false: at `until_us` it still does.  Where it
 * is then.  Not for I/O threads. */
bool model_await_rest(struct model *model, int64_t until_us, enum residency *out_where);

struct model_info { /* one row of the index */
    char name[256];
    char version[24]; /* "" when no version is known */
    enum model_state state;
    char reason[512];
    char batching[256];
    uint64_t resident_bytes;
    int64_t load_us; /* how long its load took */
    struct model_residency residency;
};
typedef void (*repository_each_fn)(void *arg, const struct model_info *info, struct model *model);
/* Every model in the repository; `model` NULL unless loaded, borrowed for the call. */
void repository_for_each(struct repository *repository, repository_each_fn each, void *arg);

#endif
