/* Host and device: where each value lives when the device's memory is not the host's.
 *
 *     device   a ──> conv ──> b ┐                       ┌ d ──> relu ──> e      borders: always
 * here to_host                   to_device host                      └ b' ──> topk ──> d' ───┘
 *
 * A node without a kernel on the device runs on the host, by the CPU device's kernels.  A view
 * stays where its input is.  Each value is copied over at most once in each direction.
 */
#include <string.h>

#include "engine/internal.h"

struct twins { /* of a value, by its id: the same elements on the other side; NULL: none yet */
    struct value *host, *device;
};

struct spacing {
    struct making *making;
    struct twins *twins;
    size_t twin_count; /* values made here have no twins */
};

bool making_value_on_host(const struct making *making, const struct value *value)
{
    return value->id < making->host_room && making->host_values[value->id];
}

/* Some output that is wanted; NULL: there is none. */
static const struct value *an_output(const struct node *node)
{
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL)
            return node->out[i];
    return NULL;
}

bool making_on_host(const struct making *making, const struct node *node)
{
    const struct value *out = an_output(node);

    return out != NULL && node->op != &op_to_host && making_value_on_host(making, out);
}

static enum status put_on_host(struct making *making, const struct value *value)
{
    size_t room = (size_t)value->id * 2 + 64;
    bool *grown;

    if (value->id >= making->host_room) {
        grown = arena_take_array(making->arena, room, sizeof(*grown));
        if (grown == NULL)
            return STATUS_NO_MEMORY;
        if (making->host_room > 0)
            memcpy(grown, making->host_values, making->host_room * sizeof(*grown));
        making->host_values = grown;
        making->host_room = room;
    }
    making->host_values[value->id] = true;
    return STATUS_OK;
}

/* ---- which side ---- */

static bool is_exiled(const struct making *making, const struct node *node)
{
    const struct value *out = an_output(node);

    for (size_t i = 0; out != NULL && i < making->exiles->count; i++)
        if (making->exiles->ids[i] == out->id)
            return true;
    return false;
}

bool making_exile(struct making *making, const struct node *node)
{
    struct device *host = making->network->device->host;
    const struct value *out = an_output(node);

    if (host == NULL || out == NULL || making_on_host(making, node) || is_exiled(making, node) ||
        node->op == &op_to_host || node->op == &op_to_device ||
        host->ops->kernels(host, node->op) == NULL)
        return false;
    making->exile = out->id;
    return true;
}

/* STRING elements are addresses in host memory: they go through the device's as they are, but
 * nothing computes with them there. */
static bool has_text(const struct node *node)
{
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL && node->in[i]->dtype == DTYPE_STRING)
            return true;
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL && node->out[i]->dtype == DTYPE_STRING)
            return true;
    return false;
}

static enum status belongs_on_host(struct making *making, const struct node *node, bool *out_host)
{
    struct device *device = making->network->device;
    struct node_layouts layouts;
    int rank = 0;

    *out_host = is_exiled(making, node);
    if (*out_host)
        return STATUS_OK;
    if ((node->op->flags & OP_VIEW) != 0 && node->in[0] != NULL) {
        *out_host = node->in[0]->constant != NULL ? has_text(node)
                                                  : making_value_on_host(making, node->in[0]);
        return STATUS_OK;
    }
    *out_host = has_text(node) || device->ops->kernels(device, node->op) == NULL;
    if (*out_host)
        return STATUS_OK;
    for (enum layout body = LAYOUT_PLAIN; body < LAYOUT_COUNT; body++) {
        TRY(making_try(making, node, body, body, &layouts, &rank));
        if (rank >= 0)
            return STATUS_OK;
        TRY(making_try(making, node, body, LAYOUT_PLAIN, &layouts, &rank));
        if (rank >= 0)
            return STATUS_OK;
    }
    *out_host = device->host->ops->kernels(device->host, node->op) != NULL;
    return STATUS_OK;
}

/* ---- copies ---- */

static enum status add_copy(struct spacing *spacing, struct node *before, struct value *from,
                            const struct op_def *op, struct value **out_value)
{
    struct graph *graph = spacing->making->graph;
    struct node *node = graph_add_node(graph, before, op, from->name, 1, 1);
    struct value *value = graph_add_value(graph, from->name);

    if (node == NULL || value == NULL)
        return STATUS_NO_MEMORY;
    value->dtype = from->dtype;
    value->shape = from->shape;
    value->shape_known = true;
    value->shape_bound = from->shape_bound;
    node_set_input(node, 0, from);
    node_set_output(node, 0, value);
    *out_value = value;
    return op == &op_to_host ? put_on_host(spacing->making, value) : STATUS_OK;
}

/* `value` on the side asked for, copied in front of `before` if it was not there yet. */
static enum status on_side(struct spacing *spacing, struct node *before, struct value *value,
                           bool host, struct value **out_value)
{
    struct twins *twins = &spacing->twins[value->id];
    struct value **place = host ? &twins->host : &twins->device;

    if (*place == NULL)
        TRY(add_copy(spacing, before, value, host ? &op_to_host : &op_to_device, place));
    *out_value = *place;
    return STATUS_OK;
}

static enum status settle_inputs(struct spacing *spacing, struct node *node, bool host)
{
    for (size_t i = 0; i < node->inputs; i++) {
        struct value *value = node->in[i], *other;

        if (value == NULL || value->constant != NULL || value->id >= spacing->twin_count ||
            making_value_on_host(spacing->making, value) == host)
            continue;
        TRY(on_side(spacing, node, value, host, &other));
        node_set_input(node, i, other);
    }
    return STATUS_OK;
}

static enum status settle_node(struct spacing *spacing, struct node *node)
{
    bool host;

    TRY(belongs_on_host(spacing->making, node, &host));
    TRY(settle_inputs(spacing, node, host));
    for (size_t i = 0; host && i < node->outputs; i++)
        if (node->out[i] != NULL)
            TRY(put_on_host(spacing->making, node->out[i]));
    return STATUS_OK;
}

/* What leaves the graph leaves it on the device. */
static enum status settle_borders(struct spacing *spacing)
{
    struct graph *graph = spacing->making->graph;

    for (size_t i = 0; i < graph->outputs; i++) {
        struct value *value = graph->out[i], *copy;

        if (!making_value_on_host(spacing->making, value))
            continue;
        TRY(on_side(spacing, NULL, value, false, &copy));
        graph->out[i] = copy;
        value->is_output = false;
        value->users--;
        copy->is_output = true;
        copy->users++;
    }
    return STATUS_OK;
}

static enum status settle(struct spacing *spacing)
{
    struct graph *graph = spacing->making->graph;
    struct node *node;

    spacing->twin_count = graph->next_value_id;
    spacing->twins =
        arena_take_array(spacing->making->arena, spacing->twin_count + 1, sizeof(*spacing->twins));
    if (spacing->twins == NULL)
        return STATUS_NO_MEMORY;
    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        TRY(settle_node(spacing, node));
    return settle_borders(spacing);
}

enum status making_spaces(struct making *making, struct error *err)
{
    const struct device *device = making->network->device;
    struct spacing spacing = {.making = making};

    if (device->ops->host_memory || device->host == NULL)
        return STATUS_OK;
    return settle(&spacing) == STATUS_OK ? STATUS_OK
                                         : error_set(err, STATUS_NO_MEMORY, "no memory to plan");
}
