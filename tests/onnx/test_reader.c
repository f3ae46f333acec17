/* Graphs as the reader hands them on, and the models that it refuses. */
#include "onnx/reads.h"

static void a_small_model_is_read(void **state)
{
    struct message graph = x_to_y();
    struct result result;

    (void)state;
    put_node_with(&graph, "LeakyRelu", "x", "y", attr_float("alpha", 0.25F));
    result = read_graph(13, &graph);
    expect_ok(&result);
    assert_int_equal(result.graph->inputs, 1);
    assert_string_equal(result.graph->in[0]->name, "x");
    assert_string_equal(result.graph->out[0]->name, "y");
    assert_true(node_attr_float(nth_node(result.graph, 0), "alpha", 0) == 0.25F);
    assert_int_equal(result.info.opset, 13);
    assert_int_equal(result.info.nodes, 1);
    done(&result);
}

static void open_dimensions_are_unknown_however_they_are_written(void **state)
{
    const int64_t dims[] = {-1, -2, 3, 0};
    struct message graph = {0};
    struct result result;

    (void)state;
    put_port(&graph, GRAPH_INPUT, "x", 1, 4, dims);
    put_port(&graph, GRAPH_OUTPUT, "y", 1, SIZE_MAX, NULL);
    put_node(&graph, "Relu", "x", "y");
    result = read_graph(13, &graph);
    expect_ok(&result);
    assert_int_equal(result.graph->in[0]->shape.dims[0], SHAPE_UNKNOWN);
    assert_int_equal(result.graph->in[0]->shape.dims[1], SHAPE_UNKNOWN);
    assert_int_equal(result.graph->in[0]->shape.dims[2], 3);
    assert_int_equal(result.graph->in[0]->shape.dims[3], 0);
    assert_false(result.graph->out[0]->shape_known);
    done(&result);
}

static void an_input_with_an_initializer_is_a_constant(void **state)
{
    struct message graph = x_to_y();
    struct result result;

    (void)state;
    put_port(&graph, GRAPH_INPUT, "w", 1, 1, two);
    put_tensor(&graph, GRAPH_TENSOR, "w", 1, 1, two, numbers, sizeof(numbers));
    put_node(&graph, "Add", "x w", "y");
    result = read_graph(13, &graph);
    expect_ok(&result);
    assert_int_equal(result.graph->inputs, 1);
    assert_non_null(nth_node(result.graph, 0)->in[1]->constant);
    assert_memory_equal(nth_node(result.graph, 0)->in[1]->constant->tensor.data, numbers,
                        sizeof(numbers));
    done(&result);
}

static void nodes_out_of_order_are_sorted(void **state)
{
    struct message graph = x_to_y();
    struct result result;

    (void)state;
    put_node(&graph, "Exp", "b", "y");
    put_node(&graph, "Neg", "a", "b");
    put_node(&graph, "Relu", "x", "a");
    result = read_graph(13, &graph);
    expect_ok(&result);
    assert_string_equal(nth_node(result.graph, 0)->op->onnx.name, "Relu");
    assert_string_equal(nth_node(result.graph, 2)->op->onnx.name, "Exp");
    done(&result);
}

static void an_output_that_is_an_input_gets_a_node(void **state)
{
    struct message graph = {0};
    struct result result;

    (void)state;
    put_port(&graph, GRAPH_INPUT, "x", 1, 1, two);
    put_port(&graph, GRAPH_OUTPUT, "x", 1, 1, two);
    result = read_graph(13, &graph);
    expect_ok(&result);
    assert_non_null(result.graph->out[0]->producer);
    assert_string_equal(result.graph->out[0]->name, "x");
    done(&result);
}

static void optional_inputs_may_be_left_out(void **state)
{
    struct message graph = x_to_y();
    struct result result;

    (void)state;
    put_tensor(&graph, GRAPH_TENSOR, "high", 1, 0, NULL, numbers, 4);
    put_node(&graph, "Clip", "x - high", "y");
    result = read_graph(13, &graph);
    expect_ok(&result);
    assert_null(nth_node(result.graph, 0)->in[1]);
    assert_non_null(nth_node(result.graph, 0)->in[2]);
    done(&result);
}

static void cycles_are_refused(void **state)
{
    struct message graph = x_to_y();

    (void)state;
    put_node(&graph, "Add", "x b", "a");
    put_node(&graph, "Relu", "a", "b");
    put_node(&graph, "Relu", "b", "y");
    expect_graph_refused(&graph, STATUS_INVALID, "cycle");
}

static void duplicate_names_are_refused(void **state)
{
    struct message graph = x_to_y();

    (void)state;
    put_node(&graph, "Relu", "x", "y");
    put_node(&graph, "Neg", "x", "y");
    expect_graph_refused(&graph, STATUS_INVALID, "two nodes make the value 'y'");
    graph = x_to_y();
    put_node(&graph, "Relu", "x", "x");
    put_node(&graph, "Relu", "x", "y");
    expect_graph_refused(&graph, STATUS_INVALID, "'x'");
    graph = x_to_y();
    put_port(&graph, GRAPH_OUTPUT, "y", 1, 1, two);
    put_node(&graph, "Relu", "x", "y");
    expect_graph_refused(&graph, STATUS_INVALID, "two outputs have the name 'y'");
}

static void values_from_nowhere_are_refused(void **state)
{
    struct message graph = x_to_y();

    (void)state;
    put_node(&graph, "Add", "x ghost", "y");
    expect_graph_refused(&graph, STATUS_INVALID, "nothing makes the value 'ghost'");
    graph = x_to_y();
    expect_graph_refused(&graph, STATUS_INVALID, "nothing makes the value 'y'");
}

static void unknown_operators_and_attributes_are_refused_by_name(void **state)
{
    struct message graph = x_to_y();

    (void)state;
    put_node(&graph, "Frobnicate", "x", "y");
    expect_graph_refused(&graph, STATUS_UNSUPPORTED, "operator Frobnicate is not supported");
    graph = x_to_y();
    put_node_with(&graph, "Relu", "x", "y", attr_int("wings", 2));
    expect_graph_refused(&graph, STATUS_UNSUPPORTED, "attribute 'wings'");
    graph = x_to_y();
    put_node_with(&graph, "LeakyRelu", "x", "y", attr_int("alpha", 2));
    expect_graph_refused(&graph, STATUS_INVALID, "'alpha' is an integer, it must be a float");
    graph = x_to_y();
    put_node(&graph, "Relu", "x x", "y");
    expect_graph_refused(&graph, STATUS_UNSUPPORTED, "2 inputs");
}

static void domains_are_refused_on_use_not_on_import(void **state)
{
    struct message graph = x_to_y(), message, call = node("Relu", "x", "y");

    (void)state;
    put_node(&graph, "Relu", "x", "y");
    message = model(13, &graph);
    put_opset(&message, MODEL_OPSET, "org.nobody", 3);
    struct result result = read_model(&message);
    expect_ok(&result);
    done(&result);
    graph = x_to_y();
    put_text(&call, NODE_DOMAIN, "org.nobody");
    put(&graph, GRAPH_NODE, &call);
    expect_graph_refused(&graph, STATUS_INVALID, "does not import its domain 'org.nobody'");
}

static void training_is_refused_with_the_nodes_name(void **state)
{
    struct message graph = x_to_y(), batch_norm;

    (void)state;
    put_node(&graph, "SoftmaxCrossEntropyLoss", "x x", "y");
    expect_graph_refused(&graph, STATUS_UNSUPPORTED, "node 'SoftmaxCrossEntropyLoss'");
    graph = x_to_y();
    batch_norm = attr_int("training_mode", 1);
    put_node_with(&graph, "BatchNormalization", "x x x x x", "y", batch_norm);
    struct message message = model(15, &graph);
    expect_refused(&message, STATUS_UNSUPPORTED, "training mode");
    graph = x_to_y();
    put_tensor(&graph, GRAPH_TENSOR, "train", 9, 0, NULL, "\1", 1);
    put_node(&graph, "Dropout", "x - train", "y");
    expect_graph_refused(&graph, STATUS_UNSUPPORTED, "training mode");
}

static void versions_outside_of_what_is_known_are_refused(void **state)
{
    struct message graph = x_to_y(), message = {0};

    (void)state;
    put_node(&graph, "Relu", "x", "y");
    message = model(5, &graph);
    expect_refused(&message, STATUS_UNSUPPORTED, "opset 5");
    message = model(1000, &graph);
    expect_refused(&message, STATUS_UNSUPPORTED, "opset 1000");
    message = (struct message){0};
    put_int(&message, MODEL_IR, 2);
    put(&message, MODEL_GRAPH, &graph);
    expect_refused(&message, STATUS_UNSUPPORTED, "IR version is 2");
    message = (struct message){0};
    put_int(&message, MODEL_IR, 8);
    expect_refused(&message, STATUS_INVALID, "no graph");
}

static void names_that_are_no_text_are_refused(void **state)
{
    struct message graph = x_to_y();

    (void)state;
    put_node(&graph, "Relu", "x", "a\xff");
    put_node(&graph, "Relu", "x", "y");
    expect_graph_refused(&graph, STATUS_INVALID, "UTF-8");
}

static void sequences_are_refused_as_borders(void **state)
{
    struct message graph = {0}, kind = {0}, sequence = {0}, port = {0};

    (void)state;
    put_int(&sequence, 1, 1);
    put(&kind, 4, &sequence);
    put_text(&port, 1, "x");
    put(&port, 2, &kind);
    put(&graph, GRAPH_INPUT, &port);
    expect_graph_refused(&graph, STATUS_UNSUPPORTED, "no tensor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_model_is_read),
        cmocka_unit_test(open_dimensions_are_unknown_however_they_are_written),
        cmocka_unit_test(an_input_with_an_initializer_is_a_constant),
        cmocka_unit_test(nodes_out_of_order_are_sorted),
        cmocka_unit_test(an_output_that_is_an_input_gets_a_node),
        cmocka_unit_test(optional_inputs_may_be_left_out),
        cmocka_unit_test(cycles_are_refused),
        cmocka_unit_test(duplicate_names_are_refused),
        cmocka_unit_test(values_from_nowhere_are_refused),
        cmocka_unit_test(unknown_operators_and_attributes_are_refused_by_name),
        cmocka_unit_test(domains_are_refused_on_use_not_on_import),
        cmocka_unit_test(training_is_refused_with_the_nodes_name),
        cmocka_unit_test(versions_outside_of_what_is_known_are_refused),
        cmocka_unit_test(names_that_are_no_text_are_refused),
        cmocka_unit_test(sequences_are_refused_as_borders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
