/* Where a plan ends before its graph does.
 *
 * A node whose output shapes stayed unknown (its rule needs a value that only a run can tell, or an
 * input's shape is but a bound) is left to a program of its own, with all that hangs on it:
 *
 *      this plan's nodes ──carried values──> rest: their inputs, the remaining outputs
 *
 * The rest has the same shape for every plan of a program, so it is made once and found again by a
 * fingerprint of its nodes; its own plans are cached by the shapes, and where a rule wants them the
 * values, of what is carried.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

struct cut {
    struct making *making;
    struct graph *rest;
    struct value **map; /* value id here → value of rest */
    size_t rest_inputs;
    struct value **inner; /* rest's inputs … */
    struct value **outer; /* … and what they stand for here */
    size_t rest_outputs;
    struct value **inner_out;
    bool *wants_value;
    unsigned char *print;
    size_t print_bytes, print_room;
};

static bool is_deferred(const struct node *node)
{
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL && !node->out[i]->shape_known)
            return true;
    return false;
}

static size_t count_deferred(const struct graph *graph, size_t *out_inputs)
{
    const struct node *node;
    size_t count = 0;

    *out_inputs = 0;
    LIST_FOR_EACH (node, &graph->nodes, struct node, link) {
        if (!is_deferred(node))
            continue;
        count++;
        *out_inputs += node->inputs;
    }
    return count;
}

/* ---- the fingerprint ---- */

static enum status print(struct cut *cut, const void *bytes, size_t count)
{
    if (cut->print_bytes + count > cut->print_room) {
        size_t room = (cut->print_bytes + count) * 2;
        unsigned char *grown = realloc(cut->print, room);

        if (grown == NULL)
            return STATUS_NO_MEMORY;
        cut->print = grown;
        cut->print_room = room;
    }
    if (count > 0)
        memcpy(cut->print + cut->print_bytes, bytes, count);
    cut->print_bytes += count;
    return STATUS_OK;
}

static enum status print_value(struct cut *cut, const struct value *value)
{
    uint32_t id = value == NULL ? UINT32_MAX : value->id;

    return print(cut, &id, sizeof(id));
}

static enum status print_node(struct cut *cut, const struct node *node)
{
    TRY(print(cut, &node->op, sizeof(node->op)));
    TRY(print(cut, node->name, strlen(node->name) + 1));
    if (node->attrs != NULL)
        TRY(print(cut, node->attrs, node->op->attrs_size));
    for (size_t i = 0; i < node->inputs; i++)
        TRY(print_value(cut, node->in[i]));
    for (size_t i = 0; i < node->outputs; i++)
        TRY(print_value(cut, node->out[i]));
    return STATUS_OK;
}

/* ---- the rest ---- */

static bool is_of_this_plan(const struct making *making, const struct constant *constant)
{
    for (size_t i = 0; i < making->folded_count; i++)
        if (making->folded[i] == constant)
            return true;
    return false;
}

/* What stands for `value` in the rest: the same constant, the product of a node there, or an input.
 */
static enum status carry_over(struct cut *cut, struct value *value)
{
    bool folded = value->constant != NULL && is_of_this_plan(cut->making, value->constant);
    struct value *copy;

    if (cut->map[value->id] != NULL)
        return STATUS_OK;
    if (value->constant != NULL && !folded) {
        copy = graph_add_constant(cut->rest, value->name, constant_ref(value->constant));
    } else {
        copy = graph_add_value(cut->rest, value->name);
        if (copy != NULL) {
            copy->dtype = value->dtype;
            copy->shape = value->shape;
        }
        cut->inner[cut->rest_inputs] = copy;
        cut->outer[cut->rest_inputs] = value;
        cut->wants_value[cut->rest_inputs] =
            folded && tensor_bytes(&value->constant->tensor) <= VALUE_BYTES_MAX;
        cut->rest_inputs++;
    }
    if (copy == NULL)
        return STATUS_NO_MEMORY;
    cut->map[value->id] = copy;
    return STATUS_OK;
}

/* Whether the elements of input `index` decide a shape or a branch. */
static bool wants_value(const struct node *node, size_t index)
{
    if (node_is_branching(node))
        return index == 0;
    return index < 32 && (node->op->value_inputs & UINT32_C(1) << index) != 0;
}

static void want_values(struct cut *cut, const struct node *node)
{
    for (size_t i = 0; i < node->inputs; i++) {
        if (node->in[i] == NULL || !wants_value(node, i))
            continue;
        for (size_t k = 0; k < cut->rest_inputs; k++)
            if (cut->outer[k] == node->in[i])
                cut->wants_value[k] = true;
    }
}

static enum status move_node(struct cut *cut, const struct node *node)
{
    struct node *copy;

    TRY(print_node(cut, node));
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL)
            TRY(carry_over(cut, node->in[i]));
    want_values(cut, node);
    copy = graph_add_node(cut->rest, NULL, node->op, node->name, node->inputs, node->outputs);
    if (copy == NULL)
        return STATUS_NO_MEMORY;
    if (node->attrs != NULL)
        memcpy(copy->attrs, node->attrs, node->op->attrs_size);
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL)
            node_set_input(copy, i, cut->map[node->in[i]->id]);
    for (size_t i = 0; i < node->outputs; i++) {
        struct value *value = node->out[i];

        if (value == NULL)
            continue;
        cut->map[value->id] = graph_add_value(cut->rest, value->name);
        if (cut->map[value->id] == NULL)
            return STATUS_NO_MEMORY;
        cut->map[value->id]->dtype = value->dtype; /* declared, for outputs of the model */
        node_set_output(copy, i, cut->map[value->id]);
    }
    return STATUS_OK;
}

static enum status build_rest(struct cut *cut, size_t inputs_room)
{
    struct making *making = cut->making;
    struct graph *graph = making->graph;
    struct node *node;

    cut->rest = graph_create();
    cut->map = calloc((size_t)graph->next_value_id + 1, sizeof(*cut->map));
    cut->inner = calloc(inputs_room + 1, sizeof(*cut->inner));
    cut->outer = calloc(inputs_room + 1, sizeof(*cut->outer));
    cut->wants_value = calloc(inputs_room + 1, sizeof(*cut->wants_value));
    cut->inner_out = calloc(graph->outputs + 1, sizeof(*cut->inner_out));
    if (cut->rest == NULL || cut->map == NULL || cut->inner == NULL || cut->outer == NULL ||
        cut->wants_value == NULL || cut->inner_out == NULL)
        return STATUS_NO_MEMORY;
    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        if (is_deferred(node))
            TRY(move_node(cut, node));
    for (size_t i = 0; i < graph->outputs; i++) {
        if (graph->out[i]->shape_known)
            continue;
        making->plan->rest_outputs[cut->rest_outputs] = i;
        cut->inner_out[cut->rest_outputs++] = cut->map[graph->out[i]->id];
        TRY(print_value(cut, graph->out[i]));
    }
    TRY(graph_set_inputs(cut->rest, cut->rest_inputs, cut->inner));
    return graph_set_outputs(cut->rest, cut->rest_outputs, cut->inner_out);
}

/* ---- this plan without it ---- */

static void remove_deferred(struct graph *graph)
{
    struct list *link = graph->nodes.prev;

    while (link != &graph->nodes) { /* backwards: users before producers */
        struct node *node = CONTAINER_OF(link, struct node, link);

        link = link->prev;
        if (is_deferred(node))
            graph_remove_node(graph, node);
    }
}

/* The graph's outputs from now on: the program's that are made here, then what is carried. */
static enum status set_outputs(struct cut *cut)
{
    struct making *making = cut->making;
    struct graph *graph = making->graph;
    struct value **out =
        arena_take_array(&graph->arena, graph->outputs + cut->rest_inputs + 1, sizeof(*out));
    size_t count = 0;

    if (out == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < graph->outputs; i++) {
        struct value *value = graph->out[i];

        if (!value->shape_known) {
            value->is_output = false;
            value->users--;
            continue;
        }
        making->output_of[count] = i;
        out[count++] = value;
    }
    making->own_outputs = count;
    for (size_t i = 0; i < cut->rest_inputs; i++) {
        struct value *value = cut->outer[i];

        if (value->constant != NULL || value->is_input || value->is_output)
            continue;
        value->is_output = true;
        value->users++;
        out[count++] = value;
    }
    graph->out = out;
    graph->outputs = count;
    return STATUS_OK;
}

static size_t index_of(struct value *const *list, size_t count, const struct value *value)
{
    size_t i = 0;

    while (i < count && list[i] != value)
        i++;
    return i;
}

/* Remembers by what each carried value is found once the passes have had their way. */
static enum status remember_carries(struct cut *cut)
{
    struct making *making = cut->making;
    struct graph *graph = making->graph;

    making->carries = arena_take_array(making->arena, cut->rest_inputs, sizeof(struct carried));
    making->plan->carries = arena_take_array(making->arena, cut->rest_inputs, sizeof(struct carry));
    if (making->carries == NULL || making->plan->carries == NULL)
        return STATUS_NO_MEMORY;
    making->plan->carry_count = cut->rest_inputs;
    for (size_t i = 0; i < cut->rest_inputs; i++) {
        const struct value *value = cut->outer[i];
        struct carried *carried = &making->carries[i];

        if (value->constant != NULL) {
            carried->kind = CARRIED_CONSTANT;
            making->plan->carries[i].constant = constant_ref(value->constant);
        } else if (value->is_input) {
            carried->kind = CARRIED_INPUT;
            carried->index = index_of(graph->in, graph->inputs, value);
        } else {
            carried->kind = CARRIED_OUTPUT;
            carried->index = index_of(graph->out, graph->outputs, value);
        }
    }
    return STATUS_OK;
}

/* ---- the program ---- */

static struct program *find_program(struct network *network, const struct cut *cut)
{
    struct program *program = network->programs;

    for (; program != NULL; program = program->next)
        if (program->fingerprint_bytes == cut->print_bytes &&
            memcmp(program->fingerprint, cut->print, cut->print_bytes) == 0)
            return program;
    return NULL;
}

static enum status take_program(struct cut *cut)
{
    struct network *network = cut->making->network;
    struct program *program = find_program(network, cut);

    if (program == NULL) {
        program = calloc(1, sizeof(*program));
        if (program == NULL)
            return STATUS_NO_MEMORY;
        program->graph = cut->rest;
        program->wants_value = cut->wants_value;
        program->fingerprint = cut->print;
        program->fingerprint_bytes = cut->print_bytes;
        cut->rest = NULL;
        cut->wants_value = NULL;
        cut->print = NULL;
        program->next = network->programs->next; /* behind the whole model */
        network->programs->next = program;
    }
    cut->making->plan->rest = program;
    return STATUS_OK;
}

static enum status finish(struct cut *cut, struct error *err)
{
    struct making *making = cut->making;

    TRY(take_program(cut));
    if (making->plan->rest == making->program) {
        const struct node *node =
            LIST_FIRST(&making->program->graph->nodes, const struct node, link);

        return error_set(err, STATUS_UNSUPPORTED,
                         "node '%s' (%s): the shape of its result cannot be told", node->name,
                         node->op->onnx.name);
    }
    TRY(set_outputs(cut));
    TRY(remember_carries(cut));
    remove_deferred(making->graph);
    return STATUS_OK;
}

enum status making_cut(struct making *making, struct error *err)
{
    struct cut cut = {.making = making};
    struct graph *graph = making->graph;
    size_t inputs;
    enum status status;

    making->output_of = arena_take_array(making->arena, graph->outputs, sizeof(size_t));
    making->plan->rest_outputs = arena_take_array(making->arena, graph->outputs, sizeof(size_t));
    if (making->output_of == NULL || making->plan->rest_outputs == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    making->own_outputs = graph->outputs;
    for (size_t i = 0; i < graph->outputs; i++)
        making->output_of[i] = i;
    if (count_deferred(graph, &inputs) == 0)
        return STATUS_OK;
    status = build_rest(&cut, inputs);
    if (status == STATUS_OK)
        status = finish(&cut, err);
    else
        status = error_set(err, status, "no memory to plan what depends on data");
    graph_destroy(cut.rest);
    free(cut.map);
    free(cut.inner);
    free(cut.outer);
    free(cut.wants_value);
    free(cut.inner_out);
    free(cut.print);
    return status;
}
