#include "govern/eviction.h"

#define UNKNOWN_RELOAD_US 1000
#define NEVER_AGAIN_US    INT64_C(86400000000) /* a day */

double eviction_worth(const struct eviction_candidate *candidate)
{
    double reload_us =
        (double)(candidate->reload_us > 0 ? candidate->reload_us : UNKNOWN_RELOAD_US);
    double interval_us =
        (double)(candidate->interval_us > 0 ? candidate->interval_us : NEVER_AGAIN_US);
    double idle_us = (double)(candidate->idle_us > 0 ? candidate->idle_us : 0);

    if (candidate->bytes == 0)
        return 0;
    return reload_us / ((double)candidate->bytes * (idle_us + interval_us) * 1e-6);
}

/* Inserts `index` behind those of less worth; equal worth: longer idle first, then as listed. */
static void insert(const struct eviction_candidate *candidates, size_t index, size_t *order,
                   size_t count)
{
    double worth = eviction_worth(&candidates[index]);
    size_t at = count;

    while (at > 0) {
        const struct eviction_candidate *before = &candidates[order[at - 1]];
        double other = eviction_worth(before);

        if (other < worth || (other == worth && before->idle_us >= candidates[index].idle_us))
            break;
        order[at] = order[at - 1];
        at--;
    }
    order[at] = index;
}

/* Takes out of the order whoever is not needed for `bytes` of `sum`, most worth first. */
static size_t spare(const struct eviction_candidate *candidates, size_t *order, size_t count,
                    uint64_t bytes, uint64_t sum)
{
    for (size_t i = count; i > 0; i--) {
        uint64_t its = candidates[order[i - 1]].bytes;

        if (sum - its < bytes)
            continue;
        sum -= its;
        for (size_t j = i; j < count; j++)
            order[j - 1] = order[j];
        count--;
    }
    return count;
}

size_t eviction_choose(const struct eviction_candidate *candidates, size_t count, uint64_t bytes,
                       size_t *out_order)
{
    size_t sorted = 0, taken = 0;
    uint64_t sum = 0;

    for (size_t i = 0; i < count; i++)
        if (candidates[i].bytes > 0)
            insert(candidates, i, out_order, sorted++);
    while (taken < sorted && sum < bytes)
        sum += candidates[out_order[taken++]].bytes;
    return sum < bytes ? taken : spare(candidates, out_order, taken, bytes, sum);
}
