/* Where the constants of a step are, once its kernel is chosen.
 *
 *   host memory    read where the model's reader or a fold put them; what no kernel reads any more
 *                  leaves memory
 *   other devices  constants that a kernel reads at run time are written to the device once: those
 *                  of the model beside its packed forms, those folded for one plan apart, because
 *                  they go with it.  Steps on the host read host memory as above.
 */
#include <stdio.h>
#include <stdlib.h>

#include "device/host_source.h"
#include "engine/internal.h"

enum { FORMAT_BYTES = 32, LEAST_ROOM_BYTES = 256 };

static bool has_own_memory(const struct network *network)
{
    return !network->device->ops->host_memory;
}

/* ---- the network's further caches ---- */

enum status network_open_host(struct network *network)
{
    if (!has_own_memory(network))
        return STATUS_OK;
    TRY(weights_cache_create(host_source(), NULL, &network->host_weights));
    return weights_cache_create(network->device->memory, network->account,
                                &network->plan_constants);
}

void network_close_host(struct network *network)
{
    weights_cache_destroy(network->host_weights);
    weights_cache_destroy(network->plan_constants);
    network->host_weights = network->plan_constants = NULL;
}

struct device *making_device(const struct making *making, const struct node *node)
{
    struct device *device = making->network->device;

    return making_on_host(making, node) && has_own_memory(making->network) ? device->host : device;
}

struct weights_cache *making_weights(const struct making *making, const struct node *node)
{
    const struct network *network = making->network;

    return making_on_host(making, node) && has_own_memory(network) ? network->host_weights
                                                                   : network->weights;
}

/* ---- in host memory ---- */

enum status making_constant_lost(enum status status, struct error *err)
{
    if (status == STATUS_NO_MEMORY)
        return error_set(err, status, "no memory for its constants");
    return error_set(
        err, status,
        "its weights cannot be read again: the model's file was changed in place; load "
        "the model again");
}

static enum status hold(struct making *making, const struct node *node, struct constant *constant,
                        struct error *err)
{
    enum status status = constant_restore(constant);

    if (status != STATUS_OK)
        return error_prefix(err, making_constant_lost(status, err), "node '%s'", node->name);
    if (network_hold(making->network, constant) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY,
                         "node '%s': its constants do not fit into the memory budget", node->name);
    return STATUS_OK;
}

/* ---- on the device ---- */

/* The plan remembers a constant that goes with it. */
static enum status note_upload(struct plan *plan, struct constant *constant)
{
    struct constant **grown =
        realloc(plan->uploads, (plan->upload_count + 1) * sizeof(*plan->uploads));

    if (grown == NULL)
        return STATUS_NO_MEMORY;
    plan->uploads = grown;
    plan->uploads[plan->upload_count++] = constant_ref(constant);
    return STATUS_OK;
}

/* Names an upload: the model's are shared by all plans. */
static void name_upload(const struct plan *plan, bool of_model, char format[FORMAT_BYTES])
{
    (void)snprintf(format, FORMAT_BYTES, of_model ? "plain" : "plain %p", (const void *)plan);
}

void plan_forget_uploads(struct plan *plan)
{
    char format[FORMAT_BYTES];

    name_upload(plan, false, format);
    for (size_t i = 0; i < plan->upload_count; i++) {
        weights_drop(plan->network->plan_constants, plan->uploads[i], format);
        constant_unref(plan->uploads[i]);
    }
    free(plan->uploads);
    plan->uploads = NULL;
    plan->upload_count = 0;
}

static enum status write_elements(struct weights_cache *cache, struct constant *constant, void *to)
{
    TRY(constant_restore(constant));
    return weights_write(cache, to, constant->tensor.data, tensor_bytes(&constant->tensor));
}

/* Constants of plans come and go in as many sizes as there are shapes: few sizes of room are used
 * again, many are not. */
static size_t room_of(size_t bytes, bool of_model)
{
    size_t room = LEAST_ROOM_BYTES;

    while (!of_model && room < bytes && room <= SIZE_MAX / 2)
        room *= 2;
    return of_model ? bytes : room;
}

static enum status upload(struct making *making, struct constant *constant, void **out_data)
{
    struct network *network = making->network;
    bool of_model = network_owns(network, constant), is_new;
    struct weights_cache *cache = of_model ? network->weights : network->plan_constants;
    char format[FORMAT_BYTES];
    enum status status;

    name_upload(making->plan, of_model, format);
    TRY(weights_share(cache, constant, format, room_of(tensor_bytes(&constant->tensor), of_model),
                      out_data, &is_new));
    if (!is_new)
        return STATUS_OK;
    status = write_elements(cache, constant, *out_data);
    if (status == STATUS_OK && !of_model)
        status = note_upload(making->plan, constant);
    if (status != STATUS_OK)
        weights_drop(cache, constant, format);
    return status;
}

static enum status keep_on_device(struct making *making, const struct node *node, size_t index,
                                  struct choice *choice, struct error *err)
{
    struct constant *constant = node->in[index]->constant;
    enum status status;

    if (choice->constants == NULL)
        choice->constants =
            arena_take_array(making->arena, node->inputs, sizeof(*choice->constants));
    status = choice->constants == NULL ? STATUS_NO_MEMORY
                                       : upload(making, constant, &choice->constants[index]);
    if (status == STATUS_NO_MEMORY)
        return error_set(err, status, "node '%s': its constants do not fit into the memory budget",
                         node->name);
    if (status != STATUS_OK)
        return error_prefix(err, making_constant_lost(status, err), "node '%s'", node->name);
    network_drop(making->network, constant);
    return STATUS_OK;
}

/* ---- both ---- */

/* A kernel that says nothing and packed nothing may read it: then it stays. */
static bool is_read(const struct making *making, const struct node *node, size_t index,
                    uint32_t used)
{
    return index >= 32 || (used & UINT32_C(1) << index) != 0 ||
           !weights_cache_has(making_weights(making, node), node->in[index]->constant);
}

enum status making_constants(struct making *making, const struct node *node, struct choice *choice,
                             struct error *err)
{
    bool on_device = has_own_memory(making->network) && !making_on_host(making, node);
    uint32_t used = choice->prepare.constants_used;

    for (size_t i = 0; i < node->inputs; i++) {
        struct constant *constant = node->in[i] != NULL ? node->in[i]->constant : NULL;

        if (constant == NULL)
            continue;
        if (!is_read(making, node, i, used))
            network_drop(making->network, constant);
        else if (on_device)
            TRY(keep_on_device(making, node, i, choice, err));
        else
            TRY(hold(making, node, constant, err));
    }
    return STATUS_OK;
}
