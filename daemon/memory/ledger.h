/* Who holds how many bytes of the device: every byte has a kind and an owner.
 *
 *   budget ≥ reserved = allocated + cached            (stat names follow PyTorch's memory_stats)
 *   reserved   held from the device: weights, lane arenas (their committed part), workspaces, io,
 * fixed allocated  in use by something alive cached     committed in arenas but idle: reclaimable
 * at once planned    sum of the peaks of everything admitted (reservations)
 *
 * Invariants, checked by ledger_is_valid() in debug builds and tests:
 *   I1 planned + pinned ≤ budget, pinned = weights, workspaces, io and fixed   I2 reserved ≤ budget
 *   I3 a reservation is taken whole before the start and released once
 *   I4 no kernel writes behind what its plan gave it (else: plan_violations)
 * A budget lowered below what is held (live reload) refuses all growth until enough has left, but
 * for arenas within what is planned: what was admitted before is committed.
 * Threads: any; one short lock.
 */
#ifndef MEMORY_LEDGER_H
#define MEMORY_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"
#include "memory/blocks.h"
#include "memory/history.h"
#include "memory/mem_stats.h"

enum mem_kind {
    MEM_WEIGHTS,
    MEM_ACTIVATION,
    MEM_WORKSPACE,
    MEM_IO,
    MEM_FIXED,
    MEM_CACHED,
    MEM_KINDS
};
const char *mem_kind_name(enum mem_kind kind); /* "weights" … */

struct ledger;

/* An owner of bytes: a model, a lane.  Listed by `sluicectl memory`. */
struct ledger_account;

struct ledger_stats {
    uint64_t budget_bytes;
    uint64_t held_bytes; /* the budget is lower by so much, for others and for a time */
    uint64_t reserved_bytes;
    uint64_t allocated_bytes;
    uint64_t cached_bytes;
    uint64_t planned_bytes;
    uint64_t peak_allocated_bytes;
    uint64_t peak_reserved_bytes;
    uint64_t kind_bytes[MEM_KINDS]; /* sums to reserved_bytes */
    uint64_t reservations_ok, reservations_refused, plan_violations;
    uint64_t alloc_retries, ooms; /* as in struct mem_stats */
};

enum { LEDGER_OWNER_BYTES = 128 };

struct ledger_entry { /* one account, for "why is memory held" */
    char owner[LEDGER_OWNER_BYTES];
    char user[LEDGER_OWNER_BYTES]; /* of an arena's used part: the model; "": none */
    enum mem_kind kind;
    uint64_t bytes;
    int64_t since_us;
    int64_t last_use_us;
};

MUST_CHECK enum status ledger_create(uint64_t budget_bytes, struct ledger **out_ledger);
void ledger_destroy(struct ledger *ledger); /* every account must be closed */
void ledger_set_budget(struct ledger *ledger, uint64_t budget_bytes);
/* The same for a time: it will be `held_bytes` more again. */
void ledger_set_budget_for_now(struct ledger *ledger, uint64_t budget_bytes, uint64_t held_bytes);
/* Reservations are rounded up to a multiple of this (arenas call it with their source's page), so
 * that what was admitted can be committed.  Only grows; no reservation may be held while it does.
 */
void ledger_set_page(struct ledger *ledger, uint64_t page_bytes);

MUST_CHECK enum status ledger_open(struct ledger *ledger, const char *owner, enum mem_kind kind,
                                   struct ledger_account **out_account);
/* The same for an arena: what it holds is in use or cached (ledger_set_used()), and can be taken
 * back (ledger_set_reclaim()).  `kind` names the part in use, MEM_ACTIVATION or MEM_IO;
 * ledger_open() with MEM_ACTIVATION opens one too. */
MUST_CHECK enum status ledger_open_arena(struct ledger *ledger, const char *owner,
                                         enum mem_kind kind, struct ledger_account **out_account);
void ledger_close(
    struct ledger_account *account); /* gives back what it still holds; NULL is fine */
/* How an arena gives back about `bytes` of what it caches; returns
 * what it gave.  Called by any thread, without the ledger's lock; must not call ledger_add(). */
typedef uint64_t (*ledger_reclaim_fn)(void *arg, uint64_t bytes);
void ledger_set_reclaim(struct ledger_account *account, ledger_reclaim_fn reclaim, void *arg);
/* How somebody else's bytes leave so that about `bytes` more fit (idle models): returns what came.
 * Called by ledger_add() for accounts that are no arena when the budget does not suffice, on the
 * thread that books, without the ledger's locks; may call ledger_sub(), must not call ledger_add().
 * NULL: nobody leaves. */
typedef uint64_t (*ledger_make_way_fn)(void *arg, uint64_t bytes);
void ledger_set_make_way(struct ledger *ledger, ledger_make_way_fn make_way, void *arg);
/* Books bytes held from the device; an arena's count as cached until ledger_set_used().  What fits
 * but for the cache of arenas makes them give it back first.  STATUS_NO_MEMORY when the budget
 * would be passed all the same (for an arena: beside what is pinned and used, for others: beside
 * what is pinned and planned): nothing is booked. */
MUST_CHECK enum status ledger_add(struct ledger_account *account, uint64_t bytes);
/* Asks arenas for cached bytes although the budget has room (the device refused); returns what
 * came. */
uint64_t ledger_reclaim(struct ledger *ledger, uint64_t bytes);
void ledger_sub(struct ledger_account *account, uint64_t bytes);
uint64_t ledger_account_bytes(const struct ledger_account *account);

/* The same with what snapshots and statistics want to know.  `requested` is for accounts that are
 * no arenas: the part of `bytes` that was asked for (all of it with ledger_add()); 0 with an
 * address: a chunk, whose pieces are told apart.  ledger_add_at() may answer STATUS_NO_MEMORY for
 * want of host memory too. */
struct ledger_piece {
    uint64_t bytes;
    uint64_t requested;
    uint64_t address;
    bool grows; /* of a chunk: it goes on where the last one of it ended */
};
MUST_CHECK enum status ledger_add_at(struct ledger_account *account,
                                     const struct ledger_piece *piece);
void ledger_sub_at(struct ledger_account *account, const struct ledger_piece *piece);
/* The device refused what ledger_add_at() booked: as if it had not been. */
void ledger_undo_add(struct ledger_account *account, const struct ledger_piece *piece);
/* A piece of `requested` bytes was made in, or went from, a chunk that is booked already.  Pieces
 * go with their chunk.  STATUS_NO_MEMORY (the host's): nothing is noted. */
MUST_CHECK enum status ledger_piece_made(struct ledger_account *account, uint64_t address,
                                         uint64_t requested);
void ledger_piece_gone(struct ledger_account *account, uint64_t address);
/* Where an arena begins. */
void ledger_set_address(struct ledger_account *account, uint64_t address);

/* The part of an arena's held bytes in use now (0: all cached). */
void ledger_set_used(struct ledger_account *account, uint64_t used_bytes, int64_t now_us);
struct ledger_use {
    uint64_t bytes;
    uint64_t requested;          /* ≤ bytes: before alignment and pages */
    struct ledger_account *user; /* the model's account, which gets it in its statistics; it must
                                    not close before the use is 0 again.  NULL: nobody's */
    bool grows;                  /* more follows at once: history waits for that */
};
void ledger_set_use(struct ledger_account *account, const struct ledger_use *use, int64_t now_us);

/* Reserves the planned peak of a batch.  STATUS_NO_MEMORY: does not fit beside what is planned and
 * pinned; *out_available (may be NULL) then says what there was. */
MUST_CHECK enum status ledger_reserve(struct ledger *ledger, uint64_t bytes,
                                      uint64_t *out_available);
void ledger_unreserve(struct ledger *ledger, uint64_t bytes);
/* The same on behalf of a model's account (NULL: nobody's), for the history. */
MUST_CHECK enum status ledger_reserve_for(struct ledger *ledger, const struct ledger_account *user,
                                          uint64_t bytes, uint64_t *out_available);
void ledger_unreserve_for(struct ledger *ledger, const struct ledger_account *user, uint64_t bytes);
/* Largest reservation that could ever succeed with the weights held now: budget − pinned. */
uint64_t ledger_ceiling(struct ledger *ledger);
/* The same when what is held for others is in the budget again. */
uint64_t ledger_ceiling_later(struct ledger *ledger);
void ledger_count_violation(struct ledger *ledger); /* of I4 */
/* Room was made and asked again; refused for good.  ledger_add() counts its own.  `user`: the
 * model's account, NULL: nobody's; `note` (a step, a reason) may be NULL. */
void ledger_count_retry(struct ledger_account *account);
void ledger_count_oom(struct ledger *ledger, struct ledger_account *user, uint64_t bytes,
                      uint64_t available, const char *note);

void ledger_read(struct ledger *ledger, struct ledger_stats *out_stats);

/* ---- statistics, as PyTorch has them (mem_stats.h) ---- */

struct ledger_stats_view {
    struct mem_stats all;
    struct mem_stats kinds[MEM_CACHED]; /* by kind of account; cached is the rest of activation */
};
void ledger_read_stats(struct ledger *ledger, struct ledger_stats_view *out_view);

struct ledger_pool { /* one account in full */
    char owner[LEDGER_OWNER_BYTES];
    char user[LEDGER_OWNER_BYTES]; /* an arena's: the model that uses it now, "": none */
    enum mem_kind kind;
    uint64_t bytes, used, requested;
    uint64_t address;     /* an arena's; 0: not one place */
    uint64_t largest_use; /* a model's: the most that one arena gave it at once */
    int64_t since_us, last_use_us;
    struct mem_stats stats;     /* of its own bytes */
    struct mem_stats on_behalf; /* a model's (MEM_WEIGHTS): its weights and what arenas give it
                                   while its batches run, as reserved too */
};
/* Copies up to `room` accounts in the order of their opening; returns how many there are. */
size_t ledger_list_pools(struct ledger *ledger, struct ledger_pool *pools, size_t room);

/* Everything that is held and where, at one moment. */
struct ledger_block {
    struct mem_block block;
    size_t pool;   /* index of its account */
    bool is_piece; /* else a segment, in which pieces lie */
};
struct ledger_map {
    struct ledger_pool *pools;
    size_t pool_count;
    struct ledger_block *blocks; /* of an account: segments, then pieces, each by address */
    size_t block_count;
    uint64_t last_event; /* of the history then; 0: none */
};
/* Takes the lock for a copy, no longer.  STATUS_NO_MEMORY leaves *out_map. */
MUST_CHECK enum status ledger_copy_map(struct ledger *ledger, struct ledger_map *out_map);
void ledger_map_deinit(struct ledger_map *map);

/* Every peak becomes what is current; of the device, its kinds, lanes and models. */
void ledger_reset_peaks(struct ledger *ledger);
/* Only of one kind ("weights") or one account ("lane 0", "resnet/1"; "resnet": all versions).
 * False: there is none of that name. */
bool ledger_reset_peaks_of(struct ledger *ledger, const char *name);

/* ---- history ---- */

/* Keeps the last `events` of each sort (history.h) from now on, at most MEM_HISTORY_MOST; 0: none,
 * which costs nothing.  What was kept is lost unless the number is the same.  STATUS_NO_MEMORY
 * leaves what there was. */
MUST_CHECK enum status ledger_set_history(struct ledger *ledger, uint32_t events);
/* Records what did not pass through the ledger: a level, an eviction. */
void ledger_note(struct ledger *ledger, const struct mem_note *note);
/* Like history_read(); 0 too when nothing is recorded.  Short: at most `room` copies under the
 * lock. */
size_t ledger_history(struct ledger *ledger, uint64_t *io_next, struct mem_event *events,
                      size_t room);

/* Copies up to `room` entries, largest first; returns how many there are. */
size_t ledger_list(struct ledger *ledger, struct ledger_entry *entries, size_t room);
bool ledger_is_valid(struct ledger *ledger);

#endif
