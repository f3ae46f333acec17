/* The graph: values, nodes, constants.  Knows no device and no file format.
 *
 *      value ──> node ──> value ──> node ──> value
 *        │ constant?        │ graph output?
 *
 * Nodes stand in an order in which every value is made before it is used.  A model's graph is made
 * once by the reader and its passes and is immutable from then on; each plan works on a clone whose
 * shapes are all known.  Constants are shared by all clones and count their users, so that packed
 * forms can be kept by constant.
 *
 * Ownership: a graph owns its nodes and values (one arena); it holds a reference to its constants.
 * Threads:   none while being changed; any number of readers afterwards.
 */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/list.h"
#include "ops/op.h"

struct graph;
struct node;

/* How elements that left memory come back: from the file they were copied from, or computed anew
 * from another constant.  Embedded in a struct of whoever made the constant. */
struct constant_origin {
    MUST_CHECK enum status (*restore)(const struct constant_origin *origin, void *to);
    void (*release)(struct constant_origin *origin);
    /* Whether what it reads, beside constants, is as it was: STATUS_PRECONDITION.  NULL: it is. */
    MUST_CHECK enum status (*check)(const struct constant_origin *origin);
    struct constant *source; /* what restore reads; NULL: no constant.  Unreferenced by release */
    /* What it reads beside that, brought for the time where it is away. */
    size_t others;
    struct constant **other;
};

/* Elements that never change: a weight, a folded value. */
struct constant {
    atomic_uint references;
    struct tensor tensor;                       /* data NULL: no elements, or they are away */
    void *owner;                                /* what keeps data alive; handed to release */
    void (*release)(struct constant *constant); /* frees data; may be NULL */
    struct constant_origin *origin; /* NULL: the elements never leave memory (see constant_drop) */
};

enum { CONSTANT_HEAVY_BYTES = 16 << 10 };

/* Makes a constant with one reference around `data`.  NULL when malloc refuses (data is untouched).
 */
struct constant *constant_create(const struct tensor *tensor, void *owner,
                                 void (*release)(struct constant *));
/* Makes one with room for its elements, zeroed, at the same address as tensor.data (cast it). */
struct constant *constant_allocate(enum dtype dtype, const struct shape *shape);
/* Whether a float weight is so large that it stays away until it is needed: it has two dimensions,
 * so whoever wants its elements expects to bring them. */
bool constant_is_heavy(enum dtype dtype, const struct shape *shape);
/* Makes one whose elements are out of memory until constant_restore() brings them from `origin`,
 * which it adopts.  NULL when malloc refuses (origin is untouched). */
struct constant *constant_promise(enum dtype dtype, const struct shape *shape,
                                  struct constant_origin *origin);
struct constant *constant_ref(struct constant *constant);
void constant_unref(struct constant *constant); /* NULL is fine */
/* Takes the elements out of memory if they have an origin to come back from (data is NULL then).
 * Nobody may be reading them. */
void constant_drop(struct constant *constant);
/* Brings dropped elements back; STATUS_OK at once when they are there.  STATUS_PRECONDITION: what
 * they come from was changed (a model's file, in place); STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status constant_restore(struct constant *constant);
/* Whether dropped elements could come back, without bringing them: STATUS_PRECONDITION as above. */
MUST_CHECK enum status constant_check(const struct constant *constant);
/* Between the two the calling thread keeps pages of elements that it frees for those that it makes
 * next: who brings many, one after the other, need not ask the system for pages each time. */
void constant_reuse_begin(void);
void constant_reuse_end(void);

struct value {
    struct list link;   /* in graph->values */
    const char *name;   /* the model's; "" for made ones */
    uint32_t id;        /* dense within its graph, stable over graph_clone() */
    enum dtype dtype;   /* DTYPE_NONE: not inferred yet */
    struct shape shape; /* may hold SHAPE_UNKNOWN in a model's graph */
    bool shape_known;   /* rank and dims were declared or inferred (dims may still be unknown) */
    bool shape_bound;   /* the shape is an upper bound, see op_call.out_bound */
    struct constant *constant; /* NULL for what is computed or fed */
    struct node *producer;     /* NULL for graph inputs and constants */
    uint32_t users;            /* inputs of nodes of this graph, and each graph output once */
    bool is_input;
    bool is_output;
};

struct node {
    struct list link; /* in graph->nodes, in order of execution */
    const struct op_def *op;
    const char *name; /* the model's, or "op_N" */
    void *attrs;      /* of op->attrs_size bytes, in the graph's arena; NULL when it has none */
    size_t inputs;
    struct value **in; /* entries may be NULL (optional inputs left out) */
    size_t outputs;
    struct value **out; /* entries may be NULL (not wanted) */
};

struct graph {
    struct arena arena;
    struct list nodes;
    struct list values;
    uint32_t next_value_id;
    size_t inputs; /* without those that have an initializer */
    struct value **in;
    size_t outputs;
    struct value **out;
    const char *name;
    /* What a sub-graph (If) uses of the graph around it.  Inside, captured[i] is fed like an input
     * (is_input is set).  Outside, the node that owns the sub-graphs lists the values they stand
     * for as further inputs behind its own: first those of its first ATTR_GRAPH attribute in the
     * order of `captured`, then those of the next; so use counts and lifetimes need no special
     * case. Outer constants are never captured: the sub-graph has its own value of the same
     * constant. */
    size_t captures; /* 0 for a whole model */
    struct value **captured;
    /* Sub-graphs named by attributes of this graph's nodes; destroyed with it.  A clone has none:
     * its attributes name those of the graph it was made from. */
    struct graph *children;
    struct graph *next_child;
};

/* NULL when malloc refuses. */
struct graph *graph_create(void);
void graph_destroy(struct graph *graph); /* NULL is fine */
/* A deep copy, NULL when malloc refuses.  Value ids are kept; constants are shared.  Attributes are
 * copied flat, names not at all: what they point to is the original's, which must outlive the
 * clone. */
struct graph *graph_clone(const struct graph *graph);
/* Adopts a sub-graph, see `children`. */
void graph_adopt(struct graph *graph, struct graph *child);

struct value *graph_add_value(struct graph *graph, const char *name);
struct value *graph_add_constant(struct graph *graph, const char *name,
                                 struct constant *constant); /* adopts, also on failure */
/* Lists of the graph's own; mark the values and count the outputs' uses.  Call each once. */
MUST_CHECK enum status graph_set_inputs(struct graph *graph, size_t count, struct value *const *in);
MUST_CHECK enum status graph_set_outputs(struct graph *graph, size_t count,
                                         struct value *const *out);
MUST_CHECK enum status graph_set_captures(struct graph *graph, size_t count,
                                          struct value *const *in);
/* Appends (before == NULL) or inserts a node; attrs of op->attrs_size zeroed bytes.  The in and out
 * arrays are zeroed: fill them with node_set_input() and node_set_output().  NULL: malloc refused.
 */
struct node *graph_add_node(struct graph *graph, struct node *before, const struct op_def *op,
                            const char *name, size_t inputs, size_t outputs);
void node_set_input(struct node *node, size_t index,
                    struct value *value); /* NULL clears; keeps user counts */
void node_set_output(struct node *node, size_t index, struct value *value);
/* Makes room for more inputs; STATUS_NO_MEMORY leaves the node as it was. */
MUST_CHECK enum status node_grow_inputs(struct graph *graph, struct node *node, size_t inputs);
/* Everything that used `old` uses `new` from now on, graph outputs included (the name follows).
 * STATUS_PRECONDITION, and nothing changed, when `old` is a graph output and `new` is an input, an
 * output or a constant: two names cannot share a value, and an output has a producer. */
MUST_CHECK enum status graph_replace_value(struct graph *graph, struct value *old,
                                           struct value *new);
/* The node is gone; its outputs keep no producer. */
void graph_remove_node(struct graph *graph, struct node *node);
/* Removes nodes and values that no output needs. */
void graph_remove_dead(struct graph *graph);
/* The only node that uses `value`, when there is one use and it is no graph output; else NULL. */
struct node *graph_single_user(const struct graph *graph, const struct value *value);

/* Infers dtype and shape of the node's outputs from its inputs (with op->infer and checks of count
 * and dtype).  The error names node, operator and reason.  STATUS_PRECONDITION: an input's shape,
 * or the value of one that decides a shape (op->value_inputs), is not known yet; operators flagged
 * OP_DATA_DEPENDENT are asked without such a value. */
MUST_CHECK enum status graph_infer_node(struct graph *graph, struct node *node, struct error *err);

/* Walks the structure: order, producers, user counts.  False with a reason for the debugger. */
bool graph_is_valid(const struct graph *graph, const char **out_reason);

#endif
