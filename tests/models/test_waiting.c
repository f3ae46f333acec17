/* Requests that wait for a model which is away, replaced or unloaded meanwhile.
 * batcher_create() and repository_create() start threads. */
#include "models/bench_resident.h"

/* ---- replaced while somebody waits ---- */

struct waiter {
    struct ask ask;
    enum status status;
    pthread_t thread;
};

static void *wait_for_m(void *arg)
{
    struct waiter *waiter = arg;

    waiter->status = ask_model(&waiter->ask, "m");
    return NULL;
}

/* Asks for "m", which is away and, held by the returned reference, does not come back. */
static struct model *begin_to_wait(struct waiter *waiter, bool any_version)
{
    struct model *away = find_m();

    take_move(away);
    *waiter = (struct waiter){.ask = {.in = {floats(asked, 1, WIDTH)}}};
    waiter->ask.request.any_version = any_version;
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_for_m, waiter), 0);
    while (queue_waiting(away->queue) == 0)
        (void)sched_yield();
    return away;
}

static void end_wait(struct waiter *waiter)
{
    assert_int_equal(pthread_join(waiter->thread, NULL), 0);
}

static void write_multiplier_by(float factor, int version)
{
    struct message graph = multiplier_by(factor);

    write_model("m", version, &graph);
}

static void a_request_that_waits_for_a_model_is_answered_by_the_load_that_replaces_it(void **state)
{
    struct waiter waiter;
    struct model *away;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("m", SLEEP_ALL));
    away = begin_to_wait(&waiter, false);
    write_multiplier_by(2, 1);
    assert_ok(load("m", NULL));
    resident_end_move(away);
    end_wait(&waiter);
    if (waiter.status != STATUS_OK)
        fail_msg("%s", waiter.ask.request.error.text);
    assert_multiplied(&waiter.ask, 2);
    ask_end(&waiter.ask);
    away = model_that_answered(away, &waiter.ask.request, INT64_C(3600000000));
    assert_int_equal(residency_of("m").keep_alive_us, INT64_C(3600000000));
    assert_ptr_equal(away->queue, request_queue(&waiter.ask.request));
    model_unref(away);
}

static void a_later_version_answers_who_named_none(void **state)
{
    struct waiter waiter;
    struct model *away;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("m", SLEEP_ALL));
    away = begin_to_wait(&waiter, true);
    write_multiplier_by(3, 2);
    assert_ok(load("m", NULL));
    resident_end_move(away);
    end_wait(&waiter);
    assert_int_equal(waiter.status, STATUS_OK);
    assert_multiplied(&waiter.ask, 3);
    ask_end(&waiter.ask);
    away = model_that_answered(away, &waiter.ask.request, KEEP_ALIVE_DEFAULT);
    assert_string_equal(model_version(away), "2");
    model_unref(away);
}

static void who_does_not_fit_the_new_model_is_refused(void **state)
{
    struct message graph = adder(1);
    struct waiter waiter;
    struct model *away;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("m", SLEEP_ALL));
    away = begin_to_wait(&waiter, true);
    write_model("m", 1, &graph);
    assert_ok(load("m", NULL));
    resident_end_move(away);
    end_wait(&waiter);
    assert_int_equal(waiter.status, STATUS_UNAVAILABLE);
    ask_end(&waiter.ask);
    model_unref(away);
}

static bool anyone_wants_memory(void)
{
    struct batch_pressure pressure;

    batcher_read_pressure(bench.batcher, clock_now_us(), &pressure);
    return pressure.wanted_bytes > 0;
}

/* Waits for as long as it takes, without room, until `batcher_set_memory_wait`'s time is over. */
static void begin_to_need_room(struct waiter *waiter)
{
    *waiter = (struct waiter){.ask = {.in = {floats(asked, 1, WIDTH)}}};
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_for_m, waiter), 0);
    while (!anyone_wants_memory())
        (void)sched_yield();
}

static void a_way_back_that_was_put_off_and_then_fails_is_told_to_who_waits(void **state)
{
    struct waiter waiter;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("m", SLEEP_ALL));
    assert_ok(ledger_reserve(bench.ledger, BUDGET, NULL));
    begin_to_need_room(&waiter);
    write_multiplier_by(2, 1); /* not what was loaded */
    ledger_unreserve(bench.ledger, BUDGET);
    end_wait(&waiter);
    assert_int_equal(waiter.status, STATUS_PRECONDITION);
    ask_end(&waiter.ask);
    assert_false(anyone_wants_memory());
    assert_int_equal(residency_of("m").failed_reloads, 1);
    assert_int_equal(weight_bytes(), 0);
    assert_ok(load("m", NULL));
}

static void a_way_back_whose_last_client_goes_meanwhile_fails_once(void **state)
{
    struct waiter waiter;
    struct model *away;
    uint64_t failed;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("m", SLEEP_ALL));
    assert_ok(ledger_reserve(bench.ledger, BUDGET, NULL));
    begin_to_need_room(&waiter);
    away = find_m();
    take_move(away);
    batcher_set_memory_wait(bench.batcher, 1);
    end_wait(&waiter);
    assert_int_equal(waiter.status, STATUS_NO_MEMORY);
    ask_end(&waiter.ask);
    waker_send(bench.repository, model_ref(away));
    take_move(away); /* after the attempt */
    resident_end_move(away);
    (void)put_to_sleep("nobody", SLEEP_ALL); /* behind whatever the attempt left to the keeper */
    failed = residency_of("m").failed_reloads;
    model_unref(away);
    ledger_unreserve(bench.ledger, BUDGET);
    assert_int_equal(failed, 1);
    assert_answers("m");
}

static void a_wake_without_room_leaves_nobody_waiting(void **state)
{
    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("m", SLEEP_ALL));
    assert_ok(ledger_reserve(bench.ledger, BUDGET, NULL));
    assert_int_equal(wake("m"), STATUS_NO_MEMORY);
    ledger_unreserve(bench.ledger, BUDGET);
    assert_false(anyone_wants_memory());
    assert_ok(wake("m"));
}

/* The first of them has work left for as long as somebody holds it. */
static void of_models_that_replace_each_other_only_the_last_holds_memory(void **state)
{
    struct model *first;
    uint64_t held, after;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    held = weight_bytes();
    first = find_m();
    for (int i = 0; i < 4; i++)
        assert_ok(load("m", NULL));
    (void)put_to_sleep("nobody", SLEEP_ALL); /* behind whatever they left to the keeper */
    after = weight_bytes();
    model_unref(first);
    assert_int_equal(after, held);
    assert_answers("m");
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

/* On the loader's thread, which stands in front of the gate. */
static void pass_gate(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

/* The loader may be waiting for that very memory. */
static void a_retired_model_leaves_the_device_whatever_the_loader_does(void **state)
{
    struct waiter waiter = {.ask = {.in = {floats(asked, 1, WIDTH)}}};
    struct model *model;
    struct queue_use use;
    uint64_t held;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    held = weight_bytes();
    repository_on_change(bench.repository, pass_gate, NULL);
    pthread_mutex_lock(&bench.lock); /* the answer cannot be handed over */
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_m, &waiter), 0);
    model = find_m();
    do {
        (void)sched_yield();
        queue_read_use(model->queue, &use);
    } while (use.pending == 0 || use.is_busy);
    model_unref(model);
    pthread_mutex_lock(&gate);
    repository_unload(bench.repository, "m", on_command_done, NULL);
    while (state_of("m", "1") != MODEL_UNLOADING)
        (void)sched_yield();
    assert_int_equal(weight_bytes(), held);
    pthread_mutex_unlock(&bench.lock);
    while (weight_bytes() > 0)
        (void)sched_yield();
    pthread_mutex_unlock(&gate);
    end_wait(&waiter);
    assert_multiplied(&waiter.ask, 1);
    ask_end(&waiter.ask);
    assert_ok(await_command());
    assert_int_equal(bench.freed_bytes, held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_that_waits_for_a_model_is_answered_by_the_load_that_replaces_it),
        TEST(a_later_version_answers_who_named_none),
        TEST(who_does_not_fit_the_new_model_is_refused),
        TEST(a_way_back_that_was_put_off_and_then_fails_is_told_to_who_waits),
        TEST(a_way_back_whose_last_client_goes_meanwhile_fails_once),
        TEST(a_wake_without_room_leaves_nobody_waiting),
        TEST(of_models_that_replace_each_other_only_the_last_holds_memory),
        TEST(a_retired_model_leaves_the_device_whatever_the_loader_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
