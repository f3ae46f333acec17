/* Which device a name means, and what is said when it cannot be had. */
#include "sim_device.h"

#include <stdlib.h>

static void expect(const char *name, const char *precision, enum status wanted, const char *words)
{
    struct device *device;
    struct error err = {.text = ""};
    enum status status = try_open(name, precision, &device, &err);

    assert_int_equal(status, wanted);
    if (strstr(err.text, words) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, words);
    assert_nothing_left();
}

static void opens_as(const char *name, const char *kind)
{
    struct device *device;
    struct error err = {.text = ""};

    if (try_open(name, NULL, &device, &err) != STATUS_OK)
        fail_msg("%s: %s", name, err.text);
    assert_string_equal(device->ops->name, kind);
    device_close(device);
    assert_nothing_left();
}

static void a_device_is_found_by_number_and_by_uuid(void **state)
{
    (void)state;
    opens_as("cuda", "cuda");
    opens_as("cuda:0", "cuda");
    opens_as("cuda:GPU-510ce000-514d-4000-8000-000000000001", "cuda");
    opens_as("cuda:gpu-510CE000-514d-4000-8000-000000000001", "cuda");
}

static void auto_takes_the_gpu_where_there_is_one(void **state)
{
    (void)state;
    opens_as("auto", "cuda");
}

static void what_is_not_there_is_named(void **state)
{
    (void)state;
    expect("cuda:7", NULL, STATUS_NOT_FOUND, "there are 1 GPUs");
    expect("cuda:x1", NULL, STATUS_NOT_FOUND, "UUID");
    expect("cuda:-1", NULL, STATUS_NOT_FOUND, "'cuda:-1'");
    expect("cuda:GPU-00000000-0000-0000-0000-000000000000", NULL, STATUS_NOT_FOUND, "UUID");
    expect("cuda:MIG-00000000-0000-0000-0000-000000000000", NULL, STATUS_NOT_FOUND,
           "CUDA_VISIBLE_DEVICES");
}

static void auto_falls_back_to_the_cpu_and_cuda_does_not(void **state)
{
    (void)state;
    assert_int_equal(setenv("SLUICE_SIM_ABSENT", "gpu", 1), 0);
    expect("cuda", NULL, STATUS_NOT_FOUND, "shows no GPU");
    opens_as("auto", "cpu");
    assert_int_equal(setenv("SLUICE_SIM_ABSENT", "driver", 1), 0);
    expect("cuda", NULL, STATUS_NOT_FOUND, "no NVIDIA driver");
    opens_as("auto", "cpu");
    assert_int_equal(unsetenv("SLUICE_SIM_ABSENT"), 0);
}

static void a_gpu_that_the_plug_in_has_no_code_for_is_refused(void **state)
{
    (void)state;
    sim_fail_nth("cudaFuncGetAttributes", 1, 209 /* no kernel image */);
    expect("cuda", NULL, STATUS_UNSUPPORTED, "capability 9.0, for which the plug-in holds no code");
    sim_fail_nth("cudaFuncGetAttributes", 1, 209 /* no kernel image */);
    opens_as("auto", "cpu");
}

static void each_precision_opens_or_is_refused_by_name(void **state)
{
    static const char *const known[] = {"strict", "default", "tf32", "fp16", "bf16", "int8"};

    (void)state;
    expect("cuda", "fp8", STATUS_INVALID, "'fp8'");
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        struct device *device;

        assert_ok(try_open("cuda", known[i], &device, NULL));
        device_close(device);
    }
}

static void the_description_names_device_and_driver(void **state)
{
    struct device *device = open_cuda();
    char text[256];

    (void)state;
    device->ops->describe(device, text, sizeof(text));
    assert_non_null(strstr(text, "simulated"));
    assert_non_null(strstr(text, "0000:41:00.0"));
    assert_non_null(strstr(text, "2 lanes"));
    device_close(device);
}

static void a_limit_of_the_process_is_the_total(void **state)
{
    struct device *device;
    uint64_t free_bytes, total;

    (void)state;
    sim_set_memory((size_t)8 << 30, (size_t)1 << 30);
    sim_set_process_limit((size_t)2 << 30);
    device = open_cuda();
    assert_ok(device->memory->ops->query(device->memory, &free_bytes, &total));
    assert_int_equal(total, UINT64_C(2) << 30);
    assert_true(free_bytes <= total);
    device_close(device);
}

/* Every call that opening makes fails once: an error, and nothing is left behind. */
static void opening_fails_cleanly_at_every_call(void **state)
{
    static const char *const calls[] = {"cudaGetDeviceCount",
                                        "cudaGetDeviceProperties",
                                        "cudaInitDevice",
                                        "cudaSetDevice",
                                        "cudaGetDriverEntryPointByVersion",
                                        "cuDeviceGetAttribute",
                                        "cuMemGetAllocationGranularity",
                                        "cudaStreamCreateWithFlags",
                                        "cudaFuncGetAttributes"};

    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        for (unsigned n = 1; n <= 3; n++) {
            struct device *device;
            struct error err = {.text = ""};

            sim_reset();
            sim_fail_nth(calls[i], n, 0);
            if (try_open("cuda", NULL, &device, &err) == STATUS_OK)
                device_close(device);
            else if (err.text[0] == '\0')
                fail_msg("%s, call %u: no sentence", calls[i], n);
            if (sim_report_open() > 0)
                fail_msg("%s, call %u: something is still open", calls[i], n);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_device_is_found_by_number_and_by_uuid, clean_slate),
        cmocka_unit_test_setup(auto_takes_the_gpu_where_there_is_one, clean_slate),
        cmocka_unit_test_setup(what_is_not_there_is_named, clean_slate),
        cmocka_unit_test_setup(auto_falls_back_to_the_cpu_and_cuda_does_not, clean_slate),
        cmocka_unit_test_setup(a_gpu_that_the_plug_in_has_no_code_for_is_refused, clean_slate),
        cmocka_unit_test_setup(each_precision_opens_or_is_refused_by_name, clean_slate),
        cmocka_unit_test_setup(the_description_names_device_and_driver, clean_slate),
        cmocka_unit_test_setup(a_limit_of_the_process_is_the_total, clean_slate),
        cmocka_unit_test_setup(opening_fails_cleanly_at_every_call, clean_slate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
