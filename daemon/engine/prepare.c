/* True shapes: every value of the plan's graph gets its real shape, and its elements where they can
 * be known before anything runs (Shape of a known shape, small integer arithmetic on it). */
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

static const struct attr_def *find_attr(const struct op_def *op, const char *name)
{
    for (const struct attr_def *attr = op->attrs; attr != NULL && attr->type != ATTR_END; attr++)
        if (strcmp(attr->name, name) == 0)
            return attr;
    return NULL;
}

static struct graph *attr_graph(const struct node *node, const char *name)
{
    const struct attr_def *attr = find_attr(node->op, name);

    return attr == NULL ? NULL : *(struct graph *const *)((const char *)node->attrs + attr->offset);
}

bool node_is_branching(const struct node *node)
{
    return find_attr(node->op, "then_branch") != NULL;
}

/* ---- taking a branch: the sub-graph's nodes take the node's place ---- */

static enum status map_values(struct graph *graph, const struct graph *branch,
                              const struct node *node, size_t first_capture, struct value **map)
{
    struct value *value;

    for (size_t i = 0; i < branch->captures; i++)
        map[branch->captured[i]->id] = node->in[first_capture + i];
    LIST_FOR_EACH (value, &branch->values, struct value, link) {
        struct value *copy;

        if (map[value->id] != NULL)
            continue;
        copy = value->constant != NULL
                   ? graph_add_constant(graph, value->name, constant_ref(value->constant))
                   : graph_add_value(graph, value->name);
        if (copy == NULL)
            return STATUS_NO_MEMORY;
        map[value->id] = copy;
    }
    return STATUS_OK;
}

static enum status copy_nodes(struct graph *graph, const struct graph *branch, struct node *before,
                              struct value *const *map)
{
    struct node *node;

    LIST_FOR_EACH (node, &branch->nodes, struct node, link) {
        struct node *copy =
            graph_add_node(graph, before, node->op, node->name, node->inputs, node->outputs);

        if (copy == NULL)
            return STATUS_NO_MEMORY;
        if (node->attrs != NULL)
            memcpy(copy->attrs, node->attrs, node->op->attrs_size);
        for (size_t i = 0; i < node->inputs; i++)
            if (node->in[i] != NULL)
                node_set_input(copy, i, map[node->in[i]->id]);
        for (size_t i = 0; i < node->outputs; i++)
            if (node->out[i] != NULL)
                node_set_output(copy, i, map[node->out[i]->id]);
    }
    return STATUS_OK;
}

/* A branch may hand out a value that is a border of the graph already: then it is copied. */
static enum status hand_out(struct graph *graph, struct node *before, struct value *old,
                            struct value *new)
{
    const struct op_def *identity = op_find("", "Identity");
    enum status status = graph_replace_value(graph, old, new);
    struct node *copy;
    struct value *out;

    if (status != STATUS_PRECONDITION)
        return status;
    if (identity == NULL)
        return STATUS_UNSUPPORTED;
    copy = graph_add_node(graph, before, identity, "copy", 1, 1);
    out = graph_add_value(graph, "");
    if (copy == NULL || out == NULL)
        return STATUS_NO_MEMORY;
    node_set_input(copy, 0, new);
    node_set_output(copy, 0, out);
    return graph_replace_value(graph, old, out);
}

static enum status take_branch(struct making *making, struct node *node, struct error *err)
{
    struct graph *graph = making->graph;
    struct graph *then_branch = attr_graph(node, "then_branch");
    struct graph *else_branch = attr_graph(node, "else_branch");
    const bool *condition = node->in[0]->constant->tensor.data;
    struct graph *branch = *condition ? then_branch : else_branch;
    size_t first_capture = 1 + (*condition ? 0 : then_branch->captures);
    struct value **map = arena_take_array(making->arena, branch->next_value_id + 1, sizeof(*map));
    enum status status = map == NULL ? STATUS_NO_MEMORY : STATUS_OK;

    if (first_capture + branch->captures > node->inputs || branch->outputs < node->outputs)
        return error_set(err, STATUS_INVALID, "node '%s' (If) does not fit its branches",
                         node->name);
    if (status == STATUS_OK)
        status = map_values(graph, branch, node, first_capture, map);
    if (status == STATUS_OK)
        status = copy_nodes(graph, branch, node, map);
    for (size_t i = 0; status == STATUS_OK && i < node->outputs; i++)
        if (node->out[i] != NULL)
            status = hand_out(graph, node, node->out[i], map[branch->out[i]->id]);
    if (status != STATUS_OK)
        return error_set(err, status, "node '%s' (If): the branch cannot be put in its place",
                         node->name);
    graph_remove_node(graph, node);
    return STATUS_OK;
}

/* ---- inferring and folding ---- */

static bool inputs_are_true(const struct node *node)
{
    for (size_t i = 0; i < node->inputs; i++) {
        const struct value *value = node->in[i];

        if (value != NULL && (value->shape_bound || !value->shape_known ||
                              !shape_is_known(&value->shape) || value->dtype == DTYPE_NONE))
            return false;
    }
    return true;
}

/* Shapes from the file may be wrong for this batch; only what is inferred counts. */
static void forget_shapes(struct graph *graph)
{
    struct value *value;

    LIST_FOR_EACH (value, &graph->values, struct value, link)
        if (value->constant == NULL && !value->is_input)
            value->shape_known = false;
}

static bool is_worth_folding(const struct node *node)
{
    uint64_t bytes = 0;

    if ((node->op->flags & OP_NOT_DETERMINISTIC) != 0)
        return false;
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL && node->in[i]->constant == NULL &&
            (node->op->flags & OP_SHAPE_ONLY) == 0)
            return false;
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL)
            bytes += (uint64_t)shape_count(&node->out[i]->shape) * dtype_bytes(node->out[i]->dtype);
    return bytes <= FOLD_BYTES_MAX;
}

enum status making_remember_folded(struct making *making, const struct constant *constant)
{
    if (making->folded_count == making->folded_room) {
        size_t room = making->folded_room * 2 + 16;
        const struct constant **grown = realloc(making->folded, room * sizeof(*grown));

        if (grown == NULL)
            return STATUS_NO_MEMORY;
        making->folded = grown;
        making->folded_room = room;
    }
    making->folded[making->folded_count++] = constant;
    return STATUS_OK;
}

static enum status fold_node(struct making *making, struct node *node, struct error *err)
{
    struct constant **made =
        arena_take_array(making->arena, node->outputs + 1, sizeof(struct constant *));
    enum status status;

    if (made == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    if (making->network->folder == NULL)
        return STATUS_OK;
    status = folder_fold(making->network->folder, making->graph, node, made, err);
    if (status == STATUS_UNSUPPORTED)
        return STATUS_OK; /* it runs with the others */
    TRY(status);
    for (size_t i = 0; i < node->outputs; i++) {
        struct value *value = node->out[i];

        if (value == NULL)
            continue;
        node_set_output(node, i, NULL);
        value->constant = made[i];
        if (status == STATUS_OK)
            status = making_remember_folded(making, made[i]);
        value->shape = made[i]->tensor.shape;
        value->shape_bound = false;
    }
    graph_remove_node(making->graph, node);
    return status == STATUS_OK ? STATUS_OK
                               : error_set(err, status, "no memory to plan node '%s'", node->name);
}

static enum status infer_one(struct making *making, struct node *node, struct error *err)
{
    enum status status = graph_infer_node(making->graph, node, err);

    if (status == STATUS_PRECONDITION)
        return STATUS_OK; /* outputs stay unknown: behind the cut */
    TRY(status);
    return is_worth_folding(node) ? fold_node(making, node, err) : STATUS_OK;
}

enum status making_infer(struct making *making, struct error *err)
{
    struct list *link = making->graph->nodes.next;

    forget_shapes(making->graph);
    while (link != &making->graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        struct list *before = link->prev;

        if (inputs_are_true(node)) {
            if (node_is_branching(node)) {
                if (node->in[0]->constant != NULL) {
                    TRY(take_branch(making, node, err));
                    link = before->next; /* the branch's first node */
                    continue;
                }
            } else {
                TRY(infer_one(making, node, err));
            }
        }
        /* A folded node has left the list: what followed it follows `before` now. */
        link = before->next == link ? link->next : before->next;
    }
    return STATUS_OK;
}
