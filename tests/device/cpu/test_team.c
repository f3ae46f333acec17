/* When the threads of a lane are woken.  How long anything takes is not looked at. */
#include <stdlib.h>

#include "device/cpu/team.h"
#include "support/unit.h"

enum { MEMBERS = 3, SHORT = 10000, MIDDLE = 60000, LONG = 200000 };

/* The first test: a thread that has had no region yet has no members that wait awake. */
static void middling_work_wakes_nobody(void **state)
{
    (void)state;
    assert_int_equal(team_size(MEMBERS, MIDDLE), 1);
    assert_int_equal(team_most(MEMBERS, MIDDLE), MEMBERS); /* what a plan reserves scratch for */
}

/* A loop, since a pause of the test itself (another program's time slice) begins anew. */
static void middling_work_that_goes_on_wakes_them(void **state)
{
    unsigned members = 1;

    (void)state;
    for (int i = 0; i < 10000 && members == 1; i++)
        members = team_size(MEMBERS, MIDDLE);
    assert_int_equal(members, MEMBERS);
    assert_int_equal(team_size(MEMBERS, MIDDLE), 1); /* it was asked only: nobody woke */
}

static void short_work_is_never_shared_and_long_work_always(void **state)
{
    (void)state;
    team_woke();
    assert_int_equal(team_size(MEMBERS, SHORT), 1);
    assert_int_equal(team_size(MEMBERS, LONG), MEMBERS);
    assert_int_equal(team_size(1, LONG), 1);
}

static void mark(void *arg, unsigned member, unsigned members)
{
    bool *seen = arg;

    assert_true(member < members && members <= MEMBERS);
    seen[member] = true;
}

static void every_member_has_its_turn(void **state)
{
    bool seen[MEMBERS] = {false};

    (void)state;
    team_run(1, mark, seen);
    assert_true(seen[0] && !seen[1] && !seen[2]);
    if (!team_open())
        return;
    team_run(MEMBERS, mark, seen);
    assert_true(seen[1] && seen[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(middling_work_wakes_nobody),
        cmocka_unit_test(middling_work_that_goes_on_wakes_them),
        cmocka_unit_test(short_work_is_never_shared_and_long_work_always),
        cmocka_unit_test(every_member_has_its_turn),
    };

    (void)unsetenv("GOMP_SPINCOUNT"); /* ours is to be in force */
    (void)unsetenv("OMP_WAIT_POLICY");
    (void)team_open();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
