/* Which model's batch runs next.  Pure.
 *
 *   1. priority      the level of the first in line against its model's default level
 *   2. urgency       a deadline that would pass if the model waited for another turn: earliest
 * first
 *   3. fair share    least device time used so far
 *
 * Deadlines far away do not count: with the same default deadline on every request they would only
 * say who came first, and a burst for one model would hold up all the others.  Nor does urgency
 * help a model that is already far ahead of its share, so that short deadlines cannot starve
 * anyone.
 */
#ifndef BATCH_PICK_H
#define BATCH_PICK_H

#include <stddef.h>
#include <stdint.h>

struct pick_candidate {   /* a queue that has a batch ready and may start one */
    int64_t rank;         /* lower goes first; 0: normal */
    int64_t deadline_us;  /* the earliest in its batch */
    int64_t predicted_us; /* of its batch; 0: unknown */
    int64_t used_us;      /* device time charged to it */
};

/* Index of the one to run; `count` ≥ 1. */
size_t pick_next(const struct pick_candidate *candidates, size_t count, int64_t now_us);

/* What a queue that was idle has used: no credit for the time it did not ask for. */
int64_t pick_used_after_idle(int64_t used_us, int64_t least_used_us);

#endif
