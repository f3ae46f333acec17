/* Passes: rewrites of a graph that keep its meaning.  One file each in graph/, one row in
 * passes.def.
 *
 * MODEL passes run once when a model is read (they need no shapes), PLAN passes on each plan's
 * clone, where all shapes are known.  A pass may leave dead nodes; the driver removes them.
 */
#ifndef GRAPH_PASS_H
#define GRAPH_PASS_H

#include "graph/graph.h"

/* Computes the outputs of one node whose inputs are all constant; given by the engine, which runs
 * the node on the CPU device.  out: one new reference each (NULL entries for unwanted outputs).
 * STATUS_UNSUPPORTED means: leave the node as it is. */
typedef enum status (*pass_fold_fn)(void *arg, const struct graph *graph, const struct node *node,
                                    struct constant **out, struct error *err);

/* Whether the device takes attention in one step in a 16-bit type, or in float32 with boolean masks
 * and causal: shapes of Q, K, V and the masks,
 * NULL where there is none (ops/attention.h). */
struct attention_attrs;
typedef bool (*pass_attention_fn)(void *arg, const struct attention_attrs *attrs, enum dtype dtype,
                                  const struct shape *const *shapes);

struct pass_context {
    pass_fold_fn fold; /* NULL: no folding */
    void *fold_arg;
    size_t fold_limit_bytes; /* never fold what would grow beyond this; 0: no limit */
    enum dtype narrow; /* float32 products become this 16-bit type (narrow.h); DTYPE_NONE: not */
    bool multiplies_bytes; /* the device has kernels for quantised operators */
    bool weighs_bytes;     /* … and for float products whose weights stay bytes */
    bool fuses_chains;     /* the device takes element-wise operators in a row as one step */
    bool fuses_attention;  /* … and the products, masks and Softmax of attention in float32 */
    bool guards_attention; /* … also where a softmax that is not a number counts as zeros */
    pass_attention_fn takes_attention; /* … in other types and with other masks; NULL: in none */
    void *attention_arg;
    bool fuses_preludes;  /* … a BatchNormalization before a convolution as part of it */
    bool fuses_pools;     /* … a pool behind a convolution as part of it */
    bool fuses_shuffles;  /* … a shuffle of channels as one step, or part of a convolution */
    bool fuses_separable; /* … a depthwise convolution and the 1x1 around it as one step */
    bool fuses_narrow;    /* … what follows a product or convolution in 16-bit types, too */
};

enum pass_stage { PASS_MODEL, PASS_PLAN };

struct pass {
    const char *name;
    enum pass_stage stage;
    enum status (*run)(struct graph *graph, const struct pass_context *context, struct error *err);
};

#define PASS(name) extern const struct pass pass_##name;
#include "graph/passes.def"
#undef PASS

/* All passes of a stage in the order of passes.def.  The graph stays valid, also on failure. */
MUST_CHECK enum status pass_run_all(struct graph *graph, enum pass_stage stage,
                                    const struct pass_context *context, struct error *err);

#endif
