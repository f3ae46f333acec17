/* Plans on the simulated device, through the engine, as the daemon runs them. */
#include "run_rig.h"

#include <math.h>

/* The answers of the CPU. */
static void reference(struct graph *graph, const float *in, float *out, size_t count)
{
    struct run_rig rig;

    run_rig_open(&rig, "cpu", graph);
    assert_ok(run_floats(&rig.rig, rig.plan, in, ROWS * WIDTH, out, count));
    run_rig_close(&rig);
}

static void assert_close(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5F + 1e-4F * fabsf(b[i])))
            fail_msg("element %zu is %g, the CPU says %g", i, (double)a[i], (double)b[i]);
}

static void agrees_on(const char *device, struct graph *(*make)(void), size_t count,
                      enum sim_mode mode)
{
    float in[ROWS * WIDTH], out[ROWS * HIDDEN], wanted[ROWS * HIDDEN];
    struct run_rig rig;

    sim_set_mode(mode);
    run_rig_open(&rig, device, make());
    for (unsigned run = 0; run < 4; run++) { /* plain, recorded, replayed, replayed */
        fill_input(in, (float)run);
        reference(make(), in, wanted, count);
        assert_ok(run_at(&rig, in, out, count, 0, NULL));
        assert_close(out, wanted, count);
    }
    run_rig_close(&rig);
    assert_nothing_left();
}

static void agrees(struct graph *(*make)(void), size_t count, enum sim_mode mode)
{
    agrees_on("cuda", make, count, mode);
}

/* Whatever belongs to a device is used while that one is current: the simulator looks. */
static void a_second_device_is_as_good(void **state)
{
    (void)state;
    sim_set_devices(2);
    agrees_on("cuda:1", make_classifier, ROWS * CLASSES, SIM_LAZY);
    agrees_on("cuda:1", make_mixed, ROWS * WIDTH, SIM_ASYNC);
    agrees_on("cuda:0", make_counted, 2, SIM_LAZY);
    sim_set_devices(1);
}

static void answers_are_those_of_the_cpu_in_any_order_of_streams(void **state)
{
    (void)state;
    agrees(make_classifier, ROWS * CLASSES, SIM_EAGER);
    agrees(make_classifier, ROWS * CLASSES, SIM_LAZY);
    agrees(make_classifier, ROWS * CLASSES, SIM_ASYNC);
}

static void a_step_on_the_host_waits_for_what_it_needs(void **state)
{
    (void)state;
    agrees(make_mixed, ROWS * WIDTH, SIM_EAGER);
    agrees(make_mixed, ROWS * WIDTH, SIM_LAZY);
    agrees(make_mixed, ROWS * WIDTH, SIM_ASYNC);
}

static void what_has_to_be_counted_is_counted_on_the_device(void **state)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    struct run_rig rig;

    (void)state;
    agrees(make_counted, 2, SIM_EAGER);
    agrees(make_counted, 2, SIM_LAZY);
    agrees(make_counted, 2, SIM_ASYNC);
    run_rig_open(&rig, "cuda", make_counted());
    plan_explain(rig.plan, file, false);
    fclose(file);
    assert_non_null(strstr(text, "cuda:counted"));
    assert_null(strstr(text, "engine:to host"));
    free(text);
    run_rig_close(&rig);
}

static void the_plan_says_what_runs_on_the_host(void **state)
{
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    struct run_rig rig;

    (void)state;
    run_rig_open(&rig, "cuda", make_mixed());
    plan_explain(rig.plan, file, false);
    fclose(file);
    assert_non_null(strstr(text, "engine:to host"));
    assert_non_null(strstr(text, "engine:to device"));
    assert_non_null(strstr(text, "cpu:"));
    assert_non_null(strstr(text, "cuda:"));
    free(text);
    run_rig_close(&rig);
}

static void a_plan_is_recorded_once_and_replayed(void **state)
{
    float in[ROWS * WIDTH], out[ROWS * CLASSES];
    struct run_rig rig;

    (void)state;
    run_rig_open(&rig, "cuda", make_classifier());
    fill_input(in, 0);
    for (unsigned run = 0; run < 5; run++)
        assert_ok(run_at(&rig, in, out, ROWS * CLASSES, 0, NULL));
    assert_int_equal(sim_count("cudaStreamBeginCapture"), 1);
    assert_int_equal(sim_count("cudaGraphLaunch"), 4);
    assert_ok(run_at(&rig, in, out, ROWS * CLASSES, 256, NULL)); /* other buffers: as they come */
    assert_int_equal(sim_count("cudaGraphLaunch"), 4);
    assert_int_equal(sim_open("graph exec"), 0);
    assert_ok(run_at(&rig, in, out, ROWS * CLASSES, 256, NULL));
    assert_int_equal(sim_count("cudaGraphLaunch"), 5);
    run_rig_close(&rig);
    assert_nothing_left();
}

/* Whoever asked went away between two steps of the run that was recorded. */
static void a_recording_that_is_called_off_is_made_by_the_next_run(void **state)
{
    float in[ROWS * WIDTH], out[ROWS * CLASSES];
    atomic_bool cancelled = false;
    struct run_rig rig;

    (void)state;
    run_rig_open(&rig, "cuda", make_classifier());
    rig.cancelled = &cancelled;
    fill_input(in, 0);
    assert_ok(run_at(&rig, in, out, ROWS * CLASSES, 0, NULL));
    atomic_store(&cancelled, true);
    assert_int_equal(run_at(&rig, in, out, ROWS * CLASSES, 0, NULL), STATUS_CANCELLED);
    atomic_store(&cancelled, false);
    assert_int_equal(sim_count("cudaStreamBeginCapture"), 1);
    assert_int_equal(sim_open("graph"), 0);
    for (unsigned run = 0; run < 2; run++)
        assert_ok(run_at(&rig, in, out, ROWS * CLASSES, 0, NULL));
    assert_int_equal(sim_count("cudaStreamBeginCapture"), 2);
    assert_int_equal(sim_count("cudaGraphLaunch"), 2);
    run_rig_close(&rig);
    assert_nothing_left();
}

static void a_capture_that_fails_leaves_the_plan_running_without(void **state)
{
    static const char *const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                        "cudaGraphInstantiate"};
    float in[ROWS * WIDTH], out[ROWS * CLASSES], wanted[ROWS * CLASSES];

    (void)state;
    fill_input(in, 1);
    reference(make_classifier(), in, wanted, ROWS * CLASSES);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct run_rig rig;

        sim_reset();
        run_rig_open(&rig, "cuda", make_classifier());
        sim_fail_nth(calls[i], 1, 1); /* cudaErrorInvalidValue */
        for (unsigned run = 0; run < 4; run++) {
            memset(out, 0, sizeof(out));
            assert_ok(run_at(&rig, in, out, ROWS * CLASSES, 0, NULL));
            assert_close(out, wanted, ROWS * CLASSES);
        }
        assert_int_equal(sim_count("cudaGraphLaunch"), 0);
        run_rig_close(&rig);
        assert_nothing_left();
    }
}

/* Calls that take memory or addresses of any kind, or load code. */
static unsigned long allocations(void)
{
    static const char *const calls[] = {"cuMemCreate",
                                        "cuMemMap",
                                        "cuMemSetAccess",
                                        "cuMemAddressReserve",
                                        "cudaMalloc",
                                        "cudaMallocAsync",
                                        "cudaMallocFromPoolAsync",
                                        "cudaMallocHost",
                                        "cudaHostAlloc",
                                        "cudaHostRegister",
                                        "cudaLibraryLoadData",
                                        "cudaStreamCreateWithFlags",
                                        "cudaEventCreateWithFlags",
                                        "cudaGraphInstantiate"};
    unsigned long count = 0;

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        count += sim_count(calls[i]);
    return count;
}

static void a_batch_waits_once_and_allocates_nothing(void **state)
{
    float in[ROWS * WIDTH], out[ROWS * CLASSES];
    unsigned long waits, created;
    struct run_rig rig;

    (void)state;
    run_rig_open(&rig, "cuda", make_classifier());
    fill_input(in, 0);
    for (unsigned run = 0; run < 3; run++)
        assert_ok(run_at(&rig, in, out, ROWS * CLASSES, 0, NULL));
    waits = sim_count("cudaEventSynchronize");
    created = allocations();
    assert_ok(run_at(&rig, in, out, ROWS * CLASSES, 0, NULL));
    assert_int_equal(sim_count("cudaEventSynchronize"), waits + 2); /* the rig waits as well */
    assert_int_equal(allocations(), created);
    assert_int_equal(sim_count("cudaDeviceSynchronize"), 0);
    run_rig_close(&rig);
}

static void weights_are_booked_in_whole_pages_and_all_come_back(void **state)
{
    struct run_rig rig;
    size_t page;

    (void)state;
    run_rig_open(&rig, "cuda", make_classifier());
    page = rig.rig.device->memory->page_bytes;
    assert_true(network_resident_bytes(rig.network) > 0);
    assert_int_equal(network_resident_bytes(rig.network) % page, 0);
    plan_unref(rig.plan);
    network_destroy(rig.network);
    device_give_back(rig.rig.device);
    assert_int_equal(sim_open("handle"), 0);
    lane_arena_destroy(rig.io);
    rig_close(&rig.rig);
    assert_nothing_left();
}

static void a_broken_kernel_loses_the_device_for_good(void **state)
{
    float in[ROWS * WIDTH], out[ROWS * CLASSES];
    struct error err = {.text = ""};
    struct run_rig rig;

    (void)state;
    sim_set_mode(SIM_LAZY);
    run_rig_open(&rig, "cuda", make_classifier());
    fill_input(in, 0);
    sim_break_nth_kernel(2, 700); /* cudaErrorIllegalAddress */
    assert_int_equal(run_at(&rig, in, out, ROWS * CLASSES, 0, &err), STATUS_DEVICE_LOST);
    assert_int_equal(run_at(&rig, in, out, ROWS * CLASSES, 0, &err), STATUS_DEVICE_LOST);
    run_rig_close(&rig);
}

/* Each call that a run makes fails once: that run's error, the next one is right. */
static void a_run_fails_cleanly_at_every_call(void **state)
{
    static const char *const calls[] = {"cudaMemcpyAsync", "cudaEventRecord",
                                        "cudaEventSynchronize", "__cudaLaunchKernel",
                                        "cudaGraphLaunch"};
    float in[ROWS * WIDTH], out[ROWS * CLASSES], wanted[ROWS * CLASSES];

    (void)state;
    fill_input(in, 1);
    reference(make_classifier(), in, wanted, ROWS * CLASSES);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        for (unsigned n = 1; n <= 4; n++) {
            unsigned failed = 0;
            struct run_rig rig;

            sim_reset();
            run_rig_open(&rig, "cuda", make_classifier());
            sim_fail_nth(calls[i], n, 1);
            for (unsigned run = 0; run < 6; run++)
                failed += run_at(&rig, in, out, ROWS * CLASSES, 0, NULL) != STATUS_OK;
            assert_true(failed <= 1);
            assert_ok(run_at(&rig, in, out, ROWS * CLASSES, 0, NULL));
            assert_close(out, wanted, ROWS * CLASSES);
            run_rig_close(&rig);
            assert_nothing_left();
        }
}

/* Loading fails at each allocation of device memory: nothing stays. */
static void a_load_fails_cleanly_where_the_device_refuses(void **state)
{
    const struct network_config config = {.name = "model"};

    (void)state;
    for (unsigned n = 1; n <= 2; n++) {
        const struct shape shape = SHAPE(ROWS, WIDTH);
        struct error err = {.text = ""};
        struct network *network;
        struct plan *plan;
        struct rig rig;

        sim_reset();
        rig_open(&rig, "cuda", 1);
        sim_fail_nth("cuMemCreate", n, 0);
        assert_ok(
            network_create(make_classifier(), rig.device, rig.ledger, &config, &network, &err));
        if (network_plan(network, &shape, &plan, &err) == STATUS_OK)
            plan_unref(plan);
        else
            assert_int_equal(err.status, STATUS_NO_MEMORY);
        network_destroy(network);
        rig_close(&rig);
        assert_nothing_left();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(answers_are_those_of_the_cpu_in_any_order_of_streams, clean_slate),
        cmocka_unit_test_setup(a_second_device_is_as_good, clean_slate),
        cmocka_unit_test_setup(a_step_on_the_host_waits_for_what_it_needs, clean_slate),
        cmocka_unit_test_setup(what_has_to_be_counted_is_counted_on_the_device, clean_slate),
        cmocka_unit_test_setup(the_plan_says_what_runs_on_the_host, clean_slate),
        cmocka_unit_test_setup(a_plan_is_recorded_once_and_replayed, clean_slate),
        cmocka_unit_test_setup(a_recording_that_is_called_off_is_made_by_the_next_run, clean_slate),
        cmocka_unit_test_setup(a_capture_that_fails_leaves_the_plan_running_without, clean_slate),
        cmocka_unit_test_setup(a_batch_waits_once_and_allocates_nothing, clean_slate),
        cmocka_unit_test_setup(weights_are_booked_in_whole_pages_and_all_come_back, clean_slate),
        cmocka_unit_test_setup(a_run_fails_cleanly_at_every_call, clean_slate),
        cmocka_unit_test_setup(a_load_fails_cleanly_where_the_device_refuses, clean_slate),
        cmocka_unit_test_setup(a_broken_kernel_loses_the_device_for_good, clean_slate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
