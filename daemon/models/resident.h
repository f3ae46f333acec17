/* Where a loaded model's weights are, and how they move.
 *
 *   DEVICE ──leave──> HOST ──drop──> DROPPED
 *      ^               │                │
 *      └──bring back───┴──bring back────┘
 *
 * One mover at a time: `is_moving` is set, under the repository's lock, by whoever moves a model;
 * only that thread touches its network then.  The model's queue is parked from before it leaves
 * until it is back, so requests wait there meanwhile.
 *
 * Threads: the keeper (keeper.c) lets models leave, the waker (waker.c) brings them back; whoever
 *          books bytes that do not fit (a load, a plan being made) lets others leave by itself.
 */
#ifndef MODELS_RESIDENT_H
#define MODELS_RESIDENT_H

#include "base/mailbox.h"
#include "models/keep_alive.h"
#include "models/repository.h"

struct model;

/* In struct model; all under the repository's lock but for what says otherwise. */
struct resident {
    struct repository *repository;
    enum residency where;
    bool is_moving;
    bool is_wanted;          /* somebody asked for it without a request: wake */
    bool is_unproven;        /* its batching; to be proven when it is back on the device */
    bool is_retired;         /* out of the table: it comes back for nobody any more */
    uint64_t cleared_bytes;  /* of the device, given back since then */
    bool is_pinned;          /* never leaves; constant */
    int64_t own_keep_us;     /* its configuration's; constant.  KEEP_ALIVE_DEFAULT: ModelIdle= */
    _Atomic int64_t keep_us; /* of the last request; KEEP_ALIVE_DEFAULT: own_keep_us */
    atomic_bool drops;       /* told to sleep at level all while in use; until the next request */
    int64_t born_us;         /* when it was loaded */
    int64_t since_us;        /* where it is now */
    struct error last_error; /* why it did not come back the last time; status OK: it did */
    int64_t needy_since_us;  /* waits for room on the device since then; 0: does not */
    int64_t retry_us;        /* not brought back before: memory was in use */
    unsigned vain_returns;   /* in a row: there was room, and the device refused */
    uint64_t device_bytes;   /* when it was there last */
    int64_t reload_us;       /* the last one took; 0: none yet */
    uint64_t evictions, reloads;
    uint64_t failed_reloads; /* times it did not come back, however often it was tried */
    uint64_t reload_attempts;
    int64_t reloads_us; /* of all reloads */
    const char *folder; /* of the version; constant */
    const char *file;   /* in it; constant */
    uint64_t signature; /* of the folder when it was read; constant */
    struct mail mail;   /* to the waker, with a reference to the model */
};

/* Reads sluice.pin and sluice.keep_alive out of the configuration.  STATUS_INVALID names the
 * parameter, what was found and what is allowed. */
MUST_CHECK enum status resident_configure(struct model *model, struct error *err);
/* Before the model is published. */
void resident_start(struct model *model, struct repository *repository);

/* Lets the model go as far as `to` (HOST may become DROPPED where HostCache= is full); waits for
 * nobody; `park` says what counts as in use.  Returns the bytes of device memory given back; 0 when
 * it is in use, moving, pinned, or there already. *out_host_bytes (may be NULL): host memory given
 * back.  Any thread but an I/O thread's. */
uint64_t resident_leave(struct model *model, enum residency to, enum park park,
                        uint64_t *out_host_bytes);
/* Frees its plans, if it is idle on the device, where it stays.  Returns the bytes given back.  The
 * keeper's. */
uint64_t resident_drop_plans(struct model *model);
/* Brings back a model whose is_moving the caller set.  Any failure leaves it where it was or
 * further out. */
MUST_CHECK enum status resident_return(struct model *model, struct error *err);
/* Ends the move: where it is now follows from its network; when it is back its queue goes on. A
 * retired one is retired again. */
void resident_end_move(struct model *model);
/* It is out of the table and nobody asks for it any more: nothing of it stays but its name, pinned
 * or not, unless it is on its way (then it happens at the end of that) or visited. */
void resident_clear(struct model *model);
/* It is out of the table: what waits for it goes to the model that took its place, or is refused,
 * unless it is on its way back. */
void resident_retire(struct model *model);

/* How long it may be idle now; CLOCK_NEVER: for ever. */
int64_t resident_patience(const struct model *model);
/* Where it is and how it moved.  Lock held. */
void resident_describe(struct model *model, struct model_residency *out_residency);
/* How far it leaves then. */
enum residency resident_refuge(const struct model *model);
/* Told to sleep while in use: leaves as soon as it is idle, unless a request comes meanwhile that
 * says otherwise. */
void resident_dismiss(struct model *model, enum residency to);
/* Why it cannot leave: "pinned", "in use", "moving"; NULL: it can.  Lock held. */
const char *resident_obstacle(struct model *model);

#endif
