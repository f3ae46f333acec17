/* A shuffle of channels, with what joins them before and parts them behind, is one step:
 *
 *     Reshape [N,g,C/g,…] → Transpose (the two) → Reshape [N,C,…]    becomes    MixChannels(x)
 *     Concat(a, b) → shuffle → Split                                 becomes    MixChannels(a, b),
 *                                                                               one for each part
 *
 * as in ShuffleNet, where devices that lay channels in blocks would have to leave that layout.
 * Only where the device says that it wants this.
 */
#include "graph/match.h"
#include "ops/mix_channels.h"
#include "ops/movement.h"

/* ---- finding a shuffle ---- */

static const struct node *made_by(const struct graph *graph, const struct value *value,
                                  const char *op, const struct node *user)
{
    const struct node *node = producer_is(value, op);

    return node != NULL && graph_single_user(graph, value) == user ? node : NULL;
}

/* Axes 1 and 2 change places, all others stay. */
static bool swaps_groups(const struct node *transpose)
{
    const struct ints *perm = &((const struct transpose_attrs *)transpose->attrs)->perm;

    if (perm->values == NULL || perm->count < 4)
        return false;
    for (size_t i = 0; i < perm->count; i++)
        if (perm->values[i] != (int64_t)(i == 1 ? 2 : i == 2 ? 1 : i))
            return false;
    return true;
}

static bool has_channels(const struct value *value)
{
    return value != NULL && value->constant == NULL && value->dtype == DTYPE_FLOAT &&
           value->shape_known && !value->shape_bound && value->shape.rank >= 3 &&
           value->shape.rank <= 5 && shape_count(&value->shape) > 0;
}

/* What the Reshape at the end is a shuffle of; NULL: it is none.  *out_groups are its groups. */
static struct value *shuffled_by(const struct graph *graph, const struct node *last,
                                 int64_t *out_groups)
{
    const struct node *transpose = made_by(graph, last->in[0], "Transpose", last);
    const struct node *first =
        transpose == NULL ? NULL : made_by(graph, transpose->in[0], "Reshape", transpose);
    struct value *x = first == NULL ? NULL : first->in[0];
    const struct shape *apart;

    if (x == NULL || !has_channels(x) || !swaps_groups(transpose) ||
        !shape_is_equal(&x->shape, &last->out[0]->shape))
        return NULL;
    apart = &first->out[0]->shape;
    if (apart->rank < 4 || apart->dims[0] != x->shape.dims[0] ||
        apart->dims[1] * apart->dims[2] != x->shape.dims[1])
        return NULL;
    *out_groups = apart->dims[1];
    return x;
}

/* ---- what comes before ---- */

/* The inputs of a Concat of channels that only the shuffle reads; else `x` alone. */
static size_t parts_of(const struct graph *graph, struct value **x, struct value ***out_parts)
{
    struct node *concat = producer_is(*x, "Concat");

    *out_parts = x;
    if (concat == NULL || graph_single_user(graph, *x) == NULL ||
        shape_axis(&(*x)->shape, ((const struct concat_attrs *)concat->attrs)->axis) != 1)
        return 1;
    for (size_t i = 0; i < concat->inputs; i++)
        if (!has_channels(concat->in[i]))
            return 1;
    *out_parts = concat->in;
    return concat->inputs;
}

struct shuffle {
    size_t parts;
    struct value **part;
    int64_t channels, groups;
};

/* Channels [first, first + count) of what is shuffled, in the place of `value`. */
static enum status mix(struct graph *graph, const struct shuffle *shuffle, struct node *before,
                       int64_t first, int64_t count, struct value *value)
{
    struct node *node =
        graph_add_node(graph, before, &op_mix_channels, before->name, shuffle->parts, 1);
    int64_t *from = arena_take_array(&graph->arena, (size_t)count, sizeof(*from));
    struct value *made = graph_add_value(graph, value->name);

    if (node == NULL || from == NULL || made == NULL)
        return STATUS_NO_MEMORY;
    for (int64_t c = 0; c < count; c++)
        from[c] = shuffled_channel(first + c, shuffle->channels, shuffle->groups);
    ((struct mix_channels_attrs *)node->attrs)->from = (struct ints){(size_t)count, from};
    for (size_t i = 0; i < shuffle->parts; i++)
        node_set_input(node, i, shuffle->part[i]);
    node_set_output(node, 0, made);
    TRY(graph_infer_node(graph, node, NULL));
    return graph_replace_value(graph, value, made);
}

/* ---- what comes behind ---- */

static bool is_split_of(const struct node *node, const struct value *whole)
{
    if (!node_is(node, "Split") || node->in[0] != whole ||
        shape_axis(&whole->shape, ((const struct split_attrs *)node->attrs)->axis) != 1)
        return false;
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] == NULL)
            return false;
    return true;
}

/* The only range of channels that a Slice takes; false when it is something else. */
static bool reads_range(const struct node *node, const struct value *whole, int64_t *out_first)
{
    struct slice_range ranges[SHAPE_MAX_RANK];
    struct tensor tensors[5];
    const struct tensor *in[5] = {NULL};

    if (!node_is(node, "Slice") || node->in[0] != whole)
        return false;
    for (size_t i = 0; i < node->inputs && i < 5; i++) {
        const struct value *value = node->in[i];

        if (value == NULL)
            continue;
        if (i > 0 && value->constant == NULL)
            return false;
        tensors[i] = i > 0 ? value->constant->tensor
                           : (struct tensor){.dtype = value->dtype, .shape = value->shape};
        in[i] = &tensors[i];
    }
    if (slice_ranges(in, ranges, NULL) != STATUS_OK || ranges[1].count < 1)
        return false;
    for (size_t i = 0; i < whole->shape.rank; i++)
        if (ranges[i].step != 1 || (i != 1 && ranges[i].count != whole->shape.dims[i]))
            return false;
    *out_first = ranges[1].start;
    return true;
}

/* Makes each part by itself and removes what took them from the whole. */
static enum status part(struct graph *graph, const struct shuffle *shuffle, struct value *whole)
{
    struct list *link = graph->nodes.next;

    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        int64_t first = 0;

        link = link->next;
        if (is_split_of(node, whole)) {
            for (size_t i = 0; i < node->outputs; i++) {
                const int64_t count = node->out[i]->shape.dims[1];

                TRY(mix(graph, shuffle, node, first, count, node->out[i]));
                first += count;
            }
        } else if (reads_range(node, whole, &first)) {
            TRY(mix(graph, shuffle, node, first, node->out[0]->shape.dims[1], node->out[0]));
        } else {
            continue;
        }
        graph_remove_node(graph, node);
    }
    return STATUS_OK;
}

static enum status recognise(struct graph *graph, struct node *last)
{
    struct shuffle shuffle = {.groups = 0};
    struct value *x = shuffled_by(graph, last, &shuffle.groups), *whole = last->out[0];

    if (x == NULL)
        return STATUS_OK;
    shuffle.channels = x->shape.dims[1];
    shuffle.parts = parts_of(graph, &x, &shuffle.part);
    TRY(part(graph, &shuffle, whole));
    if (whole->users > 0)
        TRY(mix(graph, &shuffle, last, 0, shuffle.channels, whole));
    graph_remove_node(graph, last);
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    if (!context->fuses_shuffles)
        return STATUS_OK;
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        struct list *before = link->prev;

        if (node_is(node, "Reshape") && recognise(graph, node) != STATUS_OK)
            return pass_no_memory(err);
        /* A removed node has left the list, and its parts may have, too. */
        link = before->next == link ? link->next : before->next;
    }
    return STATUS_OK;
}

const struct pass pass_recognise_shuffle = {
    .name = "recognise_shuffle", .stage = PASS_PLAN, .run = run};
