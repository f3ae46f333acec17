/* What is tried, in which order, until the peak is low enough or the allowance is used up. */
#include <stdlib.h>

#include "base/clock.h"
#include "graph/planner_internal.h"

enum {
    QUICK_WORK = 6000 * 1000, /* numbers looked at by all quick tries; about a nanosecond each */
    QUICK_ABOVE = 14,         /* a share of the goal */
    QUICK_COUNT_MAX = 4096,   /* more buffers: greedy passes alone */
    FIRST_FAILS = 100,        /* of thorough tries: the first time around, */
    NEXT_FAILS = 500,         /* the second time; then more and more */
    ROUNDS = ORDER_COUNT * FOCUS_COUNT,
    HALVING_EVERY = 5
};

struct planning {
    const struct problem *problem;
    const struct planner_options *options;
    struct search *search; /* NULL until it is needed */
    uint64_t enough;       /* stop at such a peak */
    uint64_t peak;         /* of `offsets` */
    uint64_t *offsets;     /* the best so far */
    uint64_t *trial;
};

static uint64_t highest_end(const struct problem *problem, const uint64_t *offsets)
{
    uint64_t highest = 0;

    for (uint32_t i = 0; i < problem->count; i++)
        if (offsets[i] + problem->bytes[i] > highest)
            highest = offsets[i] + problem->bytes[i];
    return highest;
}

static enum search_outcome try_once(struct planning *planning, const struct search_try *what)
{
    enum search_outcome outcome = search_run(planning->search, what, planning->trial);
    uint64_t peak, *kept = planning->offsets;

    if (outcome != SEARCH_FOUND)
        return outcome;
    peak = highest_end(planning->problem, planning->trial);
    if (peak < planning->peak) {
        planning->offsets = planning->trial;
        planning->trial = kept;
        planning->peak = peak;
    }
    return outcome;
}

/* ---- quick ---- */

/* Where the greedy passes do not reach the goal, a few short searches.  Most end at once, found or
 * lost, so many a little above the goal come before patience; exact puzzles (no byte to spare) are
 * solved by those that go for the goal itself. */
static const struct quick_try {
    struct search_try what;
    bool is_goal; /* else halfway there, but not far above it */
} QUICK_TRIES[] = {
    {{.order = ORDER_PRESSURE_LIFE, .focus = FOCUS_FEWEST, .fails = 80}, false},
    {{.order = ORDER_AREA, .focus = FOCUS_FEWEST, .fails = 80}, false},
    {{.order = ORDER_LIFE, .focus = FOCUS_LOWEST, .fails = 500}, true},
    {{.order = ORDER_PRESSURE_LIFE, .focus = FOCUS_LOWEST, .fails = 300}, true},
    {{.order = ORDER_PRESSURE_AREA, .focus = FOCUS_FEWEST, .fails = 80}, true},
    {{.order = ORDER_LIFE, .focus = FOCUS_FEWEST, .fails = 80}, false},
};
enum { QUICK_TRY_COUNT = sizeof(QUICK_TRIES) / sizeof(QUICK_TRIES[0]) };

/* A packing not far above the goal halves what is spent on a better one. */
static uint64_t allowance(const struct planning *planning)
{
    uint64_t near = planning->enough + planning->enough / QUICK_ABOVE;

    return planning->peak <= near ? QUICK_WORK / 2 : QUICK_WORK;
}

static void search_quickly(struct planning *planning)
{
    uint64_t goal = planning->enough, spent = 0;

    if (planning->problem->count > QUICK_COUNT_MAX)
        return;
    for (uint32_t i = 0; planning->peak > goal && spent < allowance(planning); i++) {
        struct search_try what = QUICK_TRIES[i % QUICK_TRY_COUNT].what;
        uint64_t above = (planning->peak - goal) / 2;

        if (above > goal / QUICK_ABOVE)
            above = goal / QUICK_ABOVE;
        what.target_bytes = goal + (QUICK_TRIES[i % QUICK_TRY_COUNT].is_goal ? 0 : above);
        what.work = QUICK_WORK - spent;
        what.seed = i / QUICK_TRY_COUNT;
        (void)try_once(planning, &what);
        spent += search_work(planning->search);
    }
}

/* ---- thorough ---- */

struct course {
    uint64_t goal;      /* no packing is lower, or none need be */
    uint64_t unreached; /* a halving failed here */
    uint64_t fails;
    uint32_t round;
};

static struct search_try next_try(const struct course *course, bool is_halving, uint64_t peak)
{
    struct search_try what = {.target_bytes = course->goal,
                              .fails = course->fails,
                              .work = UINT64_MAX,
                              .focus = (enum search_focus)(course->round % FOCUS_COUNT),
                              .order =
                                  (enum search_order)(course->round / FOCUS_COUNT % ORDER_COUNT),
                              .seed = course->round / ROUNDS};

    if (is_halving)
        what.target_bytes = course->unreached + (peak - course->unreached) / 2;
    return what;
}

/* Every order with every focus, with more patience each time around.  Most tries go straight for
 * the goal; some halve the way there, so that a goal out of reach does not leave things as they
 * are. */
static void take_one_try(struct planning *planning, struct course *course)
{
    bool is_halving = course->round % HALVING_EVERY == HALVING_EVERY - 1;
    struct search_try what = next_try(course, is_halving, planning->peak);
    enum search_outcome outcome = try_once(planning, &what);

    if (outcome == SEARCH_IMPOSSIBLE)
        course->goal = (what.target_bytes / planning->problem->unit + 1) * planning->problem->unit;
    else if (outcome == SEARCH_GIVEN_UP && is_halving)
        course->unreached = what.target_bytes;
    if (course->unreached < course->goal ||
        course->unreached + planning->problem->unit >= planning->peak)
        course->unreached = course->goal;
    if (++course->round % ROUNDS == 0)
        course->fails = course->round == ROUNDS ? NEXT_FAILS : course->fails + course->fails / 5;
}

static bool is_cancelled(const struct planner_options *options)
{
    return options->cancelled != NULL &&
           atomic_load_explicit(options->cancelled, memory_order_relaxed);
}

static enum planner_end search_thoroughly(struct planning *planning)
{
    const struct planner_options *options = planning->options;
    int64_t budget_us = options->budget_us > 0 ? options->budget_us : PLANNER_BUDGET_US;
    int64_t deadline_us = clock_now_us() + budget_us;
    struct course course = {
        .goal = planning->enough, .unreached = planning->enough, .fails = FIRST_FAILS};

    search_set_limits(planning->search, deadline_us, options->cancelled);
    while (planning->peak > course.goal) {
        if (is_cancelled(options))
            return PLANNER_CANCELLED;
        if (clock_now_us() >= deadline_us)
            return PLANNER_TIMED_OUT;
        take_one_try(planning, &course);
    }
    return PLANNER_EXHAUSTED;
}

/* ---- both ---- */

static enum status plan(struct planning *planning, enum planner_end *out_end)
{
    const struct planner_options *options = planning->options;

    TRY(greedy_pack(planning->problem, planning->enough, planning->offsets, &planning->peak));
    *out_end = PLANNER_EXHAUSTED;
    if (planning->peak > planning->enough) {
        planning->search = search_create(planning->problem, planning->peak);
        if (planning->search == NULL)
            return STATUS_NO_MEMORY;
        if (!search_is_exact(planning->search))
            planning->enough += planning->enough >> 20; /* what rounding may cost */
        search_quickly(planning);
        if (planning->peak > planning->enough && options->mode == PLANNER_THOROUGH)
            *out_end = search_thoroughly(planning);
        search_destroy(planning->search);
    }
    if (planning->peak <= planning->enough)
        *out_end = PLANNER_AT_BOUND;
    return STATUS_OK;
}

static enum status plan_problem(const struct problem *problem,
                                const struct planner_options *options, struct plan_buffer *buffers,
                                struct planner_result *result)
{
    struct planning planning = {.problem = problem, .options = options, .enough = problem->bound};
    enum status status = STATUS_NO_MEMORY;

    if (options->limit_bytes > planning.enough)
        planning.enough = options->limit_bytes;
    planning.offsets = calloc(problem->count, sizeof(*planning.offsets));
    planning.trial = calloc(problem->count, sizeof(*planning.trial));
    if (planning.offsets != NULL && planning.trial != NULL)
        status = plan(&planning, &result->end);
    if (status == STATUS_OK) {
        for (uint32_t i = 0; i < problem->count; i++)
            buffers[problem->index[i]].offset = planning.offsets[i];
        result->peak_bytes = planning.peak;
        result->lower_bound_bytes = problem->bound;
    }
    free(planning.offsets);
    free(planning.trial);
    return status;
}

static bool is_valid(const struct plan_buffer *buffers, size_t count)
{
    uint64_t sum = 0;

    if (count >= UINT32_MAX / 4)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].first > buffers[i].last || buffers[i].last == UINT32_MAX ||
            buffers[i].bytes > (uint64_t)INT64_MAX - sum)
            return false;
        sum += buffers[i].bytes;
    }
    return true;
}

enum status planner_plan(struct plan_buffer *buffers, size_t count,
                         const struct planner_options *options, struct planner_result *out_result)
{
    static const struct planner_options QUICK = {.mode = PLANNER_QUICK};
    struct planner_result result = {.end = PLANNER_AT_BOUND};
    enum status status = STATUS_OK;
    struct problem problem;

    if (!is_valid(buffers, count))
        return STATUS_INVALID;
    TRY(problem_init(buffers, count, &problem));
    if (problem.count > 0)
        status = plan_problem(&problem, options != NULL ? options : &QUICK, buffers, &result);
    problem_deinit(&problem);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        if (buffers[i].bytes == 0)
            buffers[i].offset = 0;
    *out_result = result;
    return STATUS_OK;
}

enum status planner_bound(const struct plan_buffer *buffers, size_t count, uint64_t *out_bytes)
{
    struct problem problem;

    if (!is_valid(buffers, count))
        return STATUS_INVALID;
    TRY(problem_init(buffers, count, &problem));
    *out_bytes = problem.bound;
    problem_deinit(&problem);
    return STATUS_OK;
}
