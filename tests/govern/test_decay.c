/* Memory that nobody uses goes back step by step. */
#include "govern/world.h"

static void idle_memory_decays_to_nothing_in_twenty_steps(void **state)
{
    struct world *w = *state;
    uint64_t before;
    int steps = 0;

    w->weights = 100 * MIB;
    w->in.cached_bytes = 400 * MIB;
    busy_tick(w, TICK);
    before = w->in.cached_bytes;
    while (w->in.now_us - w->in.last_batch_us < 17 * SECOND) {
        tick(w, w->out.next_tick_us - w->in.now_us);
        if (w->in.now_us - w->in.last_batch_us < 5 * SECOND)
            assert_false(w->out.trim);
        if (!w->out.trim)
            continue;
        assert_true(w->out.is_decay);
        assert_true(before - w->in.cached_bytes <= 40 * MIB); /* no step over a tenth */
        before = w->in.cached_bytes;
        steps++;
    }
    assert_int_equal(steps, 20);
    assert_int_equal(w->in.cached_bytes, 0);
    assert_int_equal(w->governor.transitions_total, 0);
}

static void a_batch_ends_the_decay_and_the_next_one_starts_anew(void **state)
{
    struct world *w = *state;

    w->in.cached_bytes = 400 * MIB;
    tick(w, 5 * SECOND);
    tick(w, 5 * SECOND + TICK); /* half of the time; a step is up to half a step late */
    tick(w, TICK);
    assert_true(w->in.cached_bytes <= 200 * MIB);
    w->in.cached_bytes = 400 * MIB;
    busy_tick(w, TICK);
    assert_false(w->out.trim);
    tick(w, 4 * SECOND);
    assert_false(w->out.trim);
    tick(w, SECOND);
    tick(w, SECOND);
    assert_true(w->in.cached_bytes > 390 * MIB);
}

static void a_decay_that_was_felt_takes_twice_as_long_next_time(void **state)
{
    struct world *w = *state;
    int64_t idle_us;

    w->in.cached_bytes = 400 * MIB;
    busy_tick(w, TICK);
    for (int round = 0; round < 2; round++) {
        idle_us = w->in.now_us;
        while (w->in.cached_bytes > 0)
            tick(w, w->out.next_tick_us - w->in.now_us);
        assert_in_range(w->in.now_us - idle_us, (15 + 10 * round) * SECOND - SECOND,
                        (15 + 10 * round) * SECOND + SECOND);
        w->used = 400 * MIB;
        busy_tick(w, SECOND);
        w->used = 0;
        w->in.cached_bytes = 400 * MIB;
        busy_tick(w, TICK);
    }
    assert_int_equal(w->governor.decay_shift, 2);
    for (int i = 0; i < 3 * 61; i++) /* every minute without one takes half of it back */
        busy_tick(w, SECOND);
    assert_int_equal(w->governor.decay_shift, 0);
}

static void the_steps_of_two_daemons_do_not_fall_together(void **state)
{
    struct governor other;
    struct world *w = *state;
    int64_t from_us, due[2] = {0, 0};

    w->in.cached_bytes = 400 * MIB;
    governor_init(&other, &standard, w->in.now_us + 1);
    from_us = w->in.last_batch_us + 5 * SECOND;
    w->in.now_us = from_us;
    governor_tick(&w->governor, &w->in, &w->out);
    due[0] = w->out.next_tick_us;
    governor_tick(&other, &w->in, &w->out);
    due[1] = w->out.next_tick_us;
    assert_int_not_equal(due[0], due[1]);
}

static void decay_can_be_turned_off_or_made_instant(void **state)
{
    struct world *w = *state;
    struct govern_config config = standard;

    config.idle_after_us = 0;
    governor_configure(&w->governor, &config);
    w->in.cached_bytes = 400 * MIB;
    tick(w, 500 * SECOND);
    assert_false(w->out.trim);
    config.idle_after_us = SECOND;
    config.idle_decay_us = 0;
    governor_configure(&w->governor, &config);
    tick(w, SECOND);
    assert_int_equal(w->in.cached_bytes, 0);
}

static void the_mean_of_what_runs_is_kept(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < 600 * 5; i++) {
        w->used = 200 * MIB;
        busy_tick(w, TICK);
    }
    w->used = 0;
    w->weights = 700 * MIB;
    w->in.cached_bytes = 200 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_RECLAIM);
    assert_in_range(w->in.cached_bytes, 198 * MIB, 200 * MIB);
}

static void one_batch_between_ticks_far_apart_is_no_load(void **state)
{
    struct world *w = *state;

    tick(w, SECOND);
    w->used = 200 * MIB;
    busy_tick(w, SECOND);
    w->used = 0;
    w->weights = 700 * MIB;
    w->in.cached_bytes = 200 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_RECLAIM);
    assert_int_equal(w->in.cached_bytes, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(idle_memory_decays_to_nothing_in_twenty_steps),
        TEST(a_batch_ends_the_decay_and_the_next_one_starts_anew),
        TEST(a_decay_that_was_felt_takes_twice_as_long_next_time),
        TEST(the_steps_of_two_daemons_do_not_fall_together),
        TEST(decay_can_be_turned_off_or_made_instant),
        TEST(the_mean_of_what_runs_is_kept),
        TEST(one_batch_between_ticks_far_apart_is_no_load),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
