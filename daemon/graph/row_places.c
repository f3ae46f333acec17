/* Where the rows of a batch lie in each value, followed from the inputs to the node that works
 * across them.
 *
 * A value's place is the dimension that counts rows.  A Reshape may merge more into that dimension
 * ([rows, words, width] to [-1, width]): it still counts rows, by blocks.  Where a place is lost
 * (an operator without a rule, a Reshape that splits oddly) nothing is said of what comes behind
 * it, so only what is certain is found.
 */
#include <stdlib.h>

#include "graph/row_step.h"
#include "graph/rows.h"

/* Fills the places of what a node makes; true: it works across rows. */
static bool follow(const struct node *node, struct place *places)
{
    struct step step = {.node = node, .places = places};
    row_rule *rule = row_rule_of(node);
    bool has_rows = false, is_mixed = false;

    if (node->op == &op_shape || node->op == &op_size)
        return false;
    for (size_t i = 0; i < node->inputs; i++)
        has_rows |= input(&step, i).rows;
    for (size_t i = 0; i < RULE_OUTPUTS; i++)
        step.out[i] = (struct place){has_rows, LOST, LOST};
    if (has_rows && rule != NULL)
        is_mixed = rule(&step);
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL)
            places[node->out[i]->id] =
                i < RULE_OUTPUTS ? step.out[i] : (struct place){has_rows, LOST, LOST};
    return is_mixed;
}

/* Marks what the outputs are made of. */
static void mark_needed(const struct graph *graph, bool *needed)
{
    for (size_t i = 0; i < graph->outputs; i++)
        needed[graph->out[i]->id] = true;
    for (const struct list *link = graph->nodes.prev; link != &graph->nodes; link = link->prev) {
        const struct node *node = CONTAINER_OF(link, const struct node, link);
        bool is_needed = false;

        for (size_t i = 0; i < node->outputs; i++)
            is_needed |= node->out[i] != NULL && needed[node->out[i]->id];
        for (size_t i = 0; is_needed && i < node->inputs; i++)
            if (node->in[i] != NULL)
                needed[node->in[i]->id] = true;
    }
}

static bool is_needed(const struct node *node, const bool *needed)
{
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL && needed[node->out[i]->id])
            return true;
    return false;
}

static struct place place_of_input(const struct value *value)
{
    if (!value->shape_known || value->shape.rank == 0)
        return (struct place){true, LOST, LOST};
    return (struct place){true, (int)value->shape.rank, 0};
}

const struct node *graph_find_row_mixer(const struct graph *graph)
{
    struct place *places = calloc(graph->next_value_id + 1, sizeof(*places));
    bool *needed = calloc(graph->next_value_id + 1, sizeof(*needed));
    const struct node *node, *found = NULL;

    if (places != NULL && needed != NULL) {
        mark_needed(graph, needed);
        for (size_t i = 0; i < graph->inputs; i++)
            places[graph->in[i]->id] = place_of_input(graph->in[i]);
        LIST_FOR_EACH (node, &graph->nodes, struct node, link)
            if (is_needed(node, needed) && follow(node, places)) {
                found = node;
                break;
            }
    }
    free(places);
    free(needed);
    return found;
}
