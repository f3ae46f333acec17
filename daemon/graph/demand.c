/* An input's shape is followed through operators that keep it, up to those whose weight has a
 * dimension that must be equal to one of it. */
#include "graph/demand.h"

#include <stdlib.h>
#include <string.h>

#include "ops/conv.h"
#include "ops/gemm.h"

enum { GROUPED = 1 }; /* the weight has the channels of one group */

/* Dimension `axis` of input `data` is dimension `weight_axis` of input `weight`; negative: counted
 * from the end. */
static const struct rule {
    const char *op;
    unsigned char data, weight;
    signed char axis, weight_axis;
    unsigned char flags;
} rules[] = {
    {"Conv", 0, 1, 1, 1, GROUPED},
    {"ConvInteger", 0, 1, 1, 1, GROUPED},
    {"QLinearConv", 0, 3, 1, 1, GROUPED},
    {"ConvTranspose", 0, 1, 1, 0, 0},
    {"MatMul", 0, 1, -1, -2, 0},
    {"MatMul", 1, 0, -2, -1, 0},
    {"MatMulInteger", 0, 1, -1, -2, 0},
    {"QLinearMatMul", 0, 3, -1, -2, 0},
    {"BatchNormalization", 0, 1, 1, 0, 0},
    {"InstanceNormalization", 0, 1, 1, 0, 0},
    {"LayerNormalization", 0, 1, -1, -1, 0},
    {"LSTM", 0, 1, 2, 2, 0},
    {"GRU", 0, 1, 2, 2, 0},
    {"RNN", 0, 1, 2, 2, 0},
};

/* Operators that are not elementwise and whose output 0 has the shape of input 0. */
static const char *const keepers[] = {
    "BatchNormalization", "DequantizeLinear", "InstanceNormalization", "LRN", "LayerNormalization",
    "QuantizeLinear",     "Softmax",
};

enum { NO_INPUT = 0 }; /* others are counted from 1 */

struct walk {
    struct shape *shapes;
    size_t *source; /* by value: the input whose shape it has */
};

static size_t source_of(const struct walk *walk, const struct value *value)
{
    return value == NULL ? NO_INPUT : walk->source[value->id];
}

/* What may be broadcast to an input's shape without making it larger. */
static bool is_small(const struct walk *walk, const struct value *value, size_t source)
{
    return value != NULL && value->constant != NULL &&
           value->constant->tensor.shape.rank <= walk->shapes[source - 1].rank;
}

static bool keeps_shape(const struct node *node)
{
    if ((node->op->flags & OP_ELEMENTWISE) != 0)
        return true;
    for (size_t i = 0; i < sizeof(keepers) / sizeof(keepers[0]); i++)
        if (strcmp(node->op->onnx.name, keepers[i]) == 0)
            return true;
    return false;
}

static void follow(const struct walk *walk, const struct node *node)
{
    bool is_elementwise = (node->op->flags & OP_ELEMENTWISE) != 0;
    size_t source = NO_INPUT;

    if (node->outputs == 0 || node->out[0] == NULL || !keeps_shape(node))
        return;
    for (size_t i = 0; i < node->inputs && source == NO_INPUT; i++)
        source = i == 0 || is_elementwise ? source_of(walk, node->in[i]) : source;
    if (source == NO_INPUT)
        return;
    for (size_t i = 0; is_elementwise && i < node->inputs; i++)
        if (node->in[i] != NULL && source_of(walk, node->in[i]) != source &&
            !is_small(walk, node->in[i], source))
            return;
    walk->source[node->out[0]->id] = source;
}

/* False: the shape has no such dimension. */
static bool find_axis(const struct shape *shape, int axis, size_t *out_axis)
{
    int64_t found = axis < 0 ? axis + (int64_t)shape->rank : axis;

    *out_axis = (size_t)found;
    return found >= 0 && found < (int64_t)shape->rank;
}

static void demand(const struct walk *walk, const struct node *node, const struct rule *rule)
{
    size_t source = rule->data < node->inputs ? source_of(walk, node->in[rule->data]) : NO_INPUT;
    const struct value *weight = rule->weight < node->inputs ? node->in[rule->weight] : NULL;
    size_t axis, weight_axis;
    struct shape *shape;
    int64_t size;

    if (source == NO_INPUT || weight == NULL || !weight->shape_known)
        return;
    shape = &walk->shapes[source - 1];
    /* A vector has but one dimension to multiply along. */
    if (!find_axis(&weight->shape, weight->shape.rank == 1 ? 0 : rule->weight_axis, &weight_axis) ||
        !find_axis(shape, shape->rank == 1 ? 0 : rule->axis, &axis))
        return;
    size = weight->shape.dims[weight_axis];
    if ((rule->flags & GROUPED) != 0 && size > 0)
        size *= ((const struct conv_attrs *)node->attrs)->group;
    if (size > 0 && shape->dims[axis] == SHAPE_UNKNOWN)
        shape->dims[axis] = size;
}

static void demand_gemm(const struct walk *walk, const struct node *node)
{
    const struct gemm_attrs *attrs = node->attrs;
    const struct rule left = {.data = GEMM_A,
                              .weight = GEMM_B,
                              .axis = attrs->transA != 0 ? 0 : 1,
                              .weight_axis = attrs->transB != 0 ? 1 : 0};
    const struct rule right = {.data = GEMM_B,
                               .weight = GEMM_A,
                               .axis = attrs->transB != 0 ? 1 : 0,
                               .weight_axis = attrs->transA != 0 ? 0 : 1};

    demand(walk, node, &left);
    demand(walk, node, &right);
}

static void visit(const struct walk *walk, const struct node *node)
{
    if (strcmp(node->op->onnx.name, "Gemm") == 0)
        demand_gemm(walk, node);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (strcmp(node->op->onnx.name, rules[i].op) == 0)
            demand(walk, node, &rules[i]);
    follow(walk, node);
}

void graph_fill_demands(const struct graph *graph, struct shape *shapes)
{
    struct walk walk = {.shapes = shapes};
    const struct node *node;

    walk.source = calloc((size_t)graph->next_value_id + 1, sizeof(*walk.source));
    if (walk.source == NULL)
        return;
    for (size_t i = 0; i < graph->inputs; i++)
        walk.source[graph->in[i]->id] = i + 1;
    LIST_FOR_EACH (node, &graph->nodes, const struct node, link)
        visit(&walk, node);
    free(walk.source);
}
