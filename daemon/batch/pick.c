#include "batch/pick.h"

#include <stdbool.h>

#include "base/clock.h"

/* A model this far ahead of the one that used least gets no more turns for urgency. */
#define URGENCY_LEAD_US INT64_C(200000)
/* Turns of its own length, and a fixed part for those of the others, that a model can still wait.
 */
enum { URGENT_TURNS = 4, URGENT_MARGIN_US = 10000 };

static bool is_urgent(const struct pick_candidate *candidate, int64_t least_used_us, int64_t now_us)
{
    if (candidate->deadline_us == CLOCK_NEVER)
        return false;
    if (candidate->used_us - least_used_us > URGENCY_LEAD_US)
        return false;
    return candidate->deadline_us - now_us <=
           URGENT_TURNS * candidate->predicted_us + URGENT_MARGIN_US;
}

static int64_t least_used(const struct pick_candidate *candidates, size_t count)
{
    int64_t least_us = candidates[0].used_us;

    for (size_t i = 1; i < count; i++)
        if (candidates[i].used_us < least_us)
            least_us = candidates[i].used_us;
    return least_us;
}

static bool goes_before(const struct pick_candidate *a, const struct pick_candidate *b,
                        int64_t least_used_us, int64_t now_us)
{
    bool a_urgent, b_urgent;

    if (a->rank != b->rank)
        return a->rank < b->rank;
    a_urgent = is_urgent(a, least_used_us, now_us);
    b_urgent = is_urgent(b, least_used_us, now_us);
    if (a_urgent != b_urgent)
        return a_urgent;
    if (a_urgent && a->deadline_us != b->deadline_us)
        return a->deadline_us < b->deadline_us;
    return a->used_us < b->used_us;
}

size_t pick_next(const struct pick_candidate *candidates, size_t count, int64_t now_us)
{
    int64_t least_used_us = least_used(candidates, count);
    size_t best = 0;

    for (size_t i = 1; i < count; i++)
        if (goes_before(&candidates[i], &candidates[best], least_used_us, now_us))
            best = i;
    return best;
}

int64_t pick_used_after_idle(int64_t used_us, int64_t least_used_us)
{
    return used_us > least_used_us ? used_us : least_used_us;
}
