/* The null device answers zeros for every operator. */
#include "support/unit.h"

#include <string.h>

#include "device/kernel.h"
#include "device/null/null.h"

static void every_operator_has_a_kernel_that_writes_zeros(void **state)
{
    struct device_config config = {.name = "null", .lanes = 1};
    struct device *device;
    struct error err;
    size_t count;
    const struct op_def *const *ops = op_table(&count);

    (void)state;
    device_register(&device_null_ops);
    assert_int_equal(device_open(&config, &device, &err), STATUS_OK);
    for (size_t i = 0; i < count; i++) {
        const struct kernel *const *kernels = device->ops->kernels(device, ops[i]);
        const struct operand out = {.dtype = DTYPE_FLOAT, .shape = {2, {3, 4}}};
        const struct operand *outs[] = {&out};
        const struct kernel_call call = {
            .op = ops[i], .outputs = 1, .out = outs, .device = device, .threads = 1};
        float values[13];
        void *data[] = {values};
        struct shape shape = {0};
        const struct kernel_run run = {.out = data, .out_shapes = &shape};

        memset(values, 0x5A, sizeof(values));
        assert_non_null(kernels);
        assert_int_equal(kernels[0]->enqueue(NULL, &call, &run), STATUS_OK);
        for (int k = 0; k < 12; k++)
            assert_true(values[k] == 0);
        assert_true(values[12] != 0);
        assert_true(shape_is_equal(&shape, &out.shape));
    }
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_has_a_kernel_that_writes_zeros),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
