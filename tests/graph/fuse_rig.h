/* Small graphs by hand, and one pass over them. */
#ifndef TESTS_GRAPH_FUSE_RIG_H
#define TESTS_GRAPH_FUSE_RIG_H

#include <string.h>

#include "graph/fusion.h"
#include "graph/match.h"
#include "ops/chain.h"
#include "ops/conv.h"
#include "ops/conv_pool.h"
#include "ops/embedding.h"
#include "ops/gemm.h"
#include "ops/matmul.h"
#include "support/unit.h"

static inline struct value *fed(struct graph *graph, size_t rank, const int64_t *dims)
{
    struct value *value = graph_add_value(graph, "x");

    assert_non_null(value);
    value->dtype = DTYPE_FLOAT;
    value->shape = shape_make(rank, dims);
    value->shape_known = true;
    return value;
}

static inline struct value *constant(struct graph *graph, size_t rank, const int64_t *dims)
{
    struct shape shape = shape_make(rank, dims);

    return graph_add_constant(graph, "", constant_allocate(DTYPE_FLOAT, &shape));
}
#define DIMS(...)                                                                                  \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[])                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Shapes as a plan would have inferred them. */
static inline struct value *apply(struct graph *graph, const char *op, struct value *a,
                                  struct value *b)
{
    const struct op_def *def = op_find("", op);
    struct node *node = graph_add_node(graph, NULL, def, op, b == NULL ? 1 : 2, 1);

    assert_non_null(node);
    if (node->attrs != NULL)
        op_attrs_default(def, node->attrs);
    node_set_input(node, 0, a);
    if (b != NULL)
        node_set_input(node, 1, b);
    node_set_output(node, 0, graph_add_value(graph, ""));
    assert_ok(graph_infer_node(graph, node, NULL));
    return node->out[0];
}

static inline void finish(struct graph *graph, size_t inputs, struct value *const *in,
                          struct value *out)
{
    assert_ok(graph_set_inputs(graph, inputs, in));
    assert_ok(graph_set_outputs(graph, 1, &out));
}

static inline void run(struct graph *graph, const struct pass *pass)
{
    const struct pass_context context = {
        .fold = NULL, .fuses_chains = true, .fuses_preludes = true, .fuses_pools = true};
    const char *reason = "";

    assert_ok(pass->run(graph, &context, NULL));
    graph_remove_dead(graph);
    if (!graph_is_valid(graph, &reason))
        fail_msg("%s", reason);
}

static inline size_t count(const struct graph *graph, const char *op)
{
    const struct node *node;
    size_t found = 0;

    LIST_FOR_EACH (node, &graph->nodes, const struct node, link)
        found += op == NULL || strcmp(node->op->onnx.name, op) == 0;
    return found;
}

static inline struct node *only(const struct graph *graph)
{
    assert_int_equal(count(graph, NULL), 1);
    return LIST_FIRST(&graph->nodes, struct node, link);
}

#endif
