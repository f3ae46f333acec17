#include "onnx/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph/match.h"
#include "onnx/reader.h"
#include "support/fail_alloc.h"

static const int64_t two[] = {2};
static const float numbers[] = {1.5F, -2};

/* What one read gave; destroyed by done(). */
struct result {
    struct graph *graph;
    struct onnx_info info;
    struct error err;
    enum status status;
};

static struct result read_model(const struct message *model)
{
    struct result result = {0};
    const char *reason = "";

    result.status =
        onnx_read_bytes(model->bytes, model->size, NULL, &result.graph, &result.info, &result.err);
    if (result.status == STATUS_OK && !graph_is_valid(result.graph, &reason))
        fail_msg("%s", reason);
    if (result.status != STATUS_OK)
        assert_null(result.graph);
    return result;
}

static struct result read_graph(int64_t opset, const struct message *graph)
{
    struct message message = model(opset, graph);

    return read_model(&message);
}

static void done(struct result *result)
{
    graph_destroy(result->graph);
}

static void expect_ok(const struct result *result)
{
    if (result->status != STATUS_OK)
        fail_msg("%s: %s", status_name(result->status), result->err.text);
}

static void expect_refused(const struct message *model, enum status status, const char *words)
{
    struct result result = read_model(model);

    if (result.status == STATUS_OK || strstr(result.err.text, words) == NULL)
        fail_msg("%s: '%s' has no '%s'", status_name(result.status), result.err.text, words);
    assert_int_equal(result.status, status);
    done(&result);
}

static void expect_graph_refused(const struct message *graph, enum status status, const char *words)
{
    struct message message = model(13, graph);

    expect_refused(&message, status, words);
}

static struct node *nth_node(const struct graph *graph, size_t n)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        if (n-- == 0)
            return node;
    return NULL;
}

/* x [2] ──> y, the nodes are put by the test. */
static struct message x_to_y(void)
{
    struct message graph = {0};

    put_text(&graph, GRAPH_NAME, "test");
    put_port(&graph, GRAPH_INPUT, "x", 1, 1, two);
    put_port(&graph, GRAPH_OUTPUT, "y", 1, 1, two);
    return graph;
}

/* --- what a sound model becomes -----------------------------------------------------------------
 */

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

/* --- tensors ------------------------------------------------------------------------------------
 */

static struct message typed_tensor(int type, unsigned field, size_t count, const int64_t *values)
{
    struct message tensor = {0}, packed = {0};

    put_int(&tensor, TENSOR_DIM, (int64_t)count);
    put_int(&tensor, TENSOR_TYPE, type);
    for (size_t i = 0; i < count; i++)
        put_varint(&packed, (uint64_t)values[i]);
    put(&tensor, field, &packed);
    return tensor;
}

static struct constant *read_tensor(const struct message *message)
{
    struct constant *constant = NULL;
    struct error err;

    if (onnx_read_tensor(message->bytes, message->size, &constant, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return constant;
}

static void expect_tensor_refused(const struct message *message, const char *words)
{
    struct constant *constant = NULL;
    struct error err;

    assert_int_not_equal(onnx_read_tensor(message->bytes, message->size, &constant, &err),
                         STATUS_OK);
    assert_null(constant);
    if (strstr(err.text, words) == NULL)
        fail_msg("'%s' has no '%s'", err.text, words);
}

static void typed_fields_are_converted(void **state)
{
    struct message tensor = typed_tensor(3, TENSOR_INT32, 3, (const int64_t[]){-128, 0, 127});
    struct constant *constant = read_tensor(&tensor);
    const int8_t *bytes = constant->tensor.data;

    (void)state;
    assert_true(bytes[0] == -128 && bytes[1] == 0 && bytes[2] == 127);
    constant_unref(constant);

    tensor = typed_tensor(7, TENSOR_INT64, 2, (const int64_t[]){INT64_MIN, -1});
    constant = read_tensor(&tensor);
    assert_true(((const int64_t *)constant->tensor.data)[0] == INT64_MIN);
    assert_true(((const int64_t *)constant->tensor.data)[1] == -1);
    constant_unref(constant);

    tensor = typed_tensor(10, TENSOR_INT32, 1, (const int64_t[]){0x3c00});
    constant = read_tensor(&tensor);
    assert_true(float_from_half(*(const uint16_t *)constant->tensor.data) == 1);
    constant_unref(constant);
}

static void values_outside_of_the_type_are_refused(void **state)
{
    struct message tensor = typed_tensor(3, TENSOR_INT32, 1, (const int64_t[]){128});

    (void)state;
    expect_tensor_refused(&tensor, "is no int8");
    tensor = typed_tensor(9, TENSOR_INT32, 1, (const int64_t[]){2});
    expect_tensor_refused(&tensor, "is no bool");
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    struct message tensor = typed_tensor(6, TENSOR_INT32, 3, (const int64_t[]){1, 2, 3});
    struct message graph = x_to_y();

    (void)state;
    put_int(&tensor, TENSOR_DIM, 2);
    expect_tensor_refused(&tensor, "its shape has 6");
    put_tensor(&graph, GRAPH_TENSOR, "w", 1, 1, (const int64_t[]){3}, numbers, sizeof(numbers));
    put_node(&graph, "Add", "x w", "y");
    expect_graph_refused(&graph, STATUS_INVALID, "8 bytes of data, its shape needs 12");
}

static void absurd_shapes_are_refused(void **state)
{
    static const int64_t shapes[][3] = {{-1, 1, 1},
                                        {INT64_MAX, 2, 2},
                                        {INT64_C(1) << 40, INT64_C(1) << 40, 0x7f},
                                        {INT64_MIN, 1, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct message graph = x_to_y();

        put_tensor(&graph, GRAPH_TENSOR, "w", 1, 3, shapes[i], numbers, sizeof(numbers));
        put_node(&graph, "Add", "x w", "y");
        expect_graph_refused(&graph, STATUS_INVALID, "is impossible");
    }
}

static void an_input_without_a_shape_is_refused(void **state)
{
    struct message graph = {0};

    (void)state;
    put_node(&graph, "Relu", "x", "y");
    put_port(&graph, GRAPH_INPUT, "x", 1, SIZE_MAX, NULL);
    put_port(&graph, GRAPH_OUTPUT, "y", 1, SIZE_MAX, NULL);
    expect_graph_refused(&graph, STATUS_UNSUPPORTED, "input 'x' has no shape");
}

static void unknown_element_types_are_refused_by_number(void **state)
{
    struct message graph = x_to_y();

    (void)state;
    put_tensor(&graph, GRAPH_TENSOR, "w", 17, 1, two, numbers, 2);
    put_node(&graph, "Relu", "x", "y");
    expect_graph_refused(&graph, STATUS_UNSUPPORTED, "element type 17");
}

/* --- external data ------------------------------------------------------------------------------
 */

static char folder[] = "/tmp/sluice-onnx-XXXXXX";

static int make_folder(void **state)
{
    char path[256];
    FILE *file;

    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/weights.bin", folder);
    file = fopen(path, "wb");
    if (file == NULL)
        return -1;
    for (int i = 0; i < 16; i++)
        (void)fwrite(numbers, 1, sizeof(numbers), file);
    (void)fclose(file);
    (void)snprintf(path, sizeof(path), "%s/link", folder);
    return symlink("/etc/hostname", path);
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"weights.bin", "link", "model.onnx", NULL};
    char path[256];

    (void)state;
    for (size_t i = 0; names[i] != NULL; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

static void put_entry(struct message *tensor, const char *key, const char *value)
{
    struct message entry = {0};

    put_text(&entry, 1, key);
    put_text(&entry, 2, value);
    put(tensor, TENSOR_EXTERNAL, &entry);
}

static struct message external_model(const char *location, const char *offset, const char *length)
{
    struct message tensor = {0}, graph = x_to_y();

    put_int(&tensor, TENSOR_DIM, 2);
    put_int(&tensor, TENSOR_TYPE, 1);
    put_text(&tensor, TENSOR_NAME, "w");
    put_entry(&tensor, "location", location);
    if (offset != NULL)
        put_entry(&tensor, "offset", offset);
    if (length != NULL)
        put_entry(&tensor, "length", length);
    put_int(&tensor, TENSOR_LOCATION, 1);
    put(&graph, GRAPH_TENSOR, &tensor);
    put_node(&graph, "Add", "x w", "y");
    return model(13, &graph);
}

static struct result read_from_file(const struct message *model)
{
    struct result result = {0};
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/model.onnx", folder);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(model->bytes, 1, model->size, file), model->size);
    assert_int_equal(fclose(file), 0);
    result.status = onnx_read_file(path, &result.graph, &result.info, &result.err);
    return result;
}

static void external_data_is_found_beside_the_model(void **state)
{
    struct message message = external_model("weights.bin", "64", "8");
    struct result result = read_from_file(&message);
    const struct constant *constant;

    (void)state;
    expect_ok(&result);
    constant = nth_node(result.graph, 0)->in[1]->constant;
    assert_memory_equal(constant->tensor.data, numbers, sizeof(numbers));
    done(&result);
}

static void external_data_need_not_be_aligned(void **state)
{
    struct message message = external_model("weights.bin", "7", NULL);
    struct result result = read_from_file(&message);

    (void)state;
    expect_ok(&result);
    assert_int_equal(tensor_bytes(&nth_node(result.graph, 0)->in[1]->constant->tensor), 8);
    done(&result);
}

static void external_data_stays_within_its_file(void **state)
{
    static const struct {
        const char *offset, *length, *words;
    } wrong[] = {
        {"124", "8", "lies outside"},       {"999999999999999999", "8", "lies outside"},
        {"0", "4", "its shape needs 8"},    {"-8", "8", "no number of bytes"},
        {"8x", NULL, "no number of bytes"}, {"18446744073709551608", "8", "no number of bytes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct message message = external_model("weights.bin", wrong[i].offset, wrong[i].length);
        struct result result = read_from_file(&message);

        assert_int_equal(result.status, STATUS_INVALID);
        if (strstr(result.err.text, wrong[i].words) == NULL)
            fail_msg("'%s' has no '%s'", result.err.text, wrong[i].words);
    }
}

static void external_data_stays_within_the_folder(void **state)
{
    static const char *const paths[] = {"/etc/hostname", "../hostname", "a/../../b", "..",
                                        "link",          "./../x"};

    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        struct message message = external_model(paths[i], NULL, NULL);
        struct result result = read_from_file(&message);

        assert_int_equal(result.status, STATUS_DENIED);
        assert_non_null(strstr(result.err.text, "outside of the model's folder"));
    }
}

static void external_data_without_a_folder_is_refused(void **state)
{
    struct message message = external_model("weights.bin", NULL, NULL);

    (void)state;
    expect_refused(&message, STATUS_INVALID, "no folder");
}

static void missing_files_are_said_to_be_missing(void **state)
{
    struct message message = external_model("nothing.bin", NULL, NULL);
    struct result result = read_from_file(&message);
    struct graph *graph = NULL;

    (void)state;
    assert_int_equal(result.status, STATUS_NOT_FOUND);
    assert_int_equal(onnx_read_file("/nowhere/model.onnx", &graph, NULL, &result.err),
                     STATUS_NOT_FOUND);
    assert_int_equal(onnx_read_file("/tmp", &graph, NULL, &result.err), STATUS_INVALID);
}

/* --- functions ----------------------------------------------------------------------------------
 */

/* f(a, b) = LeakyRelu(a) + b, alpha taken from the call or 0.5. */
static struct message function(void)
{
    struct message function = {0}, relu, reference = {0}, standard = attr_float("slope", 0.5F);

    put_text(&function, 1, "F");
    put_text(&function, 4, "a");
    put_text(&function, 4, "b");
    put_text(&function, 5, "c");
    put(&function, 11, &standard);
    relu = node("LeakyRelu", "a", "t");
    put_text(&reference, 1, "alpha");
    put_int(&reference, 20, 1);
    put_text(&reference, 21, "slope");
    put(&relu, NODE_ATTR, &reference);
    put(&function, 7, &relu);
    relu = node("Add", "t b", "c");
    put(&function, 7, &relu);
    put_opset(&function, 9, "", 13);
    put_text(&function, 10, "my");
    return function;
}

static void put_call(struct message *graph, const char *op, const char *inputs, const char *outputs,
                     const struct message *attr)
{
    struct message call = node(op, inputs, outputs);

    put_text(&call, NODE_DOMAIN, "my");
    if (attr != NULL)
        put(&call, NODE_ATTR, attr);
    put(graph, GRAPH_NODE, &call);
}

static void functions_are_inlined_with_their_attributes(void **state)
{
    struct message graph = x_to_y(), message, body = function(), slope = attr_float("slope", 2);
    struct result result;

    (void)state;
    put_call(&graph, "F", "x x", "m", NULL);
    put_call(&graph, "F", "m x", "y", &slope);
    message = model(13, &graph);
    put_opset(&message, MODEL_OPSET, "my", 1);
    put(&message, MODEL_FUNCTION, &body);
    result = read_model(&message);
    expect_ok(&result);
    assert_int_equal(result.info.nodes, 4);
    assert_true(node_attr_float(nth_node(result.graph, 0), "alpha", 0) == 0.5F);
    assert_true(node_attr_float(nth_node(result.graph, 2), "alpha", 0) == 2);
    assert_string_equal(result.graph->out[0]->name, "y");
    done(&result);
}

static struct message chain_of_functions(size_t count, bool endless)
{
    struct message graph = x_to_y(), message;

    put_call(&graph, "f0", "x", "y", NULL);
    message = model(13, &graph);
    for (size_t i = 0; i < count; i++) {
        struct message function = {0}, call;
        char name[24];

        (void)snprintf(name, sizeof(name), "f%zu", i);
        put_text(&function, 1, name);
        put_text(&function, 4, "a");
        put_text(&function, 5, "c");
        (void)snprintf(name, sizeof(name), "f%zu", endless ? 0 : i + 1);
        for (int k = 0; k < 2; k++) { /* twice as many nodes at each level */
            bool last = i + 1 == count && !endless;

            call = node(last ? "Relu" : name, k == 0 ? "a" : "b", k == 0 ? "b" : "c");
            put_text(&call, NODE_DOMAIN, last ? "" : "my");
            put(&function, 7, &call);
        }
        put_opset(&function, 9, "", 13);
        put_text(&function, 10, "my");
        put(&message, MODEL_FUNCTION, &function);
    }
    return message;
}

static void endless_functions_are_refused(void **state)
{
    struct message message = chain_of_functions(1, true);

    (void)state;
    expect_refused(&message, STATUS_INVALID, "calls itself");
    message = chain_of_functions(40, false);
    expect_refused(&message, STATUS_INVALID, "nested deeper");
    message = chain_of_functions(23, false);
    expect_refused(&message, STATUS_UNSUPPORTED, "model");
}

/* --- sub-graphs ---------------------------------------------------------------------------------
 */

/* A branch that computes `op` of the outer value m and the outer constant w. */
static struct message branch(const char *op)
{
    struct message graph = {0};

    put_node(&graph, op, "m w", "result");
    put_port(&graph, GRAPH_OUTPUT, "result", 1, 1, two);
    return graph;
}

static struct message if_graph(void)
{
    struct message graph = x_to_y(), choice = node("If", "cond", "y"), attr;
    struct message then_branch = branch("Add"), else_branch = branch("Mul");

    put_port(&graph, GRAPH_INPUT, "cond", 9, 0, NULL);
    put_tensor(&graph, GRAPH_TENSOR, "w", 1, 1, two, numbers, sizeof(numbers));
    attr = attr_graph("then_branch", &then_branch);
    put(&choice, NODE_ATTR, &attr);
    attr = attr_graph("else_branch", &else_branch);
    put(&choice, NODE_ATTR, &attr);
    put(&graph, GRAPH_NODE, &choice);
    put_node(&graph, "Relu", "x", "m"); /* behind its use in the branches: sorted */
    return graph;
}

static void branches_capture_outer_values_as_inputs_of_their_node(void **state)
{
    struct message graph = if_graph();
    struct result result;
    struct node *choice;
    const struct graph *const *field;

    (void)state;
    if (op_find("", "If") == NULL)
        skip();
    result = read_graph(13, &graph);
    expect_ok(&result);
    choice = nth_node(result.graph, 1);
    assert_string_equal(choice->op->onnx.name, "If");
    assert_int_equal(choice->inputs, 3); /* the condition, m for each branch; w is a constant */
    assert_ptr_equal(choice->in[1], nth_node(result.graph, 0)->out[0]);
    assert_ptr_equal(choice->in[2], choice->in[1]);
    field = node_attr(choice, "then_branch");
    assert_int_equal((*field)->captures, 1);
    assert_true((*field)->captured[0]->is_input);
    assert_string_equal(nth_node(*field, 0)->op->onnx.name, "Add");
    assert_non_null(nth_node(*field, 0)->in[1]->constant);
    done(&result);
}

static void deep_nesting_is_refused(void **state)
{
    static struct message graphs[40];
    struct message graph;

    (void)state;
    if (op_find("", "If") == NULL)
        skip();
    graphs[0] = branch("Add");
    for (size_t i = 1; i < 40; i++) {
        struct message choice = node("If", "cond", "result"), inner = graphs[i - 1], attr;
        struct message outer = {0}, flat = branch("Mul");

        attr = attr_graph("then_branch", &inner);
        put(&choice, NODE_ATTR, &attr);
        attr = attr_graph("else_branch", &flat);
        put(&choice, NODE_ATTR, &attr);
        put(&outer, GRAPH_NODE, &choice);
        put_port(&outer, GRAPH_OUTPUT, "result", 1, 1, two);
        graphs[i] = outer;
    }
    graph = graphs[39];
    put_port(&graph, GRAPH_INPUT, "cond", 9, 0, NULL);
    expect_graph_refused(&graph, STATUS_INVALID, "nested deeper");
}

/* --- what is refused ----------------------------------------------------------------------------
 */

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

/* --- broken bytes -------------------------------------------------------------------------------
 */

static struct message rich_model(void)
{
    struct message graph = op_find("", "If") == NULL ? x_to_y() : if_graph(), message, body;

    if (op_find("", "If") == NULL)
        put_node(&graph, "Relu", "x", "y");
    put_call(&graph, "F", "x x", "unused", NULL);
    body = function();
    message = model(12, &graph);
    put_opset(&message, MODEL_OPSET, "my", 1);
    put(&message, MODEL_FUNCTION, &body);
    return message;
}

static void every_truncation_is_refused_or_sound(void **state)
{
    struct message message = rich_model();
    struct result result = read_model(&message);

    (void)state;
    expect_ok(&result);
    done(&result);
    for (size_t size = 0; size < message.size; size++) {
        struct message cut = {.size = size};

        memcpy(cut.bytes, message.bytes, size);
        result = read_model(&cut); /* checks the graph if it is one */
        done(&result);
    }
}

static void every_changed_byte_is_refused_or_sound(void **state)
{
    static const unsigned char changes[] = {0x01, 0x80, 0xff, 0x10};
    struct message message = rich_model();

    (void)state;
    for (size_t i = 0; i < message.size; i++) {
        for (size_t k = 0; k < sizeof(changes); k++) {
            struct message changed = message;
            struct result result;

            changed.bytes[i] ^= changes[k];
            result = read_model(&changed);
            done(&result);
        }
    }
}

static enum status read_it(void *arg)
{
    const struct message *message = arg;
    struct graph *graph = NULL;
    struct error err;
    enum status status = onnx_read_bytes(message->bytes, message->size, NULL, &graph, NULL, &err);

    if (status != STATUS_OK)
        assert_null(graph);
    graph_destroy(graph);
    return status;
}

static void reading_fails_cleanly_at_every_allocation(void **state)
{
    struct message message = rich_model();

    (void)state;
    assert_true(fail_each_alloc(read_it, &message) > 10);
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
        cmocka_unit_test(typed_fields_are_converted),
        cmocka_unit_test(values_outside_of_the_type_are_refused),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(absurd_shapes_are_refused),
        cmocka_unit_test(an_input_without_a_shape_is_refused),
        cmocka_unit_test(unknown_element_types_are_refused_by_number),
        cmocka_unit_test(external_data_is_found_beside_the_model),
        cmocka_unit_test(external_data_need_not_be_aligned),
        cmocka_unit_test(external_data_stays_within_its_file),
        cmocka_unit_test(external_data_stays_within_the_folder),
        cmocka_unit_test(external_data_without_a_folder_is_refused),
        cmocka_unit_test(missing_files_are_said_to_be_missing),
        cmocka_unit_test(functions_are_inlined_with_their_attributes),
        cmocka_unit_test(endless_functions_are_refused),
        cmocka_unit_test(branches_capture_outer_values_as_inputs_of_their_node),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(cycles_are_refused),
        cmocka_unit_test(duplicate_names_are_refused),
        cmocka_unit_test(values_from_nowhere_are_refused),
        cmocka_unit_test(unknown_operators_and_attributes_are_refused_by_name),
        cmocka_unit_test(domains_are_refused_on_use_not_on_import),
        cmocka_unit_test(training_is_refused_with_the_nodes_name),
        cmocka_unit_test(versions_outside_of_what_is_known_are_refused),
        cmocka_unit_test(names_that_are_no_text_are_refused),
        cmocka_unit_test(sequences_are_refused_as_borders),
        cmocka_unit_test(every_truncation_is_refused_or_sound),
        cmocka_unit_test(every_changed_byte_is_refused_or_sound),
        cmocka_unit_test(reading_fails_cleanly_at_every_allocation),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
