/* Equal constants become one, then nodes that compute the same from the same become one.
 *
 *      x ──> Shape ──> a
 *      x ──> Shape ──> b        becomes        a for b
 *
 * Candidates meet in a hash table by operator and inputs; equality is then checked for certain. */
#include "graph/match.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL_BYTES = 4096 }; /* larger constants are only merged when they are the same object */

struct table {
    size_t room; /* a power of two */
    void **items;
};

static bool table_init(struct table *table, size_t count)
{
    table->room = 16;
    while (table->room < 2 * count)
        table->room *= 2;
    table->items = calloc(table->room, sizeof(*table->items));
    return table->items != NULL;
}

static uint64_t mix(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = mix(hash, ((const unsigned char *)data)[i]);
    return hash;
}

/* --- constants ----------------------------------------------------------------------------------
 */

static bool is_small(const struct tensor *tensor)
{
    return tensor->dtype != DTYPE_STRING && tensor_bytes(tensor) <= SMALL_BYTES;
}

static uint64_t hash_constant(const struct constant *constant)
{
    const struct tensor *tensor = &constant->tensor;
    uint64_t hash = mix((uint64_t)tensor->dtype, tensor->shape.rank);

    if (!is_small(tensor))
        return mix(hash, (uintptr_t)constant);
    return hash_bytes(hash, tensor->data, tensor_bytes(tensor));
}

static bool same_constant(const struct constant *a, const struct constant *b)
{
    const struct tensor *x = &a->tensor, *y = &b->tensor;

    if (a == b)
        return true;
    return x->dtype == y->dtype && shape_is_equal(&x->shape, &y->shape) && is_small(x) &&
           (tensor_bytes(x) == 0 || memcmp(x->data, y->data, tensor_bytes(x)) == 0);
}

/* The first value of an equal constant; `value` itself when it is the first. */
static struct value *first_of(const struct table *table, struct value *value)
{
    size_t i = (size_t)hash_constant(value->constant) & (table->room - 1);

    for (; table->items[i] != NULL; i = (i + 1) & (table->room - 1)) {
        struct value *other = table->items[i];

        if (same_constant(other->constant, value->constant))
            return other;
    }
    table->items[i] = value;
    return value;
}

/* By value id: which value stands for it.  One walk over all inputs then replaces them. */
static void replace_inputs(struct graph *graph, struct value *const *stand_ins)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        for (size_t i = 0; i < node->inputs; i++)
            if (node->in[i] != NULL && stand_ins[node->in[i]->id] != NULL)
                node_set_input(node, i, stand_ins[node->in[i]->id]);
}

static enum status merge_constants(struct graph *graph)
{
    struct value **stand_ins = calloc((size_t)graph->next_value_id + 1, sizeof(*stand_ins));
    struct table table = {0};
    struct value *value;

    if (stand_ins == NULL || !table_init(&table, graph->next_value_id)) {
        free(stand_ins);
        return STATUS_NO_MEMORY;
    }
    LIST_FOR_EACH (value, &graph->values, struct value, link) {
        if (value->constant == NULL || value->is_output)
            continue;
        stand_ins[value->id] = first_of(&table, value);
        if (stand_ins[value->id] == value)
            stand_ins[value->id] = NULL;
    }
    replace_inputs(graph, stand_ins);
    free(table.items);
    free(stand_ins);
    return STATUS_OK;
}

/* --- nodes --------------------------------------------------------------------------------------
 */

static bool may_merge(const struct node *node)
{
    for (const struct attr_def *def = node->op->attrs; def != NULL && def->type != ATTR_END; def++)
        if (def->type == ATTR_GRAPH || def->type == ATTR_TENSOR || def->type == ATTR_STRINGS)
            return false;
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL && node->out[i]->is_output)
            return false;
    return (node->op->flags & OP_NOT_DETERMINISTIC) == 0;
}

static uint64_t hash_node(const struct node *node)
{
    uint64_t hash = mix((uintptr_t)node->op, node->inputs);

    for (size_t i = 0; i < node->inputs; i++)
        hash = mix(hash, node->in[i] == NULL ? 0 : (uint64_t)node->in[i]->id + 1);
    return hash;
}

static bool same_list(const void *a, const void *b, size_t count_a, size_t count_b, size_t bytes)
{
    return (a == NULL) == (b == NULL) && count_a == count_b &&
           (count_a == 0 || memcmp(a, b, count_a * bytes) == 0);
}

static bool same_attr(const struct attr_def *def, const void *a, const void *b)
{
    const struct ints *ints[] = {a, b};
    const struct floats *floats[] = {a, b};
    const char *texts[2];

    switch (def->type) {
    case ATTR_INT:
        return memcmp(a, b, sizeof(int64_t)) == 0;
    case ATTR_FLOAT:
        return memcmp(a, b, sizeof(float)) == 0;
    case ATTR_ENUM:
        return memcmp(a, b, sizeof(int)) == 0;
    case ATTR_STRING:
        memcpy(&texts[0], a, sizeof(texts[0]));
        memcpy(&texts[1], b, sizeof(texts[1]));
        return texts[0] == texts[1] ||
               (texts[0] != NULL && texts[1] != NULL && strcmp(texts[0], texts[1]) == 0);
    case ATTR_INTS:
        return same_list(ints[0]->values, ints[1]->values, ints[0]->count, ints[1]->count,
                         sizeof(int64_t));
    case ATTR_FLOATS:
        return same_list(floats[0]->values, floats[1]->values, floats[0]->count, floats[1]->count,
                         sizeof(float));
    case ATTR_STRINGS:
    case ATTR_TENSOR:
    case ATTR_GRAPH:
    case ATTR_END:
        break;
    }
    return false;
}

static bool same_node(const struct node *a, const struct node *b)
{
    if (a->op != b->op || a->inputs != b->inputs || a->outputs != b->outputs)
        return false;
    for (size_t i = 0; i < a->inputs; i++)
        if (a->in[i] != b->in[i])
            return false;
    for (const struct attr_def *def = a->op->attrs; def != NULL && def->type != ATTR_END; def++)
        if (!same_attr(def, (const char *)a->attrs + def->offset,
                       (const char *)b->attrs + def->offset))
            return false;
    return true;
}

static struct node *first_like(const struct table *table, struct node *node)
{
    size_t i = (size_t)hash_node(node) & (table->room - 1);

    for (; table->items[i] != NULL; i = (i + 1) & (table->room - 1))
        if (same_node(table->items[i], node))
            return table->items[i];
    table->items[i] = node;
    return node;
}

/* A value that only one of both wants stays with its node. */
static bool same_outputs_wanted(const struct node *a, const struct node *b)
{
    for (size_t i = 0; i < a->outputs; i++)
        if (b->out[i] != NULL && a->out[i] == NULL)
            return false;
    return true;
}

/* In order, so that what a node uses has been merged before the node is looked up. */
static void merge_in_order(struct graph *graph, const struct table *table, struct value **stand_ins)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link) {
        struct node *first;

        for (size_t i = 0; i < node->inputs; i++)
            if (node->in[i] != NULL && stand_ins[node->in[i]->id] != NULL)
                node_set_input(node, i, stand_ins[node->in[i]->id]);
        if (!may_merge(node))
            continue;
        first = first_like(table, node);
        if (first == node || !same_outputs_wanted(first, node))
            continue;
        for (size_t i = 0; i < node->outputs; i++)
            if (node->out[i] != NULL)
                stand_ins[node->out[i]->id] = first->out[i];
    }
}

static enum status merge_nodes(struct graph *graph)
{
    struct value **stand_ins = calloc((size_t)graph->next_value_id + 1, sizeof(*stand_ins));
    struct table table = {0};
    size_t count = 0;

    for (const struct list *link = graph->nodes.next; link != &graph->nodes; link = link->next)
        count++;
    if (stand_ins == NULL || !table_init(&table, count)) {
        free(stand_ins);
        return STATUS_NO_MEMORY;
    }
    merge_in_order(graph, &table, stand_ins);
    free(table.items);
    free(stand_ins);
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    (void)context;
    if (merge_constants(graph) != STATUS_OK || merge_nodes(graph) != STATUS_OK)
        return pass_no_memory(err);
    return STATUS_OK;
}

/* Before the passes that set what no attribute table names (epilogues). */
const struct pass pass_merge_duplicates = {
    .name = "merge_duplicates", .stage = PASS_MODEL, .run = run};
