#include "lifecycle/idle_exit.h"

#include "base/clock.h"
#include "support/unit.h"

#define SECOND ((int64_t)1000000)

static void it_is_due_when_nobody_came_for_so_long(void **state)
{
    struct idle_exit idle = {0};
    struct server_use use = {0};

    (void)state;
    assert_false(idle_exit_is_due(&idle, &use, 3 * SECOND, 10 * SECOND));
    assert_false(idle_exit_is_due(&idle, &use, 3 * SECOND, 12 * SECOND));
    assert_true(idle_exit_is_due(&idle, &use, 3 * SECOND, 13 * SECOND));
}

static void whoever_is_there_or_was_since_the_last_look_begins_it_anew(void **state)
{
    static const struct server_use uses[] = {
        {.connections = 1}, {.busy = 1}, {.accepted_total = 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
        struct server_use after = {.accepted_total = uses[i].accepted_total};
        struct idle_exit idle = {0};

        assert_false(idle_exit_is_due(&idle, &(struct server_use){0}, 3 * SECOND, 10 * SECOND));
        assert_false(idle_exit_is_due(&idle, &uses[i], 3 * SECOND, 13 * SECOND));
        assert_false(idle_exit_is_due(&idle, &after, 3 * SECOND, 14 * SECOND));
        assert_false(idle_exit_is_due(&idle, &after, 3 * SECOND, 16 * SECOND));
        assert_true(idle_exit_is_due(&idle, &after, 3 * SECOND, 17 * SECOND));
    }
}

static void zero_and_infinity_mean_never(void **state)
{
    struct idle_exit idle = {0};
    struct server_use use = {0};

    (void)state;
    (void)idle_exit_is_due(&idle, &use, 0, SECOND);
    assert_false(idle_exit_is_due(&idle, &use, 0, 1000000 * SECOND));
    assert_false(idle_exit_is_due(&idle, &use, CLOCK_NEVER, 1000000 * SECOND));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_due_when_nobody_came_for_so_long),
        cmocka_unit_test(whoever_is_there_or_was_since_the_last_look_begins_it_anew),
        cmocka_unit_test(zero_and_infinity_mean_never),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
