#include "graph/planner_internal.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return (a > b) - (a < b);
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* The first of sorted `values` that is not below `wanted`. */
static uint32_t find_not_below(const uint32_t *values, uint32_t count, uint32_t wanted)
{
    uint32_t low = 0, high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (values[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Steps at which sections begin, out of sorted first steps and ends: a set of buffers is largest
 * between a first step and the next end.  Returns how many; `starts` may be `firsts`. */
static uint32_t find_sections(const uint32_t *firsts, const uint32_t *ends, uint32_t count,
                              uint32_t *starts)
{
    uint32_t sections = 0, at = 0, end = 0;

    while (at < count) {
        uint32_t latest = firsts[at];

        while (end < count && ends[end] <= latest)
            end++;
        while (at < count && firsts[at] < ends[end])
            latest = firsts[at++];
        starts[sections++] = latest;
    }
    return sections;
}

static void note_loads(struct problem *problem)
{
    for (uint32_t i = 0; i < problem->count; i++) {
        problem->unit = common_divisor(problem->unit, problem->bytes[i]);
        problem->cells += problem->end[i] - problem->first[i];
        for (uint32_t s = problem->first[i]; s < problem->end[i]; s++)
            problem->load[s] += problem->bytes[i];
    }
    for (uint32_t s = 0; s < problem->sections; s++)
        if (problem->load[s] > problem->bound)
            problem->bound = problem->load[s];
    for (uint32_t i = 0; i < problem->count; i++)
        for (uint32_t s = problem->first[i]; s < problem->end[i]; s++)
            if (problem->load[s] > problem->pressure[i])
                problem->pressure[i] = problem->load[s];
}

static enum status take_memory(struct problem *problem, size_t count)
{
    problem->index = calloc(count, 4 * sizeof(*problem->index));
    problem->bytes = calloc(count, 4 * sizeof(*problem->bytes));
    if (problem->index == NULL || problem->bytes == NULL)
        return STATUS_NO_MEMORY;
    problem->first = problem->index + count;
    problem->end = problem->index + 2 * count;
    problem->first_step = problem->index + 3 * count;
    problem->life = problem->bytes + count;
    problem->pressure = problem->bytes + 2 * count;
    problem->load = problem->bytes + 3 * count;
    return STATUS_OK;
}

enum status problem_init(const struct plan_buffer *buffers, size_t count,
                         struct problem *out_problem)
{
    struct problem problem = {0};
    uint32_t *starts = calloc(count + 1, sizeof(*starts));
    uint32_t *ends = calloc(count + 1, sizeof(*ends));

    if (starts == NULL || ends == NULL || take_memory(&problem, count + 1) != STATUS_OK) {
        free(starts);
        free(ends);
        problem_deinit(&problem);
        return STATUS_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].bytes == 0)
            continue;
        problem.index[problem.count] = (uint32_t)i;
        problem.bytes[problem.count] = buffers[i].bytes;
        problem.life[problem.count] = (uint64_t)buffers[i].last - buffers[i].first + 1;
        problem.first_step[problem.count] = buffers[i].first;
        starts[problem.count] = buffers[i].first;
        ends[problem.count++] = buffers[i].last + 1;
    }
    qsort(starts, problem.count, sizeof(*starts), by_value);
    qsort(ends, problem.count, sizeof(*ends), by_value);
    problem.sections = find_sections(starts, ends, problem.count, starts);
    for (uint32_t i = 0; i < problem.count; i++) {
        const struct plan_buffer *buffer = &buffers[problem.index[i]];

        problem.first[i] = find_not_below(starts, problem.sections, buffer->first);
        problem.end[i] = find_not_below(starts, problem.sections, buffer->last + 1);
    }
    free(starts);
    free(ends);
    note_loads(&problem);
    *out_problem = problem;
    return STATUS_OK;
}

void problem_deinit(struct problem *problem)
{
    free(problem->index);
    free(problem->bytes);
    *problem = (struct problem){0};
}
