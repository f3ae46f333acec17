/* A shuffle of channels becomes part of the convolutions around it, at no cost:
 *
 *     Conv(x, W) → shuffle       becomes    Conv(x, W's filters in the shuffle's order)
 *
 *     shuffle → depthwise → 1x1  becomes    depthwise, its filters as the channels come
 *                                           → 1x1 that reads channels in the shuffle's order
 *
 * Every sum is made of the same products in the same order as before.  Only where the device says
 * that it wants this, and for convolutions that it has such kernels for.
 */
#include "graph/match.h"
#include "ops/conv.h"
#include "ops/mix_channels.h"

enum {
    FEWEST_OF_GROUP = 8 /* channels in and out: with less, other kernels are better */
};

/* A convolution of floats with constant weights, in up to two dimensions, bare of all but an
 * activation. */
static bool is_plain_conv(const struct node *node)
{
    const struct conv_attrs *attrs = node->attrs;
    const struct value *w, *bias;

    if (node->op != &op_conv)
        return false;
    w = node->in[CONV_W];
    bias = node->inputs > CONV_BIAS ? node->in[CONV_BIAS] : NULL;
    return !conv_has_more(node->op, attrs) && w->dtype == DTYPE_FLOAT && w->constant != NULL &&
           w->shape.rank >= 3 && w->shape.rank <= 4 && (bias == NULL || bias->constant != NULL);
}

static bool is_pointwise(const struct node *node)
{
    const struct shape *w = &node->in[CONV_W]->shape;

    return shape_product(w, 2, w->rank) == 1;
}

static bool is_depthwise(const struct node *node)
{
    const struct conv_attrs *attrs = node->attrs;
    const struct shape *w = &node->in[CONV_W]->shape;

    return attrs->group > 1 && w->dims[0] == attrs->group && w->dims[1] == 1;
}

/* What makes the shuffled value makes it so. */
static bool fold_before(struct graph *graph, struct node *shuffle, int64_t groups,
                        enum status *out_status)
{
    struct node *conv = shuffle->in[0]->producer;
    struct conv_attrs *attrs;

    if (conv == NULL || graph_single_user(graph, shuffle->in[0]) != shuffle ||
        !is_plain_conv(conv) || !is_pointwise(conv))
        return false;
    attrs = conv->attrs;
    if (attrs->group != 1 || attrs->epilogue.has_residual)
        return false;
    *out_status = graph_replace_value(graph, shuffle->out[0], shuffle->in[0]);
    if (*out_status != STATUS_OK)
        return true;
    attrs->filter_shuffle = groups;
    graph_remove_node(graph, shuffle);
    return true;
}

/* A 1x1 that may read its channels in any order. */
static bool reads_any_order(const struct node *node)
{
    const struct conv_attrs *attrs = node->attrs;
    const struct shape *w = &node->in[CONV_W]->shape;

    return is_plain_conv(node) && is_pointwise(node) && w->dims[1] >= FEWEST_OF_GROUP &&
           w->dims[0] / attrs->group >= FEWEST_OF_GROUP;
}

/* The shuffle moves behind the depthwise convolutions that follow and into the 1x1 behind them. */
static bool fold_behind(struct graph *graph, struct node *shuffle, int64_t groups,
                        enum status *out_status)
{
    const int64_t channels = shuffle->in[0]->shape.dims[1];
    const struct value *value = shuffle->out[0];
    struct node *user, *first = graph_single_user(graph, value);

    for (user = first; user != NULL && user->op == &op_conv && user->in[CONV_X] == value;
         user = graph_single_user(graph, value)) {
        if (!is_plain_conv(user) || !is_depthwise(user) ||
            ((const struct conv_attrs *)user->attrs)->epilogue.has_residual)
            break;
        value = user->out[0];
    }
    if (user == NULL || user->op != &op_conv || user->in[CONV_X] != value || !reads_any_order(user))
        return false;
    *out_status = graph_replace_value(graph, shuffle->out[0], shuffle->in[0]);
    if (*out_status != STATUS_OK)
        return true;
    ((struct conv_attrs *)user->attrs)->x_shuffle = groups;
    for (struct node *node = first; node != user; node = graph_single_user(graph, node->out[0]))
        ((struct conv_attrs *)node->attrs)->filter_shuffle = channels / groups;
    graph_remove_node(graph, shuffle);
    return true;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    if (!context->fuses_shuffles)
        return STATUS_OK;
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        enum status status = STATUS_OK;
        int64_t groups;

        link = link->next;
        if (node->op != &op_mix_channels || node->inputs != 1 ||
            node->in[0]->shape.dims[1] != node->out[0]->shape.dims[1])
            continue;
        groups = shuffle_groups(&((const struct mix_channels_attrs *)node->attrs)->from);
        if (groups > 0 && !fold_before(graph, node, groups, &status))
            (void)fold_behind(graph, node, groups, &status);
        if (status != STATUS_OK)
            return pass_no_memory(err);
    }
    return STATUS_OK;
}

const struct pass pass_fold_shuffle = {.name = "fold_shuffle", .stage = PASS_PLAN, .run = run};
