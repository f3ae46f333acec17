/* Float32 steps in a 16-bit type: what the passes that narrow a graph share.
 *
 *      x ─ Conv ─ y      becomes      x ─ Cast ─ Conv ─ Cast ─ y
 *
 * What stood there before stays float32 for everybody else: a half value has a float32 twin behind
 * a Cast, and the Cast is dead once nobody reads that twin.
 */
#ifndef GRAPH_NARROW_H
#define GRAPH_NARROW_H

#include "graph/pass.h"

/* Most bytes, in float32, of a constant that each plan narrows for itself. */
enum { NARROW_PLAN_BYTES = 1 << 20 };

/* Twins by the id of the float32 value; values made later have none. */
struct narrowing {
    struct graph *graph;
    enum dtype to; /* DTYPE_FLOAT16 or DTYPE_BFLOAT16 */
    uint32_t count;
    struct value **twin; /* count entries, in the graph's arena */
};

MUST_CHECK enum status narrowing_init(struct narrowing *narrowing, struct graph *graph,
                                      enum dtype to);
/* NULL: there is none yet. */
struct value *narrowing_twin(const struct narrowing *narrowing, const struct value *value);
void narrowing_set_twin(struct narrowing *narrowing, const struct value *value, struct value *twin);
/* Whether a float32 constant keeps its meaning in the type: nothing finite becomes infinite, and,
 * for `factors`, the largest element does not fall among the subnormal numbers. */
bool narrowing_fits(const struct narrowing *narrowing, struct constant *constant, bool factors);
/* The twin of `value`, made if there is none: of a constant another constant, which can leave
 * memory as the first can; else a Cast before `node`. */
MUST_CHECK enum status narrowing_input(struct narrowing *narrowing, struct node *node,
                                       struct value *value, struct value **out_twin);
/* Output `index` of a node comes in the type from now on; behind it a Cast makes what it was. */
MUST_CHECK enum status narrowing_output(struct narrowing *narrowing, struct node *node,
                                        size_t index);
/* A Cast from one type to the other. */
bool node_is_cast(const struct node *node, enum dtype from, enum dtype to);

#endif
