/* Packs a plan's buffers the way its network is configured to.
 *
 * The quick packing reaches the lower bound on nearly every network, in well under a millisecond.
 * Where it does not, a packing that was found before is looked for (store.c); and when the plan is
 * made ahead of requests, a better one is searched within the budget and kept for the next time.
 * Whoever waits for an answer never waits for a search.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"
#include "graph/planner.h"

enum { MISS_PARTS = 100 }; /* PLANNING_AUTO minds a peak above the bound by one part of so many */

static bool is_good(const struct network_planning *planning, const struct planner_result *result)
{
    uint64_t bound = result->lower_bound_bytes;

    switch (planning->mode) {
    case PLANNING_QUICK:
        return true;
    case PLANNING_AUTO:
        return result->peak_bytes <= bound + bound / MISS_PARTS;
    case PLANNING_THOROUGH:
        break;
    }
    return result->peak_bytes <= bound;
}

static enum status find_better(const struct network *network, struct plan_buffer *buffers,
                               size_t count, struct planner_result *result)
{
    const struct network_planning *planning = &network->planning;
    const struct planner_options options = {.mode = PLANNER_THOROUGH,
                                            .budget_us = planning->budget_us,
                                            .cancelled = planning->cancelled};

    if (planning->folder != NULL &&
        store_find(planning->folder, buffers, count, &result->peak_bytes) == STATUS_OK)
        return STATUS_OK;
    if (!atomic_load_explicit(&network->ahead, memory_order_relaxed))
        return STATUS_NOT_FOUND;
    TRY(planner_plan(buffers, count, &options, result));
    if (planning->folder != NULL && result->end != PLANNER_CANCELLED)
        store_keep(planning->folder, buffers, count, result->peak_bytes);
    return STATUS_OK;
}

enum status network_pack(const struct network *network, struct plan_buffer *buffers, size_t count,
                         struct planner_result *out_result)
{
    struct planner_result quick, better;
    struct plan_buffer *trial;

    TRY(planner_plan(buffers, count, NULL, &quick));
    *out_result = quick;
    if (is_good(&network->planning, &quick))
        return STATUS_OK;
    trial = calloc(count, sizeof(*trial));
    if (trial == NULL)
        return STATUS_OK; /* the quick one stands */
    memcpy(trial, buffers, count * sizeof(*trial));
    better = quick;
    if (find_better(network, trial, count, &better) == STATUS_OK &&
        better.peak_bytes < quick.peak_bytes) {
        memcpy(buffers, trial, count * sizeof(*trial));
        *out_result = better;
    }
    free(trial);
    return STATUS_OK;
}

void network_set_ahead(struct network *network, bool ahead)
{
    atomic_store_explicit(&network->ahead, ahead, memory_order_relaxed);
}
