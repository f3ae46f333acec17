/* What lies between narrowed steps comes in the 16-bit type too, and products of two computed
 * matrices:
 *
 *     Cast(Conv) ─ Relu ─ Cast ─ Conv      →  Conv ─ Relu ─ Conv
 *     MatMul(q, k) ─ Softmax ─ MatMul(v)   →  all three in the type
 *
 * Backwards first: a result is wanted narrow if a narrowed step reads it, or a follower whose
 * result is.  Then forwards: a follower is narrowed if its result is wanted so and all it reads is
 * there in the type.  So what leads to an output alone (the last Softmax) stays in float32, and so
 * does what meets a float32 value or a constant that does not fit (a mask of -3e38).
 */
#include <string.h>

#include "graph/match.h"
#include "graph/narrow.h"
#include "ops/matmul.h"

enum follows { NEVER, FIRST, ALL };

static enum follows follows(const struct op_def *op)
{
    static const struct {
        const struct op_def *op;
        enum follows follows;
    } rows[] = {
#define FOLLOWS(operator, inputs) {&op_##operator, inputs },
#include "graph/narrow.def"
#undef FOLLOWS
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].op == op)
            return rows[i].follows;
    return NEVER;
}

/* Whether input `index` changes its type with the node. */
static bool changes(const struct node *node, size_t index)
{
    return node->in[index] != NULL && node->in[index]->dtype == DTYPE_FLOAT &&
           (index == 0 || follows(node->op) != FIRST);
}

static bool is_square(const struct node *node)
{
    return node_is(node, "Mul") && node->in[0] == node->in[1];
}

static bool takes_type(const struct node *node, enum dtype type)
{
    return !changes(node, 0) || node->op->dtypes == 0 || (node->op->dtypes >> type & 1) != 0;
}

/* Whatever its values: float32 results alone, one unless it splits. */
static bool may_follow(const struct narrowing *narrowing, const struct node *node)
{
    if (follows(node->op) == NEVER || is_square(node) || !takes_type(node, narrowing->to))
        return false;
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL &&
            (node->out[i]->dtype != DTYPE_FLOAT || (i > 0 && !node_is(node, "Split"))))
            return false;
    return node->outputs > 0 && node->out[0] != NULL;
}

/* A product whose operands are both computed: weights were looked at when the model was read. */
static bool is_computed_product(const struct node *node)
{
    if (node->op != &op_matmul || node->out[0] == NULL || node->out[0]->dtype != DTYPE_FLOAT)
        return false;
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL &&
            (node->in[i]->constant != NULL || producer_is(node->in[i], "DequantizeLinear") != NULL))
            return false;
    return true;
}

/* ---- backwards ---- */

static bool wants(const struct narrowing *narrowing, const struct node *node, const bool *wanted)
{
    if (node_is_cast(node, DTYPE_FLOAT, narrowing->to) || is_computed_product(node))
        return true;
    if (!may_follow(narrowing, node))
        return false;
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL && wanted[node->out[i]->id])
            return true;
    return false;
}

static void find_wanted(const struct narrowing *narrowing, bool *wanted)
{
    const struct list *nodes = &narrowing->graph->nodes;

    for (const struct list *link = nodes->prev; link != nodes; link = link->prev) {
        const struct node *node = CONTAINER_OF(link, struct node, link);

        if (!wants(narrowing, node, wanted))
            continue;
        for (size_t i = 0; i < node->inputs; i++)
            if (node->in[i] != NULL && (i == 0 || follows(node->op) != FIRST))
                wanted[node->in[i]->id] = true;
    }
}

/* ---- forwards ---- */

static bool is_ready(const struct narrowing *narrowing, const struct node *node, const bool *wanted)
{
    bool any = false;

    if (!may_follow(narrowing, node) || !wants(narrowing, node, wanted))
        return false;
    for (size_t i = 0; i < node->inputs; i++) {
        const struct value *value = node->in[i];

        if (!changes(node, i))
            continue;
        if (narrowing_twin(narrowing, value) != NULL)
            any = any || value->constant == NULL;
        else if (value->constant == NULL ||
                 tensor_bytes(&value->constant->tensor) > NARROW_PLAN_BYTES ||
                 !narrowing_fits(narrowing, value->constant, false))
            return false;
    }
    return any;
}

static enum status narrow(struct narrowing *narrowing, struct node *node, struct error *err)
{
    size_t outputs = node->outputs;

    for (size_t i = 0; i < node->inputs; i++) {
        struct value *twin;

        if (!changes(node, i))
            continue;
        if (narrowing_input(narrowing, node, node->in[i], &twin) != STATUS_OK)
            return pass_no_memory(err);
        node_set_input(node, i, twin);
    }
    for (size_t i = 0; i < outputs; i++)
        if (node->out[i] != NULL && narrowing_output(narrowing, node, i) != STATUS_OK)
            return pass_no_memory(err);
    return graph_infer_node(narrowing->graph, node, err);
}

/* A Cast: either says which value is whose twin, or is one too many. */
static bool note_cast(struct narrowing *narrowing, struct node *node)
{
    struct value *from = node->in[0], *to = node->out[0], *twin;

    if (node_is_cast(node, narrowing->to, DTYPE_FLOAT)) {
        narrowing_set_twin(narrowing, to, from);
        return true;
    }
    if (!node_is_cast(node, DTYPE_FLOAT, narrowing->to))
        return false;
    twin = narrowing_twin(narrowing, from);
    if (twin == NULL)
        narrowing_set_twin(narrowing, from, to);
    else if (!to->is_output && graph_replace_value(narrowing->graph, to, twin) == STATUS_OK)
        graph_remove_node(narrowing->graph, node);
    return true;
}

static enum status narrow_all(struct narrowing *narrowing, const bool *wanted, struct error *err)
{
    struct graph *graph = narrowing->graph;
    struct list *link = graph->nodes.next;

    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);

        link = link->next;
        if (note_cast(narrowing, node))
            continue;
        if (is_computed_product(node) || is_ready(narrowing, node, wanted))
            TRY(narrow(narrowing, node, err));
    }
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct narrowing narrowing;
    bool *wanted;

    if (context->narrow == DTYPE_NONE)
        return STATUS_OK;
    wanted = arena_take_array(&graph->arena, graph->next_value_id, sizeof(*wanted));
    if (wanted == NULL || narrowing_init(&narrowing, graph, context->narrow) != STATUS_OK)
        return pass_no_memory(err);
    find_wanted(&narrowing, wanted);
    return narrow_all(&narrowing, wanted, err);
}

const struct pass pass_narrow = {.name = "narrow", .stage = PASS_PLAN, .run = run};
