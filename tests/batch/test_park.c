/* Queues that are closed, or whose models are away or were replaced.  batcher_create() starts
 * threads. */
#include "batch/lanes_bench.h"

static void a_closed_queue_answers_what_it_has_and_takes_no_more(void **state)
{
    struct call *call;

    (void)state;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    (void)send_rows(1, 10);
    queue_close(fixture.queue, on_drained, NULL);
    call = send_rows(1, 20);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_UNAVAILABLE);
    assert_null(mailbox_take_all(&fixture.drained_box));
    fake_gate(&fixture.network, false);
    await_answers(3);
    assert_answer_is_right(&fixture.call[1]);
    while (mailbox_take_all(&fixture.drained_box) == NULL)
        mailbox_wait(&fixture.drained_box, CLOCK_NEVER);
}

static unsigned attended;

static void attend(void *arg)
{
    assert_ptr_equal(arg, &fixture);
    attended++; /* under the batcher's lock */
}

static void a_parked_queue_takes_requests_and_runs_them_when_it_is_resumed(void **state)
{
    struct queue_use use;
    struct call *call;

    (void)state;
    attended = 0;
    start();
    batcher_set_attend(fixture.batcher, attend, &fixture);
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_OK);
    assert_false(queue_visit(fixture.queue));
    assert_int_equal(attended, 0);
    call = send_rows(1, 5);
    assert_int_equal(attended, 1);
    queue_read_use(fixture.queue, &use);
    assert_int_equal(use.pending, 1);
    assert_int_equal(use.waiting, 1);
    assert_int_equal(use.idle_since_us, CLOCK_NEVER);
    assert_int_equal(fixture.network.runs, 0);
    queue_resume(fixture.queue);
    await_answers(1);
    assert_answer_is_right(call);
}

static void a_request_that_waits_for_a_parked_queue_expires(void **state)
{
    struct call *call;

    (void)state;
    start();
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_OK);
    call = make(1, 0);
    call->request.deadline_us = clock_now_us() + HOUR_US;
    submit(call);
    pass_time(HOUR_US);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_DEADLINE);
    queue_resume(fixture.queue);
}

static void what_waits_in_a_parked_queue_is_refused_with_the_reason(void **state)
{
    struct error err;
    struct call *first, *second;

    (void)state;
    (void)error_set(&err, STATUS_PRECONDITION, "its file changed");
    start();
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_OK);
    first = send_rows(1, 0);
    second = send_rows(2, 0);
    queue_refuse(fixture.queue, &err);
    await_answers(2);
    assert_int_equal(first->request.status, STATUS_PRECONDITION);
    assert_string_equal(second->request.error.text, "its file changed");
    queue_refuse(fixture.queue, &err); /* nobody waits */
    queue_resume(fixture.queue);
}

static void a_queue_in_use_or_visited_is_not_parked(void **state)
{
    (void)state;
    start();
    assert_true(queue_visit(fixture.queue));
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_UNAVAILABLE);
    queue_leave(fixture.queue);
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    (void)send_rows(1, 0);
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_UNAVAILABLE);
    assert_int_equal(queue_park(fixture.queue, PARK_NEEDED), STATUS_UNAVAILABLE);
    fake_gate(&fixture.network, false);
    await_answers(2); /* the second one when the moment has passed */
    while (queue_park(fixture.queue, PARK_NEEDED) != STATUS_OK)
        sched_yield(); /* the lane has answered, and is about to be free */
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_UNAVAILABLE); /* it is */
    queue_resume(fixture.queue);
}

/* An answer is there a moment before the queue is at rest. */
static void await_rest(struct queue_use *use)
{
    queue_read_use(fixture.queue, use);
    while (use->pending > 0) {
        (void)sched_yield();
        queue_read_use(fixture.queue, use);
    }
}

static void the_attendant_hears_of_idle_queues_that_may_not_be_so_for_long(void **state)
{
    struct queue_use use;

    (void)state;
    attended = 0;
    start();
    batcher_set_attend(fixture.batcher, attend, &fixture);
    batcher_attend_at(fixture.batcher, clock_now_us() + 1000000000);
    (void)send_rows(1, 0);
    await_answers(1);
    queue_set_patience(fixture.queue, INT64_C(3600000000));
    (void)send_rows(1, 0);
    await_answers(2);
    await_rest(&use);
    assert_int_equal(attended, 0);
    queue_set_patience(fixture.queue, 0);
    (void)send_rows(1, 0);
    await_answers(3);
    await_rest(&use);
    assert_int_equal(attended, 1);
    assert_int_equal(use.requests, 3);
    assert_true(use.idle_since_us <= clock_now_us());
}

static void
a_request_without_a_deadline_waits_for_a_model_without_room_no_longer_than_it_may(void **state)
{
    struct call *call;

    (void)state;
    start();
    batcher_set_memory_wait(fixture.batcher, HOUR_US);
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_OK);
    call = send_rows(1, 0);
    queue_blame(fixture.queue, 5000, 3000);
    pass_time(HOUR_US);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    assert_non_null(strstr(call->request.error.text, "needs 5000 bytes, 3000 are available"));
    queue_resume(fixture.queue);
}

static void a_queue_in_which_nobody_waits_does_not_wait_for_memory(void **state)
{
    struct batch_pressure pressure;

    (void)state;
    start();
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_OK);
    queue_blame(fixture.queue, 5000, 3000); /* whoever waited has just gone */
    batcher_read_pressure(fixture.batcher, clock_now_us() + 1000000, &pressure);
    assert_int_equal(pressure.wanted_bytes, 0);
    assert_int_equal(pressure.stall_us, 0);
}

/* Lanes that are busy do not look: whoever has a timer must know. */
static void the_end_of_a_wait_for_memory_is_told_beforehand(void **state)
{
    int64_t now_us;

    (void)state;
    start();
    batcher_set_memory_wait(fixture.batcher, INT64_C(60000000));
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_OK);
    (void)send_rows(1, 0);
    assert_int_equal(batcher_expiry_us(fixture.batcher), CLOCK_NEVER);
    now_us = clock_now_us();
    queue_blame(fixture.queue, 5000, 3000);
    assert_in_range(batcher_expiry_us(fixture.batcher), now_us + 60000000, now_us + 120000000);
}

/* ---- replaced ---- */

/* A second queue with the same inputs and outputs on a network of its own. */
static void open_heir(int64_t max_batch_size)
{
    struct queue_config config = fixture.config;
    struct error err;

    config.network = &fixture.other_network;
    config.max_batch_size = max_batch_size;
    assert_int_equal(queue_create(fixture.batcher, &config, &fixture.other_queue, &err), STATUS_OK);
}

static void what_waits_for_a_model_that_was_replaced_is_answered_by_its_heir(void **state)
{
    struct call *waits, *late, *large, *late_and_large;

    (void)state;
    start();
    open_heir(4);
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_OK);
    waits = send_rows(1, 5);
    large = send_rows(6, 5);
    queue_set_heir(fixture.queue, fixture.other_queue, false);
    queue_close(fixture.queue, on_drained, NULL);
    late = send_rows(2, 9);
    late_and_large = send_rows(6, 9);
    await_answers(2);
    assert_answer_is_right(late);
    assert_int_equal(late_and_large->request.status, STATUS_INVALID);
    queue_pass_on(fixture.queue);
    await_answers(4);
    assert_answer_is_right(waits);
    assert_ptr_equal(request_queue(&waits->request), fixture.other_queue);
    assert_int_equal(large->request.status, STATUS_INVALID);
    assert_int_equal(fixture.network.runs, 0);
    while (mailbox_take_all(&fixture.drained_box) == NULL)
        mailbox_wait(&fixture.drained_box, CLOCK_NEVER);
}

static void another_version_answers_only_who_named_none(void **state)
{
    struct call *any, *one;
    struct error err;

    (void)state;
    start();
    open_heir(MAX_ROWS);
    assert_int_equal(queue_park(fixture.queue, PARK_IDLE), STATUS_OK);
    any = make(1, 5);
    any->request.any_version = true;
    submit(any);
    one = send_rows(1, 5);
    queue_set_heir(fixture.queue, fixture.other_queue, true);
    queue_close(fixture.queue, on_drained, NULL);
    queue_pass_on(fixture.queue);
    await_answers(1);
    assert_answer_is_right(any);
    assert_ptr_equal(request_queue(&any->request), fixture.other_queue);
    (void)error_set(&err, STATUS_UNAVAILABLE, "unloaded");
    queue_refuse(fixture.queue, &err);
    await_answers(2);
    assert_int_equal(one->request.status, STATUS_UNAVAILABLE);
    assert_ptr_equal(request_queue(&one->request), fixture.queue);
    while (mailbox_take_all(&fixture.drained_box) == NULL)
        mailbox_wait(&fixture.drained_box, CLOCK_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_closed_queue_answers_what_it_has_and_takes_no_more),
        TEST(a_parked_queue_takes_requests_and_runs_them_when_it_is_resumed),
        TEST(a_request_that_waits_for_a_parked_queue_expires),
        TEST(what_waits_in_a_parked_queue_is_refused_with_the_reason),
        TEST(a_queue_in_use_or_visited_is_not_parked),
        TEST(a_request_without_a_deadline_waits_for_a_model_without_room_no_longer_than_it_may),
        TEST(a_queue_in_which_nobody_waits_does_not_wait_for_memory),
        TEST(the_end_of_a_wait_for_memory_is_told_beforehand),
        TEST(what_waits_for_a_model_that_was_replaced_is_answered_by_its_heir),
        TEST(another_version_answers_only_who_named_none),
        TEST(the_attendant_hears_of_idle_queues_that_may_not_be_so_for_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
