/* A layout for every value, so that the whole plan costs least.
 *
 * Each node asks the device which layouts it may have, and at what rank of kernel: some have no
 * choice, some (convolutions) have a better and a worse one, most follow their neighbours.  Where a
 * value's maker and a user differ, a reorder is paid, once for all users.  With two layouts, PLAIN
 * and BLOCKED, the cheapest whole is a minimum cut: side 0 is PLAIN, side 1 BLOCKED.  The graph's
 * borders are PLAIN.  For bytes and 16-bit floats NHWC stands where BLOCKED is for floats; steps
 * with both stay PLAIN.
 *
 * Everything is priced in a batch of one.  Priced as they are, larger batches would find a
 * reorder's fixed cost and the weights small, and have other kernels and other bits than a row
 * alone.
 */
#include <stdlib.h>

#include "engine/internal.h"
#include "engine/min_cut.h"

extern const struct op_def op_reorder;

enum {
    REORDER_FIXED_COST = 16384 /* a step is not free; in bytes moved, like all costs here */
};

struct node_options {
    struct node *node;
    uint32_t body;     /* thing of the cut */
    enum layout other; /* of side 1 */
    bool can_plain, can_blocked;
    bool first_plain; /* BLOCKED with a plain in[0] is as good */
    bool first_only;  /* BLOCKED only with a plain in[0] */
    bool first_any;   /* in[0] may have either layout, whatever the rest has (a transposition) */
    enum layout result[2]; /* of out[0], by body */
    uint64_t cost[2];      /* by body */
};

struct value_links { /* things that a value's price hangs on; 0: none */
    uint32_t to_blocked, to_plain;
    struct value *plain, *blocked; /* reordered copies */
};

struct layouting {
    struct making *making;
    struct min_cut cut;
    size_t count;
    struct node_options *options;
    struct value_links *links; /* by value id */
    size_t link_count;
};

/* ---- what each node may and would like to have ---- */

/* Bytes that padding the channels adds. */
static uint64_t padding_bytes(const struct making *making, const struct node *node)
{
    unsigned block = making->network->device->channel_block;
    uint64_t bytes = 0;

    for (size_t i = 0; i < node->outputs; i++) {
        const struct value *value = node->out[i];
        struct shape shape;

        if (value == NULL || !value_is_blockable(making, value))
            continue;
        shape = value_row_shape(value);
        bytes += layout_bytes(value_other_layout(value), block, value->dtype, &shape) -
                 layout_bytes(LAYOUT_PLAIN, block, value->dtype, &shape);
    }
    return bytes;
}

/* By how much blocks of output channels that are partly empty lengthen the arithmetic. */
static uint64_t padded_times(const struct making *making, const struct node *node)
{
    const struct value *value = node->outputs > 0 ? node->out[0] : NULL;
    const int64_t block = making->network->device->channel_block;

    if (value == NULL || !value_is_blockable(making, value) ||
        value_other_layout(value) != LAYOUT_BLOCKED || value->shape.dims[1] < 1)
        return 1;
    return (uint64_t)((value->shape.dims[1] + block - 1) / block * block / value->shape.dims[1]);
}

/* The layout of side 1 for all that the node touches; false when there is none. */
static bool other_layout(const struct making *making, const struct node *node,
                         enum layout *out_layout)
{
    bool bytes = false, floats = false;

    for (size_t i = 0; i < node->inputs + node->outputs; i++) {
        const struct value *value = i < node->inputs ? node->in[i] : node->out[i - node->inputs];

        if (value == NULL || !value_is_blockable(making, value))
            continue;
        bytes |= value_other_layout(value) == LAYOUT_NHWC;
        floats |= value_other_layout(value) == LAYOUT_BLOCKED;
    }
    *out_layout = bytes ? LAYOUT_NHWC : LAYOUT_BLOCKED;
    return !bytes || !floats;
}

static enum status find_options(struct making *making, struct node *node,
                                struct node_options *options)
{
    struct node_layouts plain, blocked, mixed, bent;
    int plain_rank, blocked_rank = -1, mixed_rank = -1, bent_rank = -1;

    options->node = node;
    TRY(making_try(making, node, LAYOUT_PLAIN, LAYOUT_PLAIN, &plain, &plain_rank));
    if (other_layout(making, node, &options->other)) {
        TRY(making_try(making, node, options->other, options->other, &blocked, &blocked_rank));
        TRY(making_try(making, node, options->other, LAYOUT_PLAIN, &mixed, &mixed_rank));
        if (options->other == LAYOUT_BLOCKED)
            TRY(making_try(making, node, LAYOUT_PLAIN, options->other, &bent, &bent_rank));
    }
    options->can_plain = plain_rank >= 0;
    options->can_blocked = blocked_rank >= 0 || mixed_rank >= 0;
    options->first_only = blocked_rank < 0 && mixed_rank >= 0;
    options->first_any = bent_rank >= 0 && bent_rank == plain_rank && mixed_rank == blocked_rank;
    options->first_plain = mixed_rank >= 0 && (blocked_rank < 0 || mixed_rank <= blocked_rank);
    options->result[0] = options->can_plain ? plain.result : LAYOUT_PLAIN;
    options->result[1] = blocked_rank >= 0 ? blocked.result
                         : mixed_rank >= 0 ? mixed.result
                                           : options->other;
    if (options->can_blocked)
        options->cost[1] = 2 * padding_bytes(making, node);
    if (options->can_plain && options->can_blocked) {
        int best_blocked = blocked_rank >= 0 ? blocked_rank : mixed_rank;

        if (plain_rank > best_blocked)
            options->cost[0] += node_row_work(node) * (uint64_t)(plain_rank - best_blocked) / 2;
        else if (plain_rank < best_blocked)
            options->cost[1] += node_row_work(node) / 2 * padded_times(making, node);
    }
    return STATUS_OK;
}

static bool has_blockable(const struct making *making, const struct node *node)
{
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL && value_is_blockable(making, node->in[i]))
            return true;
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL && value_is_blockable(making, node->out[i]))
            return true;
    return false;
}

/* ---- the cut ---- */

static void price_node(struct layouting *layouting, struct node_options *options)
{
    struct min_cut *cut = &layouting->cut;

    options->body = MIN_CUT_SIDE_0;
    if (!options->can_blocked)
        return;
    options->body = min_cut_thing(cut);
    min_cut_cost(cut, options->body, MIN_CUT_SIDE_1,
                 options->can_plain ? options->cost[0] : MIN_CUT_NEVER);
    min_cut_cost(cut, MIN_CUT_SIDE_0, options->body, options->cost[1]);
}

/* The thing that decides the layout of the node's output. */
static uint32_t maker_thing(const struct node_options *options, size_t output)
{
    if (output > 0 || options->result[0] != options->result[1])
        return options->body;
    return options->result[0] != LAYOUT_PLAIN ? MIN_CUT_SIDE_1 : MIN_CUT_SIDE_0;
}

static uint64_t reorder_cost(const struct value *value)
{
    const struct shape shape = value_row_shape(value);

    return 2 * (uint64_t)shape_count(&shape) * dtype_bytes(value->dtype) + REORDER_FIXED_COST;
}

/* A user pays when it is BLOCKED and the maker PLAIN (once for all users), or the other way round.
 */
static void price_use(struct layouting *layouting, const struct value *value, uint32_t maker,
                      uint32_t user, bool takes_plain)
{
    struct min_cut *cut = &layouting->cut;
    struct value_links *links = &layouting->links[value->id];

    if (!takes_plain) {
        if (links->to_blocked == 0) {
            links->to_blocked = min_cut_thing(cut);
            min_cut_cost(cut, maker, links->to_blocked, reorder_cost(value));
        }
        min_cut_cost(cut, links->to_blocked, user, MIN_CUT_NEVER);
    }
    if (links->to_plain == 0) {
        links->to_plain = min_cut_thing(cut);
        min_cut_cost(cut, links->to_plain, maker, reorder_cost(value));
    }
    min_cut_cost(cut, user, links->to_plain, MIN_CUT_NEVER);
}

static void price_uses(struct layouting *layouting, const uint32_t *makers)
{
    struct making *making = layouting->making;

    for (size_t n = 0; n < layouting->count; n++) {
        const struct node_options *options = &layouting->options[n];

        for (size_t i = 0; i < options->node->inputs; i++) {
            const struct value *value = options->node->in[i];
            bool first = i == 0;

            if (value == NULL || !value_is_blockable(making, value) ||
                (first && options->first_any))
                continue;
            price_use(layouting, value, makers[value->id],
                      first && options->first_only ? MIN_CUT_SIDE_0 : options->body,
                      first && options->first_plain);
        }
    }
    for (size_t i = 0; i < making->graph->outputs; i++)
        if (value_is_blockable(making, making->graph->out[i]))
            price_use(layouting, making->graph->out[i], makers[making->graph->out[i]->id],
                      MIN_CUT_SIDE_0, false);
}

static enum status solve(struct layouting *layouting)
{
    struct making *making = layouting->making;
    uint32_t things = MIN_CUT_FIRST, costs = 0;
    uint32_t *makers =
        arena_take_array(making->arena, making->graph->next_value_id, sizeof(*makers));

    for (size_t n = 0; n < layouting->count; n++) {
        size_t operands = layouting->options[n].node->inputs + layouting->options[n].node->outputs;

        things += 1 + 2 * (uint32_t)operands;
        costs += 2 + 4 * (uint32_t)operands;
    }
    things += 2 * (uint32_t)making->graph->outputs;
    costs += 4 * (uint32_t)making->graph->outputs;
    if (makers == NULL)
        return STATUS_NO_MEMORY;
    TRY(min_cut_init(&layouting->cut, making->arena, things, costs));
    for (size_t n = 0; n < layouting->count; n++) {
        struct node_options *options = &layouting->options[n];

        price_node(layouting, options);
        for (size_t i = 0; i < options->node->outputs; i++)
            if (options->node->out[i] != NULL)
                makers[options->node->out[i]->id] = maker_thing(options, i);
    }
    price_uses(layouting, makers);
    min_cut_solve(&layouting->cut);
    return STATUS_OK;
}

/* ---- reorders ---- */

static enum status add_reorder(struct layouting *layouting, struct node *before, struct value *from,
                               enum layout to, struct value **out_value)
{
    struct graph *graph = layouting->making->graph;
    struct node *node = graph_add_node(graph, before, &op_reorder, "reorder", 1, 1);
    struct value *value = graph_add_value(graph, from->name);

    if (node == NULL || value == NULL)
        return STATUS_NO_MEMORY;
    value->dtype = from->dtype;
    value->shape = from->shape;
    value->shape_known = true;
    node_set_input(node, 0, from);
    node_set_output(node, 0, value);
    *out_value = value;
    return making_set_layout(layouting->making, value, to);
}

/* `value` in another layout, made once. */
static enum status reordered(struct layouting *layouting, struct node *before, struct value *value,
                             enum layout to, struct value **out_value)
{
    struct value_links *links = &layouting->links[value->id];
    struct value **place = to == LAYOUT_PLAIN ? &links->plain : &links->blocked;

    if (*place == NULL)
        TRY(add_reorder(layouting, before, value, to, place));
    *out_value = *place;
    return STATUS_OK;
}

static enum status settle_inputs(struct layouting *layouting, const struct node_options *options,
                                 enum layout body)
{
    struct making *making = layouting->making;
    struct node *node = options->node;

    for (size_t i = 0; i < node->inputs; i++) {
        struct value *value = node->in[i], *other;
        enum layout wanted = body;

        if (value == NULL || !value_is_blockable(making, value) || (i == 0 && options->first_any))
            continue;
        if (i == 0 && body != LAYOUT_PLAIN && options->first_plain &&
            (options->first_only || making_layout(making, value) == LAYOUT_PLAIN))
            wanted = LAYOUT_PLAIN;
        if (making_layout(making, value) == wanted)
            continue;
        TRY(reordered(layouting, node, value, wanted, &other));
        node_set_input(node, i, other);
    }
    return STATUS_OK;
}

static struct node *behind(const struct graph *graph, const struct node *node)
{
    return node->link.next == &graph->nodes ? NULL
                                            : CONTAINER_OF(node->link.next, struct node, link);
}

/* What leaves the graph leaves it plain. */
static enum status settle_border(struct layouting *layouting, struct node *node,
                                 struct value *value)
{
    struct graph *graph = layouting->making->graph;
    struct value *plain;

    TRY(reordered(layouting, behind(graph, node), value, LAYOUT_PLAIN, &plain));
    for (size_t i = 0; i < graph->outputs; i++) {
        if (graph->out[i] != value)
            continue;
        graph->out[i] = plain;
        value->users--;
        plain->users++;
    }
    value->is_output = false;
    plain->is_output = true;
    return STATUS_OK;
}

static enum status settle_outputs(struct layouting *layouting, const struct node_options *options,
                                  enum layout body)
{
    struct making *making = layouting->making;
    struct node *node = options->node;

    for (size_t i = 0; i < node->outputs; i++) {
        struct value *value = node->out[i];
        enum layout layout = i == 0 ? options->result[body != LAYOUT_PLAIN] : body;

        if (value == NULL || !value_is_blockable(making, value))
            continue;
        TRY(making_set_layout(making, value, layout));
        if (value->is_output && layout != LAYOUT_PLAIN)
            TRY(settle_border(layouting, node, value));
    }
    return STATUS_OK;
}

static enum status run(struct layouting *layouting)
{
    struct making *making = layouting->making;
    struct node *node;

    LIST_FOR_EACH (node, &making->graph->nodes, struct node, link)
        layouting->count++;
    layouting->options =
        arena_take_array(making->arena, layouting->count, sizeof(*layouting->options));
    layouting->links =
        arena_take_array(making->arena, making->graph->next_value_id, sizeof(*layouting->links));
    if (layouting->options == NULL || layouting->links == NULL)
        return STATUS_NO_MEMORY;
    layouting->count = 0;
    LIST_FOR_EACH (node, &making->graph->nodes, struct node, link)
        if (has_blockable(making, node))
            TRY(find_options(making, node, &layouting->options[layouting->count++]));
    TRY(solve(layouting));
    for (size_t n = 0; n < layouting->count; n++) {
        const struct node_options *options = &layouting->options[n];
        enum layout body =
            options->body >= MIN_CUT_FIRST && min_cut_side(&layouting->cut, options->body)
                ? options->other
                : LAYOUT_PLAIN;

        TRY(settle_inputs(layouting, options, body));
        TRY(settle_outputs(layouting, options, body));
    }
    return STATUS_OK;
}

enum status making_layouts(struct making *making, struct error *err)
{
    struct layouting layouting = {.making = making};

    if (making->network->device->channel_block == 0 && !making->network->device->lays_narrow_last)
        return STATUS_OK;
    if (run(&layouting) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    return STATUS_OK;
}
