/* The warden carries out what the governor says: samples ledger and device, ticks the governor,
 * orders trims (reclaimer.h), answers empty_cache.  Lives beside the batcher; called by a timer on
 * the first I/O thread. Threads: any; one lock. */
#ifndef MODELS_WARDEN_H
#define MODELS_WARDEN_H

#include "batch/batcher.h"

struct warden;

struct empty_cache_answer {
    uint64_t freed_bytes;
    uint64_t kept_alive, kept_pending, kept_floor, kept_graph; /* bytes not freed, and why */
    int64_t microseconds;
};

struct warden_view { /* for `sluicectl memory` and metrics */
    struct ledger_stats ledger;
    struct host_pool_stats host;
    enum govern_level level;
    bool pinned;
    uint64_t low_bytes, high_bytes, critical_bytes;
    uint64_t held_bytes;   /* for others: the budget is lower by so much … */
    int64_t held_until_us; /* … the last of it until then; 0: nothing is held */
    uint64_t transitions_total;
    uint64_t level_entries[5];
    uint64_t empty_cache_total, empty_cache_freed_bytes_total;
    uint64_t empty_cache_by[3];                     /* governor, decay, operator */
    uint64_t device_free_bytes, device_total_bytes; /* 0: unknown */
    int64_t last_batch_us;                          /* clock time; now while one runs */
    int64_t idle_after_us, idle_decay_us;           /* of the configuration */
    uint64_t floor_bytes;                           /* Floor= */
    uint64_t headroom_bytes;                        /* Headroom= */
    uint64_t external_bytes;      /* of the device, neither free nor in the ledger: others' */
    double stall_share;           /* of the last second, in which a batch waited for memory */
    int64_t stall_us_total;       /* all such time */
    uint64_t refault_bytes_total; /* taken again within 5 s of a trim */
    uint64_t evict_bytes_total;   /* that idle models were asked for */
    uint64_t system_presses_total;
};

MUST_CHECK enum status warden_create(const struct govern_config *config, struct device *device,
                                     struct ledger *ledger, struct host_pool *host_pool,
                                     struct batcher *batcher, struct warden **out_warden);
void warden_destroy(struct warden *warden);
/* Makes idle models leave the device, coldest first, until about `bytes` came back; returns what
 * came or is on its way, 0 when nothing is idle (it is asked again a second later).  Called by
 * warden_tick() at level EVICT, on the first I/O thread, with no lock held: it may call
 * warden_read(), must not wait (a loader's mailbox is for that). */
typedef uint64_t (*warden_evict_fn)(void *arg, uint64_t bytes);
/* How many bytes evict could free now: a request that would fit without them waits, others are
 * refused at once.  Called by warden_tick() like the above. */
typedef uint64_t (*warden_evictable_fn)(void *arg);
/* Before the first tick; `evictable` may be NULL. */
void warden_set_evict(struct warden *warden, warden_evict_fn evict, warden_evictable_fn evictable,
                      void *arg);
/* What may be held of the device so that nothing has to leave it at once: at EVICT and above, else
 * UINT64_MAX.  Any thread, cheap. */
uint64_t warden_may_hold(struct warden *warden);
void warden_configure(struct warden *warden, const struct govern_config *config);
/* Lowers the budget by `bytes` more, so that what was given back for another program is not taken
 * again before `until_us` (clock time).  Holds add up, each ends by itself, with the first tick
 * behind its time; beyond 16 they are taken together.  Outlives warden_configure(). */
void warden_hold(struct warden *warden, uint64_t bytes, int64_t until_us);
/* The hold made last is smaller by so much. */
void warden_unhold(struct warden *warden, uint64_t bytes);
/* One tick; returns when to call again at the latest (µs, clock time). */
int64_t warden_tick(struct warden *warden, int64_t now_us);
/* The system itself is short of memory (PSI, cgroup events): heard at the next tick.  Any thread.
 */
void warden_system_presses(struct warden *warden);
/* forced: down to nothing; else down to the floor.  In slices, beside what is served: waits for the
 * end.  STATUS_NO_MEMORY: nothing was done. */
MUST_CHECK enum status warden_empty_cache(struct warden *warden, bool forced,
                                          struct empty_cache_answer *out_answer);
/* The same without waiting: `done` is called at the end, on a thread of the warden's. */
typedef void (*warden_emptied_fn)(void *arg, const struct empty_cache_answer *answer);
MUST_CHECK enum status warden_empty_cache_then(struct warden *warden, bool forced,
                                               warden_emptied_fn done, void *arg);
void warden_settle(struct warden *warden); /* blocks until all that was to be given back was */
void warden_read(struct warden *warden, struct warden_view *out_view);
struct ledger *warden_ledger(struct warden *warden);

#endif
