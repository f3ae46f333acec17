/* A GPU from before what CUDA 13 makes code for. */
#include "sim_device.h"

#include <stdlib.h>

static void a_device_too_old_is_refused_with_what_is_needed(void **state)
{
    struct device *device;
    struct error err = {.text = ""};

    (void)state;
    assert_int_equal(try_open("cuda", NULL, &device, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "capability 6.1"));
    assert_non_null(strstr(err.text, "at least 7.5"));
    assert_nothing_left();
    assert_ok(try_open("auto", "default", &device, &err));
    assert_string_equal(device->ops->name, "cpu");
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_too_old_is_refused_with_what_is_needed),
    };

    /* Read when the simulator is first called. */
    return setenv("SLUICE_SIM_CAPABILITY", "61", 1) != 0 ||
           cmocka_run_group_tests(tests, NULL, NULL);
}
