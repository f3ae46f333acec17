#include "graph/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { BEAM = 16, CANDIDATES_MAX = BEAM * 64 };

/* A prefix of an order: what is alive after it, and what it leaves to do. */
struct prefix {
    uint64_t peak;   /* so far */
    uint64_t alive;  /* bytes */
    uint64_t done;   /* hash of the set of steps done */
    uint32_t *left;  /* per block: touches to come */
    uint32_t *waits; /* per step: steps that must come earlier and have not */
    uint32_t *ready; /* steps that wait for none, in rising order */
    uint32_t ready_count;
};

/* A prefix longer by one step, before it is worked out. */
struct candidate {
    uint64_t peak, alive, done;
    uint32_t from; /* prefix of the beam */
    uint32_t step;
};

struct beam {
    const struct schedule_problem *problem;
    uint32_t *after_first; /* per step: index into `after`; one more at the end */
    uint32_t *after;       /* steps that wait for it */
    uint32_t *touches;     /* per block, in all */
    uint32_t *memory;      /* of all prefixes */
    struct prefix prefixes[2 * BEAM];
    struct prefix *now, *next;
    uint32_t count;
    struct candidate candidates[CANDIDATES_MAX];
    uint32_t *steps, *parents; /* per length and prefix: how it came to be */
};

/* ---- one step ---- */

static uint64_t step_hash(uint32_t step)
{
    uint64_t x = (step + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Bytes saved in the step by making a result over what dies there. */
static uint64_t bytes_over(const struct schedule_problem *problem, const struct schedule_step *step,
                           const uint32_t *touches, const uint32_t *left)
{
    for (size_t i = 0; i < step->overs; i++) {
        uint32_t dying = step->over[i].dying, made = step->over[i].made;

        if (left[dying] == 1 && !problem->block[dying].is_kept && left[made] == touches[made])
            return problem->block[dying].bytes;
    }
    return 0;
}

/* What a step makes of the bytes alive, in it and after it. */
static void weigh(const struct schedule_problem *problem, uint32_t number, const uint32_t *touches,
                  const uint32_t *left, uint64_t *alive, uint64_t *peak)
{
    const struct schedule_step *step = &problem->step[number];
    uint64_t made = 0, dying = 0, during;

    for (size_t i = 0; i < step->touches; i++) {
        uint32_t block = step->touch[i];

        if (left[block] == touches[block])
            made += problem->block[block].bytes;
        if (left[block] == 1 && !problem->block[block].is_kept)
            dying += problem->block[block].bytes;
    }
    during = *alive + made + step->scratch_bytes - bytes_over(problem, step, touches, left);
    if (during > *peak)
        *peak = during;
    *alive += made - dying;
}

static void count_touches(const struct schedule_problem *problem, uint32_t *touches)
{
    for (size_t i = 0; i < problem->steps; i++)
        for (size_t k = 0; k < problem->step[i].touches; k++)
            touches[problem->step[i].touch[k]]++;
}

enum status schedule_peak(const struct schedule_problem *problem, const uint32_t *order,
                          uint64_t *out_peak)
{
    uint32_t *touches = calloc(problem->blocks + 1, 2 * sizeof(*touches)), *left;
    uint64_t alive = 0, peak = 0;

    if (touches == NULL)
        return STATUS_NO_MEMORY;
    left = touches + problem->blocks;
    count_touches(problem, touches);
    memcpy(left, touches, problem->blocks * sizeof(*left));
    for (size_t i = 0; i < problem->steps; i++) {
        uint32_t number = order != NULL ? order[i] : (uint32_t)i;

        weigh(problem, number, touches, left, &alive, &peak);
        for (size_t k = 0; k < problem->step[number].touches; k++)
            left[problem->step[number].touch[k]]--;
    }
    free(touches);
    *out_peak = peak;
    return STATUS_OK;
}

/* No order is better than what a step needs for itself. */
static uint64_t least_peak(const struct schedule_problem *problem)
{
    uint64_t least = 0;

    for (size_t i = 0; i < problem->steps; i++) {
        const struct schedule_step *step = &problem->step[i];
        uint64_t bytes = step->scratch_bytes, over = 0;

        for (size_t k = 0; k < step->touches; k++)
            bytes += problem->block[step->touch[k]].bytes;
        for (size_t k = 0; k < step->overs; k++)
            if (problem->block[step->over[k].dying].bytes > over)
                over = problem->block[step->over[k].dying].bytes;
        if (bytes - over > least)
            least = bytes - over;
    }
    return least;
}

/* ---- the beam ---- */

static int by_merit(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;

    if (a->peak != b->peak)
        return a->peak < b->peak ? -1 : 1;
    if (a->alive != b->alive)
        return a->alive < b->alive ? -1 : 1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return (a->step > b->step) - (a->step < b->step);
}

/* Every step that could come next in every prefix, if it stays below the limit. */
static uint32_t list_candidates(struct beam *beam, uint64_t limit)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < beam->count; i++) {
        const struct prefix *prefix = &beam->now[i];

        for (uint32_t k = 0; k < prefix->ready_count && count < CANDIDATES_MAX; k++) {
            struct candidate *candidate = &beam->candidates[count];

            *candidate = (struct candidate){.peak = prefix->peak,
                                            .alive = prefix->alive,
                                            .done = prefix->done ^ step_hash(prefix->ready[k]),
                                            .from = i,
                                            .step = prefix->ready[k]};
            weigh(beam->problem, candidate->step, beam->touches, prefix->left, &candidate->alive,
                  &candidate->peak);
            count += candidate->peak < limit;
        }
    }
    qsort(beam->candidates, count, sizeof(*beam->candidates), by_merit);
    return count;
}

static void insert_ready(struct prefix *prefix, uint32_t step)
{
    uint32_t at = prefix->ready_count++;

    for (; at > 0 && prefix->ready[at - 1] > step; at--)
        prefix->ready[at] = prefix->ready[at - 1];
    prefix->ready[at] = step;
}

/* Works a candidate out. */
static void extend(const struct beam *beam, const struct candidate *candidate, struct prefix *to)
{
    const struct schedule_problem *problem = beam->problem;
    const struct schedule_step *step = &problem->step[candidate->step];
    const struct prefix *from = &beam->now[candidate->from];

    to->peak = candidate->peak;
    to->alive = candidate->alive;
    to->done = candidate->done;
    memcpy(to->left, from->left, problem->blocks * sizeof(*to->left));
    memcpy(to->waits, from->waits, problem->steps * sizeof(*to->waits));
    to->ready_count = 0;
    for (uint32_t i = 0; i < from->ready_count; i++)
        if (from->ready[i] != candidate->step)
            to->ready[to->ready_count++] = from->ready[i];
    for (size_t i = 0; i < step->touches; i++)
        to->left[step->touch[i]]--;
    for (uint32_t i = beam->after_first[candidate->step];
         i < beam->after_first[candidate->step + 1]; i++)
        if (--to->waits[beam->after[i]] == 0)
            insert_ready(to, beam->after[i]);
}

/* The best candidates, of those with the same steps done only the best, are the next beam. */
static void advance(struct beam *beam, uint32_t candidates, size_t length)
{
    struct prefix *kept = beam->now;
    uint32_t count = 0;

    for (uint32_t i = 0; i < candidates && count < BEAM; i++) {
        const struct candidate *candidate = &beam->candidates[i];
        bool is_known = false;

        for (uint32_t k = 0; k < count; k++)
            is_known = is_known || beam->next[k].done == candidate->done;
        if (is_known)
            continue;
        beam->steps[length * BEAM + count] = candidate->step;
        beam->parents[length * BEAM + count] = candidate->from;
        extend(beam, candidate, &beam->next[count++]);
    }
    beam->now = beam->next;
    beam->next = kept;
    beam->count = count;
}

/* ---- the whole ---- */

static void link_steps(struct beam *beam)
{
    const struct schedule_problem *problem = beam->problem;
    struct prefix *start = &beam->now[0];
    uint32_t links = 0;

    for (size_t i = 0; i < problem->steps; i++) {
        links += (uint32_t)problem->step[i].befores;
        start->waits[i] = (uint32_t)problem->step[i].befores;
        for (size_t k = 0; k < problem->step[i].befores; k++)
            beam->after_first[problem->step[i].before[k] + 1]++;
        if (start->waits[i] == 0)
            start->ready[start->ready_count++] = (uint32_t)i;
    }
    for (size_t i = 0; i < problem->steps; i++)
        beam->after_first[i + 1] += beam->after_first[i];
    /* Filled from the back: each step's index ends where its list begins. */
    for (size_t i = problem->steps; i-- > 0;)
        for (size_t k = 0; k < problem->step[i].befores; k++) {
            uint32_t before = problem->step[i].before[k];

            beam->after[--beam->after_first[before + 1]] = (uint32_t)i;
        }
    for (size_t i = 0; i < problem->steps; i++)
        beam->after_first[i] = beam->after_first[i + 1];
    beam->after_first[problem->steps] = links;
}

static struct beam *beam_create(const struct schedule_problem *problem)
{
    struct beam *beam = calloc(1, sizeof(*beam));
    size_t each = problem->blocks + 2 * problem->steps, links = 0;

    if (beam == NULL)
        return NULL;
    for (size_t i = 0; i < problem->steps; i++)
        links += problem->step[i].befores;
    beam->problem = problem;
    beam->after_first = calloc(problem->steps + 2, sizeof(*beam->after_first));
    beam->after = calloc(links + 1, sizeof(*beam->after));
    beam->touches = calloc(problem->blocks + 1, sizeof(*beam->touches));
    beam->memory = calloc(each, 2 * BEAM * sizeof(*beam->memory));
    beam->steps = calloc(problem->steps, 2 * BEAM * sizeof(*beam->steps));
    if (beam->after_first == NULL || beam->after == NULL || beam->touches == NULL ||
        beam->memory == NULL || beam->steps == NULL)
        return beam;
    beam->parents = beam->steps + problem->steps * BEAM;
    for (size_t i = 0; i < 2 * BEAM; i++) {
        beam->prefixes[i].left = beam->memory + i * each;
        beam->prefixes[i].waits = beam->prefixes[i].left + problem->blocks;
        beam->prefixes[i].ready = beam->prefixes[i].waits + problem->steps;
    }
    beam->now = beam->prefixes;
    beam->next = beam->prefixes + BEAM;
    return beam;
}

static void beam_destroy(struct beam *beam)
{
    if (beam == NULL)
        return;
    free(beam->after_first);
    free(beam->after);
    free(beam->touches);
    free(beam->memory);
    free(beam->steps);
    free(beam);
}

/* True: an order below the limit is in `order`. */
static bool search(struct beam *beam, uint64_t limit, uint32_t *order)
{
    const struct schedule_problem *problem = beam->problem;
    uint32_t at = 0;

    count_touches(problem, beam->touches);
    memcpy(beam->now[0].left, beam->touches, problem->blocks * sizeof(*beam->touches));
    link_steps(beam);
    beam->count = 1;
    for (size_t length = 0; length < problem->steps; length++) {
        advance(beam, list_candidates(beam, limit), length);
        if (beam->count == 0)
            return false;
    }
    for (size_t length = problem->steps; length-- > 0;) {
        order[length] = beam->steps[length * BEAM + at];
        at = beam->parents[length * BEAM + at];
    }
    return true;
}

enum status schedule_order(const struct schedule_problem *problem, uint32_t *order,
                           bool *out_improved)
{
    enum status status = STATUS_OK;
    struct beam *beam = NULL;
    bool improved = false;
    uint64_t peak;

    TRY(schedule_peak(problem, NULL, &peak));
    if (problem->steps <= SCHEDULE_STEPS_MAX && peak > least_peak(problem)) {
        beam = beam_create(problem);
        if (beam == NULL || beam->parents == NULL)
            status = STATUS_NO_MEMORY;
        else
            improved = search(beam, peak, order);
        beam_destroy(beam);
    }
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < problem->steps && !improved; i++)
        order[i] = (uint32_t)i;
    *out_improved = improved;
    return STATUS_OK;
}
