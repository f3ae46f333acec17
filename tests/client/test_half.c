#include "support/unit.h"

#include <math.h>

#include "half.h"
#include "tensor/dtype.h"

static void every_half_goes_there_and_back(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) {
        float value = float_of_half((uint16_t)half);

        if (isnan(value))
            continue;
        assert_true(value == float_from_half((uint16_t)half));
        assert_int_equal(half_of_float(value), half);
    }
}

static void floats_round_as_the_daemon_rounds_them(void **state)
{
    (void)state;
    for (double value = 1e-9; value < 1e5; value *= 1.00037)
        assert_int_equal(half_of_float((float)value), half_from_float((float)value));
    assert_int_equal(half_of_float(-0.0F), 0x8000);
    assert_int_equal(half_of_float(INFINITY), 0x7C00);
    assert_true(isnan(float_of_half(half_of_float(NAN))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_goes_there_and_back),
        cmocka_unit_test(floats_round_as_the_daemon_rounds_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
