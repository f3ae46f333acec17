/* Durations as Ollama's users write them. */
#include "models/keep_alive.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "support/unit.h"

static int64_t parse(const char *text)
{
    int64_t us;

    if (!keep_alive_parse(text, strlen(text), &us))
        fail_msg("'%s' is refused", text);
    return us;
}

static void durations_are_go_s(void **state)
{
    (void)state;
    assert_int_equal(parse("5m"), INT64_C(300000000));
    assert_int_equal(parse("1h30m"), INT64_C(5400000000));
    assert_int_equal(parse("250ms"), 250000);
    assert_int_equal(parse("1.5s"), 1500000);
    assert_int_equal(parse("+2s"), 2000000);
    assert_int_equal(parse("10us"), 10);
    assert_int_equal(parse("10µs"), 10);
    assert_int_equal(parse("5000ns"), 5);
    assert_int_equal(parse(".5s"), 500000);
}

static void a_plain_number_is_seconds(void **state)
{
    (void)state;
    assert_int_equal(parse("90"), 90000000);
    assert_int_equal(parse("0"), 0);
    assert_int_equal(parse("0s"), 0);
    assert_int_equal(parse("-0"), 0);
    assert_int_equal(parse("0.25"), 250000);
}

static void anything_negative_or_endless_is_for_ever(void **state)
{
    (void)state;
    assert_int_equal(parse("-1"), CLOCK_NEVER);
    assert_int_equal(parse("-1m"), CLOCK_NEVER);
    assert_int_equal(parse("9999999999999999999999h"), CLOCK_NEVER);
}

static void what_is_no_duration_is_refused(void **state)
{
    static const char *const wrong[] = {"",      "-",   "m",   "5x",   "5 m", "soon", "1h30",
                                        "1.2.3", "--1", "5m ", "0x10", "1e3", ".",    "s5"};
    int64_t us = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (keep_alive_parse(wrong[i], strlen(wrong[i]), &us))
            fail_msg("'%s' is taken", wrong[i]);
    assert_int_equal(us, 7);
}

static void text_ends_where_it_ends(void **state)
{
    int64_t us;

    (void)state;
    assert_true(keep_alive_parse("5m30s", 2, &us));
    assert_int_equal(us, INT64_C(300000000));
    assert_true(keep_alive_parse("250ms", 3, &us)); /* 250 seconds */
    assert_int_equal(us, 250000000);
}

static void numbers_are_seconds_too(void **state)
{
    int64_t us;

    (void)state;
    assert_true(keep_alive_from_seconds(2.5, &us));
    assert_int_equal(us, 2500000);
    assert_true(keep_alive_from_seconds(-1, &us));
    assert_int_equal(us, CLOCK_NEVER);
    assert_true(keep_alive_from_seconds(INFINITY, &us));
    assert_int_equal(us, CLOCK_NEVER);
    assert_false(keep_alive_from_seconds(NAN, &us));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_go_s),
        cmocka_unit_test(a_plain_number_is_seconds),
        cmocka_unit_test(anything_negative_or_endless_is_for_ever),
        cmocka_unit_test(what_is_no_duration_is_refused),
        cmocka_unit_test(text_ends_where_it_ends),
        cmocka_unit_test(numbers_are_seconds_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
