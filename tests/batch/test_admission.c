/* What is admitted when, and who waits for memory how long.  batcher_create() starts threads. */
#include "batch/lanes_bench.h"

static void the_largest_part_that_fits_runs(void **state)
{
    (void)state;
    fixture.network.row_bytes = 8 * FAKE_PAGE;
    fixture.budget = 40 * FAKE_PAGE; /* four rows and their gathered inputs fit, six do not */
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    for (int i = 1; i <= 8; i++)
        (void)send_rows(1, (float)(100 * i));
    fake_gate(&fixture.network, false);
    await_answers(9);
    for (size_t i = 0; i < 9; i++)
        assert_answer_is_right(&fixture.call[i]);
    assert_int_equal(rows_of_run(1), 4);
    assert_int_equal(rows_of_run(2), 4);
}

static void the_impossible_is_refused_at_once_with_both_numbers(void **state)
{
    struct call *call;

    (void)state;
    fixture.network.row_bytes = BUDGET;
    fixture.budget = BUDGET / 2;
    start();
    call = send_rows(1, 0);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    assert_non_null(strstr(call->request.error.text, "needs 1048576 bytes"));
    assert_non_null(strstr(call->request.error.text, "524288 are available"));
    assert_int_equal(fixture.network.runs, 0);
}

static void one_that_does_not_fit_now_waits_for_room(void **state)
{
    struct call *call;

    (void)state;
    fixture.network.row_bytes = 8 * FAKE_PAGE;
    fixture.budget = 16 * FAKE_PAGE;
    start();
    hold_memory(12 * FAKE_PAGE);
    call = send_rows(1, 0);
    /* It must have been refused at least once before there is room. */
    for (struct ledger_stats stats = {0}; stats.reservations_refused == 0;)
        ledger_read(fixture.ledger, &stats);
    let_memory_go();
    await_answers(1);
    assert_answer_is_right(call);
}

static void one_that_waits_for_room_past_its_deadline_says_why(void **state)
{
    struct call *call;

    (void)state;
    fixture.network.row_bytes = 8 * FAKE_PAGE;
    fixture.budget = 16 * FAKE_PAGE;
    start();
    hold_memory(12 * FAKE_PAGE);
    call = make(1, 0);
    call->request.deadline_us = clock_now_us() + HOUR_US;
    submit(call);
    await_want(4 * FAKE_PAGE);
    pass_time(HOUR_US);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    assert_non_null(strstr(call->request.error.text, "needs 32768 bytes"));
}

static void one_without_a_deadline_waits_for_room_no_longer_than_it_may(void **state)
{
    struct call *call, *patient;

    (void)state;
    fixture.network.row_bytes = 8 * FAKE_PAGE;
    fixture.budget = 16 * FAKE_PAGE;
    start();
    batcher_set_memory_wait(fixture.batcher, HOUR_US);
    hold_memory(12 * FAKE_PAGE);
    patient = make(1, 0);
    patient->request.deadline_us = clock_now_us() + 3 * HOUR_US;
    submit(patient);
    call = send_rows(1, 0);
    await_want(4 * FAKE_PAGE);
    pass_time(HOUR_US);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    assert_non_null(strstr(call->request.error.text, "bytes, 16384 are available"));
    assert_true(call->request.finished_us - call->request.queued_us >= HOUR_US);
    let_memory_go();
    await_answers(2);
    assert_answer_is_right(patient);
}

static void a_later_segment_asks_for_admission_again(void **state)
{
    struct call *call;

    (void)state;
    fixture.network.segment_bytes = 2 * BUDGET;
    start();
    call = send_rows(1, 0);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    fixture.network.segment_bytes = 3 * FAKE_PAGE;
    call = send_rows(1, 0);
    await_answers(2);
    assert_answer_is_right(call);
}

/* Blocks until batches have waited for memory so long in all, and so many times more. */
static void await_pressure(int64_t stall_us, uint64_t waits)
{
    struct batch_pressure from, now;

    batcher_read_pressure(fixture.batcher, clock_now_us(), &from);
    do
        batcher_read_pressure(fixture.batcher, clock_now_us(), &now);
    while (now.stall_us < stall_us || now.waits_total < from.waits_total + waits);
}

/* Two runs that each want more in the middle, with room for one: neither waits while it holds. */
static void two_growing_runs_do_not_wait_for_each_other(void **state)
{
    struct batch_pressure pressure;

    (void)state;
    fixture.lanes = 2;
    fixture.config.max_batch_size = 1;
    fixture.network.row_bytes = 8 * FAKE_PAGE;
    fixture.network.segment_bytes = 8 * FAKE_PAGE;
    fixture.budget = 20 * FAKE_PAGE; /* both first segments, or one run as a whole */
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    (void)send_rows(1, 10);
    fake_await_runs(&fixture.network, 2);
    fake_gate(&fixture.network, false);
    await_answers(2);
    for (size_t i = 0; i < 2; i++)
        assert_answer_is_right(&fixture.call[i]);
    assert_true(fixture.network.runs >= 3); /* at least one began again */
    batcher_read_pressure(fixture.batcher, clock_now_us(), &pressure);
    assert_int_equal(pressure.refused_total, 0);
    /* What a run took is reserved at once from now on. */
    fixture.network.runs = 0;
    (void)send_rows(1, 0);
    (void)send_rows(1, 10);
    await_answers(4);
    assert_int_equal(fixture.network.runs, 2);
}

/* A large batch that has waited for its room long enough is next: what is small and would fit does
 * not start before it any more. */
static void a_large_batch_is_not_starved_by_small_ones(void **state)
{
    struct call *large, *late;
    struct network *small = &fixture.other_network;
    struct queue_config config;
    struct error err;

    (void)state;
    fixture.lanes = 3;
    fixture.network.row_bytes = 16 * FAKE_PAGE;
    fixture.budget = 16 * FAKE_PAGE; /* the large one fits alone, beside nothing */
    start();
    config = fixture.config;
    config.name = "small";
    config.network = small;
    config.max_batch_size = 1;
    assert_int_equal(queue_create(fixture.batcher, &config, &fixture.other_queue, &err), STATUS_OK);
    fake_gate(small, true);
    batcher_submit(fixture.batcher, fixture.other_queue, &make(1, 0)->request);
    fake_await_runs(small, 1);
    large = send_rows(1, 0);
    await_pressure(60000, 0);
    late = make(1, 0);
    batcher_submit(fixture.batcher, fixture.other_queue, &late->request);
    await_pressure(0, 3); /* time enough to start it, if anybody would */
    pthread_mutex_lock(&small->lock);
    assert_int_equal(small->waiting, 1);
    pthread_mutex_unlock(&small->lock);
    fake_gate(small, false);
    await_answers(3);
    assert_answer_is_right(large);
    assert_answer_is_right(late);
    assert_true(large->request.started_us <= late->request.started_us);
}

/* One request alone in its queue, asked for again and again: its ticket keeps its age. */
static void a_ticket_ages_while_its_request_is_tried(void **state)
{
    struct batch_pressure first, later;

    (void)state;
    fixture.network.row_bytes = 8 * FAKE_PAGE;
    fixture.budget = 16 * FAKE_PAGE;
    start();
    hold_memory(12 * FAKE_PAGE);
    (void)send_rows(1, 0);
    await_want(4 * FAKE_PAGE); /* between two tries it wants what it lacks */
    await_pressure(20000, 3);  /* two or more retries, 10 ms apart */
    let_memory_go();
    await_answers(1);
    batcher_read_pressure(fixture.batcher, clock_now_us() + 1000000, &later);
    assert_int_equal(later.wanted_bytes, 0);
    batcher_read_pressure(fixture.batcher, clock_now_us() + 2000000, &first);
    assert_int_equal(first.stall_us, later.stall_us);
}

/* Others' models would leave for so much. */
static bool give_way(void *arg, const struct model_queue *queue, uint64_t bytes, int64_t waited_us)
{
    const uint64_t *movable = arg;

    assert_ptr_equal(queue, fixture.queue);
    assert_true(waited_us >= 0);
    return bytes <= *movable;
}

static void what_other_models_would_give_makes_the_impossible_wait(void **state)
{
    uint64_t movable = 4 * FAKE_PAGE;
    struct call *call;

    (void)state;
    fixture.network.row_bytes = 8 * FAKE_PAGE;
    fixture.budget = 4 * FAKE_PAGE;
    start();
    batcher_set_make_way(fixture.batcher, give_way, &movable);
    call = send_rows(2, 0);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    call = send_rows(1, 0);
    for (struct batch_pressure pressure = {0}; pressure.waits_total == 0;)
        batcher_read_pressure(fixture.batcher, clock_now_us(), &pressure);
    ledger_set_budget(fixture.ledger, 8 * FAKE_PAGE); /* as if a model had left */
    await_answers(2);
    assert_answer_is_right(call);
    batcher_set_make_way(fixture.batcher, NULL, NULL);
}

static void a_plan_without_room_for_its_weights_waits_and_needs_more_than_there_is(void **state)
{
    uint64_t movable = UINT64_MAX;
    struct call *call;

    (void)state;
    fixture.budget = 16 * FAKE_PAGE;
    fixture.network.plan_status = STATUS_NO_MEMORY;
    start();
    batcher_set_make_way(fixture.batcher, give_way, &movable);
    batcher_set_memory_wait(fixture.batcher, HOUR_US);
    call = send_rows(1, 0);
    await_want(FAKE_PAGE);
    pass_time(HOUR_US);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    assert_non_null(strstr(call->request.error.text, "needs 69632 bytes, 65536 are available"));
    batcher_set_make_way(fixture.batcher, NULL, NULL);
}

/* Answers that nobody has fetched yet take all of the host's budget: no model has to leave for it.
 */
static void a_batch_without_room_for_its_answer_presses_nobody_on_the_device(void **state)
{
    struct batch_pressure pressure = {.waits_total = 0};
    struct call *call;
    void *unfetched;

    (void)state;
    start();
    assert_int_equal(host_pool_take(fixture.pool, 1 << 20, &unfetched), STATUS_OK);
    call = send_rows(1, 0);
    while (pressure.waits_total < 2) /* after the second it has waited */
        batcher_read_pressure(fixture.batcher, clock_now_us(), &pressure);
    batcher_read_pressure(fixture.batcher, clock_now_us() + 1000000, &pressure);
    host_pool_give(fixture.pool, unfetched, 1 << 20);
    assert_int_equal(pressure.wanted_bytes, 0);
    assert_int_equal(pressure.stall_us, 0);
    await_answers(1);
    assert_answer_is_right(call);
}

/* ---- memory of the host for steps that run there ---- */

static void start_with_steps_on_the_host(uint64_t row_bytes, uint64_t limit_bytes)
{
    fixture.network.host_row_bytes = row_bytes;
    start();
    host_pool_set_limit(fixture.pool, limit_bytes);
}

static uint64_t host_bytes_in_use(void)
{
    struct host_pool_stats host;

    host_pool_read(fixture.pool, &host);
    return host.in_use_bytes;
}

static void a_batch_waits_for_the_memory_of_its_steps_on_the_host(void **state)
{
    struct batch_pressure pressure = {.waits_total = 0};
    struct call *call;
    void *held;

    (void)state;
    start_with_steps_on_the_host(1 << 20, 3 << 20);
    assert_int_equal(host_pool_take(fixture.pool, 2 << 20, &held), STATUS_OK);
    call = send_rows(1, 0);
    while (pressure.waits_total < 2)
        batcher_read_pressure(fixture.batcher, clock_now_us(), &pressure);
    batcher_read_pressure(fixture.batcher, clock_now_us() + 1000000, &pressure);
    assert_int_equal(pressure.wanted_bytes, 0); /* no model has to leave for it */
    assert_int_equal(pressure.stall_us, 0);
    host_pool_give(fixture.pool, held, 2 << 20);
    await_answers(1);
    assert_answer_is_right(call);
}

static void a_batch_is_as_large_as_the_memory_of_its_steps_on_the_host_allows(void **state)
{
    struct call *first, *second;

    (void)state;
    start_with_steps_on_the_host(1 << 20, (2 << 20) - 4096);
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0); /* holds the lane while the others come */
    fake_await_runs(&fixture.network, 1);
    first = send_rows(1, 1);
    second = send_rows(1, 2);
    fake_gate(&fixture.network, false);
    await_answers(3);
    assert_answer_is_right(first);
    assert_answer_is_right(second);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(fixture.network.run_rows[i], 1);
}

static void steps_on_the_host_that_could_never_have_their_memory_are_refused_once(void **state)
{
    struct call *call;

    (void)state;
    start_with_steps_on_the_host(8 << 20, 4 << 20);
    call = send_rows(1, 0);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    assert_non_null(strstr(call->request.error.text, "of the host's memory (HostLimit=)"));
    assert_int_equal(fixture.network.runs, 0);
    assert_int_equal(host_bytes_in_use(), 0);
}

/* An answer whose size the run finds, and which no room here could hold. */
static void an_answer_that_could_never_fit_is_refused_once_and_presses_nobody(void **state)
{
    struct batch_pressure pressure;
    struct host_pool_stats host;
    struct call *call;

    (void)state;
    fixture.network.placed_bytes = UINT64_C(4) << 40;
    start();
    call = send_rows(1, 0);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    assert_non_null(strstr(call->request.error.text, "needs 4398046511104 bytes, 10"));
    assert_non_null(strstr(call->request.error.text, "are available of the host"));
    batcher_read_pressure(fixture.batcher, clock_now_us(), &pressure);
    assert_int_equal(pressure.refused_total, 0);
    host_pool_read(fixture.pool, &host);
    assert_int_equal(host.refused_total, 1);
    assert_int_equal(fixture.network.runs, 1);
}

/* Smaller than the limit by its bytes, not by what a buffer of its class is charged. */
static void an_answer_names_more_than_there_is_where_rounding_is_what_lacks(void **state)
{
    struct call *call;

    (void)state;
    fixture.network.placed_bytes = (1 << 20) - 4096;
    start();
    call = send_rows(1, 0);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    assert_non_null(strstr(call->request.error.text, "needs 1048576 bytes, 104"));
    assert_int_equal(fixture.network.runs, 1);
}

static void one_run_that_nothing_here_would_do_for(uint64_t *out_never)
{
    struct batch_pressure pressure;
    struct call *call;

    call = send_rows(1, 0);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    batcher_read_pressure(fixture.batcher, clock_now_us(), &pressure);
    assert_int_equal(pressure.refused_total, 0);
    *out_never = pressure.never_total;
}

static void a_later_segment_that_could_never_fit_is_no_matter_of_levels(void **state)
{
    uint64_t never;

    (void)state;
    fixture.network.segment_bytes = 2 * BUDGET;
    start();
    one_run_that_nothing_here_would_do_for(&never);
    assert_int_equal(never, 1);
}

static void an_output_that_the_device_could_never_hold_is_no_matter_of_levels(void **state)
{
    uint64_t never;

    (void)state;
    fixture.device.ops = &fake_remote_ops;
    fixture.budget = 16 * FAKE_PAGE;
    fixture.network.placed_bytes = 32 * FAKE_PAGE;
    start();
    one_run_that_nothing_here_would_do_for(&never);
    assert_int_equal(never, 1);
}

static void a_device_out_of_memory_is_tried_twice(void **state)
{
    struct call *call;

    (void)state;
    start();
    fixture.network.no_memory_runs = 1;
    call = send_rows(1, 0);
    await_answers(1);
    assert_answer_is_right(call);
    fixture.network.no_memory_runs = 2;
    call = send_rows(1, 0);
    await_answers(2);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    assert_true(call->request.error.text[0] != '\0');
}

/* Eight requests of a row, formed into batches while another runs; the rows of the first. */
static int64_t first_batch_of_eight(void)
{
    size_t before = fixture.network.runs;

    fixture.calls = 0;
    fixture.taken = 0;
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    for (int i = 0; i < 8; i++)
        (void)send_rows(1, 0);
    fake_gate(&fixture.network, false);
    await_answers(9);
    for (size_t i = 0; i < 9; i++) {
        request_release(&fixture.call[i].request);
        arena_deinit(&fixture.call[i].request.arena);
    }
    fixture.calls = 0;
    return rows_of_run(before + 1);
}

static void caps_halve_at_once_and_grow_a_row_at_a_time(void **state)
{
    struct batch_pressure pressure;

    (void)state;
    start();
    assert_int_equal(first_batch_of_eight(), 8);
    batcher_halve_caps(fixture.batcher);
    assert_int_equal(first_batch_of_eight(), 4);
    batcher_halve_caps(fixture.batcher);
    assert_int_equal(first_batch_of_eight(), 2);
    batcher_raise_caps(fixture.batcher);
    assert_int_equal(first_batch_of_eight(), 3);
    batcher_read_pressure(fixture.batcher, clock_now_us(), &pressure);
    assert_true(pressure.capped);
    for (int i = 0; i < 5; i++)
        batcher_raise_caps(fixture.batcher);
    batcher_read_pressure(fixture.batcher, clock_now_us(), &pressure);
    assert_false(pressure.capped);
    assert_int_equal(first_batch_of_eight(), 8);
}

static void trim_gives_back_what_lanes_cache(void **state)
{
    struct ledger_stats stats;

    (void)state;
    fixture.network.row_bytes = 16 * FAKE_PAGE;
    start();
    (void)send_rows(2, 0);
    await_answers(1);
    assert_int_equal(batcher_running(fixture.batcher), 0);
    assert_int_equal(batcher_cached_bytes(fixture.batcher), 32 * FAKE_PAGE);
    assert_int_equal(batcher_trim(fixture.batcher, 8 * FAKE_PAGE), 24 * FAKE_PAGE);
    assert_int_equal(batcher_cached_bytes(fixture.batcher), 8 * FAKE_PAGE);
    assert_int_equal(batcher_trim(fixture.batcher, 0), 8 * FAKE_PAGE);
    ledger_read(fixture.ledger, &stats);
    assert_int_equal(stats.reserved_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_largest_part_that_fits_runs),
        TEST(the_impossible_is_refused_at_once_with_both_numbers),
        TEST(one_that_does_not_fit_now_waits_for_room),
        TEST(one_that_waits_for_room_past_its_deadline_says_why),
        TEST(one_without_a_deadline_waits_for_room_no_longer_than_it_may),
        TEST(a_later_segment_asks_for_admission_again),
        TEST(two_growing_runs_do_not_wait_for_each_other),
        TEST(a_large_batch_is_not_starved_by_small_ones),
        TEST(a_ticket_ages_while_its_request_is_tried),
        TEST(what_other_models_would_give_makes_the_impossible_wait),
        TEST(a_plan_without_room_for_its_weights_waits_and_needs_more_than_there_is),
        TEST(a_batch_without_room_for_its_answer_presses_nobody_on_the_device),
        TEST(a_batch_waits_for_the_memory_of_its_steps_on_the_host),
        TEST(a_batch_is_as_large_as_the_memory_of_its_steps_on_the_host_allows),
        TEST(steps_on_the_host_that_could_never_have_their_memory_are_refused_once),
        TEST(an_answer_that_could_never_fit_is_refused_once_and_presses_nobody),
        TEST(an_answer_names_more_than_there_is_where_rounding_is_what_lacks),
        TEST(a_later_segment_that_could_never_fit_is_no_matter_of_levels),
        TEST(an_output_that_the_device_could_never_hold_is_no_matter_of_levels),
        TEST(a_device_out_of_memory_is_tried_twice),
        TEST(caps_halve_at_once_and_grow_a_row_at_a_time),
        TEST(trim_gives_back_what_lanes_cache),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
