/* Plans: what needs a step and what does not, what shares memory, what stays right. */
#include "graphs.h"

#include <math.h>

static void a_chain_computes_in_place_of_its_output(void **state)
{
    struct rig *rig = *state;
    const struct shape shape = SHAPE(2, 64);
    struct model model = make_model(rig, chain_graph(), &shape);
    struct plan_facts facts;
    float in[128], out[128];

    for (int i = 0; i < 128; i++)
        in[i] = (float)(i - 64) / 32;
    assert_ok(run_floats(rig, model.plan, in, 128, out, 128));
    for (int i = 0; i < 128; i++)
        assert_true(fabsf(out[i] + expf(fabsf(in[i]))) < 1e-5F);
    plan_read(model.plan, &facts);
    assert_int_equal(facts.steps, 3);
    assert_int_equal(facts.peak_bytes, 0); /* all of it happens in the output's buffer */
    assert_true(facts.exact);
    drop_model(&model);
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
    struct model model;
    float in[64], out[64];

    set_borders(graph, 1, &x, 1, &y);
    model = make_model(rig, graph, &shape);
    for (int i = 0; i < 64; i++)
        in[i] = (float)(i - 32) / 16;
    assert_ok(run_floats(rig, model.plan, in, 64, out, 64));
    for (int i = 0; i < 64; i++)
        assert_true(fabsf(out[i] - (fabsf(in[i]) + expf(-fabsf(in[i])))) < 1e-5F);
    drop_model(&model);
}

static void an_output_of_too_little_room_is_refused(void **state)
{
    struct rig *rig = *state;
    const struct shape shape = SHAPE(2, 64);
    struct model model = make_model(rig, chain_graph(), &shape);
    float in[128] = {0}, out[128];

    assert_int_equal(run_floats(rig, model.plan, in, 128, out, 127), STATUS_INVALID);
    assert_int_equal(run_floats(rig, model.plan, in, 127, out, 128), STATUS_INVALID);
    drop_model(&model);
}

static void a_cancelled_run_says_so(void **state)
{
    struct rig *rig = *state;
    const struct shape shape = SHAPE(1, 64);
    struct model model = make_model(rig, chain_graph(), &shape);
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

    assert_int_equal(plan_run(model.plan, &run, NULL), STATUS_CANCELLED);
    atomic_store(&cancelled, false);
    assert_ok(plan_run(model.plan, &run, NULL));
    drop_model(&model);
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
    struct model model;
    struct error err;

    set_borders(graph, 1, &ids, 1, &y);
    model = make_model(rig, graph, &shape);
    assert_int_equal(plan_run(model.plan, &run, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "Gather"));
    assert_non_null(strstr(err.text, "out of range"));
    in[2] = 2;
    assert_ok(plan_run(model.plan, &run, &err));
    assert_int_equal(out[2], 7);
    drop_model(&model);
}

static void every_step_is_progress(void **state)
{
    struct rig *rig = *state;
    const struct shape shape = SHAPE(1, 64);
    struct model model = make_model(rig, chain_graph(), &shape);
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

    assert_ok(plan_run(model.plan, &run, NULL));
    assert_int_equal(progress, 5 + count_steps(model.plan));
    drop_model(&model);
}

static void an_unwanted_output_needs_no_buffer(void **state)
{
    struct rig *rig = *state;
    const struct shape shape = SHAPE(1, 64);
    struct model model = make_model(rig, chain_graph(), &shape);
    float in[64] = {0};

    assert_ok(run_floats(rig, model.plan, in, 64, NULL, 0));
    drop_model(&model);
}

static void shapes_are_computed_when_the_plan_is_made(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, 4, 3));
    struct value *first = APPLY(graph, "Gather", APPLY(graph, "Shape", x), INTS(graph, 0));
    struct node *whole = NODE(graph, "Concat", first, INTS(graph, -1));
    struct value *y = APPLY(graph, "Abs", APPLY(graph, "Reshape", x, whole->out[0]));
    const struct shape shape = SHAPE(5, 4, 3), wanted = SHAPE(5, 12);
    struct model model;
    float in[60], out[60];

    set_borders(graph, 1, &x, 1, &y);
    model = make_model(rig, graph, &shape);
    assert_int_equal(count_steps(model.plan), 1); /* Abs; the reshape is a view */
    assert_true(shape_is_equal(plan_output_shapes(model.plan, NULL), &wanted));
    for (int i = 0; i < 60; i++)
        in[i] = (float)-i;
    assert_ok(run_floats(rig, model.plan, in, 60, out, 60));
    for (int i = 0; i < 60; i++)
        assert_true(out[i] == (float)i);
    drop_model(&model);
}

static void a_view_of_an_input_that_is_an_output_is_copied(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(4, 3));
    struct value *y = APPLY(graph, "Reshape", x, INTS(graph, 12));
    const struct shape shape = SHAPE(4, 3);
    struct model model;
    float in[12], out[12] = {0};

    set_borders(graph, 1, &x, 1, &y);
    model = make_model(rig, graph, &shape);
    for (int i = 0; i < 12; i++)
        in[i] = (float)i;
    assert_ok(run_floats(rig, model.plan, in, 12, out, 12));
    assert_memory_equal(in, out, sizeof(in));
    assert_int_equal(plan_passed_input(model.plan, 0), 0);
    assert_ok(run_floats(rig, model.plan, in, 12, in, 12)); /* one buffer for both */
    assert_memory_equal(in, out, sizeof(in));
    drop_model(&model);
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
    struct model model;
    float in[32], out[64];

    set_attr_int(both, "axis", 1);
    set_borders(graph, 1, &x, 1, &y);
    model = make_model(rig, graph, &shape);
    assert_int_equal(count_steps(model.plan), 4); /* no Concat */
    for (int i = 0; i < 32; i++)
        in[i] = (float)(i - 16) / 8;
    assert_ok(run_floats(rig, model.plan, in, 32, out, 64));
    for (int i = 0; i < 32; i++) {
        assert_true(fabsf(out[i] + sqrtf(fabsf(in[i]))) < 1e-5F);
        assert_true(fabsf(out[32 + i] + sqrtf(expf(in[i]))) < 1e-5F);
    }
    drop_model(&model);
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
    struct model model;
    float out[12];

    set_attr_int(both, "axis", 1);
    set_borders(graph, 1, &x, 1, both->out);
    model = make_model(rig, graph, &shape);
    assert_ok(run_floats(rig, model.plan, in, 6, out, 12));
    assert_memory_equal(out, wanted, sizeof(wanted));
    drop_model(&model);
}

static void residuals_and_activations_become_part_of_convolutions(void **state)
{
    struct rig *rig = *state;
    const struct shape shape = SHAPE(1, 16, 8, 8);
    struct model model = make_model(rig, conv_graph(), &shape);

    /* two convolutions, at most a reorder at each border */
    assert_in_range(count_steps(model.plan), 2, 4);
    drop_model(&model);
}

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
        cmocka_unit_test(an_unsound_shape_names_the_node),
    };

    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
