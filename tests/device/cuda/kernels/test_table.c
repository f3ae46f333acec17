/* Which operators the CUDA device computes itself. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "op_tester/op_tester.h"
#include "support/unit.h"

/* Left to the host: what answers strings or shapes that depend on data, trees of decisions, and
 * what a plan knows without computing it.  Weights of float products are floats there, shuffles of
 * channels are transpositions, and pools and convolutions stay steps of their own: graphs for the
 * device have none of these (device.fuses_shuffles, fuses_pools, fuses_separable).
 */
static const char *const left_to_host[] = {"constant",
                                           "conv_pool",
                                           "dynamic_quantize_lstm",
                                           "matmul_bytes",
                                           "mix_channels",
                                           "separable_conv",
                                           "shape",
                                           "size",
                                           "tree_ensemble",
                                           "tree_ensemble_classifier",
                                           "tree_ensemble_regressor",
                                           "unique"};

static bool is_left_to_host(const struct op_def *op)
{
    for (size_t i = 0; i < sizeof(left_to_host) / sizeof(left_to_host[0]); i++)
        if (strcmp(op->name, left_to_host[i]) == 0)
            return true;
    return false;
}

static void what_the_host_computes_the_device_does_too(void **state)
{
    const struct device_config config = {.name = OP_TEST_DEVICE, .lanes = 1};
    struct device *device;
    size_t count;
    const struct op_def *const *ops = op_table(&count);

    (void)state;
    device_register(&device_cpu_ops);
    assert_int_equal(device_open(&config, &device, NULL), STATUS_OK);
    assert_non_null(device->host);
    for (size_t i = 0; i < count; i++) {
        bool on_host = device->host->ops->kernels(device->host, ops[i]) != NULL;
        bool on_device = device->ops->kernels(device, ops[i]) != NULL;

        if (on_host && on_device == is_left_to_host(ops[i]))
            fail_msg("%s: %s", ops[i]->name,
                     on_device ? "has a kernel and is said to have none" : "has no kernel");
    }
    device_close(device);
}

static void every_kernel_can_run_and_says_whose_it_is(void **state)
{
    const struct device_config config = {.name = OP_TEST_DEVICE, .lanes = 1};
    struct device *device;
    size_t count;
    const struct op_def *const *ops = op_table(&count);

    (void)state;
    assert_int_equal(device_open(&config, &device, NULL), STATUS_OK);
    for (size_t i = 0; i < count; i++) {
        const struct kernel *const *kernels = device->ops->kernels(device, ops[i]);

        for (; kernels != NULL && *kernels != NULL; kernels++) {
            assert_non_null((*kernels)->enqueue);
            assert_memory_equal((*kernels)->name, "cuda:", 5);
        }
    }
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_host_computes_the_device_does_too),
        cmocka_unit_test(every_kernel_can_run_and_says_whose_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
