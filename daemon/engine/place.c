/* Where values live: the order of the steps and with it lifetimes, results over inputs that die,
 * then an offset for every set that is a root in an arena (share.c) and for scratch, packed by the
 * planner. */
#include <stdlib.h>

#include "engine/internal.h"
#include "graph/planner.h"

/* ---- lifetimes ---- */

static void use_at(struct making *making, const struct value *value, uint32_t step)
{
    uint64_t ignored;
    struct set *root = making_root(making, value, &ignored);

    if (step < root->first)
        root->first = step;
    if (step > root->last)
        root->last = step;
}

void making_live(struct making *making)
{
    const struct graph *graph = making->graph;

    for (uint32_t id = 0; id < graph->next_value_id; id++) {
        making->sets[id].first = UINT32_MAX;
        making->sets[id].last = 0;
    }
    for (size_t i = 0; i < graph->outputs; i++)
        use_at(making, graph->out[i], (uint32_t)making->nodes); /* alive to the end */
    for (size_t n = 0; n < making->nodes; n++) {
        const struct node *node = making->order[n];

        for (size_t i = 0; i < node->inputs; i++)
            if (node->in[i] != NULL && node->in[i]->constant == NULL)
                use_at(making, node->in[i], (uint32_t)n);
        for (size_t i = 0; i < node->outputs; i++)
            if (node->out[i] != NULL)
                use_at(making, node->out[i], (uint32_t)n);
    }
}

/* ---- results over dead inputs ---- */

bool making_may_overlay(const struct making *making, const struct node *node, size_t index)
{
    const struct value *in = node->in[index], *out = node->out[0];
    uint64_t offset;
    const struct set *root;

    if (in == NULL || in->constant != NULL || out == NULL || out->shape_bound ||
        !making_covers(making, in) || making_stride(making, out) != 0 ||
        making_value_on_host(making, in) != making_value_on_host(making, out) ||
        making->sets[in->id].bytes != making->sets[out->id].bytes ||
        !making_same_layout(making, in, out) ||
        shape_count(&in->shape) != shape_count(&out->shape)) /* padding makes up for channels */
        return false;
    root = making_root(making, in, &offset);
    if (!set_is_inner(root))
        return false;
    for (size_t i = 0; i < node->inputs; i++)
        if (i != index && node->in[i] != NULL && node->in[i]->constant == NULL &&
            making_root(making, node->in[i], &offset) == root)
            return false;
    return true;
}

size_t making_overlays(const struct making *making, size_t n, size_t inputs[OVERLAYS_MAX])
{
    const struct node *node = making->order[n];
    const struct kernel *kernel = making->choices[n].kernel;
    size_t count = 0;

    if (kernel == NULL || node->inputs == 0 || node->outputs != 1)
        return 0;
    if ((kernel->flags & KERNEL_IN_PLACE_LAST) != 0 && node_residual_index(node) != SIZE_MAX &&
        !node_epilogue(node)->residual_after)
        inputs[count++] = node_residual_index(node);
    if ((kernel->flags & KERNEL_IN_PLACE) != 0)
        inputs[count++] = 0;
    if ((kernel->flags & KERNEL_IN_PLACE_1) != 0 && node->inputs > 1)
        inputs[count++] = 1;
    return count;
}

/* Makes the result over that input if nothing needs it any more. */
static bool overlay(struct making *making, size_t n, size_t index)
{
    const struct node *node = making->order[n];
    uint64_t out_offset, ignored;
    struct set *in, *out;

    if (!making_may_overlay(making, node, index))
        return false;
    in = making_root(making, node->in[index], &ignored);
    /* Counted from the root of the result: it may be a part of something larger already. */
    out = making_root(making, node->out[0], &out_offset);
    if (in->last != n || in == out)
        return false;
    making_lay(making, in, out, out_offset);
    if (in->first < out->first)
        out->first = in->first;
    return true;
}

void making_overlay(struct making *making)
{
    for (size_t n = 0; n < making->nodes; n++) {
        size_t inputs[OVERLAYS_MAX], count = making_overlays(making, n, inputs);

        for (size_t i = 0; i < count; i++)
            if (overlay(making, n, inputs[i]))
                break;
    }
}

/* ---- the arena ---- */

static uint32_t heaviest_step(const struct plan_buffer *buffers, size_t count, size_t steps)
{
    uint64_t best = 0;
    uint32_t best_step = 0;

    for (uint32_t step = 0; step < steps; step++) {
        uint64_t sum = 0;

        for (size_t i = 0; i < count; i++)
            if (buffers[i].first <= step && step <= buffers[i].last)
                sum += buffers[i].bytes;
        if (sum > best) {
            best = sum;
            best_step = step;
        }
    }
    return best_step;
}

/* Bytes of the arena for something of this size, the guard behind it included. */
static uint64_t guarded(const struct making *making, uint64_t bytes)
{
    return round_up(bytes) + (guards_apply(making->network->device) ? GUARD_BYTES : 0);
}

/* What the buffers alive at the step would take without alignment. */
static uint64_t requested_at(const struct making *making, uint32_t step)
{
    uint64_t bytes = step < making->nodes ? making->choices[step].prepare.scratch_bytes : 0;

    for (uint32_t id = 0; id < making->graph->next_value_id; id++) {
        const struct set *set = &making->sets[id];

        if (set->parent == id && set->where == IN_ARENA && set->first <= step && step <= set->last)
            bytes += set->bytes;
    }
    return bytes;
}

/* Whether the set is a buffer of its own there. */
static bool is_packed(const struct set *set, uint32_t id, enum where where)
{
    return set->parent == id && set->where == where && set->first <= set->last && set->bytes > 0;
}

static bool has_scratch(const struct making *making, size_t n, enum where where)
{
    return making->choices[n].prepare.scratch_bytes > 0 &&
           making_on_host(making, making->order[n]) == (where == IN_HOST);
}

static size_t collect(const struct making *making, enum where where, struct plan_buffer *buffers)
{
    size_t count = 0;

    for (uint32_t id = 0; id < making->graph->next_value_id; id++) {
        const struct set *set = &making->sets[id];

        if (is_packed(set, id, where))
            buffers[count++] = (struct plan_buffer){
                .bytes = guarded(making, set->bytes), .first = set->first, .last = set->last};
    }
    for (size_t n = 0; n < making->nodes; n++)
        if (has_scratch(making, n, where))
            buffers[count++] = (struct plan_buffer){
                .bytes = guarded(making, making->choices[n].prepare.scratch_bytes),
                .first = (uint32_t)n,
                .last = (uint32_t)n};
    return count;
}

static void distribute(struct making *making, enum where where, const struct plan_buffer *buffers)
{
    size_t count = 0;

    for (uint32_t id = 0; id < making->graph->next_value_id; id++) {
        struct set *set = &making->sets[id];

        if (is_packed(set, id, where))
            set->arena_offset = buffers[count++].offset;
    }
    for (size_t n = 0; n < making->nodes; n++)
        if (has_scratch(making, n, where))
            making->scratch_offsets[n] = buffers[count++].offset;
}

/* The highest end of what lives on behind the cut. */
static uint64_t carried_end(const struct making *making)
{
    uint64_t end = 0;

    for (size_t i = making->own_outputs; i < making->graph->outputs; i++) {
        uint64_t offset;
        const struct set *root = making_root(making, making->graph->out[i], &offset);

        if (root->where == IN_ARENA && root->arena_offset + round_up(root->bytes) > end)
            end = root->arena_offset + round_up(root->bytes);
    }
    return end;
}

/* What steps on the host work with has an arena of its own. */
static enum status place_on_host(struct making *making, struct plan_buffer *buffers)
{
    size_t count = collect(making, IN_HOST, buffers);
    struct planner_result packed;

    if (count == 0)
        return STATUS_OK;
    TRY(planner_plan(buffers, count, NULL, &packed));
    making->plan->host_bytes = packed.peak_bytes;
    distribute(making, IN_HOST, buffers);
    return STATUS_OK;
}

enum status making_bound(const struct making *making, uint64_t *out_bytes)
{
    struct plan_buffer *buffers =
        calloc(making->graph->next_value_id + making->nodes + 1, sizeof(*buffers));
    enum status status;

    if (buffers == NULL)
        return STATUS_NO_MEMORY;
    status = planner_bound(buffers, collect(making, IN_ARENA, buffers), out_bytes);
    free(buffers);
    return status;
}

/* The bound as it would be if less were shared; nothing of `making` changes. */
static enum status bound_sharing_least(const struct making *making, uint64_t *out_bytes)
{
    const uint64_t saved = making->plan->order_saves_bytes;
    struct making other = *making;
    struct arena arena;
    enum status status = STATUS_NO_MEMORY;

    arena_init(&arena);
    other.arena = &arena;
    other.shares_least = true;
    other.order = arena_copy(&arena, making->order, making->nodes * sizeof(*other.order));
    other.choices = arena_copy(&arena, making->choices, making->nodes * sizeof(*other.choices));
    if (other.order != NULL && other.choices != NULL)
        status = making_share(&other, NULL);
    if (status == STATUS_OK)
        status = making_reorder(&other);
    if (status == STATUS_OK) {
        making_live(&other);
        making_overlay(&other);
        status = making_bound(&other, out_bytes);
    }
    making->plan->order_saves_bytes = saved;
    arena_deinit(&arena);
    return status;
}

static enum status place(struct making *making, struct error *err)
{
    struct plan *plan = making->plan;
    struct planner_result packed;
    struct plan_buffer *buffers;
    size_t count;

    if (making_reorder(making) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    making_live(making);
    making_overlay(making);
    buffers = arena_take_array(making->arena, making->graph->next_value_id + making->nodes,
                               sizeof(*buffers));
    making->scratch_offsets =
        arena_take_array(making->arena, making->nodes, sizeof(*making->scratch_offsets));
    if (buffers == NULL || making->scratch_offsets == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    if (place_on_host(making, buffers) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    count = collect(making, IN_ARENA, buffers);
    if (network_pack(making->network, buffers, count, &packed) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    plan->peak_bytes = packed.peak_bytes;
    plan->lower_bound_bytes = packed.lower_bound_bytes;
    distribute(making, IN_ARENA, buffers);
    plan->carried_bytes = carried_end(making);
    plan->peak_node = heaviest_step(buffers, count, making->nodes + 1);
    plan->requested_bytes = requested_at(making, plan->peak_node);
    return STATUS_OK;
}

enum status making_place(struct making *making, bool *out_pays, struct error *err)
{
    uint64_t least = UINT64_MAX;

    if (making->shares_more && bound_sharing_least(making, &least) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    TRY(place(making, err));
    *out_pays = making->plan->peak_bytes <= least;
    return STATUS_OK;
}

struct slot making_slot(const struct making *making, const struct value *value)
{
    uint64_t offset;
    const struct set *root;

    if (value == NULL)
        return (struct slot){.base = BASE_NONE};
    if (value->constant != NULL)
        return (struct slot){.base = BASE_ABSOLUTE,
                             .offset = (int64_t)(intptr_t)value->constant->tensor.data};
    root = making_root(making, value, &offset);
    switch (root->where) {
    case IN_ARENA:
        return (struct slot){.base = BASE_ARENA, .offset = (int64_t)(root->arena_offset + offset)};
    case IN_HOST:
        return (struct slot){.base = BASE_HOST, .offset = (int64_t)(root->arena_offset + offset)};
    case IN_INPUT:
        return (struct slot){.base = BASE_FIRST_BOUND + root->bound, .offset = (int64_t)offset};
    case IN_OUTPUT:
        break;
    }
    return (struct slot){.base = (uint32_t)(BASE_FIRST_BOUND + making->graph->inputs + root->bound),
                         .offset = (int64_t)offset};
}

struct slot making_guard(const struct making *making, const struct value *value)
{
    uint64_t offset;
    const struct set *root;
    uint32_t base = BASE_ARENA;

    if (value == NULL || value->constant != NULL || !guards_apply(making->network->device))
        return (struct slot){.base = BASE_NONE};
    root = making_root(making, value, &offset);
    if (root->where == IN_INPUT || root->bytes == 0)
        return (struct slot){.base = BASE_NONE};
    if (root->where == IN_OUTPUT)
        base = (uint32_t)(BASE_FIRST_BOUND + making->graph->inputs + root->bound);
    offset = root->where == IN_ARENA ? root->arena_offset : 0;
    return (struct slot){.base = base, .offset = (int64_t)(offset + round_up(root->bytes))};
}
