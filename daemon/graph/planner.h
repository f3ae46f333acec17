/* Packing of lifetimes into one arena: each buffer has a size and a first and last step, and gets
 * an offset, so that no two buffers alive at one step overlap and the highest end ("peak") is
 * small.  A pure function of its arguments: no graph, no device, no file.
 *
 *   bytes ^   +-----------+ . . . . . . . . . peak
 *         |   |     2     |  +----+
 *         |   +-----+-----+  |    |           lower bound: the largest sum of bytes alive at
 *         |   |  0  |  1  |  | 3  |           one step; no packing can be lower
 *         +---+-----+-----+--+----+--> steps
 *
 * Quick: greedy passes, then a few short searches, under a fixed allowance of work (milliseconds);
 * stops at the lower bound.  Thorough: quick first, then exact search (see planner_search.c) under
 * a budget of time.
 *
 * Sizes are bytes, already rounded to the alignment wanted; offsets are sums of sizes, so they
 * keep that alignment.  Steps are counted from 0; both ends of a lifetime belong to it.
 *
 * The same buffers give the same offsets on every machine; thorough: unless its budget ended it.
 *
 * Ownership: works on the caller's array, keeps nothing.
 * Threads:   any; calls share nothing.  `cancelled` may be set by another thread at any time.
 */
#ifndef GRAPH_PLANNER_H
#define GRAPH_PLANNER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct plan_buffer {
    uint64_t bytes;  /* 0: lies anywhere, at offset 0 */
    uint32_t first;  /* step that writes it */
    uint32_t last;   /* last step that reads it, inclusive; ≥ first */
    uint64_t offset; /* out */
};

enum planner_mode { PLANNER_QUICK, PLANNER_THOROUGH };

enum { PLANNER_BUDGET_US = 1000 * 1000 }; /* of a thorough search that is given none */

struct planner_options {
    enum planner_mode mode;
    uint64_t limit_bytes;         /* a peak this low is good enough; 0: only the lower bound is */
    int64_t budget_us;            /* of wall time, thorough only; 0: PLANNER_BUDGET_US */
    const atomic_bool *cancelled; /* looked at while searching; NULL: never */
};

/* Why it stopped. */
enum planner_end {
    PLANNER_AT_BOUND,  /* at the lower bound or at the limit */
    PLANNER_EXHAUSTED, /* quick: all passes are done; thorough: proved that no packing is lower */
    PLANNER_TIMED_OUT, /* the budget is used up: a longer one may find a lower peak */
    PLANNER_CANCELLED
};

struct planner_result {
    uint64_t peak_bytes;
    uint64_t lower_bound_bytes; /* the largest sum alive at one step */
    enum planner_end end;
};

/* Sets every offset.  options NULL: quick.  However it ended, the offsets are a sound packing.
 * STATUS_INVALID: a lifetime ends before it begins or at UINT32_MAX, or the sum of all bytes does
 * not fit in 63 bits.  STATUS_NO_MEMORY.  A failure leaves offsets and result as they were. */
MUST_CHECK enum status planner_plan(struct plan_buffer *buffers, size_t count,
                                    const struct planner_options *options,
                                    struct planner_result *out_result);

/* The lower bound alone.  STATUS_INVALID and STATUS_NO_MEMORY as above. */
MUST_CHECK enum status planner_bound(const struct plan_buffer *buffers, size_t count,
                                     uint64_t *out_bytes);

/* STATUS_OK when the offsets are a packing of that peak: no two buffers that meet in a step share a
 * byte, and the highest end is exactly peak_bytes.  Trusts nothing of how they were found.  Takes
 * time by the number of meetings.  STATUS_INVALID names what is wrong, STATUS_NO_MEMORY. */
MUST_CHECK enum status planner_check(const struct plan_buffer *buffers, size_t count,
                                     uint64_t peak_bytes, struct error *err);

#endif
