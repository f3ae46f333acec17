/* Time and memory are driven by hand: `world` is what a daemon would measure. */
#include "govern/governor.h"

#include "base/clock.h"
#include "support/unit.h"

#define MIB    ((uint64_t)1 << 20)
#define SECOND ((int64_t)1000000)
#define TICK   (SECOND / 5)

struct world {
    struct governor governor;
    struct govern_input in;
    struct govern_verdict out;
    uint64_t weights; /* reserved = weights + used + cached */
    uint64_t used;
    uint64_t held; /* by lanes after the last tick */
};

static const struct govern_config standard = {
    .budget_bytes = 1000 * MIB,
    .headroom_bytes = 100 * MIB,
    .low = 0.75,
    .high = 0.88,
    .critical = 0.95,
    .dwell_us = 2 * SECOND,
    .idle_after_us = 5 * SECOND,
    .idle_decay_us = 10 * SECOND,
    .trim_minimum_bytes = 1 * MIB,
};

static int setup(void **state)
{
    static struct world w;

    w = (struct world){.in = {.now_us = 1000 * SECOND, .last_batch_us = 1000 * SECOND}};
    governor_init(&w.governor, &standard, w.in.now_us);
    *state = &w;
    return 0;
}

/* One tick; the world does what the verdict says. */
static void tick(struct world *w, int64_t after_us)
{
    w->in.now_us += after_us;
    w->in.planned_bytes = w->used;
    w->in.reserved_bytes = w->weights + w->used + w->in.cached_bytes;
    w->in.regrown_bytes =
        w->used + w->in.cached_bytes > w->held ? w->used + w->in.cached_bytes - w->held : 0;
    governor_tick(&w->governor, &w->in, &w->out);
    if (w->out.trim) {
        assert_true(w->out.keep_bytes < w->in.cached_bytes);
        assert_true(w->out.share > 0 && w->out.share <= 1);
        w->in.cached_bytes = w->out.keep_bytes;
    }
    w->held = w->used + w->in.cached_bytes;
    assert_true(w->out.next_tick_us > w->in.now_us);
    assert_true(w->out.next_tick_us <= w->in.now_us + SECOND);
}

static void busy_tick(struct world *w, int64_t after_us)
{
    w->in.last_batch_us = w->in.now_us + after_us;
    tick(w, after_us);
}

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
        TEST(little_free_memory_reclaims_although_usage_is_low),
        TEST(unknown_free_memory_is_no_pressure),
        TEST(a_refusal_rejects_until_it_is_over),
        TEST(batch_caps_halve_once_a_dwell_under_evict_and_grow_every_quiet_second),
        TEST(batch_caps_stay_when_weights_alone_are_critical),
        TEST(idle_memory_decays_to_nothing_in_twenty_steps),
        TEST(a_batch_ends_the_decay_and_the_next_one_starts_anew),
        TEST(stalls_evict_and_are_left_when_they_are_rare),
        TEST(what_a_waiting_batch_lacks_is_asked_of_idle_models),
        TEST(reclaim_that_does_not_reach_its_mark_in_a_second_evicts_idle_models),
        TEST(reclaim_stays_when_evict_would_have_nothing),
        TEST(pressure_from_outside_takes_what_keep_holds_after_a_second),
        TEST(the_mean_of_what_runs_is_kept),
        TEST(one_batch_between_ticks_far_apart_is_no_load),
        TEST(the_systems_word_reclaims),
        TEST(giving_back_gets_more_time_the_longer_it_takes),
        TEST(reject_ends_a_second_after_the_last_refusal_once_one_was_admitted),
        TEST(a_decay_that_was_felt_takes_twice_as_long_next_time),
        TEST(the_steps_of_two_daemons_do_not_fall_together),
        TEST(decay_can_be_turned_off_or_made_instant),
        TEST(new_marks_hold_from_the_next_tick),
        TEST(a_budget_of_nothing_is_full_with_the_first_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
