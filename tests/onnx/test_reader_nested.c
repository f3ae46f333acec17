/* Functions and branches, and what is left of them when bytes are cut off or changed. */
#include "onnx/reads.h"

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
        cmocka_unit_test(functions_are_inlined_with_their_attributes),
        cmocka_unit_test(endless_functions_are_refused),
        cmocka_unit_test(branches_capture_outer_values_as_inputs_of_their_node),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(every_truncation_is_refused_or_sound),
        cmocka_unit_test(every_changed_byte_is_refused_or_sound),
        cmocka_unit_test(reading_fails_cleanly_at_every_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
