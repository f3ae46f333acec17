#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "batch/pick.h"

static const struct pick_candidate plain = {.deadline_us = CLOCK_NEVER, .predicted_us = 1000};

static void the_higher_priority_goes_first(void **state)
{
    struct pick_candidate two[] = {plain, plain};

    (void)state;
    two[1].rank = -1;
    two[1].used_us = 1000000;
    assert_int_equal(pick_next(two, 2, 0), 1);
}

static void the_earliest_urgent_deadline_goes_first(void **state)
{
    struct pick_candidate three[] = {plain, plain, plain};

    (void)state;
    three[1].deadline_us = 12000;
    three[2].deadline_us = 9000;
    three[2].used_us = 500;
    assert_int_equal(pick_next(three, 3, 0), 2);
}

static void a_far_deadline_does_not_beat_fair_share(void **state)
{
    struct pick_candidate two[] = {plain, plain};

    (void)state;
    two[0].deadline_us = 60000000;
    two[0].used_us = 10;
    assert_int_equal(pick_next(two, 2, 0), 1);
}

static void short_deadlines_do_not_starve_others(void **state)
{
    struct pick_candidate two[] = {plain, plain};
    int64_t turns[2] = {0, 0};

    (void)state;
    for (int i = 0; i < 10000; i++) {
        size_t next;

        two[0].deadline_us = 5000; /* always urgent */
        next = pick_next(two, 2, 0);
        two[next].used_us += 1000;
        turns[next]++;
    }
    assert_true(turns[1] > 4000);
}

static void time_is_shared_by_what_was_used_not_by_turns(void **state)
{
    struct pick_candidate two[] = {plain, plain};

    (void)state;
    for (int i = 0; i < 1100; i++) {
        size_t next = pick_next(two, 2, 0);

        two[next].used_us += next == 0 ? 10000 : 1000;
    }
    assert_true(two[0].used_us - two[1].used_us <= 10000);
    assert_true(two[1].used_us - two[0].used_us <= 10000);
}

static void idleness_earns_no_credit(void **state)
{
    (void)state;
    assert_int_equal(pick_used_after_idle(0, 5000), 5000);
    assert_int_equal(pick_used_after_idle(9000, 5000), 9000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_higher_priority_goes_first),
        cmocka_unit_test(the_earliest_urgent_deadline_goes_first),
        cmocka_unit_test(a_far_deadline_does_not_beat_fair_share),
        cmocka_unit_test(short_deadlines_do_not_starve_others),
        cmocka_unit_test(time_is_shared_by_what_was_used_not_by_turns),
        cmocka_unit_test(idleness_earns_no_credit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
