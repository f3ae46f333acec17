/* How long plans, weights and what was folded for them stay, and what the ledger says of them. */
#include "graphs.h"

static void a_plan_is_made_once_for_the_same_shapes(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, chain_graph());
    const struct shape shape = SHAPE(2, 64);
    struct plan *first, *second;

    assert_null(network_find_plan(network, &shape));
    first = make_plan(network, &shape);
    second = network_find_plan(network, &shape);
    assert_ptr_equal(first, second);
    assert_true(network_plan_bytes(network) > 0);
    plan_unref(first);
    plan_unref(second);
    network_destroy(network);
}

static void the_plan_used_longest_ago_goes_first(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, chain_graph()); /* keeps three */
    struct shape shapes[4];

    for (int i = 0; i < 4; i++)
        shapes[i] = SHAPE(i + 1, 64);
    for (int i = 0; i < 3; i++)
        plan_unref(make_plan(network, &shapes[i]));
    plan_unref(make_plan(network, &shapes[0])); /* used again: the second is the oldest now */
    plan_unref(make_plan(network, &shapes[3]));
    assert_null(network_find_plan(network, &shapes[1]));
    for (int i = 0; i < 4; i += i == 0 ? 2 : 1) {
        struct plan *plan = network_find_plan(network, &shapes[i]);

        assert_non_null(plan);
        plan_unref(plan);
    }
    network_destroy(network);
}

static void a_plan_that_runs_outlives_its_place_in_the_cache(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, chain_graph());
    const struct shape first = SHAPE(1, 64);
    struct plan *held = make_plan(network, &first);
    float in[64] = {0}, out[64];

    for (int i = 2; i < 6; i++) {
        const struct shape shape = SHAPE(i, 64);

        plan_unref(make_plan(network, &shape));
    }
    assert_null(network_find_plan(network, &first));
    assert_ok(run_floats(rig, held, in, 64, out, 64));
    plan_unref(held);
    network_destroy(network);
}

static void the_ledger_is_as_before_once_the_network_is_gone(void **state)
{
    struct rig *rig = *state;
    struct ledger_stats before, loaded, after;
    struct network *network;
    const struct shape shape = SHAPE(1, 16, 8, 8);

    ledger_read(rig->ledger, &before);
    network = make_network(rig, conv_graph());
    plan_unref(make_plan(network, &shape));
    ledger_read(rig->ledger, &loaded);
    assert_true(loaded.kind_bytes[MEM_WEIGHTS] > before.kind_bytes[MEM_WEIGHTS]);
    assert_int_equal(loaded.kind_bytes[MEM_WEIGHTS] - before.kind_bytes[MEM_WEIGHTS],
                     network_resident_bytes(network));
    network_destroy(network);
    ledger_read(rig->ledger, &after);
    assert_int_equal(after.reserved_bytes, before.reserved_bytes);
}

/* x (quantised weights * scale), with the weights folded. */
static struct graph *scaled_weights_graph(void)
{
    struct graph *graph = graph_create();
    const struct shape square = SHAPE(128, 128), scalar = {0};
    struct constant *bytes = constant_allocate(DTYPE_INT8, &square);
    struct constant *scale = constant_allocate(DTYPE_FLOAT, &scalar);
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, 128));
    struct node *cast;
    struct value *w, *y;

    for (int i = 0; i < 128 * 128; i++)
        ((int8_t *)(uintptr_t)bytes->tensor.data)[i] = i % 129 == 0 ? 2 : 0;
    *(float *)(uintptr_t)scale->tensor.data = 0.25f;
    cast = NODE(graph, "Cast", graph_add_constant(graph, "q", bytes));
    set_attr_int(cast, "to", DTYPE_FLOAT);
    w = APPLY(graph, "Mul", cast->out[0], graph_add_constant(graph, "s", scale));
    y = APPLY(graph, "MatMul", x, w);
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static void folded_weights_leave_memory_once_packed_and_come_back(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, scaled_weights_graph());
    float in[3 * 128], out[3 * 128];

    for (int i = 0; i < 3 * 128; i++)
        in[i] = (float)i;
    for (int64_t rows = 1; rows <= 3; rows += 2) {
        const struct shape shape = SHAPE(rows, 128);
        struct plan *plan = make_plan(network, &shape);

        assert_ok(run_floats(rig, plan, in, (size_t)rows * 128, out, (size_t)rows * 128));
        for (int64_t i = 0; i < rows * 128; i++)
            assert_float_equal(out[i], (float)i / 2, 0);
        plan_unref(plan);
    }
    /* the packed form and small things, not the floats beside it */
    assert_true(network_resident_bytes(network) < 128 * 128 * sizeof(float) * 3 / 2);
    network_destroy(network);
}

/* MatMul(x [n,8], W * n): the second matrix is folded anew for each plan. */
static void weights_folded_for_one_plan_are_not_taken_for_another_s(void **state)
{
    enum { K = 8, N = 16, ROWS = 60 };
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, K));
    struct value *w = make_floats(graph, SHAPE(K, N), 5);
    const float *weights = w->constant->tensor.data;
    struct value *rows = APPLY(graph, "Gather", APPLY(graph, "Shape", x), INTS(graph, 0));
    struct node *cast = NODE(graph, "Cast", rows);
    struct value *y;
    struct network *network;
    float in[ROWS * K], out[ROWS * N], kept[K * N];

    set_attr_int(cast, "to", 1);
    y = APPLY(graph, "MatMul", x, APPLY(graph, "Mul", w, cast->out[0]));
    set_borders(graph, 1, &x, 1, &y);
    memcpy(kept, weights, sizeof(kept));
    network = make_network(rig, graph);
    for (size_t i = 0; i < ROWS * K; i++)
        in[i] = i % K == 0 ? 1 : 0;       /* each row picks the first row of the matrix */
    for (int64_t n = 1; n <= ROWS; n++) { /* more than the cache keeps */
        struct plan *plan = make_plan(network, (struct shape[]){SHAPE(n, K)});

        assert_ok(run_floats(rig, plan, in, (size_t)(n * K), out, (size_t)(n * N)));
        for (int64_t i = 0; i < n * N; i++)
            assert_true(out[i] == kept[i % N] * (float)n);
        plan_unref(plan);
    }
    network_destroy(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_made_once_for_the_same_shapes),
        cmocka_unit_test(the_plan_used_longest_ago_goes_first),
        cmocka_unit_test(a_plan_that_runs_outlives_its_place_in_the_cache),
        cmocka_unit_test(the_ledger_is_as_before_once_the_network_is_gone),
        cmocka_unit_test(folded_weights_leave_memory_once_packed_and_come_back),
        cmocka_unit_test(weights_folded_for_one_plan_are_not_taken_for_another_s),
    };

    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
