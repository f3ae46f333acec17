/* Attributes of the classic machine-learning operators (domain ai.onnx.ml). */
#ifndef OPS_ML_H
#define OPS_ML_H

#include "ops/op.h"

/* In the order of TreeEnsemble's numbers. */
enum post_transform {
    POST_NONE,
    POST_SOFTMAX,
    POST_LOGISTIC,
    POST_SOFTMAX_ZERO,
    POST_PROBIT, /* refused */
    POST_COUNT
};

enum norm { NORM_MAX, NORM_L1, NORM_L2 };
struct normalizer_attrs {
    int norm; /* enum norm */
};

struct scaler_attrs {
    struct floats offset; /* one, or one a feature */
    struct floats scale;
};

struct linear_attrs { /* LinearRegressor, LinearClassifier */
    struct floats coefficients;
    struct floats intercepts;
    int64_t targets; /* LinearRegressor */
    int64_t multi_class;
    int post_transform;
    struct ints classlabels_ints;
    struct strings classlabels_strings;
};

enum aggregate { AGGREGATE_AVERAGE, AGGREGATE_SUM, AGGREGATE_MIN, AGGREGATE_MAX, AGGREGATE_COUNT };

/* Both TreeEnsembleClassifier and TreeEnsembleRegressor: a leaf's votes are lists of (tree, node,
 * target, weight), called class_* by the one and target_* by the other. */
struct tree_attrs {
    struct ints nodes_treeids, nodes_nodeids, nodes_featureids;
    struct ints nodes_truenodeids, nodes_falsenodeids, nodes_missing_value_tracks_true;
    struct floats nodes_values, nodes_hitrates;
    struct tensor nodes_values_as_tensor, nodes_hitrates_as_tensor;
    struct strings nodes_modes;
    struct ints vote_treeids, vote_nodeids, vote_ids;
    struct floats vote_weights;
    struct tensor vote_weights_as_tensor;
    struct floats base_values;
    struct tensor base_values_as_tensor;
    struct ints classlabels_int64s;
    struct strings classlabels_strings;
    int64_t n_targets;
    int aggregate_function; /* enum aggregate */
    int post_transform;
};

struct tree_ensemble_attrs {    /* TreeEnsemble, the newer form */
    int64_t aggregate_function; /* enum aggregate */
    int64_t n_targets;
    int64_t post_transform;
    struct ints leaf_targetids, nodes_falseleafs, nodes_falsenodeids, nodes_featureids;
    struct ints nodes_missing_value_tracks_true, nodes_trueleafs, nodes_truenodeids, tree_roots;
    struct tensor leaf_weights, membership_values, nodes_hitrates, nodes_modes, nodes_splits;
};

/* Rows and features of an input [N, C] or [C]. */
void ml_rows(const struct shape *shape, int64_t *out_rows, int64_t *out_features);

#endif
