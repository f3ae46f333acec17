/* Networks whose chains get kernels of their own while they serve. */
#include <stdatomic.h>

#include "nvrtc/nvrtc.h"
#include "run_rig.h"

/* Tanh(x * c + d): one chain. */
static struct graph *make_chain(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH));
    struct value *y = APPLY(graph, "Mul", x, make_floats(graph, SHAPE(WIDTH), 1));

    y = APPLY(graph, "Add", y, make_floats(graph, SHAPE(WIDTH), 2));
    y = APPLY(graph, "Tanh", y);
    y = APPLY(graph, "Softmax", y);
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static bool plan_says(const struct plan *plan, const char *words, bool as_json)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    bool says;

    plan_explain(plan, file, as_json);
    fclose(file);
    says = strstr(text, words) != NULL;
    free(text);
    return says;
}

static void await_kernel(struct device *device)
{
    device_settle(device);
    assert_true(atomic_load(&device->kernels_changed) > 0);
}

static void a_chain_is_recorded_anew_with_its_kernel_and_keeps_its_bits(void **state)
{
    float in[ROWS * WIDTH], interpreted[ROWS * WIDTH], out[ROWS * WIDTH];
    struct run_rig rig;
    uint64_t before, slow;

    (void)state;
    sim_nvrtc_hold(true);
    run_rig_open(&rig, "cuda", make_chain());
    fill_input(in, 0);
    sim_nvrtc_await_held();
    for (unsigned run = 0; run < 4; run++) {
        before = sim_instructions();
        assert_ok(run_at(&rig, in, interpreted, ROWS * WIDTH, 0, NULL));
    }
    slow = sim_instructions() - before;
    assert_int_equal(sim_count("cudaStreamBeginCapture"), 1);
    assert_true(plan_says(rig.plan, "interpreter, until nvrtc has made it", false));
    sim_nvrtc_hold(false);
    await_kernel(rig.rig.device);
    assert_true(plan_says(rig.plan, "sm_90 by nvrtc", false));
    assert_true(plan_says(rig.plan, "sm_90 by nvrtc", true));
    for (unsigned run = 0; run < 4; run++) {
        memset(out, 0, sizeof(out));
        before = sim_instructions();
        assert_ok(run_at(&rig, in, out, ROWS * WIDTH, 0, NULL));
        assert_memory_equal(out, interpreted, sizeof(out));
    }
    assert_int_equal(sim_count("cudaStreamBeginCapture"), 2);
    assert_true(sim_instructions() - before < slow); /* nothing is decoded any more */
    run_rig_close(&rig);
    assert_nothing_left();
}

static bool profile_says(const struct profile *profile, const char *words, bool as_json)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    bool says;

    profile_write(profile, file, as_json);
    fclose(file);
    says = strstr(text, words) != NULL;
    free(text);
    return says;
}

static void a_profile_says_which_kernel_a_chain_has_by_now(void **state)
{
    float in[ROWS * WIDTH], out[ROWS * WIDTH];
    struct run_rig rig;

    (void)state;
    sim_nvrtc_hold(true);
    run_rig_open(&rig, "cuda", make_chain());
    fill_input(in, 0);
    sim_nvrtc_await_held();
    rig.profile = profile_create();
    assert_non_null(rig.profile);
    assert_ok(run_at(&rig, in, out, ROWS * WIDTH, 0, NULL));
    assert_true(profile_says(rig.profile, "interpreter, until nvrtc has made it", false));
    sim_nvrtc_hold(false);
    await_kernel(rig.rig.device);
    for (unsigned as_json = 0; as_json < 2; as_json++)
        assert_true(profile_says(rig.profile, "sm_90 by nvrtc", as_json != 0));
    profile_destroy(rig.profile);
    run_rig_close(&rig);
    assert_nothing_left();
}

static void a_device_closes_while_a_kernel_is_compiled(void **state)
{
    struct run_rig rig;

    (void)state;
    sim_nvrtc_hold(true);
    run_rig_open(&rig, "cuda", make_chain());
    sim_nvrtc_await_held();
    plan_unref(rig.plan);
    network_destroy(rig.network);
    lane_arena_destroy(rig.io);
    sim_nvrtc_hold(false);
    rig_close(&rig.rig);
    assert_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_chain_is_recorded_anew_with_its_kernel_and_keeps_its_bits,
                               clean_slate),
        cmocka_unit_test_setup(a_profile_says_which_kernel_a_chain_has_by_now, clean_slate),
        cmocka_unit_test_setup(a_device_closes_while_a_kernel_is_compiled, clean_slate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
