/* Others want the memory: little is free, the kernel stalls, batches wait or are refused. */
#include "govern/world.h"

static void little_free_memory_reclaims_although_usage_is_low(void **state)
{
    struct world *w = *state;

    w->in.free_known = true;
    w->in.free_bytes = 99 * MIB;
    w->in.cached_bytes = 50 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_RECLAIM);
    assert_int_equal(w->in.cached_bytes, 0);
    w->in.free_bytes = 49 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_EVICT);
    w->in.free_bytes = 110 * MIB; /* EVICT is left above the headroom, RECLAIM above 1.25 of it */
    for (int i = 0; i < 30; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_RECLAIM);
    w->in.free_bytes = 126 * MIB;
    for (int i = 0; i < 30; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_NORMAL);
}

static void unknown_free_memory_is_no_pressure(void **state)
{
    struct world *w = *state;

    w->in.free_known = false;
    w->in.free_bytes = 0;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_NORMAL);
}

static void a_refusal_rejects_until_it_is_over(void **state)
{
    struct world *w = *state;

    w->in.refused = 1;
    for (int i = 0; i < 50; i++) {
        busy_tick(w, TICK);
        assert_int_equal(w->out.level, LEVEL_REJECT);
    }
    w->in.refused = 0;
    for (int i = 0; i < 12; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_EVICT);
    for (int i = 0; i < 40; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_NORMAL);
}

static void batch_caps_halve_once_a_dwell_under_evict_and_grow_every_quiet_second(void **state)
{
    struct world *w = *state;
    int halved = 0, raised = 0;

    w->weights = 500 * MIB;
    w->used = 470 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.caps, CAPS_HALVE);
    w->in.capped = true;
    for (int i = 0; i < 100; i++) { /* 20 s */
        busy_tick(w, TICK);
        halved += w->out.caps == CAPS_HALVE;
        assert_int_not_equal(w->out.caps, CAPS_RAISE);
    }
    assert_int_equal(halved, 10);
    w->used = 100 * MIB;
    for (int i = 0; i < 100; i++) {
        busy_tick(w, TICK);
        raised += w->out.caps == CAPS_RAISE;
        assert_int_not_equal(w->out.caps, CAPS_HALVE);
    }
    assert_in_range(raised, 18, 20);
    w->in.capped = false;
    busy_tick(w, SECOND);
    assert_int_equal(w->out.caps, CAPS_STAY);
}

static void batch_caps_stay_when_weights_alone_are_critical(void **state)
{
    struct world *w = *state;

    w->weights = 960 * MIB;
    for (int i = 0; i < 50; i++) {
        busy_tick(w, TICK);
        assert_int_equal(w->out.caps, CAPS_STAY);
    }
    assert_int_equal(w->out.level, LEVEL_EVICT);
}

static void stalls_evict_and_are_left_when_they_are_rare(void **state)
{
    struct world *w = *state;

    w->used = 300 * MIB;
    for (int i = 0; i < 10; i++) { /* a tenth of the time is not yet too much */
        w->in.stall_us = TICK / 10;
        busy_tick(w, TICK);
        assert_int_equal(w->out.level, LEVEL_NORMAL);
    }
    w->in.stall_us = 101000;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_EVICT);
    assert_int_equal(w->out.caps, CAPS_HALVE);
    assert_int_not_equal(w->out.may_hold_bytes, UINT64_MAX);
    for (int i = 0; i < 50; i++) { /* over the exit mark: it stays */
        w->in.stall_us = TICK / 40;
        busy_tick(w, TICK);
    }
    assert_int_equal(w->out.level, LEVEL_EVICT);
    w->in.stall_us = 0;
    for (int i = 0; i < 20; i++)
        busy_tick(w, TICK);
    assert_true(w->out.level < LEVEL_EVICT);
    assert_int_equal(w->out.may_hold_bytes, UINT64_MAX);
}

static void what_a_waiting_batch_lacks_is_asked_of_idle_models(void **state)
{
    struct world *w = *state;

    w->weights = 500 * MIB;
    w->in.wanted_bytes = 70 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_NORMAL); /* no idle model: nothing to gain */
    w->in.evictable_bytes = 200 * MIB;
    w->used = 10 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_NORMAL); /* what runs will make room */
    w->used = 0;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_EVICT);
    assert_int_equal(w->out.evict_bytes, 70 * MIB);
    w->in.wanted_bytes = 0;
    for (int i = 0; i < 50; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_NORMAL);
    assert_int_equal(w->out.evict_bytes, 0);
}

static void reclaim_that_does_not_reach_its_mark_in_a_second_evicts_idle_models(void **state)
{
    struct world *w = *state;

    w->weights = 900 * MIB;
    w->in.evictable_bytes = 300 * MIB;
    for (int i = 0; i < 5; i++) {
        busy_tick(w, TICK);
        assert_int_equal(w->out.level, LEVEL_RECLAIM);
        assert_int_equal(w->out.evict_bytes, 0);
    }
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_EVICT);
    assert_int_equal(w->out.evict_bytes, 20 * MIB);
    assert_false(w->out.pinned);
    assert_int_equal(w->out.caps, CAPS_STAY);
}

static void reclaim_stays_when_evict_would_have_nothing(void **state)
{
    struct world *w = *state;

    w->weights = 500 * MIB;
    w->used = 400 * MIB; /* in use and within the budget: no harm to anyone */
    for (int i = 0; i < 50; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_RECLAIM);
}

static void pressure_from_outside_takes_what_keep_holds_after_a_second(void **state)
{
    struct world *w = *state;

    w->weights = 300 * MIB;
    for (int i = 0; i < 60 * 5; i++) { /* the mean of what runs becomes KEEP */
        w->used = 200 * MIB;
        busy_tick(w, TICK);
    }
    w->used = 0;
    w->in.cached_bytes = 200 * MIB;
    w->in.free_known = true;
    w->in.free_bytes = 90 * MIB;
    for (int i = 0; i < 5; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_RECLAIM);
    assert_in_range(w->in.cached_bytes, 100 * MIB, 150 * MIB);
    for (int i = 0; i < 3; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_EVICT);
    assert_int_equal(w->in.cached_bytes, 0);
}

static void the_systems_word_reclaims(void **state)
{
    struct world *w = *state;

    w->in.cached_bytes = 100 * MIB;
    w->in.system_presses = true;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_RECLAIM);
    assert_int_equal(w->in.cached_bytes, 0);
    w->in.system_presses = false;
    for (int i = 0; i < 25; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_NORMAL);
}

static void reject_ends_a_second_after_the_last_refusal_once_one_was_admitted(void **state)
{
    struct world *w = *state;

    w->in.refused = 1;
    w->in.wanted_bytes = 10 * MIB;
    busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_REJECT);
    w->in.refused = 0;
    for (int i = 0; i < 10; i++) /* others still wait and none was admitted */
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_REJECT);
    w->in.admitted = 1;
    busy_tick(w, TICK);
    w->in.admitted = 0;
    for (int i = 0; i < 5; i++)
        busy_tick(w, TICK);
    assert_int_equal(w->out.level, LEVEL_EVICT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(little_free_memory_reclaims_although_usage_is_low),
        TEST(unknown_free_memory_is_no_pressure),
        TEST(a_refusal_rejects_until_it_is_over),
        TEST(batch_caps_halve_once_a_dwell_under_evict_and_grow_every_quiet_second),
        TEST(batch_caps_stay_when_weights_alone_are_critical),
        TEST(stalls_evict_and_are_left_when_they_are_rare),
        TEST(what_a_waiting_batch_lacks_is_asked_of_idle_models),
        TEST(reclaim_that_does_not_reach_its_mark_in_a_second_evicts_idle_models),
        TEST(reclaim_stays_when_evict_would_have_nothing),
        TEST(pressure_from_outside_takes_what_keep_holds_after_a_second),
        TEST(the_systems_word_reclaims),
        TEST(reject_ends_a_second_after_the_last_refusal_once_one_was_admitted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
