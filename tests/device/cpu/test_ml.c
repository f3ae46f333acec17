#include <math.h>
#include <string.h>

#include "ops/ml.h"
#include "support/cpu_cases.h"

#define INTS(...)                                                                                  \
    {                                                                                              \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[])                      \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define FLOATS(...)                                                                                \
    {                                                                                              \
        sizeof((float[]){__VA_ARGS__}) / sizeof(float), (const float[])                            \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static struct bytes text(const char *word)
{
    return (struct bytes){word, strlen(word)};
}

/* ---- linear ---- */

static void scale(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct scaler_attrs *attrs = test->attrs;

    for (int64_t i = 0; i < shape_count(&in->shape); i++) {
        size_t a = attrs->offset.count > 1 ? (size_t)i % 3 : 0;
        size_t b = attrs->scale.count > 1 ? (size_t)i % 3 : 0;

        out->values[i] =
            (in->values[i] - (double)attrs->offset.values[a]) * (double)attrs->scale.values[b];
    }
}

static void features_are_shifted_and_scaled(void **state)
{
    struct scaler_attrs each = {FLOATS(1, 2, 3), FLOATS(0.5f, 2, 4)}, all = {FLOATS(1), FLOATS(3)};
    static const enum dtype dtypes[] = {DTYPE_FLOAT, DTYPE_DOUBLE, DTYPE_INT64, DTYPE_INT32};
    struct op_test test = {.op = "Scaler",
                           .domain = "ai.onnx.ml",
                           .inputs = 1,
                           .in = {{DTYPE_FLOAT, SHAPE(5, 3)}},
                           .reference = scale};

    for (size_t i = 0; i < 4; i++) {
        test.in[0].dtype = dtypes[i];
        test.attrs = i % 2 == 0 ? &each : &all;
        op_test_run(*state, &test);
    }
    test.attrs = &each;
    test.in[0].shape = (struct shape)SHAPE(5, 4);
    assert_non_null(strstr(op_test_refused(*state, &test), "4 features"));
}

static void normalize(const struct op_test *test, const struct test_array *in,
                      struct test_array *out)
{
    int norm = ((const struct normalizer_attrs *)test->attrs)->norm;

    for (int64_t r = 0; r < 5; r++) {
        const double *x = in->values + r * 3;
        double by = norm == NORM_MAX  ? fmax(x[0], fmax(x[1], x[2]))
                    : norm == NORM_L1 ? fabs(x[0]) + fabs(x[1]) + fabs(x[2])
                                      : sqrt(x[0] * x[0] + x[1] * x[1] + x[2] * x[2]);

        for (int64_t i = 0; i < 3; i++)
            out->values[r * 3 + i] = x[i] / by;
    }
}

static void rows_are_normalised(void **state)
{
    for (int norm = NORM_MAX; norm <= NORM_L2; norm++) {
        struct normalizer_attrs attrs = {norm};
        struct op_test test = {.op = "Normalizer",
                               .domain = "ai.onnx.ml",
                               .attrs = &attrs,
                               .inputs = 1,
                               .in = {{DTYPE_FLOAT, SHAPE(5, 3), NULL, 0.5, 4}},
                               .reference = normalize};

        op_test_run(*state, &test);
    }
}

/* Scores of three classes over two features, by LOGISTIC; labels 7, 8, 9. */
static void classify(const struct op_test *test, const struct test_array *in,
                     struct test_array *out)
{
    const struct linear_attrs *attrs = test->attrs;
    bool classifier = strcmp(test->op, "LinearClassifier") == 0;

    for (int64_t r = 0; r < in->shape.dims[0]; r++) {
        int64_t best = 0;
        double scores[3];

        for (int64_t c = 0; c < 3; c++) {
            scores[c] = (double)attrs->intercepts.values[c];
            for (int64_t i = 0; i < 2; i++)
                scores[c] += in->values[r * 2 + i] * (double)attrs->coefficients.values[c * 2 + i];
            best = scores[c] > scores[best] ? c : best;
        }
        for (int64_t c = 0; c < 3; c++)
            out[classifier ? 1 : 0].values[r * 3 + c] =
                attrs->post_transform == POST_LOGISTIC ? 1 / (1 + exp(-scores[c])) : scores[c];
        if (classifier)
            out[0].values[r] = (double)(7 + best);
    }
}

static void linear_models_score_and_name_the_class(void **state)
{
    struct linear_attrs attrs = {.coefficients = FLOATS(1, -1, 0.5f, 2, -2, 0.25f),
                                 .intercepts = FLOATS(0.1f, -0.2f, 0.3f),
                                 .targets = 3,
                                 .post_transform = POST_LOGISTIC,
                                 .classlabels_ints = INTS(7, 8, 9)};
    struct op_test test = {.op = "LinearClassifier",
                           .domain = "ai.onnx.ml",
                           .attrs = &attrs,
                           .inputs = 1,
                           .outputs = 2,
                           .in = {{DTYPE_FLOAT, SHAPE(9, 2)}},
                           .reference = classify};

    op_test_run(*state, &test);
    test.op = "LinearRegressor";
    test.outputs = 1;
    attrs.post_transform = POST_NONE;
    op_test_run(*state, &test);
    attrs.intercepts.count = 2;
    assert_non_null(strstr(op_test_refused(*state, &test), "2 intercepts"));
}

/* ---- trees ---- */

/*  tree 0:  x0 ≤ 0 ? a : b     tree 1:  x1 < 1 ? c : d  */
static struct tree_attrs two_trees(const struct bytes *modes)
{
    static const int64_t trees[] = {0, 0, 0, 1, 1, 1}, nodes[] = {0, 1, 2, 0, 1, 2};
    static const int64_t features[] = {0, 0, 0, 1, 0, 0}, yes[] = {1, 0, 0, 1, 0, 0};
    static const int64_t no[] = {2, 0, 0, 2, 0, 0}, missing[] = {1, 0, 0, 0, 0, 0};
    static const int64_t vote_trees[] = {0, 0, 1, 1}, vote_nodes[] = {1, 2, 1, 2};
    static const int64_t ids[] = {0, 1, 2, 1};
    static const int64_t labels[] = {10, 20, 30};
    static const float values[] = {0, 0, 0, 1, 0, 0}, weights[] = {1, 2, 4, 8};

    return (struct tree_attrs){.nodes_treeids = {6, trees},
                               .nodes_nodeids = {6, nodes},
                               .nodes_featureids = {6, features},
                               .nodes_truenodeids = {6, yes},
                               .nodes_falsenodeids = {6, no},
                               .nodes_missing_value_tracks_true = {6, missing},
                               .nodes_values = {6, values},
                               .nodes_modes = {6, modes},
                               .vote_treeids = {4, vote_trees},
                               .vote_nodeids = {4, vote_nodes},
                               .vote_ids = {4, ids},
                               .vote_weights = {4, weights},
                               .n_targets = 3,
                               .aggregate_function = AGGREGATE_SUM,
                               .classlabels_int64s = {3, labels}};
}

static void vote(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct tree_attrs *attrs = test->attrs;
    bool classifier = strcmp(test->op, "TreeEnsembleClassifier") == 0;
    bool average = !classifier && attrs->aggregate_function == AGGREGATE_AVERAGE;

    for (int64_t r = 0; r < in->shape.dims[0]; r++) {
        double x = in->values[r * 2], y = in->values[r * 2 + 1], scores[3] = {0};
        int64_t best = 0;

        scores[isnan(x) || x <= 0 ? 0 : 1] += isnan(x) || x <= 0 ? 1 : 2;
        scores[y < 1 ? 2 : 1] += y < 1 ? 4 : 8;
        for (int64_t c = 0; c < 3; c++) {
            best = scores[c] > scores[best] ? c : best;
            out[classifier ? 1 : 0].values[r * 3 + c] = scores[c] / (average ? 2 : 1);
        }
        if (classifier)
            out[0].values[r] = (double)(10 + 10 * best);
    }
}

static void trees_vote_for_classes_and_targets(void **state)
{
    const struct bytes modes[] = {text("BRANCH_LEQ"), text("LEAF"), text("LEAF"),
                                  text("BRANCH_LT"),  text("LEAF"), text("LEAF")};
    static const double x[] = {0, 0, 0.5, 1, -1, 3, NAN, 0.5, 2, NAN, 0, 1};
    struct tree_attrs attrs = two_trees(modes);
    struct op_test test = {.op = "TreeEnsembleClassifier",
                           .domain = "ai.onnx.ml",
                           .attrs = &attrs,
                           .inputs = 1,
                           .outputs = 2,
                           .in = {{DTYPE_FLOAT, SHAPE(6, 2), x}},
                           .reference = vote};

    op_test_run(*state, &test);
    test.in[0] = (struct op_input){DTYPE_DOUBLE, SHAPE(500, 2)};
    op_test_run(*state, &test);
    test.op = "TreeEnsembleRegressor";
    test.outputs = 1;
    op_test_run(*state, &test);
    attrs.aggregate_function = AGGREGATE_AVERAGE;
    op_test_run(*state, &test);
}

static enum status classify_one(void **state, const struct tree_attrs *attrs, struct tensor *out,
                                struct error *err)
{
    static const float row[] = {0.5f, 0.5f};
    const struct tensor x = {DTYPE_FLOAT, SHAPE(1, 2), row};
    const struct tensor *in[] = {&x};

    return op_tester_eval(*state, "ai.onnx.ml", "TreeEnsembleClassifier", attrs, 1, in, false, 2,
                          out, err);
}

static void labels_may_be_text(void **state)
{
    const struct bytes modes[] = {text("BRANCH_LEQ"), text("LEAF"), text("LEAF"),
                                  text("BRANCH_LT"),  text("LEAF"), text("LEAF")};
    const struct bytes labels[] = {text("red"), text("green"), text("blue")};
    struct tree_attrs attrs = two_trees(modes);
    struct tensor out[2];
    const struct bytes *label;

    attrs.classlabels_int64s.count = 0;
    attrs.classlabels_strings = (struct strings){3, labels};
    assert_int_equal(classify_one(state, &attrs, out, NULL), STATUS_OK);
    label = out[0].data;
    assert_int_equal(label->size, 4);
    assert_memory_equal(label->data, "blue", 4);
    op_tester_free(&out[0]);
    op_tester_free(&out[1]);
}

static void trees_that_do_not_end_are_refused(void **state)
{
    const struct bytes modes[] = {text("BRANCH_LEQ"), text("LEAF"), text("LEAF"),
                                  text("BRANCH_LT"),  text("LEAF"), text("LEAF")};
    const struct bytes cyclic[] = {text("BRANCH_LEQ"), text("BRANCH_LEQ"), text("LEAF"),
                                   text("BRANCH_LT"),  text("LEAF"),       text("LEAF")};
    const struct bytes unknown[] = {text("BRANCH_IN"), text("LEAF"), text("LEAF"),
                                    text("BRANCH_LT"), text("LEAF"), text("LEAF")};
    static const int64_t outside[] = {1, 0, 0, 9, 0, 0}, far[] = {5, 0, 0, 1, 0, 0};
    static const int64_t back[] = {1, 1, 0, 1, 0, 0};
    struct tree_attrs attrs = two_trees(cyclic);
    struct tensor out[2];
    struct error err;

    attrs.nodes_truenodeids.values = back; /* node 1 leads to itself */
    assert_int_equal(classify_one(state, &attrs, out, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "two places"));
    attrs = two_trees(modes);
    attrs.nodes_truenodeids.values = outside;
    assert_int_equal(classify_one(state, &attrs, out, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "not there"));
    attrs = two_trees(modes);
    attrs.nodes_featureids.values = far;
    assert_int_equal(classify_one(state, &attrs, out, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "feature 5 of 2"));
    attrs = two_trees(unknown);
    assert_int_equal(classify_one(state, &attrs, out, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "BRANCH_IN"));
    attrs = two_trees(modes);
    attrs.vote_weights.count = 3;
    assert_int_equal(classify_one(state, &attrs, out, &err), STATUS_INVALID);
}

static void the_newer_form_names_leaves_by_place(void **state)
{
    static const float splits[] = {0, 1}, weights[] = {1, 2, 4, 8};
    static const uint8_t modes[] = {0, 1};
    static const float row[] = {0.5f, 0.5f, -1, 3};
    struct tree_ensemble_attrs attrs = {
        .aggregate_function = AGGREGATE_SUM,
        .n_targets = 1,
        .leaf_targetids = INTS(0, 0, 0, 0),
        .nodes_trueleafs = INTS(1, 1),
        .nodes_falseleafs = INTS(1, 1),
        .nodes_truenodeids = INTS(0, 2),
        .nodes_falsenodeids = INTS(1, 3),
        .nodes_featureids = INTS(0, 1),
        .tree_roots = INTS(0, 1),
        .leaf_weights = {DTYPE_FLOAT, SHAPE(4), weights},
        .nodes_modes = {DTYPE_UINT8, SHAPE(2), modes},
        .nodes_splits = {DTYPE_FLOAT, SHAPE(2), splits},
    };
    const struct tensor x = {DTYPE_FLOAT, SHAPE(2, 2), row};
    const struct tensor *in[] = {&x};
    struct tensor out;

    assert_int_equal(
        op_tester_eval(*state, "ai.onnx.ml", "TreeEnsemble", &attrs, 1, in, false, 1, &out, NULL),
        STATUS_OK);
    assert_true(((const float *)out.data)[0] == 2 + 4 && ((const float *)out.data)[1] == 1 + 8);
    op_tester_free(&out);
    attrs.tree_roots.values = (const int64_t[]){0, 2};
    assert_int_equal(
        op_tester_eval(*state, "ai.onnx.ml", "TreeEnsemble", &attrs, 1, in, false, 1, &out, NULL),
        STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_shifted_and_scaled),
        cmocka_unit_test(rows_are_normalised),
        cmocka_unit_test(linear_models_score_and_name_the_class),
        cmocka_unit_test(trees_vote_for_classes_and_targets),
        cmocka_unit_test(labels_may_be_text),
        cmocka_unit_test(trees_that_do_not_end_are_refused),
        cmocka_unit_test(the_newer_form_names_leaves_by_place),
    };

    return cmocka_run_group_tests(tests, open_tester, close_tester);
}
