/* Outputs that are not declared as tensors.  ZipMap at the end of a model stands for its scores;
 * anywhere else it is refused. */
#include "onnx/writer.h"

#include "graph/match.h"
#include "onnx/reader.h"

static const int64_t scores[] = {2, 3};

struct result {
    struct graph *graph;
    struct error err;
    enum status status;
};

/* An output that is declared as a sequence of maps. */
static void put_maps(struct message *graph, const char *name)
{
    struct message kind = {0}, sequence = {0}, port = {0};

    put_int(&sequence, 1, 1);
    put(&kind, 4, &sequence);
    put_text(&port, 1, name);
    put(&port, 2, &kind);
    put(graph, GRAPH_OUTPUT, &port);
}

static void put_zip_map(struct message *graph, const char *in, const char *out,
                        struct message labels)
{
    struct message zip_map = node("ZipMap", in, out);

    put_text(&zip_map, NODE_DOMAIN, "ai.onnx.ml");
    put(&zip_map, NODE_ATTR, &labels);
    put(graph, GRAPH_NODE, &zip_map);
}

static struct message three_labels(void)
{
    return attr_ints("classlabels_int64s", 3, (const int64_t[]){7, 8, 9});
}

static struct message start(void)
{
    struct message graph = {0};

    put_port(&graph, GRAPH_INPUT, "x", 1, 2, scores);
    put_node(&graph, "Softmax", "x", "p");
    return graph;
}

static struct result read_it(const struct message *graph)
{
    struct message message = model(13, graph);
    struct result result = {0};
    const char *reason = "";

    put_opset(&message, MODEL_OPSET, "ai.onnx.ml", 1);
    result.status =
        onnx_read_bytes(message.bytes, message.size, NULL, &result.graph, NULL, &result.err);
    if (result.status == STATUS_OK && !graph_is_valid(result.graph, &reason))
        fail_msg("%s", reason);
    return result;
}

static void expect_refused(const struct message *graph, const char *words)
{
    struct result result = read_it(graph);

    if (result.status == STATUS_OK || strstr(result.err.text, words) == NULL)
        fail_msg("%s: '%s' has no '%s'", status_name(result.status), result.err.text, words);
}

static void a_model_that_ends_in_maps_gives_its_scores(void **state)
{
    struct message graph = start();
    struct result result;

    (void)state;
    put_zip_map(&graph, "p", "maps", three_labels());
    put_maps(&graph, "maps");
    result = read_it(&graph);
    if (result.status != STATUS_OK)
        fail_msg("%s", result.err.text);
    assert_int_equal(result.graph->outputs, 1);
    assert_string_equal(result.graph->out[0]->name, "maps");
    assert_int_equal(result.graph->out[0]->dtype, DTYPE_FLOAT);
    assert_int_equal(result.graph->out[0]->shape.rank, 2);
    assert_int_equal(result.graph->out[0]->shape.dims[0], SHAPE_UNKNOWN);
    assert_int_equal(result.graph->out[0]->shape.dims[1], 3);
    assert_true(node_is(result.graph->out[0]->producer, "Identity"));
    assert_true(node_is(result.graph->out[0]->producer->in[0]->producer, "Softmax"));
    graph_destroy(result.graph);
}

static void the_scores_may_be_an_output_beside_the_maps(void **state)
{
    struct message graph = start();
    struct result result;

    (void)state;
    put_zip_map(&graph, "p", "maps", three_labels());
    put_maps(&graph, "maps");
    put_port(&graph, GRAPH_OUTPUT, "p", 1, 2, scores);
    result = read_it(&graph);
    if (result.status != STATUS_OK)
        fail_msg("%s", result.err.text);
    assert_int_equal(result.graph->outputs, 2);
    graph_destroy(result.graph);
}

static void maps_that_are_computed_with_are_refused(void **state)
{
    struct message graph = start();

    (void)state;
    put_zip_map(&graph, "p", "maps", three_labels());
    put_node(&graph, "Relu", "maps", "y");
    put_port(&graph, GRAPH_OUTPUT, "y", 1, 2, scores);
    expect_refused(&graph, "zipmap=False");
    put_maps(&graph, "maps");
    expect_refused(&graph, "zipmap=False");
}

static void other_sequences_are_no_outputs(void **state)
{
    struct message graph = start();

    (void)state;
    put_node(&graph, "Identity", "p", "maps");
    put_maps(&graph, "maps");
    expect_refused(&graph, "'maps': it is no tensor");
}

/* An output that is declared by its name alone. */
static void put_untyped(struct message *graph, const char *name)
{
    struct message port = {0};

    put_text(&port, 1, name);
    put(graph, GRAPH_OUTPUT, &port);
}

static void an_output_without_a_type_has_that_of_its_node(void **state)
{
    struct message graph = start();
    struct result result;

    (void)state;
    put_untyped(&graph, "p");
    result = read_it(&graph);
    if (result.status != STATUS_OK)
        fail_msg("%s", result.err.text);
    assert_int_equal(result.graph->out[0]->dtype, DTYPE_FLOAT);
    graph_destroy(result.graph);
    graph = (struct message){0};
    put_untyped(&graph, "i");
    put_port(&graph, GRAPH_INPUT, "x", 0, 2, scores);
    put_node(&graph, "Relu", "x", "i");
    expect_refused(&graph, "output 'i' has no element type");
}

static void maps_without_labels_are_refused(void **state)
{
    struct message graph = start();

    (void)state;
    put_zip_map(&graph, "p", "maps", attr_int("other", 1));
    put_maps(&graph, "maps");
    expect_refused(&graph, "one list of class labels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_ends_in_maps_gives_its_scores),
        cmocka_unit_test(the_scores_may_be_an_output_beside_the_maps),
        cmocka_unit_test(maps_that_are_computed_with_are_refused),
        cmocka_unit_test(other_sequences_are_no_outputs),
        cmocka_unit_test(maps_without_labels_are_refused),
        cmocka_unit_test(an_output_without_a_type_has_that_of_its_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
