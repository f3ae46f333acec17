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

/* Searches, and keeps what is found; `kept` is what was kept so far, with its offsets. */
static enum status search(const struct network *network, struct plan_buffer *buffers, size_t count,
                          const struct kept_packing *kept, struct planner_result *result)
{
    const struct network_planning *planning = &network->planning;
    const struct planner_options options = {.mode = PLANNER_THOROUGH,
                                            .budget_us = planning->budget_us,
                                            .cancelled = planning->cancelled};
    struct kept_packing found;
    uint64_t *before = calloc(count, sizeof(*before));
    enum status status = before == NULL ? STATUS_NO_MEMORY : STATUS_OK;

    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        before[i] = buffers[i].offset;
    if (status == STATUS_OK)
        status = planner_plan(buffers, count, &options, result);
    if (status == STATUS_OK && kept->peak_bytes <= result->peak_bytes) {
        result->peak_bytes = kept->peak_bytes;
        for (size_t i = 0; i < count; i++)
            buffers[i].offset = before[i];
    }
    free(before);
    if (status != STATUS_OK)
        return kept->searched_us < 0 ? status : STATUS_OK; /* what was kept stands */
    found = (struct kept_packing){
        .peak_bytes = result->peak_bytes,
        .searched_us = result->end == PLANNER_TIMED_OUT ? planning->budget_us : SEARCHED_OUT};
    if (planning->folder != NULL && result->end != PLANNER_CANCELLED)
        store_keep(planning->folder, buffers, count, &found);
    return STATUS_OK;
}

static enum status find_better(const struct network *network, struct plan_buffer *buffers,
                               size_t count, struct planner_result *result)
{
    const struct network_planning *planning = &network->planning;
    struct kept_packing kept = {.peak_bytes = UINT64_MAX, .searched_us = -1};
    bool may_search = atomic_load_explicit(&network->ahead, memory_order_relaxed);

    if (planning->folder != NULL &&
        store_find(planning->folder, buffers, count, &kept) != STATUS_OK)
        kept = (struct kept_packing){.peak_bytes = UINT64_MAX, .searched_us = -1};
    result->peak_bytes = kept.peak_bytes;
    if (may_search && kept.searched_us < planning->budget_us)
        return search(network, buffers, count, &kept, result);
    return kept.searched_us < 0 ? STATUS_NOT_FOUND : STATUS_OK;
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
    if (ahead)
        return;
    pthread_mutex_lock(&network->compile_lock);
    held_drop_rest(network); /* where no plan could be made */
    pthread_mutex_unlock(&network->compile_lock);
}
