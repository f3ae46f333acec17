/* Making searches ready: units, numbering by preference, the state a try begins with.
 *
 * A search goes depth first by an order of preference, so luck matters: callers make many short
 * tries with different orders rather than a long one.
 *
 * Sizes are counted in units of their common divisor, in 32 bits.  Where that is too few, sizes are
 * rounded up to a coarser unit; packings stay right, and nothing is proved then.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/planner_search.h"

enum {
    UNITS_MAX = 1 << 30,   /* of a target: an offset below it and a size are below 2^31 */
    TRAIL_SPARE = 1 << 14, /* decisions deferred */
    TRAIL_MAX = 1 << 23
};

/* ---- orders ---- */

static int by_key(const void *left, const void *right, void *arg)
{
    const struct search *search = arg;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const struct search_key *one = &search->keys[a], *other = &search->keys[b];

    if (one->major != other->major)
        return one->major > other->major ? -1 : 1;
    if (one->minor != other->minor)
        return one->minor > other->minor ? -1 : 1;
    return (a > b) - (a < b);
}

static struct search_key order_key(const struct problem *problem, enum search_order order,
                                   uint32_t i)
{
    double life = (double)problem->life[i], area = life * (double)problem->bytes[i];
    double pressure = (double)problem->pressure[i] / (double)problem->bound;

    switch (order) {
    case ORDER_PRESSURE_AREA:
        return (struct search_key){pressure, area};
    case ORDER_PRESSURE_LIFE:
        return (struct search_key){pressure, life};
    case ORDER_AREA:
        return (struct search_key){area, life};
    case ORDER_LIFE:
    case ORDER_COUNT:
        break;
    }
    return (struct search_key){life, area};
}

/* The same with less respect for pressure, times a number from 0.6 to 1.65. */
static struct search_key disturbed_key(const struct problem *problem, enum search_order order,
                                       uint32_t i, uint32_t *random)
{
    struct search_key key = order_key(problem, order, i);

    *random ^= *random << 13;
    *random ^= *random >> 17;
    *random ^= *random << 5;
    if (order == ORDER_PRESSURE_AREA || order == ORDER_PRESSURE_LIFE)
        key.major *= key.major * key.major * key.minor;
    key.major *= 0.6 + 1.05 * ((double)(*random >> 8) / (1 << 24));
    return key;
}

static int32_t units(const struct search *search, uint64_t bytes)
{
    return (int32_t)(bytes / search->unit + (bytes % search->unit != 0));
}

/* Numbers the buffers by preference. */
static void number_buffers(struct search *search, enum search_order order, uint32_t seed)
{
    const struct problem *problem = search->problem;
    uint32_t random = seed * 2654435761U | 1U;

    for (uint32_t i = 0; i < search->count; i++) {
        search->keys[i] =
            seed == 0 ? order_key(problem, order, i) : disturbed_key(problem, order, i, &random);
        search->original[i] = i;
    }
    qsort_r(search->original, search->count, sizeof(*search->original), by_key, search);
    for (uint32_t i = 0; i < search->count; i++) {
        uint32_t original = search->original[i];

        search->list[i] = i;
        search->size[i] = units(search, problem->bytes[original]);
        search->life[i] = (struct search_range){problem->first[original], problem->end[original]};
    }
}

/* ---- a try ---- */

static void begin(struct search *search, const struct search_try *what)
{
    search->target = (int32_t)(what->target_bytes / search->unit);
    search->focus = what->focus;
    search->work = search->work_checked = search->fails = 0;
    search->work_limit = what->work;
    search->fail_limit = what->fails;
    search->is_spent = false;
    search->latest = (struct search_range){0, 0};
    search->depth = search->trail_count = search->waiting_count = 0;
    number_buffers(search, what->order, what->seed);
    memset(search->low, 0, search->count * sizeof(*search->low));
    memset(search->floor, 0, search->sections * sizeof(*search->floor));
    for (uint32_t s = 0; s < search->sections; s++)
        search->room[s] = search->target;
    for (uint32_t i = 0; i < search->count; i++)
        for (uint32_t s = search->life[i].first; s < search->life[i].end; s++)
            search->room[s] -= search->size[i];
}

enum search_outcome search_run(struct search *search, const struct search_try *what,
                               uint64_t *offsets)
{
    struct search_part whole = {
        .to = search->count, .sections = {0, search->sections}, .parent = SEARCH_NO_FRAME};
    enum search_outcome outcome;

    begin(search, what);
    for (uint32_t s = 0; s < search->sections; s++)
        if (search->room[s] < 0)
            return search->exact ? SEARCH_IMPOSSIBLE : SEARCH_GIVEN_UP;
    search_divide(search, whole);
    outcome = search_explore(search);
    if (outcome == SEARCH_FOUND)
        for (uint32_t i = 0; i < search->count; i++)
            offsets[search->original[i]] = (uint64_t)search->offset[i] * search->unit;
    return outcome;
}

bool search_is_exact(const struct search *search)
{
    return search->exact;
}

uint64_t search_work(const struct search *search)
{
    return search->work;
}

void search_set_limits(struct search *search, int64_t deadline_us, const atomic_bool *cancelled)
{
    search->deadline_us = deadline_us;
    search->cancelled = cancelled;
}

/* ---- making one ---- */

static void choose_unit(struct search *search, uint64_t peak_bytes)
{
    search->unit = search->problem->unit;
    search->exact = true;
    while (peak_bytes / search->unit >= UNITS_MAX) {
        search->unit *= 2;
        search->exact = false;
    }
}

/* Along one line of decisions every buffer is placed once, and raises those it meets at most. */
static uint32_t choose_trail_room(struct search *search)
{
    const struct problem *problem = search->problem;
    uint64_t meetings = (uint64_t)problem->count * problem->count / 2, room;
    int32_t *ended = search->level; /* before a section, scratch */

    memset(ended, 0, search->sections * sizeof(*ended));
    for (uint32_t i = 0; i < problem->count; i++)
        if (problem->end[i] < search->sections)
            ended[problem->end[i]]++;
    for (uint32_t s = 1; s < search->sections; s++)
        ended[s] += ended[s - 1];
    for (uint32_t i = 0; i < problem->count; i++)
        meetings -= (uint32_t)ended[problem->first[i]];
    room = 2 * problem->cells + meetings + TRAIL_SPARE;
    return room < TRAIL_MAX ? (uint32_t)room : TRAIL_MAX;
}

static bool take_memory(struct search *search)
{
    size_t count = search->count, sections = search->sections;

    search->original = calloc(2 * count, sizeof(*search->original));
    search->size = calloc(2 * count, sizeof(*search->size));
    search->life = calloc(count, sizeof(*search->life));
    search->cells = calloc(count + 4 * sections + 1, sizeof(*search->cells));
    search->weight = calloc(sections, sizeof(*search->weight));
    search->sorted = calloc(count, sizeof(*search->sorted));
    search->keys = calloc(count, sizeof(*search->keys));
    search->frames = calloc(count, sizeof(*search->frames));
    search->waiting = calloc(count, sizeof(*search->waiting));
    return search->original != NULL && search->size != NULL && search->life != NULL &&
           search->cells != NULL && search->weight != NULL && search->sorted != NULL &&
           search->keys != NULL && search->frames != NULL && search->waiting != NULL;
}

struct search *search_create(const struct problem *problem, uint64_t peak_bytes)
{
    struct search *search = calloc(1, sizeof(*search));

    if (search == NULL)
        return NULL;
    search->problem = problem;
    search->count = problem->count;
    search->sections = problem->sections;
    search->deadline_us = INT64_MAX;
    if (!take_memory(search)) {
        search_destroy(search);
        return NULL;
    }
    search->list = search->original + search->count;
    search->offset = search->size + search->count;
    search->low = search->cells;
    search->floor = search->low + search->count;
    search->room = search->floor + search->sections;
    search->level = search->room + search->sections;
    search->choices = search->level + search->sections;
    search->trail_room = choose_trail_room(search);
    search->trail = calloc(search->trail_room, sizeof(*search->trail));
    if (search->trail == NULL) {
        search_destroy(search);
        return NULL;
    }
    for (uint32_t s = 0; s < search->sections; s++)
        search->weight[s] = 1;
    choose_unit(search, peak_bytes);
    return search;
}

void search_destroy(struct search *search)
{
    if (search == NULL)
        return;
    free(search->original);
    free(search->size);
    free(search->life);
    free(search->cells);
    free(search->weight);
    free(search->sorted);
    free(search->keys);
    free(search->frames);
    free(search->waiting);
    free(search->trail);
    free(search);
}
