/* What the files of the ledger share:
 *
 *   ledger.c        accounts, the budget, bytes held
 *   ledger_use.c    what of it is in use, and what is planned
 *   ledger_map.c    where they are
 *   ledger_count.c  statistics and history of each change
 *   ledger_read.c   what others are told
 */
#ifndef MEMORY_INTERNAL_H
#define MEMORY_INTERNAL_H

#include <pthread.h>

#include "memory/blocks.h"
#include "memory/ledger.h"

struct ledger_account {
    struct list link;
    struct ledger *ledger;
    enum mem_kind kind;
    bool arena;
    uint64_t bytes;
    uint64_t used;        /* arenas: the part in use; others: always all */
    uint64_t requested;   /* the part of `used` that was asked for, before alignment and pages */
    uint64_t address;     /* arenas: where they begin; 0: not one place */
    uint64_t largest_use; /* the most that one arena gave on its behalf at once */
    struct ledger_account *user; /* arenas: on whose behalf it is in use; NULL: nobody's */
    uint64_t told;               /* arenas: `used` as the history has it */
    int64_t since_us;
    int64_t last_use_us;
    ledger_reclaim_fn reclaim;
    void *reclaim_arg;
    uint64_t pass;              /* the last reclaim pass that asked it */
    struct mem_stats stats;     /* of its own bytes */
    struct mem_stats on_behalf; /* its own, and of arenas while they work for it; not of arenas */
    const struct history *named_in; /* the history that `name` is of */
    uint16_t name;                  /* of the owner there */
    struct blocks segments, pieces; /* of what was booked with an address; not of arenas */
    char owner[LEDGER_OWNER_BYTES];
};

struct ledger {
    pthread_mutex_t lock;
    pthread_mutex_t reclaim_lock; /* one pass at a time; an account with a hook closes under it */
    struct list accounts;
    uint64_t budget;
    uint64_t held;    /* comes into the budget again */
    uint64_t allowed; /* budget, or what was held when the budget fell below it: only falls then */
    uint64_t page;    /* reservations are rounded up to it */
    uint64_t pinned;
    uint64_t arenas;
    uint64_t used; /* of arenas */
    uint64_t planned;
    uint64_t kind[MEM_KINDS];           /* of arenas the part in use */
    struct mem_stats all;               /* of the device */
    struct mem_stats pools[MEM_CACHED]; /* by kind of account */
    uint64_t reservations_ok, reservations_refused, plan_violations;
    uint64_t pass;
    struct history *history;     /* NULL: nothing is recorded */
    ledger_make_way_fn make_way; /* NULL: nobody leaves */
    void *make_way_arg;
};

static inline bool account_is_arena(const struct ledger_account *account)
{
    return account->arena;
}

static inline uint64_t ledger_reserved(const struct ledger *ledger)
{
    return ledger->pinned + ledger->arenas;
}

static inline uint64_t ledger_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- ledger.c; all of these under the lock ---- */

/* After every change. */
void ledger_changed(struct ledger *ledger);

/* ---- ledger_count.c ---- */

/* The account of the model that the bytes count for; NULL: nobody's. */
struct ledger_account *account_model(struct ledger_account *account);
/* Counts the change for the device, the kind, the account and the model. */
void account_apply(struct ledger_account *account, const struct mem_change *change);
void ledger_record(struct ledger *ledger, const struct mem_note *note);
/* now_us 0: it asks the clock. */
void account_record(struct ledger_account *account, enum mem_event_kind kind,
                    const struct ledger_piece *piece, int64_t now_us);
/* A reservation for `user` (NULL: nobody's). */
void ledger_record_plan(struct ledger *ledger, enum mem_event_kind kind,
                        struct ledger_account *user, uint64_t bytes);
/* `account` and `user` may be NULL. */
void ledger_book_oom(struct ledger *ledger, struct ledger_account *account,
                     struct ledger_account *user, const struct mem_note *note);

/* ---- ledger_map.c ---- */

/* Lists the piece, if it has an address.  STATUS_NO_MEMORY (the host's) leaves the lists. */
MUST_CHECK enum status account_map_add(struct ledger_account *account,
                                       const struct ledger_piece *piece);
/* Takes it out with the pieces in it; returns what they had asked for. */
uint64_t account_map_sub(struct ledger_account *account, const struct ledger_piece *piece);

/* ---- ledger_read.c ---- */

struct ledger_pool account_describe(const struct ledger_account *account);

#endif
