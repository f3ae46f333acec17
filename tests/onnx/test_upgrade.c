/* Old forms become the newest: which nodes stand there afterwards, with which inputs. */
#include "onnx/writer.h"

#include <stdio.h>

#include "graph/match.h"
#include "onnx/reader.h"
#include "onnx/upgrade.h"

static const int64_t dims[] = {2, 3, 4, 5};

struct result {
    struct graph *graph;
    struct error err;
    enum status status;
};

/* x [2,3,4,5] ──> node ──> y; w is a constant of three ones, b of one half. */
static struct result read_one(int64_t opset, const struct message *node)
{
    static const float ones[] = {1, 1, 1}, half[] = {0.5F};
    struct message graph = {0}, message;
    struct result result = {0};
    const char *reason = "";

    put_port(&graph, GRAPH_INPUT, "x", 1, 4, dims);
    put_port(&graph, GRAPH_OUTPUT, "y", 1, SIZE_MAX, NULL);
    put_tensor(&graph, GRAPH_TENSOR, "w", 1, 1, (const int64_t[]){3}, ones, sizeof(ones));
    put_tensor(&graph, GRAPH_TENSOR, "b", 1, 1, (const int64_t[]){1}, half, sizeof(half));
    put_tensor(&graph, GRAPH_TENSOR, "none", 1, 1, (const int64_t[]){0}, NULL, 0);
    put(&graph, GRAPH_NODE, node);
    message = model(opset, &graph);
    put_opset(&message, MODEL_OPSET, "com.microsoft", 1);
    result.status =
        onnx_read_bytes(message.bytes, message.size, NULL, &result.graph, NULL, &result.err);
    if (result.status == STATUS_OK && !graph_is_valid(result.graph, &reason))
        fail_msg("%s", reason);
    return result;
}

static struct message with(struct message message, struct message attr)
{
    put(&message, NODE_ATTR, &attr);
    return message;
}

static struct graph *read_ok(int64_t opset, struct message node)
{
    struct result result = read_one(opset, &node);

    if (result.status != STATUS_OK)
        fail_msg("%s", result.err.text);
    graph_remove_dead(result.graph);
    return result.graph;
}

static void expect_refused(int64_t opset, struct message node, const char *words)
{
    struct result result = read_one(opset, &node);

    if (result.status == STATUS_OK || strstr(result.err.text, words) == NULL)
        fail_msg("'%s' has no '%s'", result.err.text, words);
}

/* Operators in order, separated by spaces. */
static void expect_ops(const struct graph *graph, const char *want)
{
    char got[512] = "";
    const struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, const struct node, link)
        (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s",
                       got[0] == '\0' ? "" : " ", node->op->onnx.name);
    assert_string_equal(got, want);
}

static struct node *maker_of_y(const struct graph *graph)
{
    return graph->out[0]->producer;
}

static void expect_ints(const struct value *value, size_t count, const int64_t *want)
{
    int64_t got[8];
    size_t found;

    assert_true(value_ints(value, 8, got, &found));
    assert_int_equal(found, count);
    assert_memory_equal(got, want, count * sizeof(*want));
}

/* --- attributes that became inputs --------------------------------------------------------------
 */

static void clip_takes_its_bounds_as_inputs(void **state)
{
    struct message clip = with(node("Clip", "x", "y"), attr_float("max", 6));
    struct graph *graph = read_ok(6, clip);
    double bound;

    (void)state;
    assert_null(maker_of_y(graph)->in[1]);
    assert_true(value_scalar(maker_of_y(graph)->in[2], &bound) && bound == 6);
    assert_int_equal(maker_of_y(graph)->in[2]->dtype, DTYPE_FLOAT);
    graph_destroy(graph);
}

static void axes_become_an_input(void **state)
{
    static const int64_t axes[] = {1, -1};
    static const struct {
        const char *op;
        int64_t opset;
    } cases[] = {
        {"ReduceMean", 13}, {"ReduceSum", 11}, {"ReduceMax", 6}, {"Squeeze", 9}, {"Unsqueeze", 11}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct graph *graph =
            read_ok(cases[i].opset, with(node(cases[i].op, "x", "y"), attr_ints("axes", 2, axes)));

        expect_ops(graph, cases[i].op);
        expect_ints(maker_of_y(graph)->in[1], 2, axes);
        graph_destroy(graph);
    }
}

static void reductions_without_axes_have_one_input(void **state)
{
    struct graph *graph = read_ok(13, node("ReduceMean", "x", "y"));

    (void)state;
    assert_int_equal(maker_of_y(graph)->inputs, 1);
    graph_destroy(graph);
}

static void slice_takes_all_as_inputs(void **state)
{
    static const int64_t starts[] = {1, 0}, ends[] = {3, -1}, axes[] = {2, 3};
    struct message slice = with(node("Slice", "x", "y"), attr_ints("starts", 2, starts));
    struct graph *graph;

    (void)state;
    slice = with(slice, attr_ints("ends", 2, ends));
    expect_refused(9, with(node("Slice", "x", "y"), attr_ints("starts", 2, starts)), "'ends'");
    graph = read_ok(9, with(slice, attr_ints("axes", 2, axes)));
    expect_ints(maker_of_y(graph)->in[1], 2, starts);
    expect_ints(maker_of_y(graph)->in[2], 2, ends);
    expect_ints(maker_of_y(graph)->in[3], 2, axes);
    graph_destroy(graph);
}

static void pad_takes_its_value_as_input(void **state)
{
    static const int64_t pads[] = {0, 0, 1, 1, 0, 0, 1, 1};
    struct message pad = with(node("Pad", "x", "y"), attr_ints("pads", 8, pads));
    struct graph *graph = read_ok(10, with(pad, attr_float("value", 2.5F)));
    double value;

    (void)state;
    expect_ints(maker_of_y(graph)->in[1], 8, pads);
    assert_true(value_scalar(maker_of_y(graph)->in[2], &value) && value == 2.5);
    graph_destroy(graph);
}

static void split_counts_its_outputs(void **state)
{
    static const int64_t parts[] = {1, 2};
    struct graph *graph = read_ok(13, node("Split", "x", "y z"));

    (void)state;
    assert_int_equal(node_attr_int(maker_of_y(graph), "num_outputs", 0), 2);
    graph_destroy(graph);
    graph = read_ok(11, with(node("Split", "x", "y z"), attr_ints("split", 2, parts)));
    expect_ints(maker_of_y(graph)->in[1], 2, parts);
    assert_int_equal(node_attr_int(maker_of_y(graph), "num_outputs", 0), 0);
    graph_destroy(graph);
}

static void top_k_takes_k_as_input(void **state)
{
    struct graph *graph = read_ok(9, with(node("TopK", "x", "y i"), attr_int("k", 3)));

    (void)state;
    expect_ints(maker_of_y(graph)->in[1], 1, (const int64_t[]){3});
    graph_destroy(graph);
    expect_refused(9, node("TopK", "x", "y i"), "'k'");
}

static struct message scales(const char *name)
{
    static const float factors[] = {1, 1, 2, 2};
    struct message attr = {0};

    put_text(&attr, 1, name);
    for (size_t i = 0; i < 4; i++)
        put_float(&attr, 7, factors[i]);
    put_int(&attr, 20, 6);
    return attr;
}

static void upsample_is_resize_by_the_old_rule(void **state)
{
    struct graph *graph = read_ok(7, with(node("Upsample", "x", "y"), scales("scales")));
    const struct node *resize = maker_of_y(graph);

    (void)state;
    expect_ops(graph, "Resize");
    assert_int_equal(resize->inputs, 3);
    assert_null(resize->in[1]);
    assert_int_equal(shape_count(&resize->in[2]->shape), 4);
    /* "asymmetric" and "floor" stand somewhere in the tables: neither is the default */
    assert_int_not_equal(node_attr_int(resize, "coordinate_transformation_mode", 0), 0);
    assert_int_not_equal(node_attr_int(resize, "nearest_mode", 0), 0);
    graph_destroy(graph);
}

static void empty_scales_of_resize_mean_none(void **state)
{
    struct message resize = node("Resize", "x none none sizes", "y");
    struct message graph = {0}, message;
    static const int64_t sizes[] = {2, 3, 8, 10};
    struct graph *read = NULL;
    struct error err;

    (void)state;
    put_port(&graph, GRAPH_INPUT, "x", 1, 4, dims);
    put_port(&graph, GRAPH_OUTPUT, "y", 1, SIZE_MAX, NULL);
    put_tensor(&graph, GRAPH_TENSOR, "none", 1, 1, (const int64_t[]){0}, NULL, 0);
    put_tensor(&graph, GRAPH_TENSOR, "sizes", 7, 1, (const int64_t[]){4}, sizes, sizeof(sizes));
    put(&graph, GRAPH_NODE, &resize);
    message = model(11, &graph);
    assert_ok(onnx_read_bytes(message.bytes, message.size, NULL, &read, NULL, &err));
    assert_null(maker_of_y(read)->in[1]);
    assert_null(maker_of_y(read)->in[2]);
    expect_ints(maker_of_y(read)->in[3], 4, sizes);
    graph_destroy(read);
}

/* --- forms that meant something else ------------------------------------------------------------
 */

static void old_softmax_normalises_a_matrix(void **state)
{
    struct graph *graph = read_ok(11, node("Softmax", "x", "y"));

    (void)state;
    expect_ops(graph, "Flatten Softmax Shape Reshape");
    assert_string_equal(graph->out[0]->name, "y");
    graph_destroy(graph);
    graph = read_ok(11, with(node("Softmax", "x", "y"), attr_int("axis", -1)));
    expect_ops(graph, "Softmax");
    graph_destroy(graph);
    graph = read_ok(11, with(node("LogSoftmax", "x", "y"), attr_int("axis", 3)));
    expect_ops(graph, "LogSoftmax"); /* the last of four: x is an input of known rank */
    graph_destroy(graph);
    graph = read_ok(13, with(node("Softmax", "x", "y"), attr_int("axis", 1)));
    expect_ops(graph, "Softmax");
    assert_int_equal(node_attr_int(maker_of_y(graph), "axis", 0), 1);
    graph_destroy(graph);
}

static void old_broadcasting_from_an_axis_is_spelled_out(void **state)
{
    struct message add = with(node("Add", "x w", "y"), attr_int("broadcast", 1));
    struct graph *graph = read_ok(6, with(add, attr_int("axis", 1)));

    (void)state;
    expect_ops(graph, "Size Reshape Concat Reshape Reshape Add Shape Reshape");
    graph_destroy(graph);
    graph = read_ok(6, add);
    expect_ops(graph, "Add"); /* from the last dimension: as today */
    graph_destroy(graph);
    expect_refused(6, with(add, attr_int("axis", -2)), "'axis' is -2");
}

static void old_slopes_stand_for_channels(void **state)
{
    struct graph *graph = read_ok(6, node("PRelu", "x w", "y"));

    (void)state;
    expect_ops(graph, "Reshape Reshape PRelu Shape Reshape");
    graph_destroy(graph);
    graph = read_ok(6, node("PRelu", "x b", "y"));
    expect_ops(graph, "PRelu");
    graph_destroy(graph);
}

static void dropout_does_nothing(void **state)
{
    struct graph *graph = read_ok(7, with(node("Dropout", "x", "y"), attr_float("ratio", 0.4F)));

    (void)state;
    expect_ops(graph, "Identity");
    graph_destroy(graph);
    graph = read_ok(12, node("Dropout", "x b", "y mask"));
    expect_ops(graph, "Identity"); /* the mask, which nobody wants, is gone with the dead */
    graph_destroy(graph);
    graph = read_ok(12, node("Dropout", "x b", "z y"));
    expect_ops(graph, "Shape ConstantOfShape");
    assert_int_equal(maker_of_y(graph)->inputs, 1);
    graph_destroy(graph);
    expect_refused(6, with(node("Dropout", "x", "y"), attr_int("is_test", 0)), "training mode");
}

static void old_batch_normalization_loses_what_training_wants(void **state)
{
    struct message norm =
        with(node("BatchNormalization", "x w w w w", "y"), attr_int("spatial", 1));
    struct graph *graph;

    (void)state;
    graph = read_ok(7, with(norm, attr_float("momentum", 0.9F)));
    expect_ops(graph, "BatchNormalization");
    graph_destroy(graph);
    expect_refused(7, node("BatchNormalization", "x w w w w", "y m"), "training mode");
    expect_refused(7, with(node("BatchNormalization", "x w w w w", "y"), attr_int("spatial", 0)),
                   "'spatial'");
}

static void group_parameters_are_repeated_per_channel(void **state)
{
    struct message norm = with(node("GroupNormalization", "x w w", "y"), attr_int("num_groups", 3));
    struct graph *graph;

    (void)state;
    if (op_find("", "GroupNormalization") == NULL)
        skip();
    graph = read_ok(18, norm);
    expect_ops(graph, "Shape Div Concat Unsqueeze Expand Reshape Unsqueeze Expand Reshape "
                      "GroupNormalization");
    graph_destroy(graph);
    graph = read_ok(21, norm);
    expect_ops(graph, "GroupNormalization");
    graph_destroy(graph);
}

static void scatter_has_a_new_name(void **state)
{
    struct graph *graph;

    (void)state;
    if (op_find("", "ScatterElements") == NULL)
        skip();
    graph = read_ok(9, node("Scatter", "x x x", "y"));
    expect_ops(graph, "ScatterElements");
    graph_destroy(graph);
}

/* --- quantised operators of com.microsoft -------------------------------------------------------
 */

static struct message microsoft(struct message message)
{
    put_text(&message, NODE_DOMAIN, "com.microsoft");
    return message;
}

static void quantised_operators_are_lowered_to_real_ones(void **state)
{
    struct message concat = microsoft(node("QLinearConcat", "b w x b w x b w", "y"));
    struct graph *graph = read_ok(21, with(concat, attr_int("axis", 1)));

    (void)state;
    expect_ops(graph, "DequantizeLinear DequantizeLinear Concat QuantizeLinear");
    assert_int_equal(maker_of_y(graph)->inputs, 3);
    graph_destroy(graph);
    graph = read_ok(21, microsoft(node("QLinearSigmoid", "x b w b w", "y")));
    expect_ops(graph, "DequantizeLinear Sigmoid QuantizeLinear");
    graph_destroy(graph);
    graph = read_ok(
        21, with(microsoft(node("QLinearLeakyRelu", "x b w b", "y")), attr_float("alpha", 0.25F)));
    expect_ops(graph, "DequantizeLinear LeakyRelu QuantizeLinear");
    graph_destroy(graph);
    graph = read_ok(
        21, with(microsoft(node("QGemm", "x b x w b w x b w", "y")), attr_int("transB", 1)));
    expect_ops(graph, "DequantizeLinear DequantizeLinear DequantizeLinear Gemm QuantizeLinear");
    assert_int_equal(node_attr_int(maker_of_y(graph)->in[0]->producer, "transB", 0), 1);
    graph_destroy(graph);
    graph = read_ok(21, microsoft(node("QGemm", "x b x w b w", "y")));
    expect_ops(graph, "DequantizeLinear DequantizeLinear Gemm"); /* no scale: a real result */
    graph_destroy(graph);
}

static void quantised_operators_without_a_scale_are_refused(void **state)
{
    (void)state;
    expect_refused(21, microsoft(node("QLinearSigmoid", "x", "y")), "are needed");
    expect_refused(21, microsoft(node("QLinearConcat", "b w x b w", "y")), "axis");
    expect_refused(21, microsoft(node("QGemm", "x b x - b w", "y")), "B or its scale");
}

/* --- the table ----------------------------------------------------------------------------------
 */

/* An operator described in an older form than the table rewrites to would be fed the wrong one. */
static void operators_are_described_in_the_form_the_table_makes(void **state)
{
    (void)state;
    for (const struct upgrade *row = upgrade_table; row->op != NULL; row++) {
        const struct op_def *op = op_find("", row->op);

        if (op != NULL && row->before != UPGRADE_ALWAYS && op->onnx.since < row->before &&
            op->onnx.since > 1)
            fail_msg("%s is described since %d, forms before %d are rewritten", row->op,
                     op->onnx.since, row->before);
    }
}

static void rows_of_one_operator_stand_oldest_first(void **state)
{
    (void)state;
    for (const struct upgrade *row = upgrade_table; row[1].op != NULL; row++) {
        int order = strcmp(row[0].op, row[1].op);

        assert_true(order < 0 || (order == 0 && row[0].before < row[1].before));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clip_takes_its_bounds_as_inputs),
        cmocka_unit_test(axes_become_an_input),
        cmocka_unit_test(reductions_without_axes_have_one_input),
        cmocka_unit_test(slice_takes_all_as_inputs),
        cmocka_unit_test(pad_takes_its_value_as_input),
        cmocka_unit_test(split_counts_its_outputs),
        cmocka_unit_test(top_k_takes_k_as_input),
        cmocka_unit_test(upsample_is_resize_by_the_old_rule),
        cmocka_unit_test(empty_scales_of_resize_mean_none),
        cmocka_unit_test(old_softmax_normalises_a_matrix),
        cmocka_unit_test(old_broadcasting_from_an_axis_is_spelled_out),
        cmocka_unit_test(old_slopes_stand_for_channels),
        cmocka_unit_test(dropout_does_nothing),
        cmocka_unit_test(old_batch_normalization_loses_what_training_wants),
        cmocka_unit_test(group_parameters_are_repeated_per_channel),
        cmocka_unit_test(scatter_has_a_new_name),
        cmocka_unit_test(quantised_operators_are_lowered_to_real_ones),
        cmocka_unit_test(quantised_operators_without_a_scale_are_refused),
        cmocka_unit_test(operators_are_described_in_the_form_the_table_makes),
        cmocka_unit_test(rows_of_one_operator_stand_oldest_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
