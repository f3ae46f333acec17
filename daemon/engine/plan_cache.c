/* The plans of a network, least recently used last to stay.
 *
 * Finding one takes a read lock, compares shapes and stamps the plan: nothing is allocated or
 * moved, so any number of lanes find plans at once.  Adding one drops the oldest until the bounds
 * hold; a plan that is running lives on until it is given back.
 */
#include <string.h>

#include "engine/internal.h"

static bool values_agree(const struct plan *plan, const void *const *values)
{
    for (size_t i = 0; i < plan->inputs; i++) {
        const struct constant *known = plan->in_values != NULL ? plan->in_values[i] : NULL;

        if (known == NULL)
            continue;
        if (values == NULL || values[i] == NULL ||
            memcmp(known->tensor.data, values[i], tensor_bytes(&known->tensor)) != 0)
            return false;
    }
    return true;
}

static bool agrees(const struct plan *plan, const struct program *program,
                   const struct shape *shapes, const void *const *values)
{
    if (plan->program != program)
        return false;
    for (size_t i = 0; i < plan->inputs; i++)
        if (!shape_is_equal(&plan->in_shapes[i], &shapes[i]))
            return false;
    return values_agree(plan, values);
}

struct plan *plan_cache_find(struct network *network, const struct program *program,
                             const struct shape *shapes, const void *const *values)
{
    struct plan *plan, *found = NULL;

    pthread_rwlock_rdlock(&network->cache_lock);
    LIST_FOR_EACH (plan, &network->plans, struct plan, link) {
        if (!agrees(plan, program, shapes, values))
            continue;
        found = plan;
        atomic_fetch_add_explicit(&found->references, 1, memory_order_relaxed);
        atomic_store_explicit(
            &found->last_use,
            atomic_fetch_add_explicit(&network->use_clock, 1, memory_order_relaxed),
            memory_order_relaxed);
        break;
    }
    pthread_rwlock_unlock(&network->cache_lock);
    return found;
}

static struct plan *oldest(struct network *network, const struct plan *spared)
{
    struct plan *plan, *found = NULL;

    LIST_FOR_EACH (plan, &network->plans, struct plan, link)
        if (plan != spared &&
            (found == NULL || atomic_load(&plan->last_use) < atomic_load(&found->last_use)))
            found = plan;
    return found;
}

static void take_out(struct network *network, struct plan *plan)
{
    list_remove(&plan->link);
    network->plan_count--;
    network->plan_bytes -= plan->bytes;
    plan_unref(plan);
}

void plan_cache_add(struct network *network, struct plan *plan)
{
    pthread_rwlock_wrlock(&network->cache_lock);
    atomic_fetch_add(&plan->references, 1);
    atomic_store(&plan->last_use, atomic_fetch_add(&network->use_clock, 1));
    list_prepend(&network->plans, &plan->link);
    network->plan_count++;
    network->plan_bytes += plan->bytes;
    while (network->plan_count > 1 && (network->plan_count > network->max_plan_count ||
                                       network->plan_bytes > network->max_plan_bytes))
        take_out(network, oldest(network, plan));
    pthread_rwlock_unlock(&network->cache_lock);
}

void plan_cache_clear(struct network *network)
{
    pthread_rwlock_wrlock(&network->cache_lock);
    while (!list_is_empty(&network->plans))
        take_out(network, LIST_FIRST(&network->plans, struct plan, link));
    pthread_rwlock_unlock(&network->cache_lock);
}

struct plan *network_find_plan(struct network *network, const struct shape *input_shapes)
{
    return plan_cache_find(network, network->programs, input_shapes, NULL);
}

void plan_unref(struct plan *plan)
{
    if (plan != NULL && atomic_fetch_sub(&plan->references, 1) == 1)
        plan_destroy(plan);
}
