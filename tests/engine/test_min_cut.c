/* The minimum cut that decides layouts and places. */
#include "engine/min_cut.h"
#include "support/unit.h"

static void the_cut_follows_the_cheaper_side(void **state)
{
    struct arena arena;
    struct min_cut cut;
    uint32_t a, b, c;

    (void)state;
    arena_init(&arena);
    assert_ok(min_cut_init(&cut, &arena, 8, 16));
    a = min_cut_thing(&cut);
    b = min_cut_thing(&cut);
    c = min_cut_thing(&cut);
    min_cut_cost(&cut, MIN_CUT_SIDE_0, a, MIN_CUT_NEVER); /* a must be on side 0 */
    min_cut_cost(&cut, c, MIN_CUT_SIDE_1, MIN_CUT_NEVER); /* c on side 1 */
    min_cut_cost(&cut, a, b, 5);
    min_cut_cost(&cut, b, c, 3);
    min_cut_solve(&cut);
    assert_false(min_cut_side(&cut, a));
    assert_false(min_cut_side(&cut, b)); /* cutting b–c is cheaper */
    assert_true(min_cut_side(&cut, c));
    arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_follows_the_cheaper_side),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
