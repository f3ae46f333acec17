/* Decimals read back as what they were made of. */
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/codec/decimal.h"

enum { ROUNDS = 1000000 };

static uint64_t random_bits(void)
{
    static uint64_t state = 88172645463325252;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * UINT64_C(2685821657736338717);
}

static void check_float(float value)
{
    char text[DECIMAL_BYTES + 1];
    size_t length = decimal_float(value, text);

    assert_true(length > 0 && length < DECIMAL_BYTES);
    text[length] = '\0';
    if (strtof(text, NULL) != value)
        fail_msg("%.9g became %s", (double)value, text);
}

static void check_double(double value)
{
    char text[DECIMAL_BYTES + 1];
    size_t length = decimal_double(value, text);

    assert_true(length > 0 && length < DECIMAL_BYTES);
    text[length] = '\0';
    if (strtod(text, NULL) != value)
        fail_msg("%.17g became %s", value, text);
}

static void any_float_reads_back(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t bits = (uint32_t)random_bits();
        float value;

        memcpy(&value, &bits, sizeof(value));
        if (isfinite(value))
            check_float(value);
    }
}

static void scores_read_back(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        double share = (double)(random_bits() >> 11) / 9007199254740992.0;

        check_float((float)share);
        check_float(-(float)(share * 1e-6));
        check_float((float)(share * 1e6));
        check_double(share);
    }
}

static void any_double_reads_back(void **state)
{
    (void)state;
    for (int i = 0; i < ROUNDS / 4; i++) {
        uint64_t bits = random_bits();
        double value;

        memcpy(&value, &bits, sizeof(value));
        if (isfinite(value))
            check_double(value);
    }
}

static void powers_and_their_neighbours_read_back(void **state)
{
    (void)state;
    for (int e = -45; e <= 38; e++) {
        float power = (float)pow(10, e);

        check_float(power);
        check_float(nextafterf(power, 0));
        check_float(nextafterf(power, INFINITY));
    }
    for (int e = -149; e <= 127; e++)
        check_float(ldexpf(1, e));
    for (int e = -323; e <= 308; e++)
        check_double(pow(10, e));
}

static void assert_text(float value, const char *expected)
{
    char text[DECIMAL_BYTES + 1];

    text[decimal_float(value, text)] = '\0';
    assert_string_equal(text, expected);
}

static void few_digits_stay_few(void **state)
{
    (void)state;
    assert_text(0.1F, "0.1");
    assert_text(-1.5F, "-1.5");
    assert_text(0.333333343F, "0.33333334");
    assert_text(123.456F, "123.456");
    assert_text(0.000123F, "0.000123");
    assert_text(1e-8F, "1e-08");
    assert_text(1.25e-30F, "1.25e-30");
    assert_text(3.4028234664e38F, "3.4028235e+38");
    assert_text(1e10F, "1e+10");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_float_reads_back),
        cmocka_unit_test(scores_read_back),
        cmocka_unit_test(any_double_reads_back),
        cmocka_unit_test(powers_and_their_neighbours_read_back),
        cmocka_unit_test(few_digits_stay_few),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
