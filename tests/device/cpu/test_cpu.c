/* The CPU device itself: opening, names, caps, layouts, kernels found by operator. */
#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "support/fail_alloc.h"

static void open_device(const char *name, const char *precision, enum status expected,
                        struct device **out_device, struct error *err)
{
    struct device_config config = {.name = name, .lanes = 2, .threads = 4, .precision = precision};

    device_register(&device_cpu_ops);
    device_register(&device_cpu_ops); /* twice is once */
    assert_int_equal(device_open(&config, out_device, err), expected);
}

static void auto_is_the_cpu_where_there_is_no_other(void **state)
{
    struct device *device;
    struct error err;
    char text[256];

    (void)state;
    open_device("auto", "default", STATUS_OK, &device, &err);
    assert_int_equal(device->lanes, 2);
    assert_int_equal(device->threads_per_lane, 2);
    device->ops->describe(device, text, sizeof(text));
    assert_non_null(strstr(text, "2 lanes of 2 threads"));
    device_close(device);
}

static void unknown_names_are_refused_with_the_known_ones(void **state)
{
    struct device *device;
    struct error err;

    (void)state;
    open_device("gpu", "default", STATUS_NOT_FOUND, &device, &err);
    assert_non_null(strstr(err.text, "'gpu'"));
    assert_non_null(strstr(err.text, "auto, cpu"));
    open_device("cpu", "fp8", STATUS_INVALID, &device, &err);
    assert_non_null(strstr(err.text, "fp8"));
}

static void the_environment_caps_the_instruction_set(void **state)
{
    struct device *device;
    struct error err;

    (void)state;
    setenv("SLUICE_CPU", "baseline", 1);
    open_device("cpu", "strict", STATUS_OK, &device, &err);
    assert_int_equal(cpu_isa_of(device), CPU_BASELINE);
    assert_int_equal(device->channel_block, 8);
    assert_true(cpu_is_strict(device));
    device_close(device);
    setenv("SLUICE_CPU", "mmx", 1);
    open_device("cpu", "strict", STATUS_INVALID, &device, &err);
    assert_non_null(strstr(err.text, "mmx"));
    unsetenv("SLUICE_CPU");
}

/* The device with all its lanes, entered and left. */
static enum status open_once(void *arg)
{
    const struct device_config config = {.name = "cpu", .lanes = 3, .threads = 6};
    struct device_lane *lanes[3] = {NULL};
    struct device *device = NULL;
    enum status status;

    (void)arg;
    device_register(&device_cpu_ops);
    status = device_open(&config, &device, NULL);
    if (status != STATUS_OK) {
        assert_null(device);
        return status;
    }
    for (unsigned i = 0; i < 3 && status == STATUS_OK; i++) {
        status = device->ops->lane_open(device, i, &lanes[i]);
        if (status != STATUS_OK)
            assert_null(lanes[i]);
        else
            device->ops->lane_enter(lanes[i]);
    }
    for (unsigned i = 0; i < 3; i++)
        if (lanes[i] != NULL)
            device->ops->lane_close(lanes[i]);
    device_close(device);
    return status;
}

static void opening_survives_every_failed_allocation(void **state)
{
    (void)state;
    assert_true(fail_each_alloc(open_once, NULL) >= 4);
}

static void every_listed_kernel_can_run(void **state)
{
    struct device *device;
    struct error err;
    size_t count;
    const struct op_def *const *ops = op_table(&count);

    (void)state;
    open_device("cpu", "default", STATUS_OK, &device, &err);
    for (size_t i = 0; i < count; i++) {
        const struct kernel *const *kernels = device->ops->kernels(device, ops[i]);

        for (; kernels != NULL && *kernels != NULL; kernels++) {
            assert_non_null((*kernels)->name);
            assert_non_null((*kernels)->enqueue);
        }
    }
    device_close(device);
}

static void blocked_bytes_count_the_padding(void **state)
{
    const struct shape shape = {4, {2, 17, 3, 5}}, none = {4, {0, 17, 3, 5}};

    (void)state;
    assert_int_equal(layout_bytes(LAYOUT_PLAIN, 16, DTYPE_FLOAT, &shape), 2 * 17 * 15 * 4);
    assert_int_equal(layout_bytes(LAYOUT_NHWC, 16, DTYPE_INT8, &shape), 2 * 17 * 15);
    assert_int_equal(layout_bytes(LAYOUT_BLOCKED, 16, DTYPE_FLOAT, &shape), 2 * 32 * 15 * 4);
    assert_int_equal(layout_bytes(LAYOUT_BLOCKED, 8, DTYPE_FLOAT, &shape), 2 * 24 * 15 * 4);
    assert_int_equal(layout_bytes(LAYOUT_BLOCKED, 16, DTYPE_FLOAT, &none), 0);
    assert_string_equal(layout_name(LAYOUT_BLOCKED), "blocked");
}

extern const struct kernel kernel_reorder_move;

static void pictures_of_bytes_come_with_their_channels_last(void **state)
{
    static const int64_t cells[] = {1, 17, 18, 19, 33, 50, 1000};
    struct device *device;
    struct device_lane *lane;
    struct error err;

    (void)state;
    open_device("cpu", "default", STATUS_OK, &device, &err);
    assert_int_equal(device->ops->lane_open(device, 0, &lane), STATUS_OK);
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
        const size_t n = (size_t)cells[i];
        const struct shape shape = {3, {2, 3, cells[i]}};
        const struct operand from = {DTYPE_UINT8, LAYOUT_PLAIN, shape, 0, NULL, NULL};
        const struct operand to = {DTYPE_UINT8, LAYOUT_NHWC, shape, 0, NULL, NULL};
        uint8_t *x = malloc(6 * n), *y = malloc(6 * n); /* to the byte: for the sanitizer */

        assert_true(x != NULL && y != NULL);
        for (size_t k = 0; k < 6 * n; k++)
            x[k] = (uint8_t)(k * 31 + k / 256);
        assert_int_equal(kernel_reorder_move.enqueue(
                             NULL,
                             &(struct kernel_call){.inputs = 1,
                                                   .in = (const struct operand *[]){&from},
                                                   .outputs = 1,
                                                   .out = (const struct operand *[]){&to},
                                                   .device = device,
                                                   .threads = 2},
                             &(struct kernel_run){
                                 .in = (const void *[]){x}, .out = (void *[]){y}, .lane = lane}),
                         STATUS_OK);
        for (size_t k = 0; k < 6 * n; k++)
            assert_int_equal(y[k], x[k / (3 * n) * 3 * n + k % 3 * n + k % (3 * n) / 3]);
        free(x);
        free(y);
    }
    device->ops->lane_close(lane);
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_is_the_cpu_where_there_is_no_other),
        cmocka_unit_test(unknown_names_are_refused_with_the_known_ones),
        cmocka_unit_test(the_environment_caps_the_instruction_set),
        cmocka_unit_test(opening_survives_every_failed_allocation),
        cmocka_unit_test(every_listed_kernel_can_run),
        cmocka_unit_test(blocked_bytes_count_the_padding),
        cmocka_unit_test(pictures_of_bytes_come_with_their_channels_last),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
