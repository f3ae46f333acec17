/* Zeros put around the input of a convolution become its own padding.
 *
 *      x ──> Pad(0) ──> Conv(pads)        becomes        x ──> Conv(pads + Pad's) */
#include "graph/match.h"

#include <string.h>

/* The pads of every dimension, begins then ends, when only spatial zeros are added. */
static bool read_pads(const struct node *pad, size_t rank, int64_t pads[2 * SHAPE_MAX_RANK])
{
    double fill = 0;
    size_t count;

    if (node_attr_int(pad, "mode", 0) != 0 || pad->inputs < 2 ||
        (pad->inputs > 3 && pad->in[3] != NULL))
        return false;
    if (pad->inputs > 2 && pad->in[2] != NULL && (!value_scalar(pad->in[2], &fill) || fill != 0))
        return false;
    if (!value_ints(pad->in[1], 2 * SHAPE_MAX_RANK, pads, &count) || count != 2 * rank)
        return false;
    for (size_t i = 0; i < count; i++)
        if (pads[i] < 0 || pads[i] > INT32_MAX || (i % rank < 2 && pads[i] != 0))
            return false;
    return true;
}

static enum status add_pads(struct graph *graph, struct node *conv, size_t rank,
                            const int64_t *more)
{
    const struct ints *old = node_attr_ints(conv, "pads");
    size_t spatial = rank - 2;
    int64_t *pads = arena_take_array(&graph->arena, 2 * spatial, sizeof(*pads));

    if (pads == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < 2 * spatial; i++)
        pads[i] =
            (old == NULL ? 0 : old->values[i]) + more[i < spatial ? 2 + i : rank + 2 + i - spatial];
    *(struct ints *)node_attr(conv, "pads") = (struct ints){2 * spatial, pads};
    return STATUS_OK;
}

/* Padding of a maximum is not zero, and an average may count its own: convolutions only. */
static bool takes_pads(const struct node *node, size_t *out_rank)
{
    const struct ints *pads = node_attr_ints(node, "pads");

    /* VALID means no pads of its own: with explicit ones it is NOTSET. */
    if (!node_is(node, "Conv") || node_attr_int(node, "auto_pad", 0) % 3 != 0 || node->inputs < 2 ||
        node->in[1]->constant == NULL)
        return false;
    *out_rank = node->in[1]->constant->tensor.shape.rank;
    if (*out_rank <= 2 || (pads != NULL && pads->count != 2 * (*out_rank - 2)))
        return false;
    for (size_t i = 0; pads != NULL && i < pads->count; i++)
        if (pads->values[i] < 0 || pads->values[i] > INT32_MAX)
            return false; /* the operator's rule will refuse it */
    return true;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct node *node;

    (void)context;
    LIST_FOR_EACH (node, &graph->nodes, struct node, link) {
        int64_t pads[2 * SHAPE_MAX_RANK];
        struct node *pad;
        size_t rank;

        if (!takes_pads(node, &rank))
            continue;
        pad = producer_is(node->in[0], "Pad");
        if (pad == NULL || !read_pads(pad, rank, pads))
            continue;
        if (node_attr_int(node, "auto_pad", 0) != 0)
            *(struct ints *)node_attr(node, "pads") = (struct ints){0, NULL};
        if (add_pads(graph, node, rank, pads) != STATUS_OK)
            return pass_no_memory(err);
        (void)node_set_int(node, "auto_pad", 0);
        node_set_input(node, 0, pad->in[0]);
    }
    return STATUS_OK;
}

const struct pass pass_fold_pad = {.name = "fold_pad", .stage = PASS_MODEL, .run = run};
