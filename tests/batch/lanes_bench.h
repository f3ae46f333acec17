/* Lanes on an engine that the test drives: a batcher, one queue or two, requests and their answers.
 * batcher_create() starts threads. */
#ifndef TESTS_BATCH_LANES_BENCH_H
#define TESTS_BATCH_LANES_BENCH_H

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "batch/fake_engine.h"
#include "batch/lanes.h"
#include "support/fail_alloc.h"
#include "support/shifted_clock.h"

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

static inline void on_done(struct request *request)
{
    struct call *call = CONTAINER_OF(request, struct call, request);

    call->done_by = pthread_self();
    mailbox_put(&fixture.answered, &call->mail);
}

static inline int set_up(void **state)
{
    clock_unshift();
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

static inline void start(void)
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
static inline struct call *make(int64_t rows, float value)
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

static inline void submit(struct call *call)
{
    batcher_submit(fixture.batcher, fixture.queue, &call->request);
}

static inline struct call *send_rows(int64_t rows, float value)
{
    struct call *call = make(rows, value);

    submit(call);
    return call;
}

/* Blocks until `count` answers in all have come. */
static inline void await_answers(size_t count)
{
    while (fixture.taken < count) {
        struct mail *mail = mailbox_take_all(&fixture.answered);

        if (mail == NULL)
            mailbox_wait(&fixture.answered, CLOCK_NEVER);
        for (; mail != NULL; mail = mail->next)
            fixture.taken++;
    }
}

static inline void assert_answer_is_right(struct call *call)
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

static inline void on_drained(void *arg)
{
    (void)arg;
    mailbox_put(&fixture.drained_box, &fixture.drained);
}

/* Takes memory of the budget that batches would like to have. */
static inline void hold_memory(uint64_t bytes)
{
    assert_int_equal(ledger_reserve(fixture.ledger, bytes, NULL), STATUS_OK);
    fixture.held_bytes += bytes;
}

static inline void let_memory_go(void)
{
    ledger_unreserve(fixture.ledger, fixture.held_bytes);
    fixture.held_bytes = 0;
    batcher_wake(fixture.batcher);
}

/* Whatever a failed test left in its way must not keep requests from their end. */
static inline void clear_the_way(void)
{
    fake_gate(&fixture.network, false);
    fake_gate(&fixture.other_network, false);
    let_memory_go();
    queue_resume(fixture.queue);
}

static inline void close_queue(struct model_queue *queue)
{
    if (queue == NULL)
        return;
    queue_close(queue, on_drained, NULL);
    while (mailbox_take_all(&fixture.drained_box) == NULL)
        mailbox_wait(&fixture.drained_box, CLOCK_NEVER);
    queue_destroy(queue);
}

static inline int tear_down(void **state)
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

/* Blocks until a batch has been tried that lacks so many bytes. */
static inline void await_want(uint64_t bytes)
{
    struct batch_pressure pressure;

    do
        batcher_read_pressure(fixture.batcher, clock_now_us(), &pressure);
    while (pressure.wanted_bytes != bytes);
}

/* So much time passes, and those who sleep see it. */
static inline void pass_time(int64_t us)
{
    clock_shift(us);
    batcher_wake(fixture.batcher);
}

static inline int64_t rows_of_run(size_t index)
{
    int64_t rows;

    pthread_mutex_lock(&fixture.network.lock);
    rows = index < fixture.network.runs ? fixture.network.run_rows[index] : 0;
    pthread_mutex_unlock(&fixture.network.lock);
    return rows;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
