/* Of several changes of shape in a row only the last counts.
 *
 *      x ──> Flatten ──> Reshape([2,-1])        becomes        x ──> Reshape([2,-1])
 *
 * A zero in the last one's shape means "as in my input", so then the one before stays. */
#include "graph/match.h"

static bool has_zero(const struct node *reshape)
{
    int64_t dims[SHAPE_MAX_RANK];
    size_t count;

    if (!value_ints(reshape->in[1], SHAPE_MAX_RANK, dims, &count))
        return true;
    for (size_t i = 0; i < count; i++)
        if (dims[i] == 0)
            return node_attr_int(reshape, "allowzero", 0) == 0;
    return false;
}

static bool only_changes_shape(const struct node *node)
{
    return node_is(node, "Reshape") || node_is(node, "Flatten") || node_is(node, "Squeeze") ||
           node_is(node, "Unsqueeze");
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct node *node;

    (void)graph;
    (void)context;
    (void)err;
    LIST_FOR_EACH (node, &graph->nodes, struct node, link) {
        if (!node_is(node, "Reshape") || node->inputs < 2 || has_zero(node))
            continue;
        while (node->in[0]->producer != NULL && only_changes_shape(node->in[0]->producer))
            node_set_input(node, 0, node->in[0]->producer->in[0]);
    }
    return STATUS_OK;
}

const struct pass pass_merge_reshapes = {.name = "merge_reshapes", .stage = PASS_MODEL, .run = run};
