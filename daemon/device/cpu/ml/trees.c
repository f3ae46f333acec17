#include "device/cpu/ml/trees.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1 << 28 };

void trees_deinit(struct trees *trees)
{
    free(trees->nodes);
    free(trees->roots);
    free(trees->leaf_votes);
    free(trees->votes);
}

static enum status allocate(struct trees *trees, size_t nodes, size_t roots, size_t leaves,
                            size_t votes, struct error *err)
{
    if (nodes == 0 || nodes > MAX_NODES || leaves > MAX_NODES || votes > MAX_NODES)
        return error_set(err, STATUS_INVALID, "an ensemble of %zu nodes and %zu votes", nodes,
                         votes);
    trees->node_count = nodes;
    trees->root_count = roots;
    trees->leaf_count = leaves;
    trees->vote_count = votes;
    trees->nodes = calloc(nodes, sizeof(*trees->nodes));
    trees->roots = calloc(roots + 1, sizeof(*trees->roots));
    trees->leaf_votes = calloc(leaves + 1, sizeof(*trees->leaf_votes));
    trees->votes = calloc(votes + 1, sizeof(*trees->votes));
    if (trees->nodes == NULL || trees->roots == NULL || trees->leaf_votes == NULL ||
        trees->votes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for an ensemble of %zu nodes", nodes);
    return STATUS_OK;
}

/* A number of a FLOAT, DOUBLE or FLOAT16 attribute tensor. */
static double tensor_at(const struct tensor *tensor, size_t index)
{
    switch (tensor->dtype) {
    case DTYPE_DOUBLE:
        return ((const double *)tensor->data)[index];
    case DTYPE_FLOAT16:
        return (double)float_from_half(((const uint16_t *)tensor->data)[index]);
    default:
        return (double)((const float *)tensor->data)[index];
    }
}

static bool has_reals(const struct tensor *tensor, size_t count)
{
    return (tensor->dtype == DTYPE_FLOAT || tensor->dtype == DTYPE_DOUBLE ||
            tensor->dtype == DTYPE_FLOAT16) &&
           (size_t)shape_count(&tensor->shape) == count;
}

/* ---- what holds for both forms ---- */

/* Counts the ways into each node: one at most, and none into a root's own tree again. */
static enum status check_ends(const struct trees *trees, struct error *err)
{
    uint8_t *entered = calloc(trees->node_count, 1);
    bool twice = false;

    if (entered == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to check the trees");
    for (size_t i = 0; i < trees->root_count; i++)
        if (trees->roots[i] >= 0)
            twice |= entered[trees->roots[i]]++ != 0;
    for (size_t i = 0; i < trees->node_count && !twice; i++) {
        const struct tree_node *node = &trees->nodes[i];

        if (node->mode == TREE_LEAF)
            continue;
        if (node->yes >= 0)
            twice |= entered[node->yes]++ != 0;
        if (node->no >= 0)
            twice |= entered[node->no]++ != 0;
    }
    free(entered);
    /* A cycle that a root leads into has a node entered from two places. */
    return twice ? error_set(err, STATUS_INVALID, "a node of a tree is reached from two places")
                 : STATUS_OK;
}

static enum status check_feature(int64_t feature, int64_t features, struct error *err)
{
    if (feature < 0 || feature >= features)
        return error_set(err, STATUS_INVALID, "a node asks for feature %" PRId64 " of %" PRId64,
                         feature, features);
    return STATUS_OK;
}

static enum status check_target(int64_t target, size_t targets, struct error *err)
{
    if (target < 0 || (size_t)target >= targets)
        return error_set(err, STATUS_INVALID, "a leaf votes for target %" PRId64 " of %zu", target,
                         targets);
    return STATUS_OK;
}

/* Nodes that are leaves, in the old form, are named as leaves: walks then end at the sign. */
static int32_t name_leaf(const struct trees *trees, int32_t branch)
{
    return branch >= 0 && trees->nodes[branch].mode == TREE_LEAF ? ~branch : branch;
}

static void finish(struct trees *trees)
{
    trees->all_leq = true;
    for (size_t i = 0; i < trees->root_count; i++)
        trees->roots[i] = name_leaf(trees, trees->roots[i]);
    for (size_t i = 0; i < trees->node_count; i++) {
        struct tree_node *node = &trees->nodes[i];

        if (node->mode == TREE_LEAF)
            continue;
        node->yes = name_leaf(trees, node->yes);
        node->no = name_leaf(trees, node->no);
        trees->all_leq = trees->all_leq && node->mode == TREE_LEQ;
    }
}

/* ---- TreeEnsembleClassifier, TreeEnsembleRegressor: nodes known by (tree, node) ---- */

struct name {
    int64_t tree;
    int64_t node;
    int32_t index;
};

static int compare_names(const void *a, const void *b)
{
    const struct name *x = a, *y = b;

    if (x->tree != y->tree)
        return x->tree < y->tree ? -1 : 1;
    return x->node == y->node ? 0 : x->node < y->node ? -1 : 1;
}

static const struct name *find_name(const struct name *names, size_t count, int64_t tree,
                                    int64_t node)
{
    struct name key = {tree, node, 0};

    return bsearch(&key, names, count, sizeof(key), compare_names);
}

static bool read_mode(const struct bytes *word, uint8_t *out_mode)
{
    static const char *const words[] = {
        [TREE_LEQ] = "BRANCH_LEQ", [TREE_LT] = "BRANCH_LT", [TREE_GTE] = "BRANCH_GTE",
        [TREE_GT] = "BRANCH_GT",   [TREE_EQ] = "BRANCH_EQ", [TREE_NEQ] = "BRANCH_NEQ",
        [TREE_LEAF] = "LEAF"};

    for (uint8_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strlen(words[i]) == word->size && memcmp(words[i], word->data, word->size) == 0) {
            *out_mode = i;
            return true;
        }
    return false;
}

static enum status check_old_lists(const struct tree_attrs *attrs, struct error *err)
{
    size_t nodes = attrs->nodes_nodeids.count, votes = attrs->vote_ids.count;
    bool values =
        attrs->nodes_values.count == nodes || has_reals(&attrs->nodes_values_as_tensor, nodes);
    bool weights =
        attrs->vote_weights.count == votes || has_reals(&attrs->vote_weights_as_tensor, votes);
    const struct ints *missing = &attrs->nodes_missing_value_tracks_true;

    if (attrs->nodes_treeids.count != nodes || attrs->nodes_featureids.count != nodes ||
        attrs->nodes_truenodeids.count != nodes || attrs->nodes_falsenodeids.count != nodes ||
        attrs->nodes_modes.count != nodes || !values ||
        (missing->count != 0 && missing->count != nodes))
        return error_set(err, STATUS_INVALID, "the lists nodes_* are of different lengths");
    if (attrs->vote_treeids.count != votes || attrs->vote_nodeids.count != votes || !weights)
        return error_set(err, STATUS_INVALID,
                         "the lists of the leaves' votes are of different lengths");
    return STATUS_OK;
}

static enum status read_node(struct trees *trees, const struct tree_attrs *attrs,
                             const struct name *names, size_t i, int64_t features,
                             struct error *err)
{
    struct tree_node *node = &trees->nodes[i];
    int64_t tree = attrs->nodes_treeids.values[i];
    const struct name *yes, *no;

    if (!read_mode(&attrs->nodes_modes.values[i], &node->mode))
        return error_set(err, STATUS_UNSUPPORTED, "node mode '%.*s' is not supported",
                         (int)attrs->nodes_modes.values[i].size, attrs->nodes_modes.values[i].data);
    if (node->mode == TREE_LEAF)
        return STATUS_OK;
    TRY(check_feature(attrs->nodes_featureids.values[i], features, err));
    yes = find_name(names, trees->node_count, tree, attrs->nodes_truenodeids.values[i]);
    no = find_name(names, trees->node_count, tree, attrs->nodes_falsenodeids.values[i]);
    if (yes == NULL || no == NULL)
        return error_set(err, STATUS_INVALID,
                         "node %" PRId64 " of tree %" PRId64 " leads to a node that is not there",
                         attrs->nodes_nodeids.values[i], tree);
    node->feature = (int32_t)attrs->nodes_featureids.values[i];
    node->yes = yes->index;
    node->no = no->index;
    node->missing_yes = attrs->nodes_missing_value_tracks_true.count > 0 &&
                        attrs->nodes_missing_value_tracks_true.values[i] != 0;
    node->threshold = attrs->nodes_values.count > 0 ? (double)attrs->nodes_values.values[i]
                                                    : tensor_at(&attrs->nodes_values_as_tensor, i);
    return STATUS_OK;
}

/* Roots are the nodes that none leads to, in the order of the model. */
static enum status find_roots(struct trees *trees, struct error *err)
{
    uint8_t *entered = calloc(trees->node_count, 1);

    if (entered == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to check the trees");
    for (size_t i = 0; i < trees->node_count; i++)
        if (trees->nodes[i].mode != TREE_LEAF) {
            entered[trees->nodes[i].yes] = 1;
            entered[trees->nodes[i].no] = 1;
        }
    trees->root_count = 0;
    for (size_t i = 0; i < trees->node_count; i++)
        if (entered[i] == 0)
            trees->roots[trees->root_count++] = (int32_t)i;
    free(entered);
    return STATUS_OK;
}

/* Sorts the votes by leaf: here every node counts as a leaf, most without votes. */
static enum status read_votes(struct trees *trees, const struct tree_attrs *attrs,
                              const struct name *names, struct error *err)
{
    size_t votes = trees->vote_count;
    int32_t *leaves = calloc(votes + 1, sizeof(*leaves)), *next;
    enum status status = STATUS_OK;

    if (leaves == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the leaves' votes");
    for (size_t i = 0; i < votes && status == STATUS_OK; i++) {
        const struct name *name = find_name(names, trees->node_count, attrs->vote_treeids.values[i],
                                            attrs->vote_nodeids.values[i]);

        status = check_target(attrs->vote_ids.values[i], trees->targets, err);
        if (name == NULL)
            status = error_set(err, STATUS_INVALID, "a vote of a leaf that is not there");
        else
            leaves[i] = name->index;
    }
    for (size_t i = 0; i < votes && status == STATUS_OK; i++)
        trees->leaf_votes[leaves[i] + 1]++;
    for (size_t i = 0; i < trees->leaf_count && status == STATUS_OK; i++)
        trees->leaf_votes[i + 1] += trees->leaf_votes[i];
    next = calloc(trees->leaf_count + 1, sizeof(*next));
    if (next == NULL)
        status = error_set(err, STATUS_NO_MEMORY, "no memory for the leaves' votes");
    for (size_t i = 0; i < votes && status == STATUS_OK; i++) {
        int32_t at = trees->leaf_votes[leaves[i]] + next[leaves[i]]++;

        trees->votes[at] = (struct tree_vote){attrs->vote_weights.count > 0
                                                  ? (double)attrs->vote_weights.values[i]
                                                  : tensor_at(&attrs->vote_weights_as_tensor, i),
                                              (int32_t)attrs->vote_ids.values[i]};
    }
    free(next);
    free(leaves);
    return status;
}

static enum status read_old(struct trees *trees, const struct tree_attrs *attrs, struct name *names,
                            int64_t features, struct error *err)
{
    size_t count = trees->node_count;

    for (size_t i = 0; i < count; i++)
        names[i] = (struct name){attrs->nodes_treeids.values[i], attrs->nodes_nodeids.values[i],
                                 (int32_t)i};
    qsort(names, count, sizeof(*names), compare_names);
    for (size_t i = 1; i < count; i++)
        if (compare_names(&names[i - 1], &names[i]) == 0)
            return error_set(err, STATUS_INVALID,
                             "node %" PRId64 " of tree %" PRId64 " is there twice", names[i].node,
                             names[i].tree);
    for (size_t i = 0; i < count; i++)
        TRY(read_node(trees, attrs, names, i, features, err));
    TRY(find_roots(trees, err));
    TRY(check_ends(trees, err));
    finish(trees);
    return read_votes(trees, attrs, names, err);
}

enum status trees_init_old(struct trees *trees, const struct tree_attrs *attrs, size_t targets,
                           int64_t features, struct error *err)
{
    size_t count = attrs->nodes_nodeids.count;
    struct name *names;
    enum status status;

    memset(trees, 0, sizeof(*trees));
    trees->targets = targets;
    TRY(check_old_lists(attrs, err));
    TRY(allocate(trees, count, count, count, attrs->vote_ids.count, err));
    names = calloc(count, sizeof(*names));
    if (names == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for an ensemble of %zu nodes", count);
    status = read_old(trees, attrs, names, features, err);
    free(names);
    return status;
}

/* ---- TreeEnsemble: nodes and leaves known by their place ---- */

static enum status check_new_lists(const struct tree_ensemble_attrs *attrs, struct error *err)
{
    size_t nodes = attrs->nodes_featureids.count, leaves = attrs->leaf_targetids.count;
    const struct ints *missing = &attrs->nodes_missing_value_tracks_true;

    if (attrs->nodes_truenodeids.count != nodes || attrs->nodes_falsenodeids.count != nodes ||
        attrs->nodes_trueleafs.count != nodes || attrs->nodes_falseleafs.count != nodes ||
        !has_reals(&attrs->nodes_splits, nodes) || attrs->nodes_modes.dtype != DTYPE_UINT8 ||
        (size_t)shape_count(&attrs->nodes_modes.shape) != nodes ||
        (missing->count != 0 && missing->count != nodes))
        return error_set(err, STATUS_INVALID, "the lists nodes_* are of different lengths");
    if (!has_reals(&attrs->leaf_weights, leaves))
        return error_set(err, STATUS_INVALID, "leaf_weights and leaf_targetids do not match");
    return STATUS_OK;
}

static enum status read_branch(const struct trees *trees, int64_t place, int64_t is_leaf,
                               int32_t *out_branch, struct error *err)
{
    size_t count = is_leaf != 0 ? trees->leaf_count : trees->node_count;

    if (place < 0 || (size_t)place >= count)
        return error_set(err, STATUS_INVALID, "a branch leads to %s %" PRId64 " of %zu",
                         is_leaf != 0 ? "leaf" : "node", place, count);
    *out_branch = is_leaf != 0 ? ~(int32_t)place : (int32_t)place;
    return STATUS_OK;
}

static enum status read_new_node(struct trees *trees, const struct tree_ensemble_attrs *attrs,
                                 size_t i, int64_t features, struct error *err)
{
    struct tree_node *node = &trees->nodes[i];
    uint8_t mode = ((const uint8_t *)attrs->nodes_modes.data)[i];

    if (mode >= TREE_LEAF) /* 6: set membership */
        return error_set(err, STATUS_UNSUPPORTED, "node mode %u is not supported", mode);
    TRY(check_feature(attrs->nodes_featureids.values[i], features, err));
    TRY(read_branch(trees, attrs->nodes_truenodeids.values[i], attrs->nodes_trueleafs.values[i],
                    &node->yes, err));
    TRY(read_branch(trees, attrs->nodes_falsenodeids.values[i], attrs->nodes_falseleafs.values[i],
                    &node->no, err));
    node->mode = mode;
    node->feature = (int32_t)attrs->nodes_featureids.values[i];
    node->threshold = tensor_at(&attrs->nodes_splits, i);
    node->missing_yes = attrs->nodes_missing_value_tracks_true.count > 0 &&
                        attrs->nodes_missing_value_tracks_true.values[i] != 0;
    return STATUS_OK;
}

enum status trees_init_new(struct trees *trees, const struct tree_ensemble_attrs *attrs,
                           int64_t features, struct error *err)
{
    size_t leaves = attrs->leaf_targetids.count;

    memset(trees, 0, sizeof(*trees));
    trees->targets = (size_t)attrs->n_targets;
    TRY(check_new_lists(attrs, err));
    TRY(allocate(trees, attrs->nodes_featureids.count, attrs->tree_roots.count, leaves, leaves,
                 err));
    for (size_t i = 0; i < trees->node_count; i++)
        TRY(read_new_node(trees, attrs, i, features, err));
    for (size_t i = 0; i < trees->root_count; i++)
        TRY(read_branch(trees, attrs->tree_roots.values[i], 0, &trees->roots[i], err));
    for (size_t i = 0; i < leaves; i++) {
        TRY(check_target(attrs->leaf_targetids.values[i], trees->targets, err));
        trees->leaf_votes[i + 1] = (int32_t)i + 1;
        trees->votes[i] = (struct tree_vote){tensor_at(&attrs->leaf_weights, i),
                                             (int32_t)attrs->leaf_targetids.values[i]};
    }
    TRY(check_ends(trees, err));
    finish(trees);
    return STATUS_OK;
}

/* ---- walking ---- */

static bool takes_yes(const struct tree_node *node, double x)
{
    if (isnan(x) && node->missing_yes)
        return true;
    switch ((enum tree_mode)node->mode) {
    case TREE_LEQ:
        return x <= node->threshold;
    case TREE_LT:
        return x < node->threshold;
    case TREE_GTE:
        return x >= node->threshold;
    case TREE_GT:
        return x > node->threshold;
    case TREE_EQ:
        return x == node->threshold;
    case TREE_NEQ:
        return x != node->threshold;
    case TREE_LEAF:
        break;
    }
    return false;
}

size_t trees_walk(const struct trees *trees, int32_t root, const double *x)
{
    int32_t at = root;

    while (at >= 0) {
        const struct tree_node *node = &trees->nodes[at];

        at = takes_yes(node, x[node->feature]) ? node->yes : node->no;
    }
    return (size_t)~at;
}
