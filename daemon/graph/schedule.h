/* Another order of the steps of a plan in which less memory is alive at once.
 *
 *      a ──> b ──┐         given order  a c b d: a's and c's results wait for b and d
 *                ├─> e     better       a b c d: b's small result waits, a's large one does not
 *      c ──> d ──┘
 *
 * Steps touch blocks of memory: a block is alive from the first step that touches it to the last.
 * The order given (0, 1, 2, …) is searched for a better one breadth first, keeping a few best
 * prefixes of each length (a beam).  The result depends on nothing but the problem.
 *
 * Ownership: works on the caller's arrays, keeps nothing.  Threads: any.
 */
#ifndef GRAPH_SCHEDULE_H
#define GRAPH_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct schedule_block {
    uint64_t bytes;
    bool is_kept; /* alive to the end */
};

/* A result that may be made over a block of its size that dies in the same step: the bytes of the
 * dying block are not needed twice then. */
struct schedule_over {
    uint32_t dying, made; /* blocks */
};

struct schedule_step {
    size_t befores;
    const uint32_t *before; /* steps that must come earlier; their numbers are lower */
    size_t touches;
    const uint32_t *touch; /* blocks read or written, each once */
    size_t overs;
    const struct schedule_over *over; /* the first that can be, is */
    uint64_t scratch_bytes;           /* alive in this step alone */
};

struct schedule_problem {
    size_t blocks;
    const struct schedule_block *block;
    size_t steps;
    const struct schedule_step *step;
};

enum { SCHEDULE_STEPS_MAX = 4096 }; /* more are left in their order */

/* order: room for a number per step; a step's number by place.  It is the given order unless one
 * was found whose peak is lower; *out_improved tells.  Time: steps x beam x (steps + blocks), some
 * milliseconds for a thousand steps, next to none when one step alone needs the peak.
 * STATUS_NO_MEMORY leaves the outputs as they were. */
MUST_CHECK enum status schedule_order(const struct schedule_problem *problem, uint32_t *order,
                                      bool *out_improved);

/* The largest sum alive in one step, in that order (NULL: the given one).  STATUS_NO_MEMORY. */
MUST_CHECK enum status schedule_peak(const struct schedule_problem *problem, const uint32_t *order,
                                     uint64_t *out_peak);

#endif
