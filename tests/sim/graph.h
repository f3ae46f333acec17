/* Graphs: pieces of work and which of them each must follow. */
#ifndef SLUICE_TESTS_SIM_GRAPH_H
#define SLUICE_TESTS_SIM_GRAPH_H

#include "stream.h"

/* Which nodes something follows: a sorted list of their numbers. */
struct node_set {
    size_t count;
    unsigned *nodes;
};

struct CUgraphNode_st {
    struct work work;
    struct node_set after;
    unsigned number; /* its place in the graph */
};

enum { GRAPH_MAGIC = 0x67726170, GRAPH_EXEC_MAGIC = 0x67657865 };

struct CUgraph_st {
    uint32_t magic;
    size_t count;
    size_t room;
    struct CUgraphNode_st **nodes;
};

/* An instantiated graph: its own copy of the nodes.  Launches hold a reference. */
struct graph_exec {
    uint32_t magic;
    unsigned references;
    bool destroyed;
    struct CUgraph_st *graph;
};

struct CUgraph_st *graph_make(void);
void graph_free(struct CUgraph_st *graph);
/* Adds a node behind those of `after`; takes the work over.  NULL: no memory. */
struct CUgraphNode_st *graph_add(struct CUgraph_st *graph, struct work work,
                                 const struct node_set *after);
void graph_exec_unref(struct graph_exec *exec);
/* Runs every node in an order that the edges allow; which one is the setting `order`. */
void graph_run(const struct graph_exec *exec);

void node_set_add(struct node_set *set, unsigned node);
void node_set_join(struct node_set *set, const struct node_set *other);
void node_set_only(struct node_set *set, unsigned node);
void node_set_free(struct node_set *set);

#endif
