/* Lanes, inline runs and answers.  batcher_create() starts threads. */
#include "batch/lanes_bench.h"

static void a_single_request_is_answered(void **state)
{
    struct call *call;

    (void)state;
    start();
    call = send_rows(2, 10);
    await_answers(1);
    assert_answer_is_right(call);
    assert_int_equal(call->request.batch_rows, 2);
    assert_int_equal(atomic_load(&queue_stats(fixture.queue)->inference_count), 2);
    assert_int_equal(atomic_load(&queue_stats(fixture.queue)->execution_count), 1);
    assert_int_equal(atomic_load(&queue_stats(fixture.queue)->success.count), 1);
}

static void what_waits_while_a_lane_is_busy_becomes_one_batch(void **state)
{
    (void)state;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    for (int i = 1; i <= 6; i++)
        (void)send_rows(1, (float)(100 * i));
    assert_int_equal(queue_waiting(fixture.queue), 6);
    fake_gate(&fixture.network, false);
    await_answers(7);
    for (size_t i = 0; i < 7; i++)
        assert_answer_is_right(&fixture.call[i]);
    assert_int_equal(rows_of_run(1), 6);
    assert_int_equal(fixture.network.runs, 2);
}

static void what_waits_shares_batches_from_the_moment_on_that_batching_begins(void **state)
{
    (void)state;
    fixture.config.batching = false;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    for (int i = 1; i <= 6; i++)
        (void)send_rows(1, (float)(100 * i));
    queue_begin_batching(fixture.queue);
    fake_gate(&fixture.network, false);
    await_answers(7);
    for (size_t i = 0; i < 7; i++)
        assert_answer_is_right(&fixture.call[i]);
    assert_int_equal(rows_of_run(1), 6);
    assert_int_equal(fixture.network.runs, 2);
}

static void padding_does_not_show(void **state)
{
    (void)state;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    for (int i = 1; i <= 5; i++)
        (void)send_rows(1, (float)(100 * i));
    fake_gate(&fixture.network, false);
    await_answers(6);
    for (size_t i = 0; i < 6; i++)
        assert_answer_is_right(&fixture.call[i]);
    assert_int_equal(rows_of_run(1), 6); /* five rows in a bucket of six */
    assert_int_equal(fixture.call[1].request.batch_rows, 5);
}

static void a_device_with_memory_of_its_own_gets_copies(void **state)
{
    (void)state;
    fixture.device.ops = &fake_remote_ops;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    (void)send_rows(3, 50);
    (void)send_rows(2, 70);
    fake_gate(&fixture.network, false);
    await_answers(3);
    for (size_t i = 0; i < 3; i++)
        assert_answer_is_right(&fixture.call[i]);
}

static void an_unwanted_output_is_not_returned(void **state)
{
    struct call *call;

    (void)state;
    start();
    call = make(1, 0);
    call->out.wanted = false;
    submit(call);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_OK);
    assert_null(call->out.data);
}

static void one_bad_request_does_not_spoil_its_batch(void **state)
{
    (void)state;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    (void)send_rows(1, 100);
    (void)send_rows(1, BAD_VALUE - 100);
    (void)send_rows(2, 300);
    fake_gate(&fixture.network, false);
    await_answers(4);
    assert_answer_is_right(&fixture.call[0]);
    assert_answer_is_right(&fixture.call[1]);
    assert_answer_is_right(&fixture.call[3]);
    assert_int_equal(fixture.call[2].request.status, STATUS_INVALID);
    assert_non_null(strstr(fixture.call[2].request.error.text, "out of range"));
}

static void a_plan_that_cannot_be_made_fails_its_batch(void **state)
{
    struct call *call;

    (void)state;
    start();
    fixture.network.plan_status = STATUS_UNSUPPORTED;
    call = send_rows(1, 0);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_UNSUPPORTED);
    assert_string_equal(call->request.error.text, "node 'fake': cannot be planned");
    assert_int_equal(atomic_load(&queue_stats(fixture.queue)->fail.count), 1);
}

static void a_waiting_request_leaves_at_its_deadline(void **state)
{
    struct call *call;

    (void)state;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    call = make(1, 0);
    call->request.deadline_us = clock_now_us() + HOUR_US;
    submit(call);
    pass_time(HOUR_US); /* the lane is stuck: whoever wakes it sweeps */
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_DEADLINE);
    fake_gate(&fixture.network, false);
    await_answers(2);
}

/* Urgent some run times before its deadline: the queue is told that its batches are slow. */
static void a_policy_timeout_ends_the_wait_for_company(void **state)
{
    struct call *call;

    (void)state;
    fixture.config.max_queue_delay_us = 9 * HOUR_US;
    fixture.config.policy.default_timeout_us = 3 * HOUR_US;
    start();
    pthread_mutex_lock(&fixture.batcher->lock);
    fixture.queue->waiting.lead_us = HOUR_US;
    pthread_mutex_unlock(&fixture.batcher->lock);
    call = send_rows(1, 0);
    pass_time(2 * HOUR_US);
    await_answers(1);
    assert_answer_is_right(call);
    assert_true(call->request.finished_us - call->request.arrived_us >= 2 * HOUR_US);
}

static void a_drain_ends_the_wait_for_company(void **state)
{
    struct call *call;

    (void)state;
    fixture.config.max_queue_delay_us = 600000000;
    start();
    call = send_rows(1, 0);
    batcher_end_delays(fixture.batcher);
    await_answers(1);
    assert_answer_is_right(call);
}

static void a_cancelled_request_leaves_the_queue(void **state)
{
    struct call *call;

    (void)state;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    call = send_rows(1, 0);
    atomic_store(&call->request.cancelled, true);
    batcher_wake(fixture.batcher);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_CANCELLED);
    fake_gate(&fixture.network, false);
    await_answers(2);
    assert_int_equal(atomic_load(&queue_stats(fixture.queue)->cancel.count), 1);
}

static void a_running_request_can_be_cancelled(void **state)
{
    struct call *call;

    (void)state;
    start();
    fake_gate(&fixture.network, true);
    call = send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    atomic_store(&call->request.cancelled, true);
    fake_gate(&fixture.network, false);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_CANCELLED);
    assert_int_equal(atomic_load(&queue_stats(fixture.queue)->fail.count), 1);
    assert_int_equal(atomic_load(&queue_stats(fixture.queue)->execution_count), 0);
    assert_int_equal(atomic_load(&queue_stats(fixture.queue)->compute_infer.count), 0);
    assert_int_equal(atomic_load(&queue_stats(fixture.queue)->queue.count), 0);
}

static void a_full_queue_refuses(void **state)
{
    struct call *call;

    (void)state;
    fixture.config.policy.max_queue_size = 1;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    (void)send_rows(1, 0);
    call = send_rows(1, 0);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_UNAVAILABLE);
    assert_string_equal(call->request.error.text, "Exceeds maximum queue size");
    fake_gate(&fixture.network, false);
    await_answers(3);
    assert_int_equal(atomic_load(&queue_stats(fixture.queue)->rejected.count), 1);
}

static void a_short_request_runs_on_the_callers_thread(void **state)
{
    struct call *call;

    (void)state;
    start();
    batcher_set_inline_limit(fixture.batcher, 100);
    (void)send_rows(1, 0); /* makes the plan */
    await_answers(1);
    fixture.network.predicted_us = 50;
    call = send_rows(1, 7);
    await_answers(2);
    assert_answer_is_right(call);
    assert_true(pthread_equal(call->done_by, pthread_self()));
    call = make(1, 8);
    call->request.no_inline = true;
    submit(call);
    await_answers(3);
    assert_false(pthread_equal(call->done_by, pthread_self()));
    fixture.network.predicted_us = 101;
    call = send_rows(1, 9);
    await_answers(4);
    assert_false(pthread_equal(call->done_by, pthread_self()));
}

static void two_lanes_run_two_batches(void **state)
{
    (void)state;
    fixture.lanes = 2;
    fixture.config.batching = false;
    start();
    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    (void)send_rows(1, 10);
    fake_await_runs(&fixture.network, 2);
    assert_int_equal(batcher_running(fixture.batcher), 2);
    fake_gate(&fixture.network, false);
    await_answers(2);
}

static void instances_bound_what_runs_at_once(void **state)
{
    (void)state;
    fixture.lanes = 3;
    fixture.config.batching = false;
    fixture.config.instances = 2;
    start();
    fake_gate(&fixture.network, true);
    for (int i = 0; i < 5; i++)
        (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 2);
    assert_int_equal(queue_waiting(fixture.queue), 3);
    assert_int_equal(batcher_running(fixture.batcher), 2);
    fake_gate(&fixture.network, false);
    await_answers(5);
}

/* An answer on its way: another request comes meanwhile. */
static void on_done_sends_another(struct request *request)
{
    pthread_mutex_lock(&fixture.batcher->lock);
    fixture.may_start = queue_may_start(fixture.queue);
    pthread_mutex_unlock(&fixture.batcher->lock);
    (void)send_rows(1, 1);
    on_done(request);
}

static void a_queue_that_keeps_its_order_starts_nothing_before_its_batch_is_answered(void **state)
{
    struct call *first;

    (void)state;
    fixture.lanes = 2;
    fixture.config.preserve_ordering = true;
    fixture.may_start = true;
    start();
    first = make(1, 0);
    first->request.done = on_done_sends_another;
    submit(first);
    await_answers(2);
    assert_false(fixture.may_start);
    assert_true(fixture.call[1].request.started_us >= first->request.finished_us);
}

static void ordering_is_kept_when_asked_for(void **state)
{
    (void)state;
    fixture.lanes = 3;
    fixture.config.batching = false;
    fixture.config.preserve_ordering = true;
    start();
    for (int i = 0; i < 40; i++)
        (void)send_rows(1, (float)i);
    await_answers(40);
    for (size_t i = 1; i < 40; i++)
        assert_true(fixture.call[i].request.finished_us >= fixture.call[i - 1].request.finished_us);
}

static void progress_moves_while_lanes_are_idle(void **state)
{
    uint64_t before;

    (void)state;
    start();
    before = batcher_progress(fixture.batcher);
    assert_true(batcher_progress(fixture.batcher) > before);
}

static void an_output_that_is_an_input_is_not_copied(void **state)
{
    struct call *kept, *other;

    (void)state;
    fixture.network.passes = true;
    start();
    kept = make(1, 1);
    kept->request.keeps_inputs = true;
    submit(kept);
    await_answers(1);
    assert_ptr_equal(kept->out.data, kept->x);
    assert_int_equal(kept->out.bytes, FAKE_WIDTH * sizeof(float));
    other = send_rows(1, 1);
    await_answers(2);
    assert_ptr_not_equal(other->out.data, other->x);
}

static void count_call(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

/* By every batch that it fails, and at once to who waits for nothing else. */
static void a_lost_device_is_told(void **state)
{
    atomic_uint calls = 0;
    struct call *call;

    (void)state;
    start();
    batcher_on_wait(fixture.batcher, count_call, &calls);
    call = send_rows(1, 1);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_OK);
    assert_false(batcher_lost_device(fixture.batcher));
    fixture.network.is_lost = true;
    call = send_rows(1, 1);
    await_answers(2);
    assert_int_equal(call->request.status, STATUS_DEVICE_LOST);
    assert_true(batcher_lost_device(fixture.batcher));
    assert_int_equal(atomic_load(&calls), 1);
    (void)send_rows(1, 1);
    await_answers(3);
    assert_int_equal(atomic_load(&calls), 1);
    batcher_on_wait(fixture.batcher, NULL, NULL);
}

static enum status build(void *arg)
{
    struct batcher_config config = {
        .device = &fixture.device, .ledger = fixture.ledger, .host_pool = fixture.pool, .lanes = 2};
    struct batcher *batcher = NULL;
    struct model_queue *queue = NULL;
    enum status status = batcher_create(&config, &batcher, NULL);

    (void)arg;
    if (status == STATUS_OK)
        status = queue_create(batcher, &fixture.config, &queue, NULL);
    if (status != STATUS_OK)
        assert_null(queue);
    queue_destroy(queue);
    batcher_destroy(batcher);
    return status;
}

static void every_allocation_of_a_batcher_may_fail(void **state)
{
    static const int64_t preferred[] = {2, 4};

    (void)state;
    fixture.config.preferred = preferred;
    fixture.config.preferred_count = 2;
    start();
    assert_true(fail_each_alloc(build, NULL) > 5);
}

/* A batch of two requests on a lane, with the nth allocation of any thread failing: each request is
 * answered rightly or with STATUS_NO_MEMORY, and tear_down() finds nothing held. */
static bool batch_without(unsigned nth)
{
    struct call *call[2] = {make(2, 1), make(3, 50)};
    bool fired;

    fake_gate(&fixture.network, true);
    (void)send_rows(1, 0);
    fake_await_runs(&fixture.network, 1);
    submit(call[0]);
    submit(call[1]);
    fail_alloc_arm_anywhere(nth);
    fake_gate(&fixture.network, false);
    await_answers(fixture.calls);
    fired = fail_alloc_disarm();
    for (size_t i = 0; i < 2; i++)
        if (!fired || call[i]->request.status != STATUS_NO_MEMORY)
            assert_answer_is_right(call[i]);
    return fired;
}

static void every_allocation_of_a_batch_may_fail(void **state)
{
    bool fired = true;

    (void)state;
    start();
    for (unsigned nth = 1; fired; nth++) {
        assert_true(fixture.calls + 3 <= MAX_REQUESTS);
        fired = batch_without(nth);
    }
}

static void every_allocation_of_an_inline_run_may_fail(void **state)
{
    bool fired = true;

    (void)state;
    start();
    batcher_set_inline_limit(fixture.batcher, 100);
    fixture.network.predicted_us = 50;
    (void)send_rows(1, 0); /* makes the plan */
    await_answers(1);
    for (unsigned nth = 1; fired; nth++) {
        struct call *call = make(1, 7);

        fail_alloc_arm(nth);
        submit(call);
        await_answers(fixture.calls);
        fired = fail_alloc_disarm();
        if (!fired || call->request.status != STATUS_NO_MEMORY)
            assert_answer_is_right(call);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_single_request_is_answered),
        TEST(what_waits_while_a_lane_is_busy_becomes_one_batch),
        TEST(what_waits_shares_batches_from_the_moment_on_that_batching_begins),
        TEST(padding_does_not_show),
        TEST(a_device_with_memory_of_its_own_gets_copies),
        TEST(an_unwanted_output_is_not_returned),
        TEST(one_bad_request_does_not_spoil_its_batch),
        TEST(a_plan_that_cannot_be_made_fails_its_batch),
        TEST(a_waiting_request_leaves_at_its_deadline),
        TEST(a_policy_timeout_ends_the_wait_for_company),
        TEST(a_drain_ends_the_wait_for_company),
        TEST(a_cancelled_request_leaves_the_queue),
        TEST(a_running_request_can_be_cancelled),
        TEST(a_full_queue_refuses),
        TEST(a_short_request_runs_on_the_callers_thread),
        TEST(two_lanes_run_two_batches),
        TEST(instances_bound_what_runs_at_once),
        TEST(a_queue_that_keeps_its_order_starts_nothing_before_its_batch_is_answered),
        TEST(ordering_is_kept_when_asked_for),
        TEST(progress_moves_while_lanes_are_idle),
        TEST(an_output_that_is_an_input_is_not_copied),
        TEST(a_lost_device_is_told),
        TEST(every_allocation_of_a_batcher_may_fail),
        TEST(every_allocation_of_a_batch_may_fail),
        TEST(every_allocation_of_an_inline_run_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
