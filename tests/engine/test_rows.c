/* A row gives the same bits alone and in any batch. */
#include "graphs.h"

#include <math.h>

static void a_row_gives_the_same_bits_in_any_batch(void **state)
{
    struct rig *rig = *state;
    enum { ROW = 16 * 64, OUT = 32 * 64 };
    struct network *network = make_network(rig, conv_graph());
    const struct shape one = SHAPE(1, 16, 8, 8), three = SHAPE(3, 16, 8, 8);
    struct plan *single = make_plan(network, &one), *batch = make_plan(network, &three);
    static float in[3 * ROW], alone[OUT], together[3 * OUT];

    for (int i = 0; i < 3 * ROW; i++)
        in[i] = sinf((float)i);
    assert_ok(run_floats(rig, batch, in, 3 * ROW, together, 3 * OUT));
    for (int row = 0; row < 3; row++) {
        assert_ok(run_floats(rig, single, in + row * ROW, ROW, alone, OUT));
        assert_memory_equal(alone, together + row * OUT, sizeof(alone));
    }
    plan_unref(single);
    plan_unref(batch);
    network_destroy(network);
}

static void compare_alone_and_in_a_batch(struct rig *rig, int64_t side)
{
    enum { ROWS = 8, CHANNELS = 20, MAPS = 10 };
    const size_t row = (size_t)(CHANNELS * side * side), result = MAPS;
    struct graph *graph = graph_create();
    struct value *x =
        make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, CHANNELS, side, side));
    struct node *conv = NODE(graph, "Conv", x, make_floats(graph, SHAPE(MAPS, CHANNELS, 3, 3), 1));
    struct value *y = APPLY(graph, "GlobalAveragePool", conv->out[0]);
    const struct shape one = SHAPE(1, CHANNELS, side, side),
                       all = SHAPE(ROWS, CHANNELS, side, side);
    float *in = malloc(ROWS * row * sizeof(*in)), alone[MAPS], together[ROWS * MAPS];
    struct network *network;
    struct plan *single, *batch;

    set_borders(graph, 1, &x, 1, &y);
    network = make_network(rig, graph);
    single = make_plan(network, &one);
    batch = make_plan(network, &all);
    assert_non_null(in);
    for (size_t i = 0; i < ROWS * row; i++)
        in[i] = sinf((float)i);
    assert_ok(run_floats(rig, batch, in, ROWS * row, together, ROWS * result));
    for (size_t i = 0; i < ROWS; i++) {
        assert_ok(run_floats(rig, single, in + i * row, row, alone, result));
        assert_memory_equal(alone, together + i * result, sizeof(alone));
    }
    free(in);
    plan_unref(single);
    plan_unref(batch);
    network_destroy(network);
}

/* Whether a reorder pays is a matter of size: of a row's. */
static void layouts_do_not_depend_on_the_batch(void **state)
{
    for (int64_t side = 3; side < 24; side++)
        compare_alone_and_in_a_batch(*state, side);
}

/* C of one row could be a bias, which a sum begins with; C of more rows is added at the end. */
static void a_computed_c_of_gemm_gives_a_row_the_same_bits_in_any_batch(void **state)
{
    enum { SIZE = 67, ROWS = 3 };
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, SIZE));
    struct value *w = make_floats(graph, SHAPE(SIZE, SIZE), 1);
    struct value *y = APPLY(graph, "Gemm", x, w, APPLY(graph, "Exp", x));
    const struct shape one = SHAPE(1, SIZE), all = SHAPE(ROWS, SIZE);
    static float in[ROWS * SIZE], together[ROWS * SIZE], alone[SIZE];
    struct network *network;
    struct plan *single, *batch;

    set_borders(graph, 1, &x, 1, &y);
    network = make_network(rig, graph);
    single = make_plan(network, &one);
    batch = make_plan(network, &all);
    for (int i = 0; i < ROWS * SIZE; i++)
        in[i] = sinf((float)i);
    assert_ok(run_floats(rig, batch, in, ROWS * SIZE, together, ROWS * SIZE));
    for (int row = 0; row < ROWS; row++) {
        assert_ok(run_floats(rig, single, in + row * SIZE, SIZE, alone, SIZE));
        assert_memory_equal(alone, together + row * SIZE, sizeof(alone));
    }
    plan_unref(single);
    plan_unref(batch);
    network_destroy(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_gives_the_same_bits_in_any_batch),
        cmocka_unit_test(layouts_do_not_depend_on_the_batch),
        cmocka_unit_test(a_computed_c_of_gemm_gives_a_row_the_same_bits_in_any_batch),
    };

    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
