/* Which graphs leave doubt about the rows of a batch. */
#include "graph/rows.h"
#include "maker.h"

static int setup(void **state)
{
    *state = graph_create();
    assert_non_null(*state);
    return 0;
}

static int teardown(void **state)
{
    graph_destroy(*state);
    return 0;
}

static struct value *rows_in(struct graph *graph)
{
    struct value *in = make_input(graph, "x", 2, (int64_t[]){SHAPE_UNKNOWN, 4});

    assert_ok(graph_set_inputs(graph, 1, &in));
    return in;
}

static bool in_doubt(struct graph *graph, struct value *out)
{
    assert_ok(graph_set_outputs(graph, 1, &out));
    return graph_may_mix_rows(graph);
}

static struct value *integer(struct graph *graph, int64_t number)
{
    return make_ints(graph, 1, &number);
}

static void arithmetic_on_rows_alone_is_certain(void **state)
{
    struct value *x = rows_in(*state), *k = make_number(*state, 2);

    assert_false(
        in_doubt(*state, make(*state, "Relu", make(*state, "Mul", x, k, NULL), NULL, NULL)));
}

/* As exporters write x.view(x.shape[0], -1). */
static void a_reshape_to_the_number_of_rows_is_certain(void **state)
{
    struct value *x = rows_in(*state);
    struct value *shape = make(*state, "Shape", x, NULL, NULL);
    struct value *count = make(*state, "Gather", shape, integer(*state, 0), NULL);
    struct value *target = make(*state, "Concat", count, integer(*state, -1), NULL);

    assert_false(in_doubt(*state, make(*state, "Reshape", x, target, NULL)));
}

static void arithmetic_with_the_number_of_rows_is_doubtful(void **state)
{
    struct value *x = rows_in(*state);
    struct value *shape = make(*state, "Shape", x, NULL, NULL);
    struct value *count = make(*state, "Gather", shape, integer(*state, 0), NULL);
    struct value *quarter = make(*state, "Div", count, integer(*state, 4), NULL);

    assert_true(in_doubt(*state, make(*state, "Add", x, quarter, NULL)));
}

static void an_answer_that_is_a_shape_is_doubtful(void **state)
{
    assert_true(in_doubt(*state, make(*state, "Shape", rows_in(*state), NULL, NULL)));
}

static void rows_that_are_picked_are_doubtful(void **state)
{
    assert_true(
        in_doubt(*state, make(*state, "Gather", rows_in(*state), integer(*state, 0), NULL)));
}

/* From `start` to `end` of dimension `axis`. */
static struct value *slice(struct graph *graph, struct value *x, int64_t start, int64_t end,
                           int64_t axis)
{
    struct value *in[] = {x, integer(graph, start), integer(graph, end), integer(graph, axis)};
    struct node *node = graph_add_node(graph, NULL, op_find("", "Slice"), "", 4, 1);

    assert_non_null(node);
    for (size_t i = 0; i < 4; i++)
        node_set_input(node, i, in[i]);
    node_set_output(node, 0, graph_add_value(graph, ""));
    return node->out[0];
}

static void a_slice_of_columns_is_certain(void **state)
{
    assert_false(in_doubt(*state, slice(*state, rows_in(*state), 1, 3, 1)));
}

static void a_slice_of_all_rows_is_certain(void **state)
{
    assert_false(in_doubt(*state, slice(*state, rows_in(*state), 0, INT64_MAX, 0)));
}

static void a_slice_of_some_rows_is_doubtful(void **state)
{
    assert_true(in_doubt(*state, slice(*state, rows_in(*state), 2, INT64_MAX, 0)));
}

static void a_slice_of_some_rows_counted_from_the_end_of_the_shape_is_doubtful(void **state)
{
    assert_true(in_doubt(*state, slice(*state, rows_in(*state), 2, INT64_MAX, -2)));
}

static void padding_of_rows_is_doubtful_and_of_columns_is_not(void **state)
{
    struct value *x = rows_in(*state);
    struct value *wider =
        make(*state, "Pad", x, make_ints(*state, 4, (int64_t[]){0, 0, 0, 2}), NULL);

    assert_false(graph_may_mix_rows(*state));
    assert_true(in_doubt(
        *state, make(*state, "Pad", wider, make_ints(*state, 4, (int64_t[]){0, 0, 2, 0}), NULL)));
}

static void a_scale_out_of_all_rows_is_doubtful(void **state)
{
    assert_true(
        in_doubt(*state, make(*state, "DynamicQuantizeLinear", rows_in(*state), NULL, NULL)));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(arithmetic_on_rows_alone_is_certain),
        TEST(a_reshape_to_the_number_of_rows_is_certain),
        TEST(arithmetic_with_the_number_of_rows_is_doubtful),
        TEST(an_answer_that_is_a_shape_is_doubtful),
        TEST(rows_that_are_picked_are_doubtful),
        TEST(a_slice_of_columns_is_certain),
        TEST(a_slice_of_all_rows_is_certain),
        TEST(a_slice_of_some_rows_is_doubtful),
        TEST(a_slice_of_some_rows_counted_from_the_end_of_the_shape_is_doubtful),
        TEST(padding_of_rows_is_doubtful_and_of_columns_is_not),
        TEST(a_scale_out_of_all_rows_is_doubtful),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
