/* Models that come back: into what room, in which order, while requests and evictions go on.
 * batcher_create() and repository_create() start threads. */
#include "models/bench_resident.h"

enum { ASKERS = 4, ROUNDS = 40 };

/* ---- room ---- */

static void a_model_does_not_come_back_without_room_for_its_first_batch(void **state)
{
    struct ask ask = {.in = {floats(asked, 1, WIDTH)}};
    uint64_t held, taken;

    (void)state;
    write_two_steps("m");
    load_everything();
    assert_ok(ask_model(&ask, "m"));
    ask_end(&ask);
    held = weight_bytes();
    assert_ok(put_to_sleep("m", SLEEP_ALL));
    taken = BUDGET - (held + 4095) / 4096 * 4096;
    assert_ok(ledger_reserve(bench.ledger, taken, NULL));
    assert_int_equal(wake("m"), STATUS_NO_MEMORY);
    assert_non_null(strstr(bench.error.text, "for its first batch"));
    assert_int_equal(residency_of("m").reload_attempts, 0);
    assert_int_equal(residency_of("m").failed_reloads, 1);
    ledger_unreserve(bench.ledger, taken);
    assert_ok(wake("m"));
    assert_int_equal(residency_of("m").where, RESIDENCY_DEVICE);
}

/* Nobody else is there whose leaving its probes could wait for. */
static void a_load_that_is_itself_in_the_way_of_its_probes_does_not_wait(void **state)
{
    struct batch_pressure pressure;
    uint64_t held;

    (void)state;
    write_two_steps("m");
    load_everything();
    held = weight_bytes();
    assert_ok(unload("m"));
    ledger_set_budget(bench.ledger, held);
    assert_ok(load("m", NULL));
    batcher_read_pressure(bench.batcher, clock_now_us(), &pressure);
    assert_int_equal(pressure.waits_total, 0);
    assert_true(pressure.never_total > 0);
}

/* The long waker is kept from making the large model's plan. */
static void a_slow_way_back_does_not_hold_up_a_short_one(void **state)
{
    struct model *large;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    write_multiplier("small", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("", SLEEP_ALL));
    large = find_m();
    pthread_mutex_lock(&bench.repository->lock);
    large->resident.reload_us = 1000000;
    pthread_mutex_unlock(&bench.repository->lock);
    pthread_mutex_lock(&large->network->compile_lock);
    repository_wake(bench.repository, "m", on_moved, NULL);
    while (!residency_of("m").is_moving)
        (void)sched_yield();
    assert_answers("small");
    pthread_mutex_unlock(&large->network->compile_lock);
    assert_ok(await_command());
    assert_answers("m");
    model_unref(large);
}

/* ---- level evict: no more than so much may be held ---- */

static _Atomic uint64_t may_hold;

static uint64_t read_may_hold(void *arg)
{
    (void)arg;
    return atomic_load(&may_hold);
}

static void at_level_evict_comes_what_could_stay_and_idle_models_leave_for_it(void **state)
{
    uint64_t held;

    (void)state;
    write_multiplier("a", "max_batch_size: 8");
    write_multiplier("b", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("a", SLEEP_ALL));
    held = weight_bytes();
    repository_set_gate(bench.repository, read_may_hold, NULL);
    atomic_store(&may_hold, held);
    assert_ok(wake("a"));
    assert_int_equal(residency_of("b").where, RESIDENCY_DROPPED);
    write_multiplier("c", "max_batch_size: 8");
    assert_ok(load("c", NULL));
    assert_int_equal(residency_of("a").where, RESIDENCY_DROPPED);
    assert_ok(load("c", NULL)); /* in the place of itself */
    atomic_store(&may_hold, UINT64_MAX);
    assert_answers("a");
    assert_answers("c");
}

static uint64_t batches_admitted(void)
{
    struct ledger_stats stats;

    ledger_read(bench.ledger, &stats);
    return stats.reservations_ok;
}

static void at_level_evict_what_could_not_stay_is_refused_and_told_who_is_there(void **state)
{
    uint64_t seen;

    (void)state;
    write_multiplier("a", "max_batch_size: 8");
    write_multiplier("p", "parameters { key: 'sluice.pin' value { string_value: 'true' } }");
    load_everything();
    assert_ok(put_to_sleep("a", SLEEP_ALL));
    atomic_store(&may_hold, weight_bytes());
    repository_set_gate(bench.repository, read_may_hold, NULL);
    assert_int_equal(wake("a"), STATUS_NO_MEMORY);
    assert_non_null(strstr(bench.error.text, "memory is at level evict: for model 'a' 5120 bytes"));
    assert_non_null(strstr(bench.error.text, "'p' 5120 bytes (pinned)"));
    write_multiplier("b", "max_batch_size: 8");
    seen = batches_admitted();
    assert_int_equal(load("b", NULL), STATUS_NO_MEMORY);
    assert_non_null(strstr(bench.error.text, "'p' 5120 bytes (pinned)"));
    assert_int_equal(weight_bytes(), 5120);
    assert_int_equal(batches_admitted(), seen); /* neither packed nor tried */
    assert_answers("a");                        /* a request is not asked */
    assert_ok(load("p", NULL));                 /* a pinned one stays by its pin */
}

/* ---- many at once ---- */

static atomic_bool over;

static void *ask_often(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++)
        assert_answers(i % 2 == 0 ? "a" : "b");
    return NULL;
}

static void *evict_often(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
        (void)repository_evict(bench.repository, UINT64_MAX);
        (void)residency_of("a");
        (void)room_evict(bench.repository, 1, NULL);
        (void)sched_yield();
    }
    return NULL;
}

static void requests_and_evictions_meet_without_harm(void **state)
{
    pthread_t askers[ASKERS], evicter;

    (void)state;
    write_multiplier("a", "max_batch_size: 8 dynamic_batching { }");
    write_multiplier("b", "parameters { key: 'sluice.keep_alive' value { string_value: '0' } }");
    bench.config.host_cache_bytes = 16 << 10;
    load_everything();
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&evicter, NULL, evict_often, NULL), 0);
    for (size_t i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&askers[i], NULL, ask_often, NULL), 0);
    for (size_t i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_join(askers[i], NULL), 0);
    atomic_store(&over, true);
    assert_int_equal(pthread_join(evicter, NULL), 0);
    assert_true(residency_of("a").reloads > 0);
    assert_int_equal(residency_of("a").failed_reloads, 0);
    assert_answers("a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_model_does_not_come_back_without_room_for_its_first_batch),
        TEST(a_load_that_is_itself_in_the_way_of_its_probes_does_not_wait),
        TEST(a_slow_way_back_does_not_hold_up_a_short_one),
        TEST(at_level_evict_comes_what_could_stay_and_idle_models_leave_for_it),
        TEST(at_level_evict_what_could_not_stay_is_refused_and_told_who_is_there),
        TEST(requests_and_evictions_meet_without_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
