/* The invariants of graph.h, walked: for asserts and tests. */
#include "graph/graph.h"

#include <stdlib.h>

struct walk {
    uint32_t *users; /* counted here, by value id */
    bool *made;      /* by value id: in the list, and known at this point of the order */
    const char *wrong;
};

static bool fail(struct walk *walk, const char *reason)
{
    if (walk->wrong == NULL)
        walk->wrong = reason;
    return false;
}

static bool walk_values(struct walk *walk, const struct graph *graph)
{
    struct value *value;

    LIST_FOR_EACH (value, &graph->values, struct value, link) {
        if (value->id >= graph->next_value_id)
            return fail(walk, "a value's id is not below next_value_id");
        if (value->producer != NULL && (value->constant != NULL || value->is_input))
            return fail(walk, "a value has a producer and is an input or a constant");
        if (value->producer == NULL)
            walk->made[value->id] = true;
    }
    return true;
}

static bool walk_node(struct walk *walk, const struct node *node)
{
    for (size_t i = 0; i < node->inputs; i++) {
        if (node->in[i] == NULL)
            continue;
        if (!walk->made[node->in[i]->id])
            return fail(walk, "a node uses a value that no earlier node makes");
        walk->users[node->in[i]->id]++;
    }
    for (size_t i = 0; i < node->outputs; i++) {
        if (node->out[i] == NULL)
            continue;
        if (node->out[i]->producer != node)
            return fail(walk, "an output's producer is another node");
        if (walk->made[node->out[i]->id])
            return fail(walk, "a value is made twice");
        walk->made[node->out[i]->id] = true;
    }
    return true;
}

static bool walk_end(struct walk *walk, const struct graph *graph)
{
    struct value *value;

    for (size_t i = 0; i < graph->outputs; i++) {
        if (!graph->out[i]->is_output)
            return fail(walk, "a graph output is not marked as one");
        if (!walk->made[graph->out[i]->id])
            return fail(walk, "a graph output is never made");
        walk->users[graph->out[i]->id]++;
    }
    LIST_FOR_EACH (value, &graph->values, struct value, link) {
        if (value->users != walk->users[value->id])
            return fail(walk, "a value's count of users is wrong");
        if (!walk->made[value->id])
            return fail(walk, "a value's producer is not in the graph");
        if (value->producer == NULL && value->constant == NULL && !value->is_input &&
            value->users > 0)
            return fail(walk, "a used value comes from nowhere");
    }
    return true;
}

static bool walk_all(struct walk *walk, const struct graph *graph)
{
    struct node *node;

    if (!walk_values(walk, graph))
        return false;
    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        if (!walk_node(walk, node))
            return false;
    return walk_end(walk, graph);
}

bool graph_is_valid(const struct graph *graph, const char **out_reason)
{
    struct walk walk = {
        .users = calloc((size_t)graph->next_value_id + 1, sizeof(uint32_t)),
        .made = calloc((size_t)graph->next_value_id + 1, sizeof(bool)),
    };
    bool valid = walk.users == NULL || walk.made == NULL || walk_all(&walk, graph);

    free(walk.users);
    free(walk.made);
    if (!valid)
        *out_reason = walk.wrong;
    return valid;
}
