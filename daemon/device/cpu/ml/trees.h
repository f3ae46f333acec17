/* An ensemble of decision trees, checked and laid out for walking.
 *
 * A node's branches, and roots, are node indices, or leaves as their bitwise complement.  Every
 * tree ends: a node is reached from one place only, and no branch points anywhere else.
 */
#ifndef DEVICE_CPU_TREES_H
#define DEVICE_CPU_TREES_H

#include <stdbool.h>

#include "ops/ml.h"

enum tree_mode { TREE_LEQ, TREE_LT, TREE_GTE, TREE_GT, TREE_EQ, TREE_NEQ, TREE_LEAF };

struct tree_node {
    double threshold;
    int32_t feature;
    int32_t yes;
    int32_t no;
    uint8_t mode;     /* enum tree_mode */
    bool missing_yes; /* a NaN takes this branch */
};

struct tree_vote {
    double weight;
    int32_t target;
};

struct trees {
    size_t node_count, root_count, leaf_count, vote_count;
    struct tree_node *nodes;
    int32_t *roots;
    int32_t *leaf_votes; /* of leaf i: votes [leaf_votes[i], leaf_votes[i + 1]) */
    struct tree_vote *votes;
    size_t targets;
    bool all_leq; /* every node asks whether x <= threshold */
};

/* Both fill `trees`, to be given to trees_deinit() also after a failure. */
MUST_CHECK enum status trees_init_old(struct trees *trees, const struct tree_attrs *attrs,
                                      size_t targets, int64_t features, struct error *err);
MUST_CHECK enum status trees_init_new(struct trees *trees, const struct tree_ensemble_attrs *attrs,
                                      int64_t features, struct error *err);
void trees_deinit(struct trees *trees);

/* The leaf that row `x` ends in. */
size_t trees_walk(const struct trees *trees, int32_t root, const double *x);
/* The same where all_leq, for a row without NaN. */
static inline size_t trees_walk_leq(const struct trees *trees, int32_t root, const double *x)
{
    int32_t at = root;

    while (at >= 0) {
        const struct tree_node *node = &trees->nodes[at];

        at = x[node->feature] <= node->threshold ? node->yes : node->no;
    }
    return (size_t)~at;
}

#endif
