/* dynamic_batching and instance_group as the rules of a queue. */
#include <stdlib.h>
#include <string.h>

#include "models/model_config.h"

bool model_config_asks_for_batching(const Inference__ModelConfig *config)
{
    return config->scheduling_choice_case ==
           INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
}

static int64_t clamp_us(uint64_t us)
{
    return us > INT64_MAX ? INT64_MAX : (int64_t)us;
}

static struct queue_policy policy_of(const Inference__ModelQueuePolicy *policy)
{
    if (policy == NULL)
        return (struct queue_policy){.delay_on_timeout = false};
    return (struct queue_policy){
        .delay_on_timeout =
            policy->timeout_action == INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY,
        .default_timeout_us = clamp_us(policy->default_timeout_microseconds),
        .allow_timeout_override = policy->allow_timeout_override != 0,
        .max_queue_size = policy->max_queue_size,
    };
}

static int by_size(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return left < right ? -1 : left > right ? 1 : 0;
}

static enum status copy_preferred(const Inference__ModelDynamicBatching *batching,
                                  struct arena *arena, struct queue_config *queue)
{
    size_t count = batching->n_preferred_batch_size;
    int64_t *sizes = arena_take_array(arena, count, sizeof(*sizes));

    if (sizes == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        sizes[i] = batching->preferred_batch_size[i];
    if (count > 0)
        qsort(sizes, count, sizeof(*sizes), by_size);
    queue->preferred = sizes;
    queue->preferred_count = count;
    return STATUS_OK;
}

static enum status copy_levels(const Inference__ModelDynamicBatching *batching, struct arena *arena,
                               struct queue_config *queue)
{
    size_t count = batching->n_priority_queue_policy;
    struct level_policy *levels = arena_take_array(arena, count, sizeof(*levels));

    if (levels == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        levels[i].level = batching->priority_queue_policy[i]->key;
        levels[i].policy = policy_of(batching->priority_queue_policy[i]->value);
    }
    queue->level_policy = levels;
    queue->level_policies = count;
    return STATUS_OK;
}

static enum status apply_batching(const Inference__ModelDynamicBatching *batching,
                                  struct arena *arena, struct queue_config *queue)
{
    queue->max_queue_delay_us = clamp_us(batching->max_queue_delay_microseconds);
    queue->preserve_ordering = batching->preserve_ordering != 0;
    queue->priority_levels = batching->priority_levels;
    queue->default_priority = batching->default_priority_level;
    queue->policy = policy_of(batching->default_queue_policy);
    TRY(copy_preferred(batching, arena, queue));
    return copy_levels(batching, arena, queue);
}

/* Instances of all groups together; a group without a count has one.  0: no group, no bound. */
static unsigned instances_of(const Inference__ModelConfig *config)
{
    unsigned instances = 0;

    for (size_t i = 0; i < config->n_instance_group; i++) {
        const Inference__ModelInstanceGroup *group = config->instance_group[i];

        if (group->passive)
            continue;
        instances += group->count > 0 ? (unsigned)group->count : 1;
    }
    return instances;
}

enum status model_config_queue(const Inference__ModelConfig *config, struct arena *arena,
                               struct queue_config *out_queue, struct error *err)
{
    struct queue_config queue = {
        .name = config->name,
        .max_batch_size = config->max_batch_size,
        .instances = instances_of(config),
    };

    if (model_config_asks_for_batching(config) &&
        apply_batching(config->dynamic_batching, arena, &queue) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory for its queue",
                         config->name);
    *out_queue = queue;
    return STATUS_OK;
}
