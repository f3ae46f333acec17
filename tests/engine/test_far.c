/* Plans on a device whose memory is not the host's: steps on the host, copies, constants, cuts and
 * recordings. */
#include "engine/rig.h"
#include "memory/host_pool.h"
#include "support/far_device.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

enum { ROWS = 4, WIDTH = 6, MOST = 64 };

struct far_rig {
    struct rig rig;
    struct lane_arena *io;
    struct network *network;
};

static void open_far(struct far_rig *far, const char *device, struct graph *graph)
{
    device_register(&far_device_ops);
    rig_open(&far->rig, device, 1);
    assert_ok(lane_arena_create(far->rig.device->memory, far->rig.ledger, "io", (size_t)1 << 24,
                                &far->io));
    far->network = make_network(&far->rig, graph);
}

static void close_far(struct far_rig *far)
{
    network_destroy(far->network);
    lane_arena_destroy(far->io);
    rig_close(&far->rig);
}

struct placing {
    struct far_rig *far;
    char *at;
};

static void *place(void *arg, size_t output, const struct shape *shape, size_t bytes)
{
    struct placing *placing = arg;

    (void)output, (void)shape, (void)bytes;
    return placing->at;
}

/* One input and one output, of the engine's own finding where its shape is not known before. */
static enum status try_run(struct far_rig *far, int64_t rows, const float *in, float *out,
                           struct shape *shape, struct error *err)
{
    struct device_lane *lane = far->rig.lane;
    const struct shape in_shape = SHAPE(rows, WIDTH);
    struct plan *plan = make_plan(far->network, &in_shape);
    struct run_buffer input, output = {.bytes = RUN_PLACE};
    struct placing placing = {.far = far};
    struct run call = {.lane = lane,
                       .arena = far->rig.arena,
                       .inputs = 1,
                       .in = &input,
                       .outputs = 1,
                       .out = &output,
                       .out_shapes = shape,
                       .place = place,
                       .place_arg = &placing};
    enum status status;
    void *base;

    assert_ok(lane_arena_begin(far->io, 65536, &base));
    input = (struct run_buffer){base, (size_t)(rows * WIDTH) * sizeof(float)};
    placing.at = (char *)base + 32768;
    if (shape_is_known(plan_output_shapes(plan, NULL)))
        output = (struct run_buffer){placing.at, 32768};
    lane->device->ops->lane_enter(lane);
    assert_ok(lane->device->ops->copy_in(lane, base, in, input.bytes));
    status = plan_run(plan, &call, err);
    assert_true(status != STATUS_OK || shape_count(shape) <= MOST);
    if (status == STATUS_OK)
        assert_ok(lane->device->ops->copy_out(lane, out, placing.at,
                                              (size_t)shape_count(shape) * sizeof(float)));
    assert_ok(lane->device->ops->lane_wait(lane));
    lane_arena_end(far->io);
    plan_unref(plan);
    return status;
}

static void run(struct far_rig *far, int64_t rows, const float *in, float *out, struct shape *shape)
{
    struct error err = {.text = ""};

    if (try_run(far, rows, in, out, shape, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void fill(float *in, int64_t rows, int64_t from)
{
    for (int64_t i = 0; i < rows * WIDTH; i++)
        in[i] = (float)((i * 5 + from) % 7) - 3;
}

/* The same from the CPU, run after run. */
static void agrees(struct graph *(*make)(void), unsigned runs)
{
    struct far_rig far, near;

    open_far(&far, "far", make());
    open_far(&near, "cpu", make());
    for (unsigned i = 0; i < runs; i++) {
        int64_t rows = ROWS - i / 4 % 2;
        float in[ROWS * WIDTH], got[MOST], wanted[MOST];
        struct shape got_shape, wanted_shape;

        fill(in, rows, i);
        run(&far, rows, in, got, &got_shape);
        run(&near, rows, in, wanted, &wanted_shape);
        assert_true(shape_is_equal(&got_shape, &wanted_shape));
        for (int64_t k = 0; k < shape_count(&wanted_shape); k++)
            if (fabsf(got[k] - wanted[k]) > 1e-6F)
                fail_msg("run %u: element %lld is %g, not %g", i, (long long)k, (double)got[k],
                         (double)wanted[k]);
    }
    close_far(&near);
    close_far(&far);
}

static struct value *input(struct graph *graph)
{
    return make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH));
}

static struct graph *finish(struct graph *graph, struct value *x, struct value *y)
{
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

/* far, host (Erf), far, host (Floor), host, far */
static struct graph *make_mixed(void)
{
    struct graph *graph = graph_create();
    struct value *x = input(graph), *y = APPLY(graph, "Abs", x);

    y = APPLY(graph, "Mul", APPLY(graph, "Erf", y), make_floats(graph, SHAPE(WIDTH), 1));
    y = APPLY(graph, "Sign", APPLY(graph, "Floor", y));
    return finish(graph, x, APPLY(graph, "Add", y, x));
}

static struct graph *make_plain(void)
{
    struct graph *graph = graph_create();
    struct value *x = input(graph), *y = APPLY(graph, "Relu", x);

    y = APPLY(graph, "Mul", y, make_floats(graph, SHAPE(WIDTH), 2));
    return finish(graph, x, APPLY(graph, "Softmax", y));
}

/* Sub says no only when it is prepared. */
static struct graph *make_late_refusal(void)
{
    struct graph *graph = graph_create();
    struct value *x = input(graph), *y = APPLY(graph, "Abs", x);

    y = APPLY(graph, "Sub", APPLY(graph, "Sub", y, x), make_floats(graph, SHAPE(WIDTH), 3));
    return finish(graph, x, APPLY(graph, "Relu", y));
}

/* Host values that leave at once, that are views, that are outputs of two steps. */
static struct graph *make_views(void)
{
    struct graph *graph = graph_create();
    struct value *x = input(graph), *y = APPLY(graph, "Erf", x);

    y = APPLY(graph, "Reshape", y, INTS(graph, -1, 2, WIDTH / 2));
    y = APPLY(graph, "Floor", y);
    y = APPLY(graph, "Reshape", y, INTS(graph, -1, WIDTH));
    return finish(graph, x, y);
}

/* A view that is none, for both its ends are the graph's; the device has no kernel that copies. */
static struct graph *make_bare_view(void)
{
    struct graph *graph = graph_create();
    struct value *x = input(graph);

    return finish(graph, x, APPLY(graph, "Identity", x));
}

/* Behind NonZero nothing is known beforehand. */
static struct graph *make_cut(void)
{
    struct graph *graph = graph_create();
    struct value *x = input(graph), *far = APPLY(graph, "Relu", x);
    struct value *where = APPLY(graph, "Transpose", APPLY(graph, "NonZero", far));
    struct value *picked = APPLY(graph, "GatherND", far, where);

    return finish(graph, x, APPLY(graph, "Neg", APPLY(graph, "Abs", picked)));
}

/* A constant that depends on the plan's shapes. */
static struct graph *make_own_constant(void)
{
    struct graph *graph = graph_create();
    struct value *x = input(graph);
    struct value *zeros = APPLY(graph, "ConstantOfShape", APPLY(graph, "Shape", x));
    struct value *ones = APPLY(graph, "Cos", zeros);

    return finish(graph, x, APPLY(graph, "Mul", APPLY(graph, "Add", x, ones), x));
}

static void steps_on_the_host_see_what_the_device_made(void **state)
{
    (void)state;
    agrees(make_mixed, 9);
    agrees(make_views, 9);
}

static void a_plan_is_made_again_when_a_kernel_cannot_be_prepared(void **state)
{
    (void)state;
    agrees(make_late_refusal, 5);
}

static void a_view_that_must_be_copied_is_left_to_the_host_once(void **state)
{
    (void)state;
    agrees(make_bare_view, 3);
}

static void what_depends_on_data_goes_on_behind_a_cut(void **state)
{
    (void)state;
    agrees(make_cut, 9);
}

static void a_plan_without_host_steps_is_recorded_and_replayed(void **state)
{
    (void)state;
    far_counts = (struct far_counts){0};
    agrees(make_plain, 4);
    assert_int_equal(far_counts.recorded, 1);
    assert_int_equal(far_counts.replayed, 3);
}

static void a_plan_is_recorded_anew_when_a_kernel_got_better_code(void **state)
{
    float in[ROWS * WIDTH], out[MOST];
    struct far_rig far;
    struct shape shape;

    (void)state;
    far_counts = (struct far_counts){0};
    open_far(&far, "far", make_plain());
    fill(in, ROWS, 0);
    for (unsigned i = 0; i < 3; i++) /* plain, recorded, replayed */
        run(&far, ROWS, in, out, &shape);
    assert_int_equal(far_counts.recorded, 1);
    atomic_fetch_add(&far.rig.device->kernels_changed, 1);
    for (unsigned i = 0; i < 3; i++)
        run(&far, ROWS, in, out, &shape);
    assert_int_equal(far_counts.recorded, 2);
    close_far(&far);
}

static void a_run_waits_once_where_nothing_runs_on_the_host(void **state)
{
    struct far_rig far;
    float in[ROWS * WIDTH], out[MOST];
    struct shape shape;

    (void)state;
    open_far(&far, "far", make_plain());
    fill(in, ROWS, 0);
    run(&far, ROWS, in, out, &shape);
    far_counts = (struct far_counts){0};
    run(&far, ROWS, in, out, &shape);
    assert_int_equal(far_counts.waits, 2); /* the run's, and the test's for its copy */
    close_far(&far);
}

static void constants_of_a_plan_go_with_it(void **state)
{
    struct far_rig far;

    (void)state;
    open_far(&far, "far", make_own_constant());
    for (int64_t rows = 1; rows <= 100; rows++) { /* 12 MB of constants; three plans are kept */
        const struct shape shape = SHAPE(rows * 100, WIDTH);

        plan_unref(make_plan(far.network, &shape));
    }
    assert_in_range(network_resident_bytes(far.network), 1, 3 << 20);
    close_far(&far);
    agrees(make_own_constant, 9);
}

/* ---- memory of the host for steps that run there ---- */

static void steps_on_the_host_take_memory_of_the_budget_and_give_it_back(void **state)
{
    struct host_pool_stats stats;
    float in[ROWS * WIDTH], out[MOST];
    struct host_pool *pool;
    struct far_rig far;
    struct shape shape;

    (void)state;
    assert_ok(host_pool_create(UINT64_C(64) << 20, &pool));
    open_far(&far, "far", make_mixed());
    far.rig.lane->host_pool = pool;
    fill(in, ROWS, 0);
    run(&far, ROWS, in, out, &shape);
    host_pool_read(pool, &stats);
    assert_in_range(stats.in_use_bytes, 1, 4 << 20);
    device_lane_give_host_memory(far.rig.lane);
    host_pool_read(pool, &stats);
    assert_int_equal(stats.in_use_bytes, 0);
    assert_true(stats.cached_bytes > 0); /* kept for the next batch */
    close_far(&far);
    host_pool_destroy(pool);
}

static void steps_on_the_host_that_the_budget_has_no_room_for_fail_their_run_alone(void **state)
{
    float in[ROWS * WIDTH], out[MOST], again[MOST];
    struct host_pool *pool;
    struct far_rig far;
    struct error err = {.text = ""};
    struct shape shape;

    (void)state;
    assert_ok(host_pool_create(1000, &pool));
    open_far(&far, "far", make_mixed());
    fill(in, ROWS, 0);
    run(&far, ROWS, in, out, &shape);
    device_lane_give_host_memory(far.rig.lane);
    far.rig.lane->host_pool = pool;
    assert_int_equal(try_run(&far, ROWS, in, again, &shape, &err), STATUS_NO_MEMORY);
    assert_non_null(strstr(err.text, "steps on the host need"));
    assert_non_null(strstr(err.text, "HostLimit="));
    host_pool_set_limit(pool, UINT64_C(64) << 20);
    run(&far, ROWS, in, again, &shape);
    assert_memory_equal(out, again, (size_t)shape_count(&shape) * sizeof(float));
    close_far(&far);
    host_pool_destroy(pool);
}

/* What the device held is copied to locked pages and back: the same bits, and nothing is packed. */
static void a_network_comes_back_from_its_copy_in_host_memory(void **state)
{
    float in[ROWS * WIDTH], before[MOST], after[MOST];
    struct far_rig far;
    struct shape shape;
    uint64_t held, copy;

    (void)state;
    open_far(&far, "far", make_plain());
    fill(in, ROWS, 0);
    run(&far, ROWS, in, before, &shape);
    held = network_resident_bytes(far.network);
    copy = network_copy_bytes(far.network);
    assert_true(held > 0 && copy > 0);
    far_counts = (struct far_counts){0};
    assert_ok(network_copy(far.network));
    assert_int_equal(network_leave(far.network), held);
    assert_true(network_host_bytes(far.network) > copy);
    assert_int_equal(network_copy_bytes(far.network), 0);
    assert_true(far_counts.reads > 0);
    assert_int_equal(far_counts.pins, 1);
    assert_ok(network_return(far.network, NULL));
    assert_int_equal(far_counts.unpins, 1);
    assert_int_equal(network_resident_bytes(far.network), held);
    run(&far, ROWS, in, after, &shape);
    assert_memory_equal(before, after, (size_t)shape_count(&shape) * sizeof(float));
    close_far(&far);
}

static void a_copy_goes_with_the_strip_and_may_go_before(void **state)
{
    struct far_rig far;
    const struct shape shape = SHAPE(ROWS, WIDTH);
    uint64_t copy, kept;

    (void)state;
    open_far(&far, "far", make_plain());
    plan_unref(make_plan(far.network, &shape));
    copy = network_copy_bytes(far.network);
    far_counts = (struct far_counts){0};
    assert_ok(network_copy(far.network));
    (void)network_leave(far.network);
    kept = network_host_bytes(far.network);
    network_drop_copy(far.network);
    assert_int_equal(network_host_bytes(far.network), kept - copy);
    assert_ok(network_return(far.network, NULL));
    assert_ok(network_copy(far.network));
    (void)network_leave(far.network);
    assert_int_equal(network_strip(far.network), kept);
    assert_int_equal(far_counts.unpins, 2);
    close_far(&far);
}

static void the_budget_of_the_device_holds_no_constants_of_the_host(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = input(graph);
    struct far_rig far;

    (void)state;
    finish(graph, x, APPLY(graph, "Pow", x, make_floats(graph, SHAPE(WIDTH), 4)));
    open_far(&far, "far", graph);
    {
        const struct shape shape = SHAPE(ROWS, WIDTH);

        plan_unref(make_plan(far.network, &shape));
    }
    assert_int_equal(network_resident_bytes(far.network), 0);
    close_far(&far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_on_the_host_see_what_the_device_made),
        cmocka_unit_test(a_plan_is_made_again_when_a_kernel_cannot_be_prepared),
        cmocka_unit_test(a_view_that_must_be_copied_is_left_to_the_host_once),
        cmocka_unit_test(what_depends_on_data_goes_on_behind_a_cut),
        cmocka_unit_test(a_plan_without_host_steps_is_recorded_and_replayed),
        cmocka_unit_test(a_plan_is_recorded_anew_when_a_kernel_got_better_code),
        cmocka_unit_test(a_run_waits_once_where_nothing_runs_on_the_host),
        cmocka_unit_test(constants_of_a_plan_go_with_it),
        cmocka_unit_test(steps_on_the_host_take_memory_of_the_budget_and_give_it_back),
        cmocka_unit_test(steps_on_the_host_that_the_budget_has_no_room_for_fail_their_run_alone),
        cmocka_unit_test(a_network_comes_back_from_its_copy_in_host_memory),
        cmocka_unit_test(a_copy_goes_with_the_strip_and_may_go_before),
        cmocka_unit_test(the_budget_of_the_device_holds_no_constants_of_the_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
