/* A node whose inputs are all constant is computed now.
 *
 *      constant ──> Transpose ──> x        becomes        constant x
 *
 * Graph outputs keep their node: a border has a producer, and copies are the engine's business. */
#include "graph/match.h"

static bool may_fold(const struct node *node)
{
    const uint32_t never = OP_NOT_DETERMINISTIC | OP_INTERNAL;

    if ((node->op->flags & never) != 0)
        return false;
    for (const struct attr_def *def = node->op->attrs; def != NULL && def->type != ATTR_END; def++)
        if (def->type == ATTR_GRAPH)
            return false;
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL && node->in[i]->constant == NULL)
            return false;
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL && node->out[i]->is_output)
            return false;
    return true;
}

static bool is_within(const struct node *node, size_t limit_bytes)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL)
            bytes += (uint64_t)shape_count(&node->out[i]->shape) * dtype_bytes(node->out[i]->dtype);
    return limit_bytes == 0 || bytes <= limit_bytes;
}

/* The outputs become constants; the node loses them and is dead. */
static void store(struct node *node, struct constant *const *made)
{
    for (size_t i = 0; i < node->outputs; i++) {
        struct value *value = node->out[i];

        if (value == NULL)
            continue;
        node_set_output(node, i, NULL);
        value->constant = made[i];
        value->dtype = made[i]->tensor.dtype;
        value->shape = made[i]->tensor.shape;
        value->shape_known = true;
        value->shape_bound = false;
    }
}

static enum status fold(struct graph *graph, struct node *node, const struct pass_context *context,
                        struct error *err)
{
    struct constant **made = arena_take_array(&graph->arena, node->outputs, sizeof(*made));
    struct error why;
    enum status status;

    if (made == NULL)
        return pass_no_memory(err);
    /* What does not infer or fold stays: whoever plans the graph says what is wrong with it. */
    status = graph_infer_node(graph, node, &why);
    if (status == STATUS_OK && is_within(node, context->fold_limit_bytes)) {
        status = context->fold(context->fold_arg, graph, node, made, &why);
        if (status == STATUS_OK) {
            store(node, made);
            graph_remove_node(graph, node);
        }
    }
    return status == STATUS_NO_MEMORY ? error_set(err, status, "%s", why.text) : STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct node *node;

    if (context->fold == NULL)
        return STATUS_OK;
    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        if (may_fold(node))
            TRY(fold(graph, node, context, err));
    return STATUS_OK;
}

const struct pass pass_fold_constants = {.name = "fold_constants", .stage = PASS_MODEL, .run = run};
