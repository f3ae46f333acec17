/* Threads that are moved apart; this one is moved itself. */
#include <sched.h>

#include "base/place.h"
#include "support/unit.h"

static void a_thread_that_is_moved_may_run_where_it_might_before(void **state)
{
    cpu_set_t before, after, here;
    int cpu = place_now();

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    place_apart(-1, 1);
    place_apart(cpu, 1);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    CPU_ZERO(&here);
    CPU_SET((unsigned)cpu, &here);
    assert_int_equal(sched_setaffinity(0, sizeof(here), &here), 0);
    place_apart(cpu, 1); /* nowhere to go */
    assert_int_equal(place_now(), cpu);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_is_moved_may_run_where_it_might_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
