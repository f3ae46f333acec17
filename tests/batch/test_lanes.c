/* Lanes, admission, inline runs and answers, on an engine that the test drives. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "batch/fake_engine.h"
#include "batch/lanes.h"
#include "support/fail_alloc.h"

enum { MAX_REQUESTS = 64, MAX_ROWS = 8, BUDGET = 1 << 20 };

struct call {
    struct request request;
    struct request_input in;
    struct request_output out;
    float x[MAX_ROWS * FAKE_WIDTH];
    pthread_t done_by;
    struct mail mail;
};

struct fixture {
    struct network network;
    struct mem_source memory;
    struct device device;
    struct ledger *ledger;
    struct host_pool *pool;
    struct batcher *batcher;
    struct queue_config config;
    struct model_queue *queue;
    struct network other_network;
    struct model_queue *other_queue; /* NULL: the test has one queue only */
    uint64_t held_bytes;             /* of the budget, by the test itself */
    bool may_start;                  /* the queue, while it was answering */
    struct mailbox answered;
    struct call call[MAX_REQUESTS];
    size_t calls;
    size_t taken; /* answers received */
    unsigned lanes;
    uint64_t budget;
    struct mailbox drained_box;
    struct mail drained;
};

static struct fixture fixture;

static void on_done(struct request *request)
{
    struct call *call = CONTAINER_OF(request, struct call, request);

    call->done_by = pthread_self();
    mailbox_put(&fixture.answered, &call->mail);
}

static int set_up(void **state)
{
    fixture = (struct fixture){.lanes = 1, .budget = BUDGET};
    fake_network_init(&fixture.network);
    fake_network_init(&fixture.other_network);
    fixture.memory = (struct mem_source){.ops = &fake_memory_ops, .page_bytes = FAKE_PAGE};
    fixture.device = (struct device){.ops = &fake_host_ops, .memory = &fixture.memory};
    fixture.config = (struct queue_config){
        .name = "m", .network = &fixture.network, .max_batch_size = MAX_ROWS, .batching = true};
    assert_int_equal(mailbox_init(&fixture.answered), STATUS_OK);
    assert_int_equal(mailbox_init(&fixture.drained_box), STATUS_OK);
    *state = &fixture;
    return 0;
}

static void start(void)
{
    struct batcher_config config = {.device = &fixture.device, .lanes = fixture.lanes};
    struct error err;

    assert_int_equal(ledger_create(fixture.budget, &fixture.ledger), STATUS_OK);
    assert_int_equal(host_pool_create(1 << 20, &fixture.pool), STATUS_OK);
    config.ledger = fixture.ledger;
    config.host_pool = fixture.pool;
    assert_int_equal(batcher_create(&config, &fixture.batcher, &err), STATUS_OK);
    assert_int_equal(queue_create(fixture.batcher, &fixture.config, &fixture.queue, &err),
                     STATUS_OK);
}

/* A request of `rows` rows filled with `value`, `value` + 1, …; not sent yet. */
static struct call *make(int64_t rows, float value)
{
    struct call *call = &fixture.call[fixture.calls++];

    for (int64_t i = 0; i < rows * FAKE_WIDTH; i++)
        call->x[i] = value + (float)i;
    call->in = (struct request_input){.shape = {.rank = 2, .dims = {rows, FAKE_WIDTH}},
                                      .data = call->x,
                                      .bytes = (size_t)rows * FAKE_WIDTH * sizeof(float)};
    call->out = (struct request_output){.wanted = true};
    call->request = (struct request){.inputs = 1,
                                     .in = &call->in,
                                     .outputs = 1,
                                     .out = &call->out,
                                     .rows = rows,
                                     .arrived_us = clock_now_us(),
                                     .deadline_us = CLOCK_NEVER,
                                     .done = on_done};
    arena_init(&call->request.arena);
    return call;
}

static void submit(struct call *call)
{
    batcher_submit(fixture.batcher, fixture.queue, &call->request);
}

static struct call *send_rows(int64_t rows, float value)
{
    struct call *call = make(rows, value);

    submit(call);
    return call;
}

/* Blocks until `count` answers in all have come. */
static void await_answers(size_t count)
{
    while (fixture.taken < count) {
        struct mail *mail = mailbox_take_all(&fixture.answered);

        if (mail == NULL)
            mailbox_wait(&fixture.answered, CLOCK_NEVER);
        for (; mail != NULL; mail = mail->next)
            fixture.taken++;
    }
}

static void assert_answer_is_right(struct call *call)
{
    const float *y = call->out.data;

    if (call->request.status != STATUS_OK)
        fail_msg("%s", call->request.error.text);
    assert_non_null(y);
    assert_int_equal(call->out.bytes, call->in.bytes);
    assert_int_equal(call->out.shape.dims[0], call->request.rows);
    for (int64_t i = 0; i < call->request.rows * FAKE_WIDTH; i++)
        assert_float_equal(y[i], call->x[i] + 1.0f, 0);
}

static void on_drained(void *arg)
{
    (void)arg;
    mailbox_put(&fixture.drained_box, &fixture.drained);
}

/* Takes memory of the budget that batches would like to have. */
static void hold_memory(uint64_t bytes)
{
    assert_int_equal(ledger_reserve(fixture.ledger, bytes, NULL), STATUS_OK);
    fixture.held_bytes += bytes;
}

static void let_memory_go(void)
{
    ledger_unreserve(fixture.ledger, fixture.held_bytes);
    fixture.held_bytes = 0;
    batcher_wake(fixture.batcher);
}

/* Whatever a failed test left in its way must not keep requests from their end. */
static void clear_the_way(void)
{
    fake_gate(&fixture.network, false);
    fake_gate(&fixture.other_network, false);
    let_memory_go();
    queue_resume(fixture.queue);
}

static void close_queue(struct model_queue *queue)
{
    if (queue == NULL)
        return;
    queue_close(queue, on_drained, NULL);
    while (mailbox_take_all(&fixture.drained_box) == NULL)
        mailbox_wait(&fixture.drained_box, CLOCK_NEVER);
    queue_destroy(queue);
}

static int tear_down(void **state)
{
    struct host_pool_stats host;
    struct ledger_stats stats;

    (void)state;
    if (fixture.batcher != NULL) {
        clear_the_way();
        close_queue(fixture.other_queue);
        close_queue(fixture.queue);
        for (size_t i = 0; i < fixture.calls; i++) {
            request_release(&fixture.call[i].request);
            arena_deinit(&fixture.call[i].request.arena);
        }
        ledger_read(fixture.ledger, &stats);
        assert_int_equal(stats.planned_bytes, 0); /* every reservation came back, once */
        assert_int_equal(stats.plan_violations, 0);
        host_pool_read(fixture.pool, &host);
        assert_int_equal(host.in_use_bytes, 0);
        for (size_t i = 0; i < fixture.network.plans; i++)
            assert_int_equal(fixture.network.plan[i].references, 0);
        batcher_destroy(fixture.batcher);
        ledger_destroy(fixture.ledger);
        host_pool_destroy(fixture.pool);
    }
    mailbox_deinit(&fixture.answered);
    mailbox_deinit(&fixture.drained_box);
    return 0;
}

static int64_t rows_of_run(size_t index)
{
    int64_t rows;

    pthread_mutex_lock(&fixture.network.lock);
    rows = index < fixture.network.runs ? fixture.network.run_rows[index] : 0;
    pthread_mutex_unlock(&fixture.network.lock);
    return rows;
}

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
    call->request.deadline_us = clock_now_us() + 30000;
    submit(call);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_NO_MEMORY);
    assert_non_null(strstr(call->request.error.text, "needs 32768 bytes"));
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
    do /* between two tries it wants what it lacks */
        batcher_read_pressure(fixture.batcher, clock_now_us(), &first);
    while (first.wanted_bytes != 4 * FAKE_PAGE);
    await_pressure(20000, 3); /* two or more retries, 10 ms apart */
    let_memory_go();
    await_answers(1);
    batcher_read_pressure(fixture.batcher, clock_now_us() + 1000000, &later);
    assert_int_equal(later.wanted_bytes, 0);
    batcher_read_pressure(fixture.batcher, clock_now_us() + 2000000, &first);
    assert_int_equal(first.stall_us, later.stall_us);
}

static void what_idle_models_would_give_makes_the_impossible_wait(void **state)
{
    struct call *call;

    (void)state;
    fixture.network.row_bytes = 8 * FAKE_PAGE;
    fixture.budget = 4 * FAKE_PAGE;
    start();
    batcher_set_evictable(fixture.batcher, 4 * FAKE_PAGE);
    call = make(1, 0);
    submit(call);
    for (struct batch_pressure pressure = {0}; pressure.waits_total == 0;)
        batcher_read_pressure(fixture.batcher, clock_now_us(), &pressure);
    ledger_set_budget(fixture.ledger, 8 * FAKE_PAGE); /* as if a model had left */
    await_answers(1);
    assert_answer_is_right(call);
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
    call->request.deadline_us = clock_now_us() + 1000;
    submit(call);
    mailbox_wait(&fixture.answered, call->request.deadline_us);
    batcher_wake(fixture.batcher); /* the lane is stuck: the caller sweeps */
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_DEADLINE);
    fake_gate(&fixture.network, false);
    await_answers(2);
}

/* Urgent some run times before its deadline: the queue is told that its batches are slow, which
 * leaves a slow machine time. */
static void a_policy_timeout_ends_the_wait_for_company(void **state)
{
    int64_t waited_us;
    struct call *call;

    (void)state;
    fixture.config.max_queue_delay_us = 10000000;
    fixture.config.policy.default_timeout_us = 1500000;
    start();
    pthread_mutex_lock(&fixture.batcher->lock);
    fixture.queue->waiting.lead_us = 1400000;
    pthread_mutex_unlock(&fixture.batcher->lock);
    call = send_rows(1, 0);
    await_answers(1);
    assert_answer_is_right(call);
    waited_us = call->request.finished_us - call->request.arrived_us;
    assert_in_range(waited_us, 100000, 1500000);
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

static void a_lost_device_is_told(void **state)
{
    struct call *call;

    (void)state;
    start();
    call = send_rows(1, 1);
    await_answers(1);
    assert_int_equal(call->request.status, STATUS_OK);
    assert_false(batcher_lost_device(fixture.batcher));
    fixture.network.is_lost = true;
    call = send_rows(1, 1);
    await_answers(2);
    assert_int_equal(call->request.status, STATUS_DEVICE_LOST);
    assert_true(batcher_lost_device(fixture.batcher));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* ---- no memory ---- */

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
    call->request.deadline_us = clock_now_us() + 20000;
    submit(call);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_single_request_is_answered),
        TEST(what_waits_while_a_lane_is_busy_becomes_one_batch),
        TEST(padding_does_not_show),
        TEST(a_device_with_memory_of_its_own_gets_copies),
        TEST(an_unwanted_output_is_not_returned),
        TEST(the_largest_part_that_fits_runs),
        TEST(the_impossible_is_refused_at_once_with_both_numbers),
        TEST(one_that_does_not_fit_now_waits_for_room),
        TEST(one_that_waits_for_room_past_its_deadline_says_why),
        TEST(a_later_segment_asks_for_admission_again),
        TEST(two_growing_runs_do_not_wait_for_each_other),
        TEST(a_large_batch_is_not_starved_by_small_ones),
        TEST(a_ticket_ages_while_its_request_is_tried),
        TEST(what_idle_models_would_give_makes_the_impossible_wait),
        TEST(a_device_out_of_memory_is_tried_twice),
        TEST(one_bad_request_does_not_spoil_its_batch),
        TEST(a_plan_that_cannot_be_made_fails_its_batch),
        TEST(a_waiting_request_leaves_at_its_deadline),
        TEST(a_policy_timeout_ends_the_wait_for_company),
        TEST(every_allocation_of_a_batcher_may_fail),
        TEST(every_allocation_of_a_batch_may_fail),
        TEST(every_allocation_of_an_inline_run_may_fail),
        TEST(a_cancelled_request_leaves_the_queue),
        TEST(a_running_request_can_be_cancelled),
        TEST(a_full_queue_refuses),
        TEST(a_short_request_runs_on_the_callers_thread),
        TEST(two_lanes_run_two_batches),
        TEST(instances_bound_what_runs_at_once),
        TEST(a_queue_that_keeps_its_order_starts_nothing_before_its_batch_is_answered),
        TEST(ordering_is_kept_when_asked_for),
        TEST(caps_halve_at_once_and_grow_a_row_at_a_time),
        TEST(trim_gives_back_what_lanes_cache),
        TEST(a_closed_queue_answers_what_it_has_and_takes_no_more),
        TEST(progress_moves_while_lanes_are_idle),
        TEST(an_output_that_is_an_input_is_not_copied),
        TEST(a_lost_device_is_told),
        TEST(a_parked_queue_takes_requests_and_runs_them_when_it_is_resumed),
        TEST(a_request_that_waits_for_a_parked_queue_expires),
        TEST(what_waits_in_a_parked_queue_is_refused_with_the_reason),
        TEST(a_queue_in_use_or_visited_is_not_parked),
        TEST(the_attendant_hears_of_idle_queues_that_may_not_be_so_for_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
