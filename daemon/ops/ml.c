/* Classic machine learning: scaling, linear models, tree ensembles. */
#include "ops/ml.h"

#include <inttypes.h>

enum {
    ML_NUMBERS = DTYPE_BIT(FLOAT) | DTYPE_BIT(DOUBLE) | DTYPE_BIT(INT64) | DTYPE_BIT(INT32),
};

void ml_rows(const struct shape *shape, int64_t *out_rows, int64_t *out_features)
{
    *out_rows = shape->rank > 1 ? shape->dims[0] : 1;
    *out_features = shape->rank > 0 ? shape->dims[shape->rank - 1] : 1;
}

static enum status check_rows(const struct op_call *call, struct error *err)
{
    size_t rank = call->in[0]->shape.rank;

    if (rank < 1 || rank > 2)
        return error_set(err, STATUS_INVALID, "input of rank %zu; [N,C] or [C] is needed", rank);
    return STATUS_OK;
}

static enum status check_post(int64_t post_transform, struct error *err)
{
    if (post_transform == POST_PROBIT)
        return error_set(err, STATUS_UNSUPPORTED, "post_transform PROBIT is not supported");
    if (post_transform < 0 || post_transform >= POST_COUNT)
        return error_set(err, STATUS_INVALID, "post_transform %" PRId64 " is not known",
                         post_transform);
    return STATUS_OK;
}

static const char *const post_words[] = {"NONE",         "SOFTMAX", "LOGISTIC",
                                         "SOFTMAX_ZERO", "PROBIT",  NULL};

/* ---- scaling ---- */

static enum status infer_as_float(const struct op_call *call, struct error *err)
{
    TRY(check_rows(call, err));
    call->out[0]->dtype = DTYPE_FLOAT;
    call->out[0]->shape = call->in[0]->shape;
    return STATUS_OK;
}

static enum status infer_scaler(const struct op_call *call, struct error *err)
{
    const struct scaler_attrs *attrs = call->attrs;
    const struct floats *lists[] = {&attrs->offset, &attrs->scale};
    int64_t rows, features;

    TRY(infer_as_float(call, err));
    ml_rows(&call->in[0]->shape, &rows, &features);
    for (size_t i = 0; i < 2; i++)
        if (lists[i]->count > 1 && lists[i]->count != (size_t)features)
            return error_set(err, STATUS_INVALID, "%s has %zu values for %" PRId64 " features",
                             i == 0 ? "offset" : "scale", lists[i]->count, features);
    return STATUS_OK;
}

static const struct attr_def scaler_rows[] = {OP_ATTR_FLOATS(struct scaler_attrs, offset),
                                              OP_ATTR_FLOATS(struct scaler_attrs, scale),
                                              OP_ATTR_END};

const struct op_def op_scaler = {
    .name = "scaler",
    .onnx = {"Scaler", 1, "ai.onnx.ml"},
    .inputs = 1,
    .outputs = 1,
    .dtypes = ML_NUMBERS,
    .attrs = scaler_rows,
    .attrs_size = sizeof(struct scaler_attrs),
    .infer = infer_scaler,
    .flops = op_flops_each_output,
};

static const char *const norm_words[] = {"MAX", "L1", "L2", NULL};
static const struct attr_def normalizer_rows[] = {
    OP_ATTR_ENUM(struct normalizer_attrs, norm, norm_words, NORM_MAX), OP_ATTR_END};

const struct op_def op_normalizer = {
    .name = "normalizer",
    .onnx = {"Normalizer", 1, "ai.onnx.ml"},
    .inputs = 1,
    .outputs = 1,
    .dtypes = ML_NUMBERS,
    .attrs = normalizer_rows,
    .attrs_size = sizeof(struct normalizer_attrs),
    .infer = infer_as_float,
    .flops = op_flops_each_output,
};

/* ---- linear models ---- */

static enum status check_linear(const struct op_call *call, size_t targets, struct error *err)
{
    const struct linear_attrs *attrs = call->attrs;
    int64_t rows, features;

    TRY(check_rows(call, err));
    TRY(check_post(attrs->post_transform, err));
    ml_rows(&call->in[0]->shape, &rows, &features);
    if (targets == 0 || attrs->coefficients.count != targets * (size_t)features)
        return error_set(err, STATUS_INVALID,
                         "%zu coefficients for %zu targets of %" PRId64 " features",
                         attrs->coefficients.count, targets, features);
    if (attrs->intercepts.count != 0 && attrs->intercepts.count != targets)
        return error_set(err, STATUS_INVALID, "%zu intercepts for %zu targets",
                         attrs->intercepts.count, targets);
    return STATUS_OK;
}

static void set_matrix(struct tensor *out, enum dtype dtype, const struct shape *in,
                       int64_t columns)
{
    int64_t rows, features;

    ml_rows(in, &rows, &features);
    out->dtype = dtype;
    out->shape = (struct shape){2, {rows, columns}};
}

static void set_labels(struct tensor *out, bool text, const struct shape *in)
{
    int64_t rows, features;

    ml_rows(in, &rows, &features);
    out->dtype = text ? DTYPE_STRING : DTYPE_INT64;
    out->shape = (struct shape){1, {rows}};
}

/* Every row by every column of the coefficients. */
static uint64_t flops_linear(const struct op_call *call)
{
    const struct linear_attrs *attrs = call->attrs;
    const struct shape *x = &call->in[0]->shape;

    return 2 * (uint64_t)attrs->coefficients.count * (uint64_t)(x->rank > 1 ? x->dims[0] : 1);
}

static enum status infer_linear_regressor(const struct op_call *call, struct error *err)
{
    const struct linear_attrs *attrs = call->attrs;

    if (attrs->targets < 1 || attrs->targets > 1 << 20)
        return error_set(err, STATUS_INVALID, "targets is %" PRId64, attrs->targets);
    TRY(check_linear(call, (size_t)attrs->targets, err));
    set_matrix(call->out[0], DTYPE_FLOAT, &call->in[0]->shape, attrs->targets);
    return STATUS_OK;
}

static const struct attr_def linear_regressor_rows[] = {
    OP_ATTR_FLOATS(struct linear_attrs, coefficients),
    OP_ATTR_FLOATS(struct linear_attrs, intercepts), OP_ATTR_INT(struct linear_attrs, targets, 1),
    OP_ATTR_ENUM(struct linear_attrs, post_transform, post_words, POST_NONE), OP_ATTR_END};

const struct op_def op_linear_regressor = {
    .name = "linear_regressor",
    .onnx = {"LinearRegressor", 1, "ai.onnx.ml"},
    .inputs = 1,
    .outputs = 1,
    .dtypes = ML_NUMBERS,
    .attrs = linear_regressor_rows,
    .attrs_size = sizeof(struct linear_attrs),
    .infer = infer_linear_regressor,
    .flops = flops_linear,
};

static enum status infer_linear_classifier(const struct op_call *call, struct error *err)
{
    const struct linear_attrs *attrs = call->attrs;
    bool text = attrs->classlabels_strings.count > 0;
    size_t labels = text ? attrs->classlabels_strings.count : attrs->classlabels_ints.count;

    if (labels == 2 && attrs->intercepts.count == 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "one score for two classes is not supported; each class needs its own");
    TRY(check_linear(call, labels, err));
    set_labels(call->out[0], text, &call->in[0]->shape);
    if (call->outputs > 1 && call->out[1] != NULL)
        set_matrix(call->out[1], DTYPE_FLOAT, &call->in[0]->shape, (int64_t)labels);
    return STATUS_OK;
}

static const struct attr_def linear_classifier_rows[] = {
    OP_ATTR_FLOATS(struct linear_attrs, coefficients),
    OP_ATTR_FLOATS(struct linear_attrs, intercepts),
    OP_ATTR_INT(struct linear_attrs, multi_class, 0),
    OP_ATTR_ENUM(struct linear_attrs, post_transform, post_words, POST_NONE),
    OP_ATTR_INTS(struct linear_attrs, classlabels_ints),
    OP_ATTR_STRINGS(struct linear_attrs, classlabels_strings),
    OP_ATTR_END};

const struct op_def op_linear_classifier = {
    .name = "linear_classifier",
    .onnx = {"LinearClassifier", 1, "ai.onnx.ml"},
    .inputs = 1,
    .outputs = 2,
    .dtypes = ML_NUMBERS,
    .attrs = linear_classifier_rows,
    .attrs_size = sizeof(struct linear_attrs),
    .infer = infer_linear_classifier,
    .flops = flops_linear,
};

/* ---- trees ---- */

static enum status infer_tree_classifier(const struct op_call *call, struct error *err)
{
    const struct tree_attrs *attrs = call->attrs;
    bool text = attrs->classlabels_strings.count > 0;
    size_t labels = text ? attrs->classlabels_strings.count : attrs->classlabels_int64s.count;

    TRY(check_rows(call, err));
    TRY(check_post(attrs->post_transform, err));
    if (labels == 0)
        return error_set(err, STATUS_INVALID, "there are no class labels");
    set_labels(call->out[0], text, &call->in[0]->shape);
    if (call->outputs > 1 && call->out[1] != NULL)
        set_matrix(call->out[1], DTYPE_FLOAT, &call->in[0]->shape, (int64_t)labels);
    return STATUS_OK;
}

/* Executors disagree about what a transformation does to a single score: nothing, or what its name
 * says. */
static enum status check_targets(int64_t targets, int64_t post_transform, struct error *err)
{
    if (targets < 1 || targets > 1 << 20)
        return error_set(err, STATUS_INVALID, "n_targets is %" PRId64, targets);
    if (targets == 1 && post_transform != POST_NONE)
        return error_set(err, STATUS_UNSUPPORTED,
                         "post_transform of a single target is not supported");
    return STATUS_OK;
}

static enum status infer_tree_regressor(const struct op_call *call, struct error *err)
{
    const struct tree_attrs *attrs = call->attrs;

    TRY(check_rows(call, err));
    TRY(check_post(attrs->post_transform, err));
    TRY(check_targets(attrs->n_targets, attrs->post_transform, err));
    set_matrix(call->out[0], DTYPE_FLOAT, &call->in[0]->shape, attrs->n_targets);
    return STATUS_OK;
}

#define TREE_FIELD(type, onnx_name, field)                                                         \
    {                                                                                              \
        type, onnx_name, offsetof(struct tree_attrs, field)                                        \
    }
#define TREE_NODES                                                                                 \
    OP_ATTR_INTS(struct tree_attrs, nodes_treeids),                                                \
        OP_ATTR_INTS(struct tree_attrs, nodes_nodeids),                                            \
        OP_ATTR_INTS(struct tree_attrs, nodes_featureids),                                         \
        OP_ATTR_INTS(struct tree_attrs, nodes_truenodeids),                                        \
        OP_ATTR_INTS(struct tree_attrs, nodes_falsenodeids),                                       \
        OP_ATTR_INTS(struct tree_attrs, nodes_missing_value_tracks_true),                          \
        OP_ATTR_FLOATS(struct tree_attrs, nodes_values),                                           \
        OP_ATTR_FLOATS(struct tree_attrs, nodes_hitrates),                                         \
        OP_ATTR_TENSOR(struct tree_attrs, nodes_values_as_tensor),                                 \
        OP_ATTR_TENSOR(struct tree_attrs, nodes_hitrates_as_tensor),                               \
        OP_ATTR_STRINGS(struct tree_attrs, nodes_modes),                                           \
        OP_ATTR_FLOATS(struct tree_attrs, base_values),                                            \
        OP_ATTR_TENSOR(struct tree_attrs, base_values_as_tensor),                                  \
        OP_ATTR_ENUM(struct tree_attrs, post_transform, post_words, POST_NONE)

static const struct attr_def tree_classifier_rows[] = {
    TREE_NODES,
    TREE_FIELD(ATTR_INTS, "class_treeids", vote_treeids),
    TREE_FIELD(ATTR_INTS, "class_nodeids", vote_nodeids),
    TREE_FIELD(ATTR_INTS, "class_ids", vote_ids),
    TREE_FIELD(ATTR_FLOATS, "class_weights", vote_weights),
    TREE_FIELD(ATTR_TENSOR, "class_weights_as_tensor", vote_weights_as_tensor),
    OP_ATTR_INTS(struct tree_attrs, classlabels_int64s),
    OP_ATTR_STRINGS(struct tree_attrs, classlabels_strings),
    OP_ATTR_END};

const struct op_def op_tree_ensemble_classifier = {
    .name = "tree_ensemble_classifier",
    .onnx = {"TreeEnsembleClassifier", 1, "ai.onnx.ml"},
    .inputs = 1,
    .outputs = 2,
    .dtypes = ML_NUMBERS,
    .attrs = tree_classifier_rows,
    .attrs_size = sizeof(struct tree_attrs),
    .infer = infer_tree_classifier,
};

static const char *const aggregate_words[] = {"AVERAGE", "SUM", "MIN", "MAX", NULL};
static const struct attr_def tree_regressor_rows[] = {
    TREE_NODES,
    TREE_FIELD(ATTR_INTS, "target_treeids", vote_treeids),
    TREE_FIELD(ATTR_INTS, "target_nodeids", vote_nodeids),
    TREE_FIELD(ATTR_INTS, "target_ids", vote_ids),
    TREE_FIELD(ATTR_FLOATS, "target_weights", vote_weights),
    TREE_FIELD(ATTR_TENSOR, "target_weights_as_tensor", vote_weights_as_tensor),
    OP_ATTR_INT(struct tree_attrs, n_targets, 1),
    OP_ATTR_ENUM(struct tree_attrs, aggregate_function, aggregate_words, AGGREGATE_SUM),
    OP_ATTR_END};

const struct op_def op_tree_ensemble_regressor = {
    .name = "tree_ensemble_regressor",
    .onnx = {"TreeEnsembleRegressor", 1, "ai.onnx.ml"},
    .inputs = 1,
    .outputs = 1,
    .dtypes = ML_NUMBERS,
    .attrs = tree_regressor_rows,
    .attrs_size = sizeof(struct tree_attrs),
    .infer = infer_tree_regressor,
};

static enum status infer_tree_ensemble(const struct op_call *call, struct error *err)
{
    const struct tree_ensemble_attrs *attrs = call->attrs;

    TRY(check_rows(call, err));
    TRY(check_post(attrs->post_transform, err));
    TRY(check_targets(attrs->n_targets, attrs->post_transform, err));
    if (attrs->aggregate_function < 0 || attrs->aggregate_function >= AGGREGATE_COUNT)
        return error_set(err, STATUS_INVALID, "aggregate_function is %" PRId64,
                         attrs->aggregate_function);
    set_matrix(call->out[0], call->in[0]->dtype, &call->in[0]->shape, attrs->n_targets);
    return STATUS_OK;
}

static const struct attr_def tree_ensemble_rows[] = {
    OP_ATTR_INT(struct tree_ensemble_attrs, aggregate_function, AGGREGATE_SUM),
    OP_ATTR_INT(struct tree_ensemble_attrs, n_targets, 1),
    OP_ATTR_INT(struct tree_ensemble_attrs, post_transform, POST_NONE),
    OP_ATTR_INTS(struct tree_ensemble_attrs, leaf_targetids),
    OP_ATTR_INTS(struct tree_ensemble_attrs, nodes_falseleafs),
    OP_ATTR_INTS(struct tree_ensemble_attrs, nodes_falsenodeids),
    OP_ATTR_INTS(struct tree_ensemble_attrs, nodes_featureids),
    OP_ATTR_INTS(struct tree_ensemble_attrs, nodes_missing_value_tracks_true),
    OP_ATTR_INTS(struct tree_ensemble_attrs, nodes_trueleafs),
    OP_ATTR_INTS(struct tree_ensemble_attrs, nodes_truenodeids),
    OP_ATTR_INTS(struct tree_ensemble_attrs, tree_roots),
    OP_ATTR_TENSOR(struct tree_ensemble_attrs, leaf_weights),
    OP_ATTR_TENSOR(struct tree_ensemble_attrs, membership_values),
    OP_ATTR_TENSOR(struct tree_ensemble_attrs, nodes_hitrates),
    OP_ATTR_TENSOR(struct tree_ensemble_attrs, nodes_modes),
    OP_ATTR_TENSOR(struct tree_ensemble_attrs, nodes_splits),
    OP_ATTR_END};

const struct op_def op_tree_ensemble = {
    .name = "tree_ensemble",
    .onnx = {"TreeEnsemble", 5, "ai.onnx.ml"},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_BIT(FLOAT) | DTYPE_BIT(DOUBLE) | DTYPE_BIT(FLOAT16),
    .attrs = tree_ensemble_rows,
    .attrs_size = sizeof(struct tree_ensemble_attrs),
    .infer = infer_tree_ensemble,
};
