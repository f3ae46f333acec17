/* The order of a plan's nodes and the memory it takes. */
#include "rig.h"

static int setup(void **state)
{
    static struct rig rig;

    rig_open(&rig, "cpu", 1);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    rig_close(*state);
    return 0;
}

enum { WIDE = 2048, BRANCHES = 4 };

/* Branches x -> wide -> narrow, added up: all the wide values first, or branch by branch. */
static struct graph *branches_graph(bool all_wide_first)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(1, 16));
    struct value *up[BRANCHES], *down[BRANCHES], *wide[BRANCHES], *narrow[BRANCHES], *y;

    for (uint32_t i = 0; i < BRANCHES; i++) {
        up[i] = make_floats(graph, SHAPE(16, WIDE), i + 1);
        down[i] = make_floats(graph, SHAPE(WIDE, 16), i + 11);
    }
    for (size_t i = 0; i < BRANCHES; i++) {
        wide[i] = APPLY(graph, "MatMul", x, up[i]);
        if (!all_wide_first)
            narrow[i] = APPLY(graph, "MatMul", wide[i], down[i]);
    }
    for (size_t i = 0; i < BRANCHES && all_wide_first; i++)
        narrow[i] = APPLY(graph, "MatMul", wide[i], down[i]);
    y = APPLY(graph, "Mul", APPLY(graph, "Sub", narrow[0], narrow[1]),
              APPLY(graph, "Sub", narrow[2], narrow[3]));
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static void run_branches(struct rig *rig, bool all_wide_first, struct plan_facts *facts, float *out)
{
    struct network *network = make_network(rig, branches_graph(all_wide_first));
    const struct shape shape = SHAPE(1, 16);
    struct plan *plan = make_plan(network, &shape);
    float in[16];

    for (int i = 0; i < 16; i++)
        in[i] = (float)(i - 7) / 8;
    assert_ok(run_floats(rig, plan, in, 16, out, 16));
    plan_read(plan, facts);
    plan_unref(plan);
    network_destroy(network);
}

static void branches_run_one_by_one_with_the_same_bits(void **state)
{
    struct plan_facts worse, better;
    float out_worse[16], out_better[16];

    run_branches(*state, true, &worse, out_worse);
    run_branches(*state, false, &better, out_better);
    assert_true(better.order_saves_bytes < WIDE * sizeof(float)); /* the small ones alone */
    assert_true(worse.order_saves_bytes >= (BRANCHES - 1) * WIDE * sizeof(float) - 1024);
    assert_int_equal(worse.lower_bound_bytes, better.lower_bound_bytes);
    assert_int_equal(worse.peak_bytes, worse.lower_bound_bytes);
    assert_memory_equal(out_worse, out_better, sizeof(out_better));
}

/* Parts of a concatenation live in it: its bytes count once, from the first part on. */
static void parts_of_a_concatenation_take_no_bytes_of_their_own(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(4, 64));
    struct value *a = APPLY(graph, "Exp", x), *b = APPLY(graph, "Neg", x);
    struct node *concat = NODE(graph, "Concat", a, b);
    struct value *y = APPLY(graph, "Transpose", concat->out[0]);
    const struct shape shape = SHAPE(4, 64);
    struct network *network;
    struct plan *plan;
    struct plan_facts facts;
    float in[256] = {0}, out[512];

    set_attr_int(concat, "axis", 0);
    set_borders(graph, 1, &x, 1, &y);
    network = make_network(rig, graph);
    plan = make_plan(network, &shape);
    assert_ok(run_floats(rig, plan, in, 256, out, 512));
    plan_read(plan, &facts);
    assert_true(facts.lower_bound_bytes >= 2 * sizeof(in));
    assert_true(facts.lower_bound_bytes < 3 * sizeof(in));
    assert_int_equal(facts.peak_bytes, facts.lower_bound_bytes);
    plan_unref(plan);
    network_destroy(network);
}

/* A view needs no bytes, and what it views is not written over while the view is needed. */
static void a_view_keeps_what_it_views(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(64));
    struct value *a = APPLY(graph, "Abs", x);
    struct value *view = APPLY(graph, "Reshape", a, INTS(graph, 8, 8));
    struct value *b = APPLY(graph, "Neg", a);
    struct value *sum = APPLY(graph, "ReduceSum", b, INTS(graph, 0));
    struct value *y = APPLY(graph, "Add", view, sum);
    const struct shape shape = SHAPE(64);
    struct network *network;
    struct plan *plan;
    float in[64], out[64], expected = 0;

    set_borders(graph, 1, &x, 1, &y);
    network = make_network(rig, graph);
    plan = make_plan(network, &shape);
    for (int i = 0; i < 64; i++) {
        in[i] = i % 2 == 0 ? (float)i : (float)-i;
        expected -= (float)i;
    }
    assert_ok(run_floats(rig, plan, in, 64, out, 64));
    for (int i = 0; i < 64; i++)
        assert_true(out[i] == (float)i + expected);
    plan_unref(plan);
    network_destroy(network);
}

/* conv(sigmoid(conv(x)) + r), where r = abs(conv(x)) dies; `apart`: what is added is no fused
 * residual.
 */
static void run_residual(struct rig *rig, bool apart, float *out)
{
    enum { CHANNELS = 32, SIDE = 6 };
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(1, CHANNELS, SIDE, SIDE)), *w[3];
    struct value *r, *s, *y;
    const struct shape shape = SHAPE(1, CHANNELS, SIDE, SIDE);
    float in[CHANNELS * SIDE * SIDE];
    struct network *network;
    struct plan *plan;

    for (uint32_t i = 0; i < 3; i++)
        w[i] = make_floats(graph, SHAPE(CHANNELS, CHANNELS, 1, 1), i + 1);
    r = APPLY(graph, "Abs", APPLY(graph, "Conv", x, w[0])); /* not what a convolution takes in */
    s = APPLY(graph, "Sigmoid", APPLY(graph, "Conv", x, w[1]));
    s = apart ? APPLY(graph, "Sub", s, APPLY(graph, "Neg", r)) : APPLY(graph, "Add", s, r);
    y = APPLY(graph, "Conv", s, w[2]);
    set_borders(graph, 1, &x, 1, &y);
    for (int i = 0; i < CHANNELS * SIDE * SIDE; i++)
        in[i] = (float)(i % 17 - 8) / 8;
    network = make_network(rig, graph);
    plan = make_plan(network, &shape);
    assert_ok(run_floats(rig, plan, in, CHANNELS * SIDE * SIDE, out, CHANNELS * SIDE * SIDE));
    plan_unref(plan);
    network_destroy(network);
}

/* The result may not lie over it: kernels store the sums before they add it. */
static void a_residual_added_behind_an_activation_is_kept_until_then(void **state)
{
    float fused[32 * 36], apart[32 * 36];

    run_residual(*state, false, fused);
    run_residual(*state, true, apart);
    for (size_t i = 0; i < sizeof(fused) / sizeof(fused[0]); i++)
        assert_float_equal(fused[i], apart[i], 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(branches_run_one_by_one_with_the_same_bits, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(parts_of_a_concatenation_take_no_bytes_of_their_own, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_view_keeps_what_it_views, setup, teardown),
        cmocka_unit_test_setup_teardown(a_residual_added_behind_an_activation_is_kept_until_then,
                                        setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
