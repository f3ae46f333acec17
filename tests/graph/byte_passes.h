/* Tests of the passes that make steps on bytes. */
#ifndef TESTS_GRAPH_BYTE_PASSES_H
#define TESTS_GRAPH_BYTE_PASSES_H

#include "graph/maker.h"
#include "support/fail_alloc.h"

/* Runs one of them on the graph from x to y, for a device that multiplies bytes or does not. */
static inline void run_byte_pass(struct graph *graph, const struct pass *pass,
                                 bool multiplies_bytes, struct value *x, struct value *y)
{
    const struct pass_context context = {.multiplies_bytes = multiplies_bytes,
                                         .weighs_bytes = multiplies_bytes};
    struct error err;

    make_borders(graph, x, y);
    assert_ok(pass->run(graph, &context, &err));
    graph_remove_dead(graph);
    assert_valid(graph);
}

static inline enum status run_all_on_a_clone(void *arg)
{
    const struct pass_context context = {.multiplies_bytes = true, .weighs_bytes = true};
    struct graph *copy = graph_clone(arg);
    enum status status;
    struct error err;

    if (copy == NULL)
        return STATUS_NO_MEMORY;
    status = pass_run_all(copy, PASS_MODEL, &context, &err);
    assert_valid(copy); /* also when memory ran out half way */
    graph_destroy(copy);
    return status;
}

/* All passes, every allocation of theirs failing in turn, on the graph from x to y. */
static inline void assert_passes_fail_cleanly(struct graph *graph, struct value *x, struct value *y)
{
    make_borders(graph, x, y);
    assert_true(fail_each_alloc(run_all_on_a_clone, graph) > 5);
}

#endif
