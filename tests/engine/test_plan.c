/* Plans: what needs a step and what does not, what shares memory, what stays right. */
#include "engine/min_cut.h"
#include "rig.h"
#include "support/fail_alloc.h"

#include <math.h>

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

/* ---- element-wise chains ---- */

static struct graph *chain_graph(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, 64));
    struct value *y = APPLY(graph, "Neg", APPLY(graph, "Exp", APPLY(graph, "Abs", x)));

    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static void a_chain_computes_in_place_of_its_output(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, chain_graph());
    const struct shape shape = SHAPE(2, 64);
    struct plan *plan = make_plan(network, &shape);
    struct plan_facts facts;
    float in[128], out[128];

    for (int i = 0; i < 128; i++)
        in[i] = (float)(i - 64) / 32;
    assert_ok(run_floats(rig, plan, in, 128, out, 128));
    for (int i = 0; i < 128; i++)
        assert_true(fabsf(out[i] + expf(fabsf(in[i]))) < 1e-5F);
    plan_read(plan, &facts);
    assert_int_equal(facts.steps, 3);
    assert_int_equal(facts.peak_bytes, 0); /* all of it happens in the output's buffer */
    assert_true(facts.exact);
    plan_unref(plan);
    network_destroy(network);
}

static void a_value_that_is_needed_later_is_not_written_over(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(64));
    struct value *a = APPLY(graph, "Abs", x);
    struct value *b = APPLY(graph, "Neg", a);
    struct value *c = APPLY(graph, "Exp", b);
    struct value *y = APPLY(graph, "Add", a, c);
    const struct shape shape = SHAPE(64);
    struct network *network;
    struct plan *plan;
    float in[64], out[64];

    set_borders(graph, 1, &x, 1, &y);
    network = make_network(rig, graph);
    plan = make_plan(network, &shape);
    for (int i = 0; i < 64; i++)
        in[i] = (float)(i - 32) / 16;
    assert_ok(run_floats(rig, plan, in, 64, out, 64));
    for (int i = 0; i < 64; i++)
        assert_true(fabsf(out[i] - (fabsf(in[i]) + expf(-fabsf(in[i])))) < 1e-5F);
    plan_unref(plan);
    network_destroy(network);
}

static void an_output_of_too_little_room_is_refused(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, chain_graph());
    const struct shape shape = SHAPE(2, 64);
    struct plan *plan = make_plan(network, &shape);
    float in[128] = {0}, out[128];

    assert_int_equal(run_floats(rig, plan, in, 128, out, 127), STATUS_INVALID);
    assert_int_equal(run_floats(rig, plan, in, 127, out, 128), STATUS_INVALID);
    plan_unref(plan);
    network_destroy(network);
}

static void a_cancelled_run_says_so(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, chain_graph());
    const struct shape shape = SHAPE(1, 64);
    struct plan *plan = make_plan(network, &shape);
    float in[64] = {0}, out[64];
    const struct run_buffer input = {in, sizeof(in)};
    struct run_buffer output = {out, sizeof(out)};
    atomic_bool cancelled = true;
    struct run run = {.lane = rig->lane,
                      .arena = rig->arena,
                      .inputs = 1,
                      .in = &input,
                      .outputs = 1,
                      .out = &output,
                      .cancelled = &cancelled};

    assert_int_equal(plan_run(plan, &run, NULL), STATUS_CANCELLED);
    atomic_store(&cancelled, false);
    assert_ok(plan_run(plan, &run, NULL));
    plan_unref(plan);
    network_destroy(network);
}

static void an_index_out_of_range_names_the_node_and_what_is_wrong(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *ids = make_value(graph, "ids", DTYPE_INT64, SHAPE(4));
    struct value *y = APPLY(graph, "Gather", INTS(graph, 5, 6, 7), ids);
    const struct shape shape = SHAPE(4);
    int64_t in[4] = {0, 1, 3, 2}, out[4];
    const struct run_buffer input = {in, sizeof(in)};
    struct run_buffer output = {out, sizeof(out)};
    struct run run = {.lane = rig->lane,
                      .arena = rig->arena,
                      .inputs = 1,
                      .in = &input,
                      .outputs = 1,
                      .out = &output};
    struct network *network;
    struct plan *plan;
    struct error err;

    set_borders(graph, 1, &ids, 1, &y);
    network = make_network(rig, graph);
    plan = make_plan(network, &shape);
    assert_int_equal(plan_run(plan, &run, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "Gather"));
    assert_non_null(strstr(err.text, "out of range"));
    in[2] = 2;
    assert_ok(plan_run(plan, &run, &err));
    assert_int_equal(out[2], 7);
    plan_unref(plan);
    network_destroy(network);
}

static void every_step_is_progress(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, chain_graph());
    const struct shape shape = SHAPE(1, 64);
    struct plan *plan = make_plan(network, &shape);
    float in[64] = {0}, out[64];
    const struct run_buffer input = {in, sizeof(in)};
    struct run_buffer output = {out, sizeof(out)};
    _Atomic uint64_t progress = 5;
    struct run run = {.lane = rig->lane,
                      .arena = rig->arena,
                      .inputs = 1,
                      .in = &input,
                      .outputs = 1,
                      .out = &output,
                      .progress = &progress};

    assert_ok(plan_run(plan, &run, NULL));
    assert_int_equal(progress, 5 + count_steps(plan));
    plan_unref(plan);
    network_destroy(network);
}

static void an_unwanted_output_needs_no_buffer(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, chain_graph());
    const struct shape shape = SHAPE(1, 64);
    struct plan *plan = make_plan(network, &shape);
    float in[64] = {0};

    assert_ok(run_floats(rig, plan, in, 64, NULL, 0));
    plan_unref(plan);
    network_destroy(network);
}

/* ---- what is known beforehand ---- */

static void shapes_are_computed_when_the_plan_is_made(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, 4, 3));
    struct value *first = APPLY(graph, "Gather", APPLY(graph, "Shape", x), INTS(graph, 0));
    struct node *whole = NODE(graph, "Concat", first, INTS(graph, -1));
    struct value *y = APPLY(graph, "Abs", APPLY(graph, "Reshape", x, whole->out[0]));
    const struct shape shape = SHAPE(5, 4, 3), wanted = SHAPE(5, 12);
    struct network *network;
    struct plan *plan;
    float in[60], out[60];

    set_borders(graph, 1, &x, 1, &y);
    network = make_network(rig, graph);
    plan = make_plan(network, &shape);
    assert_int_equal(count_steps(plan), 1); /* Abs; the reshape is a view */
    assert_true(shape_is_equal(plan_output_shapes(plan, NULL), &wanted));
    for (int i = 0; i < 60; i++)
        in[i] = (float)-i;
    assert_ok(run_floats(rig, plan, in, 60, out, 60));
    for (int i = 0; i < 60; i++)
        assert_true(out[i] == (float)i);
    plan_unref(plan);
    network_destroy(network);
}

static void a_view_of_an_input_that_is_an_output_is_copied(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(4, 3));
    struct value *y = APPLY(graph, "Reshape", x, INTS(graph, 12));
    const struct shape shape = SHAPE(4, 3);
    struct network *network;
    struct plan *plan;
    float in[12], out[12] = {0};

    set_borders(graph, 1, &x, 1, &y);
    network = make_network(rig, graph);
    plan = make_plan(network, &shape);
    for (int i = 0; i < 12; i++)
        in[i] = (float)i;
    assert_ok(run_floats(rig, plan, in, 12, out, 12));
    assert_memory_equal(in, out, sizeof(in));
    assert_int_equal(plan_passed_input(plan, 0), 0);
    assert_ok(run_floats(rig, plan, in, 12, in, 12)); /* one buffer for both */
    assert_memory_equal(in, out, sizeof(in));
    plan_unref(plan);
    network_destroy(network);
}

static void a_concatenation_is_made_in_place_by_its_parts(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(1, 32));
    struct value *a = APPLY(graph, "Abs", x), *b = APPLY(graph, "Exp", x);
    struct node *both = NODE(graph, "Concat", a, b);
    struct value *y = APPLY(graph, "Neg", APPLY(graph, "Sqrt", both->out[0]));
    const struct shape shape = SHAPE(1, 32);
    struct network *network;
    struct plan *plan;
    float in[32], out[64];

    set_attr_int(both, "axis", 1);
    set_borders(graph, 1, &x, 1, &y);
    network = make_network(rig, graph);
    plan = make_plan(network, &shape);
    assert_int_equal(count_steps(plan), 4); /* no Concat */
    for (int i = 0; i < 32; i++)
        in[i] = (float)(i - 16) / 8;
    assert_ok(run_floats(rig, plan, in, 32, out, 64));
    for (int i = 0; i < 32; i++) {
        assert_true(fabsf(out[i] + sqrtf(fabsf(in[i]))) < 1e-5F);
        assert_true(fabsf(out[32 + i] + sqrtf(expf(in[i]))) < 1e-5F);
    }
    plan_unref(plan);
    network_destroy(network);
}

static void parts_along_an_inner_axis_are_copied_and_right(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(2, 3));
    struct value *a = APPLY(graph, "Abs", x), *b = APPLY(graph, "Neg", x);
    struct node *both = NODE(graph, "Concat", a, b);
    const struct shape shape = SHAPE(2, 3);
    const float in[6] = {1, -2, 3, -4, 5, -6};
    const float wanted[12] = {1, 2, 3, -1, 2, -3, 4, 5, 6, 4, -5, 6};
    struct network *network;
    struct plan *plan;
    float out[12];

    set_attr_int(both, "axis", 1);
    set_borders(graph, 1, &x, 1, both->out);
    network = make_network(rig, graph);
    plan = make_plan(network, &shape);
    assert_ok(run_floats(rig, plan, in, 6, out, 12));
    assert_memory_equal(out, wanted, sizeof(wanted));
    plan_unref(plan);
    network_destroy(network);
}

/* ---- convolutions ---- */

/* x → Conv → Relu → Conv → Add(first Relu) → Relu */
static struct graph *conv_graph(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, 16, 8, 8));
    struct node *one = NODE(graph, "Conv", x, make_floats(graph, SHAPE(32, 16, 1, 1), 1));
    struct value *relu = APPLY(graph, "Relu", one->out[0]);
    struct node *two = NODE(graph, "Conv", relu, make_floats(graph, SHAPE(32, 32, 1, 1), 2));
    struct value *y = APPLY(graph, "Relu", APPLY(graph, "Add", two->out[0], relu));

    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static void residuals_and_activations_become_part_of_convolutions(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, conv_graph());
    const struct shape shape = SHAPE(1, 16, 8, 8);
    struct plan *plan = make_plan(network, &shape);

    /* two convolutions, at most a reorder at each border */
    assert_in_range(count_steps(plan), 2, 4);
    plan_unref(plan);
    network_destroy(network);
}

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

/* ---- the cache and the ledger ---- */

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

/* ---- refusals ---- */

static void an_unsound_shape_names_the_node(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN));
    struct value *y = APPLY(graph, "Reshape", x, INTS(graph, 5));
    const struct shape shape = SHAPE(7);
    struct network *network;
    struct plan *plan = NULL;
    struct error err;

    set_borders(graph, 1, &x, 1, &y);
    network = make_network(rig, graph);
    assert_int_equal(network_plan(network, &shape, &plan, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "Reshape"));
    assert_null(plan);
    network_destroy(network);
}

static enum status load_and_run(void *arg)
{
    struct rig *rig = arg;
    const struct network_config config = {.name = "model"};
    const struct shape shape = SHAPE(1, 16, 8, 8);
    struct network *network = NULL;
    struct plan *plan = NULL;
    struct graph *graph = conv_graph();
    enum status status;

    fail_alloc_arm(rig->nth);
    status = network_create(graph, rig->device, rig->ledger, &config, &network, NULL);
    if (status == STATUS_OK)
        status = network_plan(network, &shape, &plan, NULL);
    rig->refused = fail_alloc_disarm();
    plan_unref(plan);
    network_destroy(network);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    struct rig *rig = *state;
    struct ledger_stats before, after;

    assert_ok(load_and_run(rig)); /* what is made once a process is made */
    ledger_read(rig->ledger, &before);
    for (rig->nth = 1;; rig->nth++) {
        enum status status = load_and_run(rig);

        ledger_read(rig->ledger, &after);
        assert_int_equal(after.reserved_bytes, before.reserved_bytes);
        if (!rig->refused) {
            assert_ok(status);
            break;
        }
        assert_true(status == STATUS_NO_MEMORY || status == STATUS_OK);
    }
    assert_true(rig->nth > 50);
}

/* What a request's way needs is reserved when its plan is made. */
static void a_run_allocates_nothing(void **state)
{
    struct rig *rig = *state;
    struct network *network = make_network(rig, conv_graph());
    const struct shape shape = SHAPE(1, 16, 8, 8);
    struct plan *plan = make_plan(network, &shape);
    size_t count = (size_t)shape_count(plan_output_shapes(plan, NULL));
    float in[16 * 8 * 8] = {0}, *out = calloc(count, sizeof(*out));

    assert_non_null(out);
    assert_ok(run_floats(rig, plan, in, 16 * 8 * 8, out, count)); /* the lane's arena grows */
    fail_alloc_arm(1);
    assert_ok(run_floats(rig, plan, in, 16 * 8 * 8, out, count));
    assert_false(fail_alloc_disarm());
    free(out);
    plan_unref(plan);
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

/* ---- the minimum cut ---- */

static void the_cut_follows_the_cheaper_side(void **state)
{
    struct arena arena;
    struct min_cut cut;
    uint32_t a, b, c;

    (void)state;
    arena_init(&arena);
    assert_ok(min_cut_init(&cut, &arena, 8, 16));
    a = min_cut_thing(&cut);
    b = min_cut_thing(&cut);
    c = min_cut_thing(&cut);
    min_cut_cost(&cut, MIN_CUT_SIDE_0, a, MIN_CUT_NEVER); /* a must be on side 0 */
    min_cut_cost(&cut, c, MIN_CUT_SIDE_1, MIN_CUT_NEVER); /* c on side 1 */
    min_cut_cost(&cut, a, b, 5);
    min_cut_cost(&cut, b, c, 3);
    min_cut_solve(&cut);
    assert_false(min_cut_side(&cut, a));
    assert_false(min_cut_side(&cut, b)); /* cutting b–c is cheaper */
    assert_true(min_cut_side(&cut, c));
    arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_computes_in_place_of_its_output),
        cmocka_unit_test(a_value_that_is_needed_later_is_not_written_over),
        cmocka_unit_test(an_output_of_too_little_room_is_refused),
        cmocka_unit_test(a_cancelled_run_says_so),
        cmocka_unit_test(an_index_out_of_range_names_the_node_and_what_is_wrong),
        cmocka_unit_test(every_step_is_progress),
        cmocka_unit_test(an_unwanted_output_needs_no_buffer),
        cmocka_unit_test(shapes_are_computed_when_the_plan_is_made),
        cmocka_unit_test(a_view_of_an_input_that_is_an_output_is_copied),
        cmocka_unit_test(a_concatenation_is_made_in_place_by_its_parts),
        cmocka_unit_test(parts_along_an_inner_axis_are_copied_and_right),
        cmocka_unit_test(residuals_and_activations_become_part_of_convolutions),
        cmocka_unit_test(a_row_gives_the_same_bits_in_any_batch),
        cmocka_unit_test(layouts_do_not_depend_on_the_batch),
        cmocka_unit_test(a_computed_c_of_gemm_gives_a_row_the_same_bits_in_any_batch),
        cmocka_unit_test(a_plan_is_made_once_for_the_same_shapes),
        cmocka_unit_test(the_plan_used_longest_ago_goes_first),
        cmocka_unit_test(a_plan_that_runs_outlives_its_place_in_the_cache),
        cmocka_unit_test(the_ledger_is_as_before_once_the_network_is_gone),
        cmocka_unit_test(folded_weights_leave_memory_once_packed_and_come_back),
        cmocka_unit_test(an_unsound_shape_names_the_node),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_run_allocates_nothing),
        cmocka_unit_test(weights_folded_for_one_plan_are_not_taken_for_another_s),
        cmocka_unit_test(the_cut_follows_the_cheaper_side),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
