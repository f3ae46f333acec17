/* What repository.c (lookups, any thread) and loader.c (the loader thread) share. */
#ifndef MODELS_INTERNAL_H
#define MODELS_INTERNAL_H

#include <pthread.h>

#include "models/fixed.h"
#include "models/model.h"

/* One version of a model, known while it is or was wanted.
 *
 *   LOADING -> READY -> UNLOADING -> UNAVAILABLE        LOADING -> UNAVAILABLE (the load failed)
 *   READY -> READY (replaced: the old model leaves by itself)
 */
struct slot {
    int64_t version;
    enum model_state state;
    bool wanted;
    bool is_loading; /* a model is on its way here, whatever is here now */
    char reason[512];
    struct model *model; /* READY and UNLOADING; the published reference */
};

struct entry { /* a model by name */
    char *name;
    bool wanted;      /* should be loaded: counts for readiness */
    bool is_loading;  /* a load of it is due, or on its way */
    char reason[512]; /* why none of its versions could even be tried; "" */
    size_t slots;
    struct slot *slot; /* ascending */
    /* the loader's alone */
    bool on_disk;
    uint64_t loaded_signature, seen_signature;
};

struct command { /* an explicit load or unload */
    struct message message;
    bool is_unload;
    char *name;
    char *config_json; /* NULL: none */
    repository_done_fn done;
    void *arg;
    size_t remaining; /* models that must be gone before it is done */
    uint64_t freed_bytes;
};

/* Batches that lack room beside the weights of others; under the repository's lock. */
struct need {
    uint64_t bytes;                  /* the most that one lacks; 0: none does */
    const struct model_queue *queue; /* its queue, to be told apart, not to be used */
    bool is_urgent;                  /* it has waited for too long */
};

/* keeper.c: lets models leave; times, sleeps, room for others. */
struct keeper {
    pthread_t thread;
    bool has_thread;
    struct mailbox box;
    struct errand nudge, stop;
    atomic_bool nudged;           /* the nudge is on its way */
    atomic_bool host_changed;     /* HostCache= may be lower than what is there */
    atomic_bool pressed;          /* by the system, for host memory */
    bool is_stopping;             /* the keeper's own */
    _Atomic uint64_t evict_bytes; /* asked of it, and not tried yet */
    /* under the repository's lock */
    struct need need;
    struct list waking; /* the keeper's own: commands whose models are on their way */
};

/* waker.c: bring models back. */
enum { WAKER_SHORT, WAKER_LONG, WAKERS };
struct waker {
    pthread_t thread;
    bool has_thread;
    struct mailbox box;
    struct mail stop;
};

struct repository {
    struct repository_config config; /* `load` and strings are copies in `arena` */
    struct arena arena;
    _Atomic int64_t poll_interval_us;
    pthread_t thread;
    bool has_thread;
    struct mailbox loader;
    struct message stop;
    struct message prove; /* a model came back that is not proven yet */
    atomic_bool prove_sent;
    atomic_bool settled;
    atomic_bool stopping;   /* loads are given up */
    _Atomic size_t leaving; /* models retired and not gone yet */
    _Atomic uint64_t loads_ok, loads_failed;
    struct fixed_cost fixed; /* loader thread */
    struct keeper keeper;
    struct waker waker[WAKERS];
    uint64_t (*may_hold)(void *arg); /* NULL: as much as fits.  Under the lock below */
    void *may_hold_arg;
    _Atomic int64_t model_idle_us, model_drop_us;
    _Atomic uint64_t host_cache_bytes;
    pthread_mutex_t lock;
    pthread_cond_t rested; /* with it: a model's is_moving fell */
    /* under lock */
    size_t entries, room;
    struct entry **entry;         /* sorted by name */
    pthread_mutex_t changed_lock; /* of the two below; held during the call */
    void (*changed)(void *arg);
    void *changed_arg;
};

/* ---- repository.c; lock held ---- */
struct entry *entry_find(struct repository *repository, const char *name);
/* Finds or adds; NULL: no memory. */
struct entry *entry_add(struct repository *repository, const char *name);
void entry_remove(struct repository *repository, struct entry *entry);
bool entry_serves(const struct entry *entry); /* a version of it is ready */
struct slot *slot_find(struct entry *entry, int64_t version);
struct slot *slot_add(struct entry *entry, int64_t version);

/* ---- start.c ---- */
/* Before the loader's thread: which models are there, and which of them are loaded first. */
MUST_CHECK enum status start_look(struct repository *repository, struct error *err);
void start_load(struct repository *repository); /* on that thread: loads those */

/* ---- loader.c ---- */
void *loader_main(void *repository);

/* ---- late_proof.c ---- */
/* On the loader thread: proves what is published, on the device and not proven, each when the
 * first requests have been answered. */
void late_proofs_run(struct repository *repository);
/* A model that is not proven yet is back on the device; any thread. */
void late_proofs_nudge(struct repository *repository);

/* ---- poll.c, on the loader thread ---- */
/* Looks at the folders; loads, reloads and retires what changed.  Returns whether something is half
 * written, so that another look is due soon. */
bool loader_poll(struct repository *repository);

/* ---- retire.c, on the loader thread ---- */
/* The model is in no table any more; `heir` took its place (NULL: none did). */
void retire_model(struct repository *repository, struct model *model, struct model *heir,
                  struct command *waiter);
/* What the policy does not want of what is there. */
void retire_unwanted(struct repository *repository, struct entry *entry,
                     const Inference__ModelConfig *config, const int64_t *versions, size_t count);
/* Nobody has the retired model any more: it is destroyed, and an unload that waits for it ends. */
void retire_end(struct repository *repository, struct model *model);
/* What a command that is over tells its caller; frees it. */
void command_finish(struct command *command, enum status status, const struct error *err);

/* ---- loader.c, for poll.c and retire.c ---- */
enum load_manner { LOAD_PROVEN, LOAD_PROVEN_LATER };
/* The table and the log have the outcome; a caller who wants it too gets it.  LOAD_PROVEN_LATER: a
 * version that takes nobody's place may be published before its batching is proven. */
enum status loader_load(struct repository *repository, const char *name, const char *config_json,
                        enum load_manner manner, struct error *err);
/* Starts the retirement of every version; returns how many models leave. */
size_t loader_retire(struct repository *repository, const char *name, struct command *waiter);
void loader_notify(struct repository *repository);
/* Notes what is on disk: names known, on_disk set.  STATUS_IO and the like leave all as it was. */
MUST_CHECK enum status loader_scan(struct repository *repository, struct error *err);

/* A thread that no signal reaches; false: there is none to be had. */
bool thread_start(pthread_t *thread, const char *name, void *(*main)(void *arg), void *arg);

/* ---- keeper.c ---- */
MUST_CHECK enum status keeper_start(struct repository *repository);
void keeper_stop(struct repository *repository);
/* Makes the keeper look at all models; any thread, under any lock. */
void keeper_nudge(void *repository);
void keeper_send(struct repository *repository, struct errand *errand);

/* ---- sleep.c, on the keeper's thread ---- */
/* Answers the wakes that are over; all of them when the keeper stops. */
void sleep_finish_woken(struct repository *repository);

/* ---- waker.c ---- */
MUST_CHECK enum status waker_start(struct repository *repository);
void waker_stop(struct repository *repository); /* what it has is finished first */
/* The model's is_moving is set and a reference goes with it.  Lock held. */
void waker_send(struct repository *repository, struct model *model);

/* ---- room.c ---- */
struct room_wish {
    const char *name;           /* of the model, for the error; "": of several */
    uint64_t bytes;             /* that come */
    uint64_t leaving_bytes;     /* that go when they are there */
    const struct model *spared; /* does not leave for them; may be NULL */
    bool evicts;                /* other idle models do */
};
/* Lets idle models leave the device, least worth first, until `bytes` are free; `spared` may be
 * NULL.  Returns what came. */
uint64_t room_evict(struct repository *repository, uint64_t bytes, const struct model *spared);
/* The same, model by model through `let_go`, which returns what came; begins none after `until_us`.
 */
uint64_t room_evict_by(struct repository *repository, uint64_t bytes, const struct model *spared,
                       int64_t until_us, uint64_t (*let_go)(struct model *model));
/* How long a request waits for room before models in use are made to leave for it. */
enum { ROOM_PATIENCE_US = 50000 };
/* Lets models in use leave, too, but for that of `needy`.  Returns what came at once: others come
 * when their batches have ended, so try again. */
uint64_t room_press(struct repository *repository, uint64_t bytes, const struct model_queue *needy);
/* A batcher_make_way_fn: has the keeper make room. */
bool room_make_way(void *repository, const struct model_queue *needy, uint64_t bytes,
                   int64_t waited_us);
/* The keeper's part of it. */
void room_serve_need(struct repository *repository);
/* At level evict: whether `bytes` more, with `leaving` of those there gone, could stay on the
 * device. With `evicts` idle models but `spared` leave for them.  STATUS_NO_MEMORY says how much
 * could.  room_may_keep() only looks: nobody leaves. */
MUST_CHECK enum status room_may_keep(struct repository *repository, const struct room_wish *wish,
                                     struct error *err);
MUST_CHECK enum status room_to_keep(struct repository *repository, const struct room_wish *wish,
                                    struct error *err);
/* Says at the end of the error who is on the device, but for `spared` (may be NULL). */
void room_name_obstacles(struct repository *repository, const struct model *spared,
                         struct error *err);
/* Whether somebody holds the device who would not leave for a load. */
bool room_is_taken(struct repository *repository);
/* Names who holds the device and why: "'a' 123 bytes (in use), …". */
void room_explain(struct repository *repository, const struct model *spared, char *text,
                  size_t room);
/* Whether the bytes are free beside what is held and planned, letting others leave for them: idle
 * models, or, when the needy one has waited for too long, any.
 * *out_never: no waiting would help.  *out_available: what is there. */
bool room_make(struct repository *repository, uint64_t bytes, const struct model *needy,
               bool *out_never, uint64_t *out_available);
/* Drops the model in host memory that was used longest ago; returns the host bytes that came. */
uint64_t room_drop_coldest(struct repository *repository);
/* HostCache= was lowered: drops the coldest until the rest fits. */
void room_fit_host(struct repository *repository);
/* Whether `bytes` of the model, on its way out of the device, fit into HostCache=; drops colder
 * ones for them. */
bool room_on_host(struct repository *repository, const struct model *model, uint64_t bytes);

#endif
