/* The order of a plan's nodes and the memory it takes. */
#include "rig.h"

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
    const struct shape shape = SHAPE(1, 16);
    struct model model = make_model(rig, branches_graph(all_wide_first), &shape);
    float in[16];

    for (int i = 0; i < 16; i++)
        in[i] = (float)(i - 7) / 8;
    assert_ok(run_floats(rig, model.plan, in, 16, out, 16));
    plan_read(model.plan, facts);
    drop_model(&model);
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
    struct model model;
    struct plan_facts facts;
    float in[256] = {0}, out[512];

    set_attr_int(concat, "axis", 0);
    set_borders(graph, 1, &x, 1, &y);
    model = make_model(rig, graph, &shape);
    assert_ok(run_floats(rig, model.plan, in, 256, out, 512));
    plan_read(model.plan, &facts);
    assert_true(facts.lower_bound_bytes >= 2 * sizeof(in));
    assert_true(facts.lower_bound_bytes < 3 * sizeof(in));
    assert_int_equal(facts.peak_bytes, facts.lower_bound_bytes);
    drop_model(&model);
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
    struct model model;
    float in[64], out[64], expected = 0;

    set_borders(graph, 1, &x, 1, &y);
    model = make_model(rig, graph, &shape);
    for (int i = 0; i < 64; i++) {
        in[i] = i % 2 == 0 ? (float)i : (float)-i;
        expected -= (float)i;
    }
    assert_ok(run_floats(rig, model.plan, in, 64, out, 64));
    for (int i = 0; i < 64; i++)
        assert_true(out[i] == (float)i + expected);
    drop_model(&model);
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
    struct model model;

    for (uint32_t i = 0; i < 3; i++)
        w[i] = make_floats(graph, SHAPE(CHANNELS, CHANNELS, 1, 1), i + 1);
    r = APPLY(graph, "Abs", APPLY(graph, "Conv", x, w[0])); /* not what a convolution takes in */
    s = APPLY(graph, "Sigmoid", APPLY(graph, "Conv", x, w[1]));
    s = apart ? APPLY(graph, "Sub", s, APPLY(graph, "Neg", r)) : APPLY(graph, "Add", s, r);
    y = APPLY(graph, "Conv", s, w[2]);
    set_borders(graph, 1, &x, 1, &y);
    for (int i = 0; i < CHANNELS * SIDE * SIDE; i++)
        in[i] = (float)(i % 17 - 8) / 8;
    model = make_model(rig, graph, &shape);
    assert_ok(run_floats(rig, model.plan, in, CHANNELS * SIDE * SIDE, out, CHANNELS * SIDE * SIDE));
    drop_model(&model);
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

/* ---- parts of a batch ---- */

enum { PIXELS = 6 * 5, PARTS = 32, IMAGES = 3 };

static struct value *convolve(struct graph *graph, struct value *x, int64_t from, int64_t to,
                              uint32_t seed)
{
    return APPLY(graph, "Conv", x, make_floats(graph, SHAPE(to, from, 1, 1), seed));
}

/* Concat(x, a, b) where a and b are made from x: in one go, or x and a first. */
static struct graph *parts_graph(bool by_two)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, PARTS, 6, 5));
    struct value *first = convolve(graph, x, PARTS, PARTS, 1);
    struct value *a = convolve(graph, first, PARTS, PARTS, 2);
    struct node *two = NODE(graph, "Concat", first, a), *all;
    struct value *b, *y;

    set_attr_int(two, "axis", 1);
    b = convolve(graph, two->out[0], 2 * PARTS, PARTS, 3);
    all = by_two ? NODE(graph, "Concat", two->out[0], b) : NODE(graph, "Concat", first, a, b);
    set_attr_int(all, "axis", 1);
    y = convolve(graph, all->out[0], 3 * PARTS, PARTS, 4);
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static size_t run_parts(struct rig *rig, struct network *network, int64_t images, const float *in,
                        float *out)
{
    const struct shape shape = SHAPE(images, PARTS, 6, 5);
    const size_t count = (size_t)images * PARTS * PIXELS;
    struct plan *plan = make_plan(network, &shape);
    size_t steps = count_steps(plan);

    assert_ok(run_floats(rig, plan, in, count, out, count));
    plan_unref(plan);
    return steps;
}

/* Also where a concatenation begins with the parts of an earlier one. */
static void parts_of_a_batch_are_made_where_they_belong(void **state)
{
    static float in[IMAGES * PARTS * PIXELS], all[IMAGES * PARTS * PIXELS], one[PARTS * PIXELS];
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++)
        in[i] = (float)((int)(i * 37 % 101) - 50) / 64;
    for (int by_two = 0; by_two < 2; by_two++) {
        struct network *network = make_network(rig, parts_graph(by_two != 0));

        /* four convolutions, and a reorder on either side */
        assert_int_equal(run_parts(rig, network, IMAGES, in, all), 6);
        for (size_t i = 0; i < IMAGES; i++) {
            (void)run_parts(rig, network, 1, in + i * PARTS * PIXELS, one);
            assert_memory_equal(all + i * PARTS * PIXELS, one, sizeof(one));
        }
        network_destroy(network);
    }
}

/* What does not take rows that lie apart (a product, here) keeps the parts out; nothing is wrong.
 */
static void a_user_that_wants_dense_rows_keeps_them(void **state)
{
    enum { ROWS = 3, WIDTH = 8 };
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH));
    struct value *a = APPLY(graph, "Neg", x), *b = APPLY(graph, "Abs", x);
    struct node *concat = NODE(graph, "Concat", a, b);
    struct value *sums = APPLY(graph, "MatMul", a, make_floats(graph, SHAPE(WIDTH, 2 * WIDTH), 7));
    struct value *y = APPLY(graph, "Add", APPLY(graph, "Exp", concat->out[0]), sums);
    const struct shape shape = SHAPE(ROWS, WIDTH), single = SHAPE(1, WIDTH);
    struct network *network;
    struct plan *plan;
    float in[ROWS * WIDTH], out[2 * ROWS * WIDTH], row[2 * WIDTH];

    set_attr_int(concat, "axis", 1);
    set_borders(graph, 1, &x, 1, &y);
    network = make_network(rig, graph);
    for (int i = 0; i < ROWS * WIDTH; i++)
        in[i] = (float)(i % 7 - 3) / 4;
    plan = make_plan(network, &shape);
    assert_ok(run_floats(rig, plan, in, ROWS * WIDTH, out, 2 * ROWS * WIDTH));
    plan_unref(plan);
    for (size_t i = 0; i < ROWS; i++) {
        plan = make_plan(network, &single);
        assert_ok(run_floats(rig, plan, in + i * WIDTH, WIDTH, row, 2 * WIDTH));
        assert_memory_equal(out + i * 2 * WIDTH, row, sizeof(row));
        plan_unref(plan);
    }
    network_destroy(network);
}

/* A part that is made early and small would keep all of the whole in memory meanwhile. */
static void parts_stay_apart_where_the_peak_would_rise(void **state)
{
    enum { SMALL = 16, LARGE = 128 };
    struct rig *rig = *state;
    uint64_t peaks[2];

    for (int joined = 0; joined < 2; joined++) {
        struct graph *graph = graph_create();
        struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(2, SMALL, 6, 5));
        struct value *small = convolve(graph, x, SMALL, SMALL, 1);
        struct value *wide = convolve(graph, small, SMALL, 4 * LARGE, 2);
        struct value *wider = convolve(graph, wide, 4 * LARGE, 4 * LARGE, 5), *y;
        struct value *large = convolve(graph, wider, 4 * LARGE, LARGE, 3);
        const struct shape shape = SHAPE(2, SMALL, 6, 5);
        struct network *network;
        struct plan_facts facts;
        struct plan *plan;

        if (joined != 0) {
            struct node *concat = NODE(graph, "Concat", small, large);

            set_attr_int(concat, "axis", 1);
            y = convolve(graph, concat->out[0], SMALL + LARGE, SMALL, 4);
        } else {
            y = APPLY(graph, "Add", convolve(graph, large, LARGE, SMALL, 4), small);
        }
        set_borders(graph, 1, &x, 1, &y);
        network = make_network(rig, graph);
        plan = make_plan(network, &shape);
        plan_read(plan, &facts);
        peaks[joined] = facts.peak_bytes;
        plan_unref(plan);
        network_destroy(network);
    }
    assert_int_equal(peaks[0], peaks[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_run_one_by_one_with_the_same_bits),
        cmocka_unit_test(parts_of_a_concatenation_take_no_bytes_of_their_own),
        cmocka_unit_test(a_view_keeps_what_it_views),
        cmocka_unit_test(a_residual_added_behind_an_activation_is_kept_until_then),
        cmocka_unit_test(parts_of_a_batch_are_made_where_they_belong),
        cmocka_unit_test(a_user_that_wants_dense_rows_keeps_them),
        cmocka_unit_test(parts_stay_apart_where_the_peak_would_rise),
    };

    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
