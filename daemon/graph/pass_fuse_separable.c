/* A depthwise convolution, the 1x1 behind it and, where there is one, the 1x1 in front of it become
 * one step that goes through the image some rows at a time:
 *
 *     Conv 1x1 → depthwise → Conv 1x1 [+ residual]  becomes  SeparableConv
 *
 * (MobileNet's blocks.)  What is between the convolutions is several times as large as what goes in
 * and comes out, and never in memory as a whole.  Every sum is made of the same products in the
 * same order as before.  Only where the device says that it wants this, and where that saves enough
 * bytes: what fits into a core's cache anyway is as quick in steps of its own.
 */
#include "graph/match.h"
#include "ops/separable_conv.h"

enum {
    FEWEST_CHANNELS = 9,   /* of each value: fewer are better in plain layout */
    FEWEST_BYTES = 1 << 20 /* between the convolutions, of one image */
};

/* What a fused activation makes of 0 is 0, so that channels that only pad a block stay zeros. */
static bool keeps_zero(const struct epilogue *epilogue)
{
    switch (epilogue->act) {
    case ACT_CLIP:
        return epilogue->a <= 0 && epilogue->b >= 0;
    case ACT_SIGMOID:
    case ACT_HARD_SIGMOID:
    case ACT_SOFTPLUS:
        return false;
    default:
        return true;
    }
}

/* A convolution of floats over pictures, with constant weights. */
static bool is_candidate(const struct node *node)
{
    const struct value *w, *bias;

    if (node == NULL || node->op != &op_conv || conv_has_more(node->op, node->attrs))
        return false;
    w = node->in[CONV_W];
    bias = node->inputs > CONV_BIAS ? node->in[CONV_BIAS] : NULL;
    return w->dtype == DTYPE_FLOAT && w->constant != NULL && w->shape.rank == 4 &&
           (bias == NULL || bias->constant != NULL) && w->shape.dims[0] >= FEWEST_CHANNELS &&
           shape_count(&node->out[0]->shape) > 0;
}

static bool is_one(const struct ints *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->values[i] != 1)
            return false;
    return true;
}

/* Each pixel of the result is a sum over one of the input. */
static bool is_pointwise(const struct node *node)
{
    const struct conv_attrs *attrs = node->attrs;
    const struct shape *w = &node->in[CONV_W]->shape, *x = &node->in[CONV_X]->shape;
    const struct shape *y = &node->out[0]->shape;

    return attrs->group == 1 && w->dims[1] >= FEWEST_CHANNELS && w->dims[2] == 1 &&
           w->dims[3] == 1 && is_one(&attrs->window.strides) && x->dims[2] == y->dims[2] &&
           x->dims[3] == y->dims[3];
}

static bool is_depthwise(const struct node *node)
{
    const struct conv_attrs *attrs = node->attrs;
    const struct shape *w = &node->in[CONV_W]->shape;

    return attrs->group == w->dims[0] && w->dims[1] == 1 &&
           node->in[CONV_X]->shape.dims[1] == w->dims[0];
}

/* The convolution that makes the node's input for it alone, and that nothing is added to. */
static struct node *convolution_before(const struct graph *graph, const struct node *node)
{
    struct node *before = node->in[CONV_X]->producer;

    if (!is_candidate(before) || graph_single_user(graph, node->in[CONV_X]) != node ||
        ((const struct conv_attrs *)before->attrs)->epilogue.has_residual ||
        !keeps_zero(&((const struct conv_attrs *)before->attrs)->epilogue))
        return NULL;
    return before;
}

static int64_t image_bytes(const struct value *value)
{
    return shape_product(&value->shape, 1, value->shape.rank) * (int64_t)sizeof(float);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* By one image alone, so that a row is computed alike in every batch.  One step has x and the
 * result in memory at once, and at most half of what is between them (separable_conv.c): no more
 * than the steps by themselves need at one time. */
static bool pays(const struct node *expand, const struct node *depthwise,
                 const struct node *project)
{
    const int64_t filtered = image_bytes(depthwise->out[0]), y = image_bytes(project->out[0]);
    const int64_t read = image_bytes(depthwise->in[CONV_X]); /* x or what is expanded */
    const int64_t x = expand != NULL ? image_bytes(expand->in[CONV_X]) : read;
    const int64_t between = expand != NULL ? read + filtered : filtered;
    const int64_t apart =
        larger(expand != NULL ? x + read : 0, larger(read + filtered, filtered + y));

    return between >= FEWEST_BYTES && x + y + between / 2 <= apart;
}

static void set_part(struct node *node, size_t first, const struct node *conv)
{
    node_set_input(node, first, conv->in[CONV_W]);
    node_set_input(node, first + 1, conv->inputs > CONV_BIAS ? conv->in[CONV_BIAS] : NULL);
}

static enum status fuse(struct graph *graph, struct node *project, const struct node *depthwise,
                        const struct node *expand)
{
    const struct conv_attrs *last = project->attrs;
    const struct node *first = expand != NULL ? expand : depthwise;
    const bool adds = last->epilogue.has_residual;
    struct node *node = graph_add_node(graph, project, &op_separable_conv, project->name,
                                       adds ? SEPARABLE_RESIDUAL + 1 : SEPARABLE_RESIDUAL, 1);
    struct separable_conv_attrs *attrs;
    struct value *result = project->out[0];

    if (node == NULL)
        return STATUS_NO_MEMORY;
    attrs = node->attrs;
    attrs->depthwise = *(const struct conv_attrs *)depthwise->attrs;
    attrs->project = *last;
    node_set_input(node, SEPARABLE_X, first->in[CONV_X]);
    set_part(node, SEPARABLE_DEPTHWISE, depthwise);
    set_part(node, SEPARABLE_PROJECT, project);
    if (expand != NULL) {
        attrs->expand = *(const struct conv_attrs *)expand->attrs;
        set_part(node, SEPARABLE_EXPAND, expand);
    }
    if (adds)
        node_set_input(node, SEPARABLE_RESIDUAL, project->in[CONV_RESIDUAL]);
    node_set_output(project, 0, NULL);
    node_set_output(node, 0, result);
    graph_remove_node(graph, project);
    return STATUS_OK;
}

static enum status fuse_before(struct graph *graph, struct node *project)
{
    struct node *depthwise, *expand;

    if (!is_candidate(project) || !is_pointwise(project))
        return STATUS_OK;
    depthwise = convolution_before(graph, project);
    if (depthwise == NULL || !is_depthwise(depthwise))
        return STATUS_OK;
    expand = convolution_before(graph, depthwise);
    if (expand != NULL && (!is_pointwise(expand) || !pays(expand, depthwise, project)))
        expand = NULL;
    return pays(expand, depthwise, project) ? fuse(graph, project, depthwise, expand) : STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    if (!context->fuses_separable)
        return STATUS_OK;
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);

        link = link->next;
        if (fuse_before(graph, node) != STATUS_OK)
            return pass_no_memory(err);
    }
    return STATUS_OK;
}

const struct pass pass_fuse_separable = {.name = "fuse_separable", .stage = PASS_PLAN, .run = run};
