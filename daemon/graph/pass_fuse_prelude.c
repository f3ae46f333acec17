/* What normalizes the input of a convolution becomes part of it:
 *
 *     Conv(Relu(BatchNormalization(x, s, b, m, v)), w)  →  Conv(x, w, prelude s, b, m, v, relu)
 *
 * as in DenseNet and ResNet v2, where nothing before takes the normalization in.  Saves two passes
 * over memory.  Only where the device says that it wants this, and not for 3x3 kernels that
 * Winograd computes.
 */
#include <math.h>

#include "graph/match.h"
#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/normalize.h"

static bool is_one(const struct ints *list, size_t index)
{
    return index >= list->count || list->values[index] == 1;
}

/* Convolutions that the kernel which knows of preludes takes, and no better one. */
static bool takes_prelude(const struct node *node)
{
    const struct conv_attrs *attrs = node->attrs;
    const struct value *w = node->in[CONV_W];

    if (node->op != &op_conv || attrs->has_prelude || attrs->group != 1 ||
        w->dtype != DTYPE_FLOAT || w->constant == NULL || w->shape.rank < 3 || w->shape.rank > 4 ||
        (node->inputs > CONV_BIAS && node->in[CONV_BIAS] != NULL &&
         node->in[CONV_BIAS]->constant == NULL))
        return false;
    return w->shape.rank != 4 || w->shape.dims[2] != 3 || w->shape.dims[3] != 3 ||
           !is_one(&attrs->window.strides, 0) || !is_one(&attrs->window.strides, 1) ||
           !is_one(&attrs->window.dilations, 0) || !is_one(&attrs->window.dilations, 1);
}

static bool is_normalization(const struct node *node, int64_t channels)
{
    if (node == NULL || node->op != &op_batch_normalization ||
        node->inputs != 1 + CONV_PRELUDE_INPUTS || node->in[0]->shape.rank < 3)
        return false;
    for (size_t i = 1; i < node->inputs; i++)
        if (node->in[i] == NULL || node->in[i]->constant == NULL ||
            node->in[i]->dtype != DTYPE_FLOAT || shape_count(&node->in[i]->shape) != channels)
            return false;
    return true;
}

static enum status fuse(struct graph *graph, struct node *conv)
{
    struct conv_attrs *attrs = conv->attrs;
    struct node *before = conv->in[CONV_X]->producer, *norm = before;
    const bool relu = before != NULL && before->op == &op_relu;

    if (before == NULL || graph_single_user(graph, conv->in[CONV_X]) != conv)
        return STATUS_OK;
    if (relu) {
        norm = before->in[0]->producer;
        if (graph_single_user(graph, before->in[0]) != before)
            return STATUS_OK;
    }
    if (!is_normalization(norm, conv->in[CONV_W]->shape.dims[1]))
        return STATUS_OK;
    TRY(node_grow_inputs(graph, conv, CONV_PRELUDE + CONV_PRELUDE_INPUTS));
    for (size_t i = 0; i < CONV_PRELUDE_INPUTS; i++)
        node_set_input(conv, CONV_PRELUDE + i, norm->in[1 + i]);
    attrs->has_prelude = true;
    attrs->prelude_epsilon = ((const struct batch_norm_attrs *)norm->attrs)->epsilon;
    attrs->prelude_low = relu ? 0 : -INFINITY;
    node_set_input(conv, CONV_X, norm->in[0]);
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct node *node;

    if (!context->fuses_preludes)
        return STATUS_OK;
    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        if (takes_prelude(node) && fuse(graph, node) != STATUS_OK)
            return pass_no_memory(err);
    return STATUS_OK;
}

const struct pass pass_fuse_prelude = {.name = "fuse_prelude", .stage = PASS_PLAN, .run = run};
