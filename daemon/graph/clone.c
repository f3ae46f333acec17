/* Copies of a graph, value by value and node by node; `map` leads from old ids to new values. */
#include "graph/graph.h"

#include <stdlib.h>
#include <string.h>

static struct value *mapped(struct value *const *map, const struct value *value)
{
    return value == NULL ? NULL : map[value->id];
}

static enum status clone_values(struct graph *to, const struct graph *from, struct value **map)
{
    struct value *value;

    LIST_FOR_EACH (value, &from->values, struct value, link) {
        struct value *copy = arena_copy(&to->arena, value, sizeof(*value));

        if (copy == NULL)
            return STATUS_NO_MEMORY;
        copy->producer = NULL;
        copy->users = 0;
        if (copy->constant != NULL)
            constant_ref(copy->constant);
        list_append(&to->values, &copy->link);
        map[value->id] = copy;
    }
    return STATUS_OK;
}

static enum status clone_node(struct graph *to, const struct node *node, struct value *const *map)
{
    struct node *copy = arena_copy(&to->arena, node, sizeof(*node));

    if (copy == NULL)
        return STATUS_NO_MEMORY;
    copy->in = arena_take_array(&to->arena, node->inputs, sizeof(struct value *));
    copy->out = arena_take_array(&to->arena, node->outputs, sizeof(struct value *));
    if (copy->in == NULL || copy->out == NULL)
        return STATUS_NO_MEMORY;
    if (node->attrs != NULL) {
        copy->attrs = arena_copy(&to->arena, node->attrs, node->op->attrs_size);
        if (copy->attrs == NULL)
            return STATUS_NO_MEMORY;
    }
    for (size_t i = 0; i < node->inputs; i++)
        node_set_input(copy, i, mapped(map, node->in[i]));
    for (size_t i = 0; i < node->outputs; i++)
        node_set_output(copy, i, mapped(map, node->out[i]));
    list_append(&to->nodes, &copy->link);
    return STATUS_OK;
}

/* A list of values in the terms of the copy; it stands in the copy's arena. */
static struct value **clone_list(struct graph *to, size_t count, struct value *const *list,
                                 struct value *const *map)
{
    struct value **copy = arena_take_array(&to->arena, count, sizeof(*copy));

    for (size_t i = 0; copy != NULL && i < count; i++)
        copy[i] = mapped(map, list[i]);
    return copy;
}

static enum status clone_borders(struct graph *to, const struct graph *from,
                                 struct value *const *map)
{
    to->in = clone_list(to, from->inputs, from->in, map);
    to->out = clone_list(to, from->outputs, from->out, map);
    to->captured = clone_list(to, from->captures, from->captured, map);
    if (to->in == NULL || to->out == NULL || to->captured == NULL)
        return STATUS_NO_MEMORY;
    to->inputs = from->inputs;
    to->outputs = from->outputs;
    to->captures = from->captures;
    for (size_t i = 0; i < to->outputs; i++)
        to->out[i]->users++;
    return STATUS_OK;
}

static enum status clone_into(struct graph *to, const struct graph *from, struct value **map)
{
    struct node *node;

    TRY(clone_values(to, from, map));
    LIST_FOR_EACH (node, &from->nodes, struct node, link)
        TRY(clone_node(to, node, map));
    return clone_borders(to, from, map);
}

struct graph *graph_clone(const struct graph *graph)
{
    struct graph *copy = graph_create();
    struct value **map = calloc((size_t)graph->next_value_id + 1, sizeof(*map));

    if (copy != NULL) {
        copy->next_value_id = graph->next_value_id;
        copy->name = graph->name;
    }
    if (copy == NULL || map == NULL || clone_into(copy, graph, map) != STATUS_OK) {
        graph_destroy(copy);
        copy = NULL;
    }
    free(map);
    return copy;
}
