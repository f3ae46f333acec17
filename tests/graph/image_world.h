/* A graph with an image for its input, made anew for each test. */
#ifndef TESTS_GRAPH_IMAGE_WORLD_H
#define TESTS_GRAPH_IMAGE_WORLD_H

#include "graph/byte_passes.h"

#include <stdlib.h>

static const int64_t image[] = {1, 2, 4, 4};

struct world {
    struct graph *graph;
    struct value *x;
};

static inline int setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    world->graph = graph_create();
    world->x = make_input(world->graph, "x", 4, image);
    *state = world;
    return 0;
}

static inline int teardown(void **state)
{
    struct world *world = *state;

    graph_destroy(world->graph);
    free(world);
    return 0;
}

#define N(number)      make_number(world->graph, number)
#define OP(name, a, b) make(world->graph, name, a, b, NULL)
#define X              world->x

static const int64_t to_last[] = {0, 2, 3, 1}, to_first[] = {0, 3, 1, 2};

static inline struct value *transpose(struct world *world, struct value *value, const int64_t *perm)
{
    struct value *out = OP("Transpose", value, NULL);

    make_perm(world->graph, out, 4, perm);
    return out;
}

#endif
