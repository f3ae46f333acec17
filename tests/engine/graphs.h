/* Small graphs that several tests of the engine run. */
#ifndef TESTS_ENGINE_GRAPHS_H
#define TESTS_ENGINE_GRAPHS_H

#include "rig.h"

/* x [n, 64] → Abs → Exp → Neg */
static inline struct graph *chain_graph(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, 64));
    struct value *y = APPLY(graph, "Neg", APPLY(graph, "Exp", APPLY(graph, "Abs", x)));

    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

/* x → Conv → Relu → Conv → Add(first Relu) → Relu */
static inline struct graph *conv_graph(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, 16, 8, 8));
    struct node *one = NODE(graph, "Conv", x, make_floats(graph, SHAPE(32, 16, 1, 1), 1));
    struct value *relu = APPLY(graph, "Relu", one->out[0]);
    struct node *two = NODE(graph, "Conv", relu, make_floats(graph, SHAPE(32, 32, 1, 1), 2));
    struct value *y = APPLY(graph, "Relu", APPLY(graph, "Add", two->out[0], relu));

    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

#endif
