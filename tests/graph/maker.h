/* Small graphs for tests, in one line a node.  Everything is the graph's; malloc must not fail. */
#ifndef TESTS_GRAPH_MAKER_H
#define TESTS_GRAPH_MAKER_H

#include "support/unit.h"

#include <string.h>

#include "graph/match.h"

static inline struct value *make_input(struct graph *graph, const char *name, size_t rank,
                                       const int64_t *dims)
{
    struct value *value = graph_add_value(graph, name);

    assert_non_null(value);
    value->dtype = DTYPE_FLOAT;
    value->shape = shape_make(rank, dims);
    value->shape_known = true;
    value->is_input = true;
    return value;
}

static inline struct value *make_constant(struct graph *graph, enum dtype dtype, size_t rank,
                                          const int64_t *dims, const void *data)
{
    struct shape shape = shape_make(rank, dims);
    struct constant *constant = constant_allocate(dtype, &shape);
    struct value *value;

    assert_non_null(constant);
    if (data != NULL)
        memcpy((void *)(uintptr_t)constant->tensor.data, data, tensor_bytes(&constant->tensor));
    value = graph_add_constant(graph, "", constant);
    assert_non_null(value);
    return value;
}

static inline struct value *make_floats(struct graph *graph, size_t count, const float *data)
{
    return make_constant(graph, DTYPE_FLOAT, 1, &(int64_t){(int64_t)count}, data);
}

static inline struct value *make_number(struct graph *graph, double number)
{
    return make_constant(graph, DTYPE_FLOAT, 0, NULL, &(float){(float)number});
}

static inline struct value *make_ints(struct graph *graph, size_t count, const int64_t *data)
{
    return make_constant(graph, DTYPE_INT64, 1, &(int64_t){(int64_t)count}, data);
}

/* A node of up to three inputs at the end of the graph; its output 0. */
static inline struct value *make(struct graph *graph, const char *op, struct value *a,
                                 struct value *b, struct value *c)
{
    const struct op_def *def = op_find("", op);
    struct value *in[] = {a, b, c}, *out = graph_add_value(graph, "");
    size_t count = c != NULL ? 3 : b != NULL ? 2 : 1;
    struct node *node;

    assert_non_null(def);
    node = graph_add_node(graph, NULL, def, op, count, 1);
    assert_non_null(node);
    assert_non_null(out);
    op_attrs_default(def, node->attrs);
    for (size_t i = 0; i < count; i++)
        node_set_input(node, i, in[i]);
    node_set_output(node, 0, out);
    return out;
}

static inline void make_perm(struct graph *graph, struct value *value, size_t count,
                             const int64_t *perm)
{
    int64_t *copy = arena_copy(&graph->arena, perm, count * sizeof(*perm));

    assert_non_null(copy);
    *(struct ints *)node_attr(value->producer, "perm") = (struct ints){count, copy};
}

static inline void make_borders(struct graph *graph, struct value *in, struct value *out)
{
    out->name = "y";
    assert_ok(graph_set_inputs(graph, 1, &in));
    assert_ok(graph_set_outputs(graph, 1, &out));
}

static inline size_t count_ops(const struct graph *graph, const char *op)
{
    const struct node *node;
    size_t count = 0;

    LIST_FOR_EACH (node, &graph->nodes, const struct node, link)
        count += op == NULL || strcmp(node->op->onnx.name, op) == 0;
    return count;
}

static inline struct node *find_op(const struct graph *graph, const char *op)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        if (strcmp(node->op->onnx.name, op) == 0)
            return node;
    return NULL;
}

static inline void assert_valid(const struct graph *graph)
{
    const char *reason = "";

    if (!graph_is_valid(graph, &reason))
        fail_msg("%s", reason);
}

static inline void run_pass(struct graph *graph, const struct pass *pass)
{
    const struct pass_context context = {.fold = NULL};
    struct error err;

    assert_ok(pass->run(graph, &context, &err));
    graph_remove_dead(graph);
    assert_valid(graph);
}

#endif
