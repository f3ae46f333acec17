/* A GPU of capability 7.5: it multiplies float16, neither bfloat16 nor TF32. */
#include "sim_device.h"

#include <stdlib.h>

static void a_precision_that_the_device_lacks_is_refused_with_what_is_needed(void **state)
{
    static const char *const lacking[] = {"tf32", "bf16"};

    (void)state;
    for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
        struct device *device;
        struct error err = {.text = ""};

        assert_int_equal(try_open("cuda", lacking[i], &device, &err), STATUS_UNSUPPORTED);
        assert_non_null(strstr(err.text, lacking[i]));
        assert_non_null(strstr(err.text, "needs compute capability 8.0"));
        assert_non_null(strstr(err.text, "7.5"));
    }
    assert_nothing_left();
}

static void half_precision_opens(void **state)
{
    struct device *device;

    (void)state;
    assert_ok(try_open("cuda", "fp16", &device, NULL));
    assert_int_equal(device->narrow, DTYPE_FLOAT16);
    device_close(device);
    assert_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_precision_that_the_device_lacks_is_refused_with_what_is_needed),
        cmocka_unit_test(half_precision_opens),
    };

    /* Read when the simulator is first called. */
    return setenv("SLUICE_SIM_CAPABILITY", "75", 1) != 0 ||
           cmocka_run_group_tests(tests, NULL, NULL);
}
