/* Which batch size pays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "batch/size.h"

static void learn(struct size_choice *choice, unsigned times, int64_t rows, int64_t row_us)
{
    for (unsigned i = 0; i < times; i++)
        size_learn(choice, rows, rows * row_us);
}

static void nothing_is_limited_before_it_is_measured(void **state)
{
    struct size_choice choice = {0};

    (void)state;
    assert_int_equal(size_limit(&choice, 100), INT64_MAX);
    learn(&choice, 2, 32, 100);
    assert_int_equal(size_limit(&choice, 100), INT64_MAX);
}

static void smaller_sizes_are_tried_while_enough_wait(void **state)
{
    struct size_choice choice = {0};

    (void)state;
    learn(&choice, 3, 32, 100);
    assert_int_equal(size_limit(&choice, 31), 8); /* 16 would leave too few for a second batch */
    assert_int_equal(size_limit(&choice, 32), 16);
    learn(&choice, 3, 16, 100);
    assert_int_equal(size_limit(&choice, 32), 8);
    learn(&choice, 3, 8, 100);
    assert_int_equal(size_limit(&choice, 32), 4);
    assert_int_equal(size_limit(&choice, 7), 8); /* all alike so far: the smallest measured */
}

static void the_cheapest_a_row_is_kept_to(void **state)
{
    struct size_choice choice = {0};

    (void)state;
    learn(&choice, 3, 31, 110);
    learn(&choice, 3, 16, 105);
    learn(&choice, 3, 8, 90);
    learn(&choice, 3, 4, 100);
    learn(&choice, 5, 1, 200);
    assert_int_equal(size_limit(&choice, 64), 8);
}

static void a_model_that_gains_from_size_is_not_limited(void **state)
{
    struct size_choice choice = {0};

    (void)state;
    for (int64_t rows = 64; rows >= 1; rows /= 2)
        for (int i = 0; i < 3; i++)
            size_learn(&choice, rows, 500 + rows);
    assert_int_equal(size_limit(&choice, 1000), INT64_MAX);
}

static void a_run_that_lost_its_core_changes_little(void **state)
{
    struct size_choice choice = {0};

    (void)state;
    learn(&choice, 3, 16, 100);
    learn(&choice, 3, 8, 90);
    learn(&choice, 3, 4, 120);
    learn(&choice, 1, 8, 150);
    assert_int_equal(size_limit(&choice, 64), 8);
}

static void what_was_not_run_for_long_is_tried_again(void **state)
{
    struct size_choice choice = {0};

    (void)state;
    learn(&choice, 3, 16, 90);
    learn(&choice, 3, 8, 100);
    learn(&choice, 3, 4, 200);
    assert_int_equal(size_limit(&choice, 64), INT64_MAX);
    learn(&choice, 400, 16, 90);
    assert_int_equal(size_limit(&choice, 64), 8);
    learn(&choice, 40, 8, 100); /* no better than it was */
    assert_int_equal(size_limit(&choice, 64), INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_limited_before_it_is_measured),
        cmocka_unit_test(smaller_sizes_are_tried_while_enough_wait),
        cmocka_unit_test(the_cheapest_a_row_is_kept_to),
        cmocka_unit_test(a_model_that_gains_from_size_is_not_limited),
        cmocka_unit_test(a_run_that_lost_its_core_changes_little),
        cmocka_unit_test(what_was_not_run_for_long_is_tried_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
