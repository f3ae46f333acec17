/* The warden on a real batcher: levels from real reservations, memory that is really given back.
 * (batcher_create() starts threads.) */
#include "models/bench_repository.h"

#include "device/faulty_source.h"
#include "models/warden.h"
#include "support/fail_alloc.h"

static const struct govern_config standard = {.budget_bytes = BUDGET,
                                              .low = 0.5,
                                              .high = 0.75,
                                              .critical = 0.95,
                                              .dwell_us = 1000000,
                                              .trim_minimum_bytes = 1 << 20};
static struct warden *warden;

static int set_up(void **state)
{
    set_up_bench(state);
    assert_ok(
        warden_create(&standard, bench.device, bench.ledger, bench.pool, bench.batcher, &warden));
    return 0;
}

static int tear_down(void **state)
{
    warden_destroy(warden);
    return tear_down_bench(state);
}

/* y = x + 1 + 1 … on rows of 1 MiB, so that a batch leaves activations behind. */
static struct message wide(void)
{
    struct message graph = {0};

    put_text(&graph, GRAPH_NAME, "g");
    put_node(&graph, "Softmax", "x", "a");
    put_node(&graph, "Transpose", "a", "b");
    put_node(&graph, "Softmax", "b", "c");
    put_node(&graph, "Transpose", "c", "y");
    put_floats(&graph, GRAPH_INPUT, "x", BATCH, 1 << 18);
    put_floats(&graph, GRAPH_OUTPUT, "y", BATCH, 1 << 18);
    return graph;
}

static uint64_t cached_after_a_batch(void)
{
    int64_t rows = 8;
    float *x = calloc((size_t)rows << 18, sizeof(*x));
    struct message graph = wide();
    struct ask ask;

    assert_non_null(x);
    write_model("wide", 1, &graph);
    write_text("wide/config.pbtxt", "max_batch_size: 16");
    load_everything();
    ask = (struct ask){.in = {floats(x, rows, 1 << 18)}};
    assert_ok(ask_model(&ask, "wide"));
    ask_end(&ask);
    free(x);
    assert_int_equal(batcher_running(bench.batcher), 0);
    return batcher_cached_bytes(bench.batcher);
}

static enum status create_once(void *arg)
{
    struct warden *one = NULL;
    enum status status =
        warden_create(&standard, bench.device, bench.ledger, bench.pool, bench.batcher, &one);

    (void)arg;
    if (status == STATUS_OK)
        (void)warden_tick(one, clock_now_us());
    else
        assert_null(one);
    warden_destroy(one);
    return status;
}

static void creation_survives_every_failed_allocation(void **state)
{
    (void)state;
    assert_true(fail_each_alloc(create_once, NULL) >= 1);
}

static void empty_cache_gives_back_what_lanes_cache(void **state)
{
    uint64_t cached = cached_after_a_batch();
    struct empty_cache_answer answer;
    struct warden_view view;

    (void)state;
    assert_true(cached >= 8 << 20);
    assert_ok(warden_empty_cache(warden, true, &answer));
    assert_int_equal(answer.freed_bytes, cached);
    assert_int_equal(answer.kept_floor, 0);
    assert_int_equal(batcher_cached_bytes(bench.batcher), 0);
    warden_read(warden, &view);
    assert_int_equal(view.ledger.cached_bytes, 0);
    assert_int_equal(view.empty_cache_total, 1);
    assert_int_equal(view.empty_cache_by[2], 1);
    assert_int_equal(view.empty_cache_freed_bytes_total, cached);
}

static void a_crossed_mark_empties_the_cache(void **state)
{
    uint64_t cached = cached_after_a_batch();
    struct govern_config tight = standard;
    struct warden_view view;
    int64_t now_us = clock_now_us();

    (void)state;
    assert_true(warden_tick(warden, now_us) > now_us);
    warden_read(warden, &view);
    assert_int_equal(view.level, LEVEL_NORMAL);
    assert_int_equal(view.ledger.cached_bytes, cached);
    /* The marks move under what is reserved, as a reload would move them. */
    tight.low = 0.001;
    tight.high = 0.002;
    warden_configure(warden, &tight);
    (void)warden_tick(warden, now_us + 1000);
    warden_settle(warden);
    warden_read(warden, &view);
    assert_int_equal(view.level, LEVEL_RECLAIM);
    assert_true(view.ledger.cached_bytes < cached);
    assert_int_equal(view.empty_cache_by[0], 1);
    assert_int_equal(view.transitions_total, 1);
}

static void bodies_kept_for_reuse_go_at_a_mark_down_to_what_lanes_may_keep(void **state)
{
    struct govern_config tight = standard;
    struct host_pool_stats host;
    void *body;

    (void)state;
    (void)cached_after_a_batch();
    assert_ok(host_pool_take(bench.pool, 4 << 20, &body));
    host_pool_give(bench.pool, body, 4 << 20);
    host_pool_read(bench.pool, &host);
    assert_true(host.cached_bytes >= 4 << 20);
    tight.low = 0.001;
    tight.high = 0.002;
    tight.floor_bytes = 1 << 20;
    warden_configure(warden, &tight);
    (void)warden_tick(warden, clock_now_us());
    warden_settle(warden);
    host_pool_read(bench.pool, &host);
    assert_true(host.cached_bytes <= 1 << 20);
}

static uint64_t budget_now(void)
{
    struct warden_view view;

    warden_read(warden, &view);
    assert_int_equal(view.ledger.budget_bytes + view.held_bytes, standard.budget_bytes);
    assert_int_equal(view.ledger.held_bytes, view.held_bytes);
    return view.ledger.budget_bytes;
}

static void holds_add_up_and_each_ends_with_its_own_time(void **state)
{
    int64_t now_us = clock_now_us();

    (void)state;
    warden_hold(warden, 4096, now_us + 86400000000);
    warden_unhold(warden, 4096); /* nothing came: it holds nobody up */
    warden_hold(warden, 8192, now_us + 1000000);
    warden_hold(warden, 16384, now_us + 3000000);
    assert_int_equal(budget_now(), standard.budget_bytes - 24576);
    assert_true(warden_tick(warden, now_us) <= now_us + 1000000);
    assert_int_equal(budget_now(), standard.budget_bytes - 24576);
    (void)warden_tick(warden, now_us + 1000000);
    assert_int_equal(budget_now(), standard.budget_bytes - 16384);
    (void)warden_tick(warden, now_us + 3000000);
    assert_int_equal(budget_now(), standard.budget_bytes);
    for (int i = 0; i < 40; i++)
        warden_hold(warden, 64, now_us + i);
    assert_int_equal(budget_now(), standard.budget_bytes - UINT64_C(40) * 64);
    (void)warden_tick(warden, now_us + 4000000);
    assert_int_equal(budget_now(), standard.budget_bytes);
}

static void idleness_ends_with_nothing_cached(void **state)
{
    struct govern_config config = standard;
    struct warden_view view;
    int64_t now_us;

    (void)state;
    config.idle_after_us = 1000;
    config.idle_decay_us = 1000;
    (void)cached_after_a_batch();
    warden_configure(warden, &config);
    now_us = clock_now_us();
    for (int i = 0; i < 100; i++) {
        now_us = warden_tick(warden, now_us) + 100;
        warden_settle(warden);
    }
    warden_read(warden, &view);
    assert_int_equal(view.ledger.cached_bytes, 0);
    assert_true(view.empty_cache_by[1] > 0);
}

static void the_systems_word_is_heard_at_the_next_tick(void **state)
{
    int64_t now_us = clock_now_us();
    struct warden_view view;

    (void)state;
    (void)cached_after_a_batch();
    (void)warden_tick(warden, now_us);
    warden_system_presses(warden);
    (void)warden_tick(warden, now_us + 1000);
    warden_settle(warden);
    warden_read(warden, &view);
    assert_int_equal(view.level, LEVEL_RECLAIM);
    assert_int_equal(view.ledger.cached_bytes, 0);
    assert_int_equal(view.system_presses_total, 1);
}

static int set_up_small_device(void **state)
{
    setenv(FAULT_VARIABLE, "size=512M", 1);
    (void)set_up(state);
    unsetenv(FAULT_VARIABLE);
    return 0;
}

/* Time is the test's, memory is taken and given back by a hog: up at once, down by itself. */
static void a_hog_raises_the_level_and_its_leaving_lowers_it(void **state)
{
    struct govern_config config = standard;
    int64_t now_us = clock_now_us();
    struct warden_view view;

    (void)state;
    config.headroom_bytes = 64 << 20;
    warden_configure(warden, &config);
    (void)cached_after_a_batch();
    (void)warden_tick(warden, now_us += 200000);
    warden_read(warden, &view);
    assert_int_equal(view.level, LEVEL_NORMAL);
    faulty_source_set_hog(bench.device->faulty, 440 << 20);
    (void)warden_tick(warden, now_us += 200000);
    warden_settle(warden);
    warden_read(warden, &view);
    assert_in_range(view.level, LEVEL_RECLAIM, LEVEL_EVICT);
    assert_int_equal(view.ledger.cached_bytes, 0);
    assert_in_range(view.external_bytes, 430 << 20, 440 << 20);
    faulty_source_set_hog(bench.device->faulty, 0);
    for (int i = 0; i < 60; i++)
        (void)warden_tick(warden, now_us += 200000);
    warden_read(warden, &view);
    assert_int_equal(view.level, LEVEL_NORMAL);
    assert_true(ledger_is_valid(bench.ledger));
}

static uint64_t asked_bytes, idle_bytes;
static unsigned asked_times;

static uint64_t evict_idle(void *arg, uint64_t bytes)
{
    assert_ptr_equal(arg, &idle_bytes);
    asked_bytes = bytes;
    asked_times++;
    return idle_bytes;
}

static void idle_models_are_asked_for_what_is_over_the_critical_mark(void **state)
{
    struct govern_config tight = standard;
    int64_t now_us = clock_now_us();
    struct warden_view view;

    (void)state;
    asked_times = 0;
    idle_bytes = 0;
    (void)cached_after_a_batch();
    warden_set_evict(warden, evict_idle, NULL, &idle_bytes);
    (void)warden_tick(warden, now_us);
    assert_int_equal(asked_times, 0);
    assert_int_equal(warden_may_hold(warden), UINT64_MAX);
    warden_read(warden, &view);
    tight.low = 0.0001;
    tight.high = 0.0002;
    tight.critical = 0.001;
    tight.trim_minimum_bytes = (uint64_t)1 << 60; /* so that what lanes cache stays */
    warden_configure(warden, &tight);
    (void)warden_tick(warden, now_us + 1000);
    assert_int_equal(asked_times, 1);
    assert_int_equal(asked_bytes, view.ledger.reserved_bytes);
    assert_true(warden_may_hold(warden) < view.ledger.reserved_bytes);
    (void)warden_tick(warden, now_us + 200000); /* none was idle: not asked for a second */
    assert_int_equal(asked_times, 1);
    (void)warden_tick(warden, now_us + 1200000);
    assert_int_equal(asked_times, 2);
}

static void the_view_states_marks_in_bytes(void **state)
{
    struct warden_view view;

    (void)state;
    warden_read(warden, &view);
    assert_int_equal(view.low_bytes, BUDGET / 2);
    assert_int_equal(view.high_bytes, BUDGET / 4 * 3);
    assert_int_equal(view.ledger.budget_bytes, BUDGET);
    assert_true(view.device_total_bytes > 0);
}

#define WARDEN_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(creation_survives_every_failed_allocation, set_up,
                                        tear_down),
        WARDEN_TEST(empty_cache_gives_back_what_lanes_cache),
        WARDEN_TEST(a_crossed_mark_empties_the_cache),
        WARDEN_TEST(bodies_kept_for_reuse_go_at_a_mark_down_to_what_lanes_may_keep),
        WARDEN_TEST(holds_add_up_and_each_ends_with_its_own_time),
        WARDEN_TEST(idleness_ends_with_nothing_cached),
        WARDEN_TEST(the_systems_word_is_heard_at_the_next_tick),
        cmocka_unit_test_setup_teardown(a_hog_raises_the_level_and_its_leaving_lowers_it,
                                        set_up_small_device, tear_down),
        WARDEN_TEST(idle_models_are_asked_for_what_is_over_the_critical_mark),
        WARDEN_TEST(the_view_states_marks_in_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
