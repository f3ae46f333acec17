/* Levels and the watermarks between them, and what is given back at each. */
#include "govern/world.h"

static void below_the_marks_nothing_happens(void **state)
{
    struct world *w = *state;

    w->weights = 300 * MIB;
    w->in.cached_bytes = 449 * MIB;
    for (int i = 0; i < 100; i++) {
        busy_tick(w, TICK);
        assert_int_equal(w->out.level, LEVEL_NORMAL);
        assert_false(w->out.trim || w->out.pinned || w->out.level_changed);
    }
    assert_int_equal(w->governor.transitions_total, 0);
}

static void each_mark_enters_its_level_at_once(void **state)
{
    static const struct {
        uint64_t reserved;
        enum govern_level level;
    } marks[] = {{749, LEVEL_NORMAL},  {750, LEVEL_TRIM},    {879, LEVEL_TRIM},
                 {880, LEVEL_RECLAIM}, {949, LEVEL_RECLAIM}, {950, LEVEL_EVICT}};

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        struct world *w;

        setup(state);
        w = *state;
        w->weights = marks[i].reserved * MIB;
        busy_tick(w, TICK);
        assert_int_equal(w->out.level, marks[i].level);
        assert_int_equal(w->out.level_changed, marks[i].level != LEVEL_NORMAL);
    }
}

static void the_high_mark_gives_all_cached_memory_back(void **state)
{
    struct world *w = *state;

    w->weights = 100 * MIB;
    w->in.cached_bytes = 790 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_RECLAIM);
    assert_true(w->out.trim);
    assert_false(w->out.is_decay);
    assert_int_equal(w->in.cached_bytes, 0);
}

static void the_low_mark_gives_back_slice_by_slice_to_its_target(void **state)
{
    struct world *w = *state;
    uint64_t before;

    w->weights = 300 * MIB;
    w->in.cached_bytes = before = 500 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_TRIM);
    assert_true(w->out.trim);
    assert_true(before - w->in.cached_bytes <= 125 * MIB);
    for (int i = 0; i < 10; i++)
        busy_tick(w, TICK);
    assert_true(w->weights + w->in.cached_bytes < 680 * MIB);
    assert_true(w->weights + w->in.cached_bytes >= 669 * MIB);
}

static void levels_are_left_one_step_a_dwell(void **state)
{
    struct world *w = *state;
    enum govern_level level = LEVEL_EVICT;
    int64_t since;

    w->weights = 100 * MIB;
    w->in.cached_bytes = 880 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_EVICT);
    assert_int_equal(w->in.cached_bytes, 0);
    since = w->in.now_us;
    while (level != LEVEL_NORMAL) {
        busy_tick(w, TICK);
        assert_true(w->in.now_us - since <= standard.dwell_us + TICK);
        if (!w->out.level_changed)
            continue;
        assert_int_equal(w->out.level, level - 1);
        assert_true(w->in.now_us - since >= standard.dwell_us);
        level = w->out.level;
        since = w->in.now_us;
    }
    assert_int_equal(w->governor.transitions_total, 4);
}

static void between_exit_and_entry_the_level_stays(void **state)
{
    struct world *w = *state;

    w->weights = 900 * MIB;
    busy_tick(w, TICK);
    w->weights = 810 * MIB; /* under 0.88, over 0.80 */
    for (int i = 0; i < 100; i++) {
        busy_tick(w, TICK);
        assert_int_equal(w->out.level, LEVEL_RECLAIM);
    }
    w->weights = 799 * MIB;
    for (int i = 0; i < 12; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_TRIM);
}

static void a_sawtooth_at_the_mark_changes_the_level_once(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < 1000; i++) {
        w->weights = (i % 8 < 4 ? 760 : 640) * MIB; /* its period is below the dwell */
        busy_tick(w, TICK);
    }
    assert_int_equal(w->governor.transitions_total, 1);
}

/* Downward steps are a dwell apart whatever the load does; upward ones cannot outnumber them. */
static void any_sawtooth_changes_the_level_at_most_once_a_dwell_downwards(void **state)
{
    for (int period = 2; period < 80; period += 3) {
        struct world *w;
        int64_t down_us = INT64_MIN / 2;
        uint64_t downs = 0;

        setup(state);
        w = *state;
        for (int i = 0; i < 2000; i++) {
            enum govern_level before = w->governor.level;

            w->weights = (500 + 480 * (uint64_t)(i % period) / (uint64_t)period) * MIB;
            busy_tick(w, TICK);
            if (w->out.level >= before)
                continue;
            assert_int_equal(w->out.level, before - 1);
            assert_true(w->in.now_us - down_us >= standard.dwell_us);
            down_us = w->in.now_us;
            downs++;
        }
        assert_true(w->governor.transitions_total <= 2 * downs + 3);
    }
}

static void weights_above_a_mark_are_pinned_and_make_no_trim_loop(void **state)
{
    struct world *w = *state;

    w->weights = 900 * MIB;
    w->in.cached_bytes = MIB - 1;
    for (int i = 0; i < 100; i++) {
        busy_tick(w, TICK);
        assert_int_equal(w->out.level, LEVEL_RECLAIM);
        assert_true(w->out.pinned);
        assert_false(w->out.trim);
    }
}

static void the_floor_is_never_trimmed(void **state)
{
    struct world *w = *state;
    struct govern_config config = standard;

    config.floor_bytes = 64 * MIB;
    governor_configure(&w->governor, &config);
    w->weights = 200 * MIB;
    w->in.cached_bytes = 780 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_EVICT);
    assert_int_equal(w->in.cached_bytes, 64 * MIB);
    for (int i = 0; i < 200; i++)
        tick(w, TICK);
    assert_int_equal(w->in.cached_bytes, 64 * MIB);
    assert_int_equal(governor_keep_bytes(&w->governor, false), 64 * MIB);
    assert_int_equal(governor_keep_bytes(&w->governor, true), 0);
}

static void a_trim_that_was_felt_is_not_repeated_for_a_minute(void **state)
{
    struct world *w = *state;
    int trims = 0;

    w->weights = 400 * MIB;
    for (int i = 0; i < 50 * 5; i++) { /* a batch of 500 MiB a tick, for 50 s */
        w->in.cached_bytes = 0;
        w->used = 500 * MIB;
        busy_tick(w, TICK / 2);
        w->used = 0;
        w->in.cached_bytes = 500 * MIB;
        busy_tick(w, TICK / 2);
        trims += w->out.trim;
    }
    assert_true(trims <= 1);
    assert_int_equal(w->governor.felt_bytes, 500 * MIB);
    for (int i = 0; i < 61; i++)
        tick(w, SECOND);
    assert_int_equal(w->governor.felt_bytes, 0);
}

static void what_was_felt_is_kept_only_while_batches_run(void **state)
{
    struct world *w = *state;

    w->weights = 400 * MIB;
    for (int i = 0; i < 10; i++) {
        w->in.cached_bytes = 0;
        w->used = 500 * MIB;
        busy_tick(w, TICK / 2);
        w->used = 0;
        w->in.cached_bytes = 500 * MIB;
        busy_tick(w, TICK / 2);
    }
    assert_int_equal(w->in.cached_bytes, 500 * MIB);
    tick(w, standard.dwell_us);
    assert_int_equal(w->in.cached_bytes, 0);
}

static void a_larger_batch_than_before_a_trim_is_no_refault(void **state)
{
    struct world *w = *state;

    w->weights = 860 * MIB;
    w->in.cached_bytes = 20 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->in.cached_bytes, 0);
    w->used = 120 * MIB;
    busy_tick(w, TICK);
    assert_true(w->governor.felt_bytes <= 20 * MIB);
}

static void memory_in_use_by_batches_is_not_pinned(void **state)
{
    struct world *w = *state;

    w->weights = 100 * MIB;
    w->used = 800 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_RECLAIM);
    assert_false(w->out.pinned);
}

static void a_trim_that_nobody_felt_may_come_again(void **state)
{
    struct world *w = *state;

    w->weights = 100 * MIB;
    w->in.cached_bytes = 800 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->in.cached_bytes, 0);
    w->used = 20 * MIB; /* small batches only from now on */
    busy_tick(w, TICK);
    assert_int_equal(w->governor.felt_bytes, 0);
}

static void giving_back_gets_more_time_the_longer_it_takes(void **state)
{
    struct world *w = *state;
    double share = 0;

    w->weights = 400 * MIB;
    for (int i = 0; i < 40; i++) {
        w->in.cached_bytes = 500 * MIB; /* whoever gives back is slow */
        busy_tick(w, TICK);
        w->held = 0;
        assert_int_equal(w->out.level, LEVEL_RECLAIM);
        assert_true(w->out.share >= share);
        share = w->out.share;
        if (i == 0)
            assert_true(share < 0.051);
    }
    assert_true(share > 0.99);
    w->weights = 100 * MIB;
    w->in.free_known = true;
    w->in.free_bytes = 49 * MIB;
    w->in.cached_bytes = 500 * MIB;
    busy_tick(w, TICK);
    assert_true(w->out.share == 1);
}

static void new_marks_hold_from_the_next_tick(void **state)
{
    struct world *w = *state;
    struct govern_config config = standard;

    w->weights = 100 * MIB;
    w->in.cached_bytes = 400 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_NORMAL);
    config.low = 0.2;
    config.high = 0.4;
    config.critical = 0.9;
    governor_configure(&w->governor, &config);
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_RECLAIM);
    assert_int_equal(w->in.cached_bytes, 0);
}

static void a_budget_of_nothing_is_full_with_the_first_byte(void **state)
{
    struct world *w = *state;
    struct govern_config config = standard;

    config.budget_bytes = 0;
    governor_configure(&w->governor, &config);
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_NORMAL);
    w->weights = 1;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_EVICT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(below_the_marks_nothing_happens),
        TEST(each_mark_enters_its_level_at_once),
        TEST(the_high_mark_gives_all_cached_memory_back),
        TEST(the_low_mark_gives_back_slice_by_slice_to_its_target),
        TEST(levels_are_left_one_step_a_dwell),
        TEST(between_exit_and_entry_the_level_stays),
        TEST(a_sawtooth_at_the_mark_changes_the_level_once),
        TEST(any_sawtooth_changes_the_level_at_most_once_a_dwell_downwards),
        TEST(weights_above_a_mark_are_pinned_and_make_no_trim_loop),
        TEST(the_floor_is_never_trimmed),
        TEST(a_trim_that_was_felt_is_not_repeated_for_a_minute),
        TEST(what_was_felt_is_kept_only_while_batches_run),
        TEST(a_larger_batch_than_before_a_trim_is_no_refault),
        TEST(memory_in_use_by_batches_is_not_pinned),
        TEST(a_trim_that_nobody_felt_may_come_again),
        TEST(giving_back_gets_more_time_the_longer_it_takes),
        TEST(new_marks_hold_from_the_next_tick),
        TEST(a_budget_of_nothing_is_full_with_the_first_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
