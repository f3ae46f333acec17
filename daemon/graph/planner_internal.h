/* What the files of the planner share.
 *
 *   planner.c          modes, budget, what is tried in which order
 *   planner_problem.c  lifetimes by section instead of by step, sums alive, the lower bound
 *   planner_greedy.c   one buffer after the other, each where it fits best now
 *   planner_search.c   exact search for a packing below a given peak
 *   planner_try.c      makes a search ready for a try
 *   planner_check.c    is it a packing? (shares nothing with the rest)
 *
 * A *section* is a stretch of steps at which the set of buffers alive is the same, kept only if no
 * neighbour's set holds all of it: what fits there fits here.  Lifetimes become [first, end) in
 * sections, a few hundred where a network has thousands of steps.
 */
#ifndef GRAPH_PLANNER_INTERNAL_H
#define GRAPH_PLANNER_INTERNAL_H

#include "graph/planner.h"

struct problem {
    uint32_t count;    /* buffers that have bytes */
    uint32_t sections; /* ≥ 1 when count is */
    uint32_t *index;   /* per buffer: of the caller's array */
    uint64_t *bytes;
    uint32_t *first, *end; /* sections [first, end), never empty */
    uint32_t *first_step;
    uint64_t *life;     /* steps */
    uint64_t *pressure; /* the largest sum alive during its life */
    uint64_t *load;     /* per section: the sum alive */
    uint64_t bound;     /* the largest load */
    uint64_t unit;      /* greatest common divisor of all sizes */
    uint64_t cells;     /* the sum over buffers of their sections */
};

/* STATUS_NO_MEMORY leaves nothing behind.  The buffers' sum is known to fit in 63 bits. */
MUST_CHECK enum status problem_init(const struct plan_buffer *buffers, size_t count,
                                    struct problem *out_problem);
void problem_deinit(struct problem *problem);

static inline bool problem_meet(const struct problem *problem, uint32_t a, uint32_t b)
{
    return problem->first[a] < problem->end[b] && problem->first[b] < problem->end[a];
}

/* Best of several greedy passes, at or below `enough` at once; `offsets` per buffer of the problem.
 */
MUST_CHECK enum status greedy_pack(const struct problem *problem, uint64_t enough,
                                   uint64_t *offsets, uint64_t *out_peak);

/* ---- the exact search ---- */

struct search;

enum search_outcome {
    SEARCH_FOUND,
    SEARCH_IMPOSSIBLE, /* proved: no packing has such a peak */
    SEARCH_GIVEN_UP,   /* the allowance of work or time is used up, or it was cancelled */
};

/* In which order buffers are preferred where several could be placed. */
enum search_order { ORDER_LIFE, ORDER_PRESSURE_AREA, ORDER_AREA, ORDER_PRESSURE_LIFE, ORDER_COUNT };
/* Where to work next. */
enum search_focus {
    FOCUS_FEWEST,   /* a section where few buffers may come next, near the last one */
    FOCUS_WEIGHTED, /* the same, sections that refuted often first */
    FOCUS_LOWEST,   /* where memory ends lowest */
    FOCUS_COUNT
};

struct search_try {
    uint64_t target_bytes; /* the peak that is allowed */
    uint64_t fails;        /* allowance of decisions taken back */
    uint64_t work;         /* allowance of numbers looked at, about 10^9 a second */
    enum search_order order;
    enum search_focus focus;
    uint32_t seed; /* 0: the order as it is; else disturbed, differently for every seed */
};

/* NULL when malloc refuses.  Borrows the problem; no target may be above peak_bytes. */
struct search *search_create(const struct problem *problem, uint64_t peak_bytes);
void search_destroy(struct search *search); /* NULL is fine */
/* Ends tries from outside.  deadline_us: of clock_now_us(), INT64_MAX: none. */
void search_set_limits(struct search *search, int64_t deadline_us, const atomic_bool *cancelled);
/* FOUND: offsets per buffer of the problem, below target_bytes with every end. */
enum search_outcome search_run(struct search *search, const struct search_try *what,
                               uint64_t *offsets);
/* False: sizes were rounded up by less than two parts in 2^30 of the peak; nothing is proved. */
bool search_is_exact(const struct search *search);
uint64_t search_work(const struct search *search); /* of the last try */

#endif
