#include "graph/graph.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct graph *graph_create(void)
{
    struct graph *graph = calloc(1, sizeof(*graph));

    if (graph == NULL)
        return NULL;
    arena_init(&graph->arena);
    list_init(&graph->nodes);
    list_init(&graph->values);
    graph->name = "";
    return graph;
}

void graph_destroy(struct graph *graph)
{
    struct value *value;

    if (graph == NULL)
        return;
    while (graph->children != NULL) {
        struct graph *child = graph->children;

        graph->children = child->next_child;
        graph_destroy(child);
    }
    LIST_FOR_EACH (value, &graph->values, struct value, link)
        constant_unref(value->constant);
    arena_deinit(&graph->arena);
    free(graph);
}

void graph_adopt(struct graph *graph, struct graph *child)
{
    assert(child->next_child == NULL);
    child->next_child = graph->children;
    graph->children = child;
}

struct value *graph_add_value(struct graph *graph, const char *name)
{
    struct value *value = arena_take(&graph->arena, sizeof(*value));

    if (value == NULL)
        return NULL;
    value->name = arena_copy_string(&graph->arena, name, strlen(name));
    if (value->name == NULL)
        return NULL;
    value->id = graph->next_value_id++;
    list_append(&graph->values, &value->link);
    return value;
}

struct value *graph_add_constant(struct graph *graph, const char *name, struct constant *constant)
{
    struct value *value = graph_add_value(graph, name);

    if (value == NULL) {
        constant_unref(constant);
        return NULL;
    }
    value->constant = constant;
    value->dtype = constant->tensor.dtype;
    value->shape = constant->tensor.shape;
    value->shape_known = true;
    return value;
}

static struct value **copy_list(struct graph *graph, size_t count, struct value *const *values)
{
    struct value **copy = arena_take_array(&graph->arena, count, sizeof(*copy));

    if (copy != NULL && count > 0)
        memcpy(copy, values, count * sizeof(*copy));
    return copy;
}

enum status graph_set_inputs(struct graph *graph, size_t count, struct value *const *in)
{
    struct value **copy = copy_list(graph, count, in);

    if (copy == NULL)
        return STATUS_NO_MEMORY;
    graph->in = copy;
    graph->inputs = count;
    for (size_t i = 0; i < count; i++)
        copy[i]->is_input = true;
    return STATUS_OK;
}

enum status graph_set_captures(struct graph *graph, size_t count, struct value *const *in)
{
    struct value **copy = copy_list(graph, count, in);

    if (copy == NULL)
        return STATUS_NO_MEMORY;
    graph->captured = copy;
    graph->captures = count;
    for (size_t i = 0; i < count; i++)
        copy[i]->is_input = true;
    return STATUS_OK;
}

enum status graph_set_outputs(struct graph *graph, size_t count, struct value *const *out)
{
    struct value **copy = copy_list(graph, count, out);

    if (copy == NULL)
        return STATUS_NO_MEMORY;
    graph->out = copy;
    graph->outputs = count;
    for (size_t i = 0; i < count; i++) {
        copy[i]->is_output = true;
        copy[i]->users++;
    }
    return STATUS_OK;
}

struct node *graph_add_node(struct graph *graph, struct node *before, const struct op_def *op,
                            const char *name, size_t inputs, size_t outputs)
{
    struct node *node = arena_take(&graph->arena, sizeof(*node));

    if (node == NULL)
        return NULL;
    node->op = op;
    node->name = arena_copy_string(&graph->arena, name, strlen(name));
    node->inputs = inputs;
    node->in = arena_take_array(&graph->arena, inputs, sizeof(struct value *));
    node->outputs = outputs;
    node->out = arena_take_array(&graph->arena, outputs, sizeof(struct value *));
    if (op->attrs_size > 0)
        node->attrs = arena_take(&graph->arena, op->attrs_size);
    if (node->name == NULL || node->in == NULL || node->out == NULL ||
        (op->attrs_size > 0 && node->attrs == NULL))
        return NULL;
    if (before != NULL)
        list_insert_before(&before->link, &node->link);
    else
        list_append(&graph->nodes, &node->link);
    return node;
}

void node_set_input(struct node *node, size_t index, struct value *value)
{
    assert(index < node->inputs);
    if (value != NULL)
        value->users++;
    if (node->in[index] != NULL)
        node->in[index]->users--;
    node->in[index] = value;
}

void node_set_output(struct node *node, size_t index, struct value *value)
{
    assert(index < node->outputs);
    if (node->out[index] != NULL)
        node->out[index]->producer = NULL;
    if (value != NULL)
        value->producer = node;
    node->out[index] = value;
}

enum status node_grow_inputs(struct graph *graph, struct node *node, size_t inputs)
{
    struct value **grown;

    if (inputs <= node->inputs)
        return STATUS_OK;
    grown = arena_take_array(&graph->arena, inputs, sizeof(struct value *));
    if (grown == NULL)
        return STATUS_NO_MEMORY;
    if (node->inputs > 0)
        memcpy(grown, node->in, node->inputs * sizeof(*grown));
    node->in = grown;
    node->inputs = inputs;
    return STATUS_OK;
}

static void replace_in_nodes(struct graph *graph, struct value *old, struct value *new)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        for (size_t i = 0; i < node->inputs; i++)
            if (node->in[i] == old)
                node_set_input(node, i, new);
}

enum status graph_replace_value(struct graph *graph, struct value *old, struct value *new)
{
    if (old == new)
        return STATUS_OK;
    if (old->is_output && (new->is_input || new->is_output || new->constant != NULL))
        return STATUS_PRECONDITION;
    replace_in_nodes(graph, old, new);
    if (!old->is_output)
        return STATUS_OK;
    for (size_t i = 0; i < graph->outputs; i++) {
        if (graph->out[i] != old)
            continue;
        graph->out[i] = new;
        old->users--;
        new->users++;
    }
    new->name = old->name;
    if (!new->shape_known) { /* what the model declares of its output */
        new->shape = old->shape;
        new->shape_known = old->shape_known;
    }
    if (old->dtype != DTYPE_NONE) /* surer than what was guessed of a value inside */
        new->dtype = old->dtype;
    new->is_output = true;
    old->is_output = false;
    return STATUS_OK;
}

void graph_remove_node(struct graph *graph, struct node *node)
{
    (void)graph;
    for (size_t i = 0; i < node->inputs; i++)
        node_set_input(node, i, NULL);
    for (size_t i = 0; i < node->outputs; i++)
        node_set_output(node, i, NULL);
    list_remove(&node->link);
}

static bool node_is_needed(const struct node *node)
{
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL && node->out[i]->users > 0)
            return true;
    return false;
}

void graph_remove_dead(struct graph *graph)
{
    struct list *link = graph->nodes.prev;
    struct value *value;

    /* Backwards, so that a node's last user is gone before the node is looked at. */
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);

        link = link->prev;
        if (!node_is_needed(node))
            graph_remove_node(graph, node);
    }
    LIST_FOR_EACH (value, &graph->values, struct value, link) {
        if (value->users > 0 || value->is_input || value->producer != NULL)
            continue;
        constant_unref(value->constant);
        value->constant = NULL;
        list_remove(&value->link);
    }
}

struct node *graph_single_user(const struct graph *graph, const struct value *value)
{
    const struct list *link =
        value->producer != NULL ? value->producer->link.next : graph->nodes.next;

    if (value->users != 1 || value->is_output)
        return NULL;
    for (; link != &graph->nodes; link = link->next) {
        struct node *node = CONTAINER_OF(link, struct node, link);

        for (size_t i = 0; i < node->inputs; i++)
            if (node->in[i] == value)
                return node;
    }
    return NULL;
}
