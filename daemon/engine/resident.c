/* A network leaves the device and comes back.
 *
 * On the way out the shapes of the plans last used are kept, so that the way back makes just those:
 * whoever waits for the network finds its plan ready and its weights packed.  Packing reads the
 * constants from their file again (constant_restore), which notices a file changed in place.  Where
 * the device has memory of its own, what was packed may be kept in host memory (network_copy()) and
 * is copied back; what the plans made then want beside it is packed.  So are the weights of steps
 * that run on the host there: they are few and small, a shape or an index table for the most part,
 * and a copy of host memory in host memory would take HostCache= from weights of the device.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

enum { PLANS_REMEMBERED = 4 };

enum network_place network_place(const struct network *network)
{
    return atomic_load_explicit(&network->place, memory_order_acquire);
}

static void set_place(struct network *network, enum network_place place)
{
    atomic_store_explicit(&network->place, place, memory_order_release);
}

uint64_t network_host_bytes(const struct network *network)
{
    return network_place(network) == NETWORK_HOST ? atomic_load(&network->host_bytes) : 0;
}

/* ---- leaving ---- */

/* The plan of the whole model last used before `before`; NULL: none. */
static const struct plan *last_used(const struct network *network, uint64_t before)
{
    const struct plan *plan, *found = NULL;

    LIST_FOR_EACH (plan, &network->plans, const struct plan, link) {
        uint64_t use = atomic_load(&plan->last_use);

        if (plan->program == network->programs && use < before &&
            (found == NULL || use > atomic_load(&found->last_use)))
            found = plan;
    }
    return found;
}

static void note_least_run(struct network *network)
{
    const struct plan *plan;

    network->least_run_bytes = UINT64_MAX;
    LIST_FOR_EACH (plan, &network->plans, const struct plan, link)
        if (plan->program == network->programs && plan->peak_bytes < network->least_run_bytes)
            network->least_run_bytes = plan->peak_bytes;
    if (network->least_run_bytes == UINT64_MAX)
        network->least_run_bytes = 0;
}

uint64_t network_least_run_bytes(const struct network *network)
{
    return network->least_run_bytes;
}

/* Without memory for the list the way back makes no plan: the first batch does. */
static void remember_shapes(struct network *network)
{
    const struct plan *plan;
    uint64_t before = UINT64_MAX;

    if (list_is_empty(&network->plans))
        return; /* what was remembered before still holds */
    note_least_run(network);
    free(network->shapes);
    network->shape_lists = 0;
    network->shapes = calloc(PLANS_REMEMBERED * network->inputs + 1, sizeof(*network->shapes));
    while (network->shapes != NULL && network->shape_lists < PLANS_REMEMBERED &&
           (plan = last_used(network, before)) != NULL) {
        memcpy(&network->shapes[network->shape_lists++ * network->inputs], plan->in_shapes,
               network->inputs * sizeof(*network->shapes));
        before = atomic_load(&plan->last_use);
    }
}

uint64_t network_drop_plans(struct network *network)
{
    uint64_t bytes = network_plan_bytes(network);

    if (network_place(network) != NETWORK_DEVICE)
        return 0;
    remember_shapes(network);
    plan_cache_clear(network);
    return bytes;
}

static size_t graph_bytes(const struct graph *graph)
{
    size_t bytes = graph->arena.total_bytes;

    for (const struct graph *child = graph->children; child != NULL; child = child->next_child)
        bytes += graph_bytes(child);
    return bytes;
}

/* Everything of the device and of plans, whole or half there. */
static void clear_device(struct network *network)
{
    plan_cache_clear(network);
    weights_cache_destroy(network->weights);
    atomic_store(&network->winograd_bytes, 0);
    network->weights = NULL;
    network_close_host(network);
    if (network->programs == NULL)
        return;
    held_unbook(network);
    programs_destroy(network->programs->next);
    network->programs->next = NULL;
    atomic_store(&network->host_bytes, graph_bytes(network->programs->graph) +
                                           held_host_bytes(network) +
                                           weights_copy_bytes(network->copy));
}

/* Pieces are found again by the constants of the model: those folded for one plan go with it. */
static bool is_lasting(void *arg, const void *key)
{
    return network_owns(arg, (struct constant *)(uintptr_t)key);
}

uint64_t network_copy_bytes(struct network *network)
{
    if (network->device->ops->host_memory || network_place(network) != NETWORK_DEVICE)
        return 0;
    return weights_copyable(network->weights, is_lasting, network);
}

enum status network_copy(struct network *network)
{
    return weights_copy_create(network->weights, network->device, is_lasting, network,
                               &network->copy);
}

void network_drop_copy(struct network *network)
{
    atomic_fetch_sub(&network->host_bytes, weights_copy_bytes(network->copy));
    weights_copy_destroy(network->copy);
    network->copy = NULL;
}

uint64_t network_leave(struct network *network)
{
    uint64_t bytes;

    if (network_place(network) != NETWORK_DEVICE)
        return 0;
    bytes = network_resident_bytes(network);
    remember_shapes(network);
    clear_device(network);
    set_place(network, NETWORK_HOST);
    return bytes;
}

uint64_t network_strip(struct network *network)
{
    uint64_t bytes = network_host_bytes(network);

    set_place(network, NETWORK_GONE);
    network_drop_copy(network);
    programs_destroy(network->programs);
    network->programs = NULL;
    folder_destroy(network->folder);
    network->folder = NULL;
    held_forget(network);
    return bytes;
}

/* ---- coming back ---- */

static bool ports_agree(const struct network_port *ports, size_t count, struct value *const *values)
{
    for (size_t i = 0; i < count; i++) {
        struct shape shape = {.rank = 0};

        if (values[i]->shape_known)
            shape = values[i]->shape;
        if (strcmp(ports[i].name, values[i]->name) != 0 || ports[i].dtype != values[i]->dtype ||
            !shape_is_equal(&ports[i].shape, &shape))
            return false;
    }
    return true;
}

static enum status check_ports(const struct network *network, struct error *err)
{
    const struct graph *graph = network->programs->graph;

    if (graph->inputs == network->inputs && graph->outputs == network->outputs &&
        ports_agree(network->in, network->inputs, graph->in) &&
        ports_agree(network->out, network->outputs, graph->out))
        return STATUS_OK;
    return error_set(err, STATUS_PRECONDITION,
                     "its file has other inputs or outputs than when it was loaded");
}

enum status network_refill(struct network *network, struct graph *graph, struct error *err)
{
    enum status status = network_adopt(network, graph, err);

    if (status == STATUS_OK)
        status = check_ports(network, err);
    if (status != STATUS_OK) {
        (void)network_strip(network);
        return status;
    }
    set_place(network, NETWORK_HOST);
    return STATUS_OK;
}

/* The first of the plans must be made; more may come when they are asked for. */
static enum status make_plans(struct network *network, struct error *err)
{
    for (size_t i = 0; i < network->shape_lists; i++) {
        struct error ignored;
        struct plan *plan;
        enum status status = network_plan(network, &network->shapes[i * network->inputs], &plan,
                                          i == 0 ? err : &ignored);

        if (status == STATUS_OK)
            plan_unref(plan);
        else if (i == 0)
            return status;
    }
    return STATUS_OK;
}

static enum status come_back(struct network *network, struct error *err)
{
    if (weights_cache_create(network->device->memory, network->account, &network->weights) !=
            STATUS_OK ||
        network_open_host(network) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model's weights");
    weights_cache_fill_from(network->weights, network->copy);
    if (held_book(network) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY,
                         "the model's constants do not fit into the memory budget");
    return make_plans(network, err);
}

enum status network_return(struct network *network, struct error *err)
{
    enum status status = come_back(network, err);

    if (status != STATUS_OK) {
        clear_device(network);
        set_place(network, NETWORK_HOST);
        return status;
    }
    weights_cache_fill_from(network->weights, NULL);
    network_drop_copy(network);
    set_place(network, NETWORK_DEVICE);
    return STATUS_OK;
}
