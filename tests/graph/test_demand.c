/* What operators ask of inputs whose dimensions are open. */
#include "graph/demand.h"
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

static struct value *open_input(struct graph *graph, size_t rank)
{
    int64_t dims[SHAPE_MAX_RANK];
    struct value *in;

    for (size_t i = 0; i < rank; i++)
        dims[i] = SHAPE_UNKNOWN;
    in = make_input(graph, "x", rank, dims);
    assert_ok(graph_set_inputs(graph, 1, &in));
    return in;
}

static struct value *weight(struct graph *graph, size_t rank, const int64_t *dims)
{
    return make_constant(graph, DTYPE_FLOAT, rank, dims, NULL);
}

static void assert_filled(struct graph *graph, size_t rank, const int64_t *dims)
{
    struct shape shape = graph->in[0]->shape;

    graph_fill_demands(graph, &shape);
    assert_int_equal(shape.rank, rank);
    for (size_t i = 0; i < rank; i++)
        assert_int_equal(shape.dims[i], dims[i]);
}

static void a_convolution_asks_for_its_channels(void **state)
{
    struct value *x = open_input(*state, 4);

    (void)make(*state, "Conv", x, weight(*state, 4, (int64_t[]){8, 3, 5, 5}), NULL);
    assert_filled(*state, 4, (int64_t[]){SHAPE_UNKNOWN, 3, SHAPE_UNKNOWN, SHAPE_UNKNOWN});
}

static void a_grouped_convolution_asks_for_those_of_all_groups(void **state)
{
    struct value *x = open_input(*state, 5), *y;

    y = make(*state, "Conv", x, weight(*state, 5, (int64_t[]){8, 2, 1, 1, 1}), NULL);
    *(int64_t *)node_attr(y->producer, "group") = 4;
    assert_filled(*state, 5,
                  (int64_t[]){SHAPE_UNKNOWN, 8, SHAPE_UNKNOWN, SHAPE_UNKNOWN, SHAPE_UNKNOWN});
}

static void a_product_asks_for_its_depth(void **state)
{
    struct value *x = open_input(*state, 3);

    (void)make(*state, "MatMul", x, weight(*state, 2, (int64_t[]){48, 7}), NULL);
    assert_filled(*state, 3, (int64_t[]){SHAPE_UNKNOWN, SHAPE_UNKNOWN, 48});
}

static void a_product_from_the_left_asks_for_its_depth(void **state)
{
    struct value *x = open_input(*state, 2);

    (void)make(*state, "MatMul", weight(*state, 2, (int64_t[]){7, 48}), x, NULL);
    assert_filled(*state, 2, (int64_t[]){48, SHAPE_UNKNOWN});
}

static void a_transposed_gemm_asks_for_its_depth(void **state)
{
    struct value *x = open_input(*state, 2), *y;

    y = make(*state, "Gemm", x, weight(*state, 2, (int64_t[]){7, 48}), NULL);
    *(int64_t *)node_attr(y->producer, "transB") = 1;
    assert_filled(*state, 2, (int64_t[]){SHAPE_UNKNOWN, 48});
}

static void a_demand_is_found_behind_what_keeps_the_shape(void **state)
{
    struct value *x = open_input(*state, 4), *y;

    y = make(*state, "Sub", x, weight(*state, 3, (int64_t[]){3, 1, 1}), NULL);
    y = make(*state, "Mul", y, make(*state, "Sigmoid", y, NULL, NULL), NULL);
    (void)make(*state, "Conv", y, weight(*state, 4, (int64_t[]){8, 3, 5, 5}), NULL);
    assert_filled(*state, 4, (int64_t[]){SHAPE_UNKNOWN, 3, SHAPE_UNKNOWN, SHAPE_UNKNOWN});
}

static void nothing_is_asked_behind_what_changes_the_shape(void **state)
{
    struct value *x = open_input(*state, 2), *y;

    y = make(*state, "Transpose", x, NULL, NULL);
    (void)make(*state, "MatMul", y, weight(*state, 2, (int64_t[]){48, 7}), NULL);
    assert_filled(*state, 2, (int64_t[]){SHAPE_UNKNOWN, SHAPE_UNKNOWN});
}

static void what_the_file_says_stays(void **state)
{
    struct value *x = make_input(*state, "x", 2, (int64_t[]){SHAPE_UNKNOWN, 5});

    assert_ok(graph_set_inputs(*state, 1, &x));
    (void)make(*state, "MatMul", x, weight(*state, 2, (int64_t[]){48, 7}), NULL);
    assert_filled(*state, 2, (int64_t[]){SHAPE_UNKNOWN, 5});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_convolution_asks_for_its_channels, setup, teardown),
        cmocka_unit_test_setup_teardown(a_grouped_convolution_asks_for_those_of_all_groups, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_product_asks_for_its_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(a_product_from_the_left_asks_for_its_depth, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_transposed_gemm_asks_for_its_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(a_demand_is_found_behind_what_keeps_the_shape, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(nothing_is_asked_behind_what_changes_the_shape, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_the_file_says_stays, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
