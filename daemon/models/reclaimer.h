/* Gives cached memory back on a thread of its own, slice by slice.
 *
 * Unmapping a GiB takes some 30 ms; done at once on the loop it would hold up every request.  So it
 * is done here, in slices of about half a millisecond, and between two slices the thread sleeps so
 * long that it has only its share of wall time.  A batch that needs pages just being unmapped waits
 * for one slice at most.
 *
 * There is one standing goal, the governor's, replaced at will; and orders, each served to its end,
 * in their order, before the goal.
 * Threads: any.
 */
#ifndef MODELS_RECLAIMER_H
#define MODELS_RECLAIMER_H

#include "batch/batcher.h"

struct reclaimer;

enum reclaim_asker { ASKER_GOVERNOR, ASKER_DECAY, ASKER_OPERATOR, ASKERS };

struct reclaim_goal {
    enum reclaim_asker asker;
    uint64_t keep_bytes; /* cached bytes that may stay, over all lanes; and as many of the bodies of
                            requests that are kept for reuse */
    double share;        /* of wall time, 0 < share ≤ 1 */
};

struct reclaim_order {
    struct list link; /* the reclaimer's until `done` */
    struct reclaim_goal goal;
    void (*done)(struct reclaim_order *order); /* on the reclaimer's thread; the order is the
                                                  caller's again */
    uint64_t freed_bytes;                      /* of the device */
};

struct reclaim_counts {
    uint64_t times[ASKERS];
    uint64_t freed_bytes;
};

MUST_CHECK enum status reclaimer_create(struct ledger *ledger, struct batcher *batcher,
                                        struct host_pool *host_pool,
                                        struct reclaimer **out_reclaimer);
void reclaimer_destroy(struct reclaimer *reclaimer); /* serves the orders it has; NULL is fine */
/* Replaces the standing goal. */
void reclaimer_aim(struct reclaimer *reclaimer, const struct reclaim_goal *goal);
void reclaimer_drop_goal(struct reclaimer *reclaimer);
void reclaimer_order(struct reclaimer *reclaimer, struct reclaim_order *order);
/* Blocks until there is nothing to do. */
void reclaimer_settle(struct reclaimer *reclaimer);
void reclaimer_read(struct reclaimer *reclaimer, struct reclaim_counts *out_counts);

#endif
