/* Greedy packing, several ways, the best one kept.
 *
 * One pass takes the buffers in some order and puts each at the lowest offset (first fit), or into
 * the smallest gap that holds it (best fit), among those placed already that live at the same time.
 * No single order is good for every net, a pass costs little, and the lower bound says when to
 * stop.  Neighbours in time are found by a walk over the placed buffers in order of offset, which
 * is kept sorted by insertion: a pass looks at n²/2 of them, 1,000 buffers take about half a
 * millisecond.  Many buffers get fewer passes, two at least.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/planner_internal.h"

enum { MAX_COMPARISONS = 2500 * 1000 }; /* of buffers, by all passes but the first two */

struct packing {
    const struct problem *problem;
    uint32_t *order;   /* the pass's order */
    uint32_t *placed;  /* by offset */
    uint64_t *offsets; /* this pass's */
};

typedef int (*compare_fn)(const void *, const void *, void *);

static int descending(uint64_t a, uint64_t b)
{
    return (a < b) - (a > b);
}

/* life × bytes without overflow; good enough to compare by */
static uint64_t area(const struct problem *problem, uint32_t i)
{
    return (uint64_t)(((unsigned __int128)problem->life[i] * problem->bytes[i]) >> 24);
}

/* Every order ends with the index, so that a packing is the same on every machine. */
#define ORDER(name, first_key, second_key)                                                         \
    static int name(const void *left, const void *right, void *arg)                                \
    {                                                                                              \
        const struct problem *problem = arg;                                                       \
        uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;                        \
        int difference = first_key;                                                                \
                                                                                                   \
        if (difference == 0)                                                                       \
            difference = second_key;                                                               \
        return difference != 0 ? difference : (a > b) - (a < b);                                   \
    }
#define BY(field) descending(problem->field[a], problem->field[b])

ORDER(by_size, BY(bytes), BY(life))
ORDER(by_area, descending(area(problem, a), area(problem, b)), BY(bytes))
ORDER(by_first, -BY(first_step), BY(bytes))
ORDER(by_pressure, BY(pressure), BY(bytes))
ORDER(by_pressure_and_life, BY(pressure), BY(life))

/* The most successful first. */
static const struct pass {
    compare_fn order;
    bool best_fit;
} PASSES[] = {
    {by_pressure_and_life, true},
    {by_pressure, true},
    {by_area, false},
    {by_size, false},
    {by_first, true},
    {by_pressure_and_life, false},
    {by_pressure, false},
};

/* Lowest gap, or smallest gap, between placed buffers that live at the same time as `index`. */
static uint64_t find_offset(const struct packing *packing, size_t placed, uint32_t index,
                            bool best_fit)
{
    const struct problem *problem = packing->problem;
    uint64_t bytes = problem->bytes[index], end = 0, found = UINT64_MAX, found_gap = UINT64_MAX;

    for (size_t i = 0; i < placed; i++) {
        uint32_t other = packing->placed[i];
        uint64_t offset = packing->offsets[other];

        if (!problem_meet(problem, index, other))
            continue;
        if (offset > end && offset - end >= bytes && offset - end < found_gap) {
            found = end;
            found_gap = offset - end;
            if (!best_fit)
                return found;
        }
        if (offset + problem->bytes[other] > end)
            end = offset + problem->bytes[other];
    }
    return found != UINT64_MAX ? found : end;
}

static void insert_placed(struct packing *packing, size_t placed, uint32_t index)
{
    size_t low = 0, high = placed;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (packing->offsets[packing->placed[middle]] <= packing->offsets[index])
            low = middle + 1;
        else
            high = middle;
    }
    memmove(&packing->placed[low + 1], &packing->placed[low],
            (placed - low) * sizeof(*packing->placed));
    packing->placed[low] = index;
}

/* One pass; gives up once it is no better than `limit`.  Returns the highest end. */
static uint64_t pack_once(struct packing *packing, const struct pass *pass, uint64_t limit)
{
    const struct problem *problem = packing->problem;
    uint64_t peak = 0;

    for (uint32_t i = 0; i < problem->count; i++)
        packing->order[i] = i;
    qsort_r(packing->order, problem->count, sizeof(*packing->order), pass->order,
            (void *)(uintptr_t)problem);
    for (size_t i = 0; i < problem->count && peak < limit; i++) {
        uint32_t index = packing->order[i];

        packing->offsets[index] = find_offset(packing, i, index, pass->best_fit);
        insert_placed(packing, i, index);
        if (packing->offsets[index] + problem->bytes[index] > peak)
            peak = packing->offsets[index] + problem->bytes[index];
    }
    return peak;
}

static uint64_t pack_all_ways(struct packing *packing, uint64_t enough, uint64_t *best_offsets)
{
    uint64_t comparisons = (uint64_t)packing->problem->count * packing->problem->count / 2;
    uint64_t best = UINT64_MAX, spent = 0;

    for (size_t i = 0; i < sizeof(PASSES) / sizeof(PASSES[0]); i++) {
        uint64_t peak = pack_once(packing, &PASSES[i], best);

        if (peak < best) {
            best = peak;
            memcpy(best_offsets, packing->offsets, packing->problem->count * sizeof(*best_offsets));
        }
        spent += comparisons;
        if (best <= enough || (i > 0 && spent + comparisons > MAX_COMPARISONS))
            break;
    }
    return best;
}

enum status greedy_pack(const struct problem *problem, uint64_t enough, uint64_t *offsets,
                        uint64_t *out_peak)
{
    struct packing packing = {.problem = problem};
    uint32_t *indices = calloc(problem->count, 2 * sizeof(*indices));

    packing.offsets = calloc(problem->count, sizeof(*packing.offsets));
    if (indices == NULL || packing.offsets == NULL) {
        free(indices);
        free(packing.offsets);
        return STATUS_NO_MEMORY;
    }
    packing.order = indices;
    packing.placed = indices + problem->count;
    *out_peak = pack_all_ways(&packing, enough, offsets);
    free(indices);
    free(packing.offsets);
    return STATUS_OK;
}
