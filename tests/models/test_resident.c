/* Moves of models: by word, under failing allocations, and by many threads at once.
 * batcher_create() and repository_create() start threads. */
#include "onnx/writer.h"

/* The writer and the loader both have a `struct message`. */
#define message loader_message
#include "models/internal.h"
#undef message
/* So have the engine and the table a `struct slot`. */
#define slot engine_slot
#include "engine/internal.h"
#undef slot

#include "models/bench_repository.h"
#include "support/fail_alloc.h"

enum { WIDTH = 64, ASKERS = 4, ROUNDS = 40 };

/* ---- commands ---- */

static struct residency_answer moved;

static void on_moved(void *arg, const struct residency_answer *answer, const struct error *err)
{
    (void)arg;
    moved = *answer;
    on_command_done(NULL, err == NULL ? STATUS_OK : err->status, err, answer->freed_bytes);
}

static enum status put_to_sleep(const char *name, enum sleep_level level)
{
    repository_sleep(bench.repository, name, level, on_moved, NULL);
    return await_command();
}

static enum status wake(const char *name)
{
    repository_wake(bench.repository, name, on_moved, NULL);
    return await_command();
}

static struct model_residency residency_of(const char *name)
{
    struct model_info info = {0};

    assert_true(find_row(name, "1", &info));
    assert_int_equal(info.state, MODEL_READY);
    return info.residency;
}

static struct model *find(const char *name)
{
    struct model *found;
    struct error err;

    assert_ok(repository_find(bench.repository, name, "", &found, &err));
    return found;
}

static struct model *find_m(void)
{
    return find("m");
}

static float asked[WIDTH] = {1, 2, 3};

static void assert_multiplied(const struct ask *ask, int factor)
{
    for (int i = 0; i < 4; i++) {
        int right = 0;

        for (int row = 0; row < 3; row++)
            right += (row + 1) * factor * ((4 * row + i) % 7 - 3); /* weights of multiplier_by() */
        assert_float_equal(((const float *)ask->out[0].data)[i], (float)right, 1e-5);
    }
}

static void assert_answers(const char *name)
{
    struct ask ask = {.in = {floats(asked, 1, WIDTH)}};

    if (ask_model(&ask, name) != STATUS_OK)
        fail_msg("%s: %s", name, ask.request.error.text);
    assert_multiplied(&ask, 1);
    ask_end(&ask);
}

static void write_multiplier(const char *name, const char *config)
{
    struct message graph = multiplier();
    char path[64];

    write_model(name, 1, &graph);
    (void)snprintf(path, sizeof(path), "%.40s/config.pbtxt", name);
    write_text(path, config);
}

static void a_model_sleeps_and_wakes(void **state)
{
    uint64_t held;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    bench.config.host_cache_bytes = 1 << 20;
    load_everything();
    held = weight_bytes();
    assert_ok(put_to_sleep("m", SLEEP_WEIGHTS));
    assert_int_equal(moved.models, 1);
    assert_int_equal(residency_of("m").where, RESIDENCY_HOST);
    assert_int_equal(residency_of("m").device_bytes, held);
    assert_int_equal(weight_bytes(), 0);
    assert_ok(put_to_sleep("", SLEEP_ALL));
    assert_int_equal(residency_of("m").where, RESIDENCY_DROPPED);
    assert_int_equal(residency_of("m").host_bytes, 0);
    assert_ok(wake("m"));
    assert_int_equal(residency_of("m").where, RESIDENCY_DEVICE);
    assert_int_equal(weight_bytes(), held);
    assert_int_equal(residency_of("m").reloads, 1);
    assert_int_equal(residency_of("m").evictions, 1);
    assert_answers("m");
    assert_ok(wake("")); /* nothing to do */
    assert_int_equal(moved.models, 0);
    assert_int_equal(put_to_sleep("nobody", SLEEP_ALL), STATUS_NOT_FOUND);
    assert_int_equal(wake("nobody"), STATUS_NOT_FOUND);
}

static void without_a_host_cache_a_model_is_dropped_at_once(void **state)
{
    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("m", SLEEP_WEIGHTS));
    assert_int_equal(residency_of("m").where, RESIDENCY_DROPPED);
    assert_answers("m");
}

static void a_full_host_cache_drops_the_coldest(void **state)
{
    uint64_t bytes;

    (void)state;
    write_multiplier("a", "max_batch_size: 8");
    write_multiplier("b", "max_batch_size: 8");
    bench.config.host_cache_bytes = 1 << 20;
    load_everything();
    assert_ok(put_to_sleep("a", SLEEP_WEIGHTS));
    bytes = residency_of("a").host_bytes;
    assert_true(bytes > 0);
    repository_set_residency(bench.repository, 0, 0, bytes + bytes / 2);
    assert_ok(put_to_sleep("b", SLEEP_WEIGHTS));
    assert_int_equal(residency_of("a").where, RESIDENCY_DROPPED);
    assert_int_equal(residency_of("b").where, RESIDENCY_HOST);
    assert_answers("a");
    assert_answers("b");
}

static void a_pinned_model_stays_whoever_asks(void **state)
{
    (void)state;
    write_multiplier("m", "parameters { key: 'sluice.pin' value { string_value: 'true' } }");
    load_everything();
    assert_ok(put_to_sleep("m", SLEEP_ALL));
    assert_int_equal(moved.pinned, 1);
    assert_int_equal(moved.models, 0);
    assert_int_equal(residency_of("m").where, RESIDENCY_DEVICE);
    assert_int_equal(repository_evictable(bench.repository), 0);
    assert_int_equal(repository_evict(bench.repository, UINT64_MAX), 0);
}

/* Blocks until it rests there. */
static void await_where(const char *name, enum residency where)
{
    struct model *model = find(name);

    pthread_mutex_lock(&bench.repository->lock);
    while (model->resident.where != where || model->resident.is_moving)
        pthread_cond_wait(&bench.repository->rested, &bench.repository->lock);
    pthread_mutex_unlock(&bench.repository->lock);
    model_unref(model);
}

static void the_governor_s_word_makes_idle_models_leave(void **state)
{
    uint64_t held;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    held = weight_bytes();
    assert_int_equal(repository_evictable(bench.repository), held);
    assert_int_equal(repository_evict(bench.repository, UINT64_MAX), held);
    await_where("m", RESIDENCY_DROPPED);
    assert_int_equal(repository_evict(bench.repository, 1), 0);
    assert_answers("m");
}

static void idle_models_leave_when_their_time_is_up(void **state)
{
    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    bench.config.model_idle_us = 20000;
    bench.config.model_drop_us = 40000;
    bench.config.host_cache_bytes = 1 << 20;
    load_everything();
    await_where("m", RESIDENCY_DROPPED);
    assert_int_equal(residency_of("m").evictions, 1);
    repository_set_residency(bench.repository, 0, 0, 1 << 20);
    assert_answers("m");
    assert_int_equal(residency_of("m").keep_alive_us, CLOCK_NEVER);
    repository_set_residency(bench.repository, 1000, 0, 1 << 20);
    await_where("m", RESIDENCY_HOST);
}

static void a_system_short_of_memory_makes_the_coldest_in_host_memory_go(void **state)
{
    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    write_multiplier("n", "max_batch_size: 8");
    bench.config.host_cache_bytes = 1 << 20;
    load_everything();
    assert_answers("m");
    assert_answers("n");
    assert_ok(put_to_sleep("", SLEEP_WEIGHTS));
    repository_system_presses(bench.repository);
    await_where("m", RESIDENCY_DROPPED);
    assert_int_equal(residency_of("n").where, RESIDENCY_HOST);
    repository_system_presses(bench.repository);
    await_where("n", RESIDENCY_DROPPED);
    assert_answers("m");
}

/* ---- room ---- */

/* Tanh(x · V) · W: between the products lies an activation, whatever is fused. */
static void write_two_steps(const char *name)
{
    enum { INNER = 8 };
    static float weights[WIDTH * INNER];
    struct message graph = {0};

    for (size_t i = 0; i < WIDTH * INNER; i++)
        weights[i] = (float)(i % 5);
    put_text(&graph, GRAPH_NAME, "g");
    put_tensor(&graph, GRAPH_TENSOR, "v", FLOAT, 2, (int64_t[]){WIDTH, INNER}, weights,
               sizeof(weights));
    put_tensor(&graph, GRAPH_TENSOR, "w", FLOAT, 2, (int64_t[]){INNER, 4}, weights,
               INNER * 4 * sizeof(weights[0]));
    put_node(&graph, "MatMul", "x v", "g");
    put_node(&graph, "Tanh", "g", "h");
    put_node(&graph, "MatMul", "h w", "y");
    put_floats(&graph, GRAPH_INPUT, "x", BATCH, WIDTH);
    put_floats(&graph, GRAPH_OUTPUT, "y", BATCH, 4);
    write_model(name, 1, &graph);
}

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

/* ---- every allocation failing ---- */

struct mover {
    struct model *model;
    uint64_t held;
};

/* Behind the move that may be under way. */
static void take_move(struct model *model)
{
    bool taken = false;

    while (!taken) {
        pthread_mutex_lock(&bench.repository->lock);
        taken = !model->resident.is_moving;
        model->resident.is_moving = true;
        pthread_mutex_unlock(&bench.repository->lock);
        (void)sched_yield();
    }
}

static enum status move_back(void *arg)
{
    struct mover *mover = arg;
    struct model *model = mover->model;
    struct error err;
    enum status status;

    take_move(model);
    status = resident_return(model, &err);
    resident_end_move(model);
    if (status != STATUS_OK) {
        assert_int_not_equal(model->resident.where, RESIDENCY_DEVICE);
        assert_int_equal(weight_bytes(), 0);
        return status;
    }
    assert_int_equal(model->resident.where, RESIDENCY_DEVICE);
    assert_int_equal(weight_bytes(), mover->held);
    assert_int_equal(resident_leave(model, RESIDENCY_DROPPED, PARK_IDLE, NULL), mover->held);
    assert_int_equal(weight_bytes(), 0);
    return status;
}

static void moves_survive_every_failed_allocation(void **state)
{
    char folder[128];
    struct load_context context = {.folder = folder,
                                   .name = "m",
                                   .version = 1,
                                   .batch_given = true,
                                   .device = bench.device,
                                   .ledger = bench.ledger,
                                   .batcher = bench.batcher};
    Inference__ModelConfig *config;
    struct mover mover;
    struct error err;

    (void)state;
    open_repository();
    write_multiplier("m", "max_batch_size: 8");
    (void)snprintf(folder, sizeof(folder), "%s/m", bench.path);
    assert_ok(model_config_read(folder, "m", NULL, &config, &context.batch_given, &err));
    context.config = config;
    assert_ok(model_load(&context, &mover.model, &err));
    resident_start(mover.model, bench.repository);
    mover.held = weight_bytes();
    assert_int_equal(resident_leave(mover.model, RESIDENCY_DROPPED, PARK_IDLE, NULL), mover.held);
    assert_true(fail_each_alloc(move_back, &mover) > 50);
    queue_close(mover.model->queue, NULL, NULL);
    (void)model_destroy(mover.model);
    model_config_destroy(config);
}

static void a_command_that_finds_no_memory_says_so(void **state)
{
    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    fail_alloc_arm(1);
    repository_sleep(bench.repository, "m", SLEEP_ALL, on_moved, NULL);
    assert_int_equal(await_command(), STATUS_NO_MEMORY);
    fail_alloc_arm(2);
    repository_wake(bench.repository, "m", on_moved, NULL);
    assert_int_equal(await_command(), STATUS_NO_MEMORY);
    (void)fail_alloc_disarm();
    assert_answers("m");
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

static void a_model_whose_file_changed_does_not_come_back_but_can_be_unloaded(void **state)
{
    float x[WIDTH] = {1};
    struct ask ask = {.in = {floats(x, 1, WIDTH)}};
    struct model *found;
    struct error err;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("m", SLEEP_ALL));
    write_text("m/1/model.onnx", "changed");
    assert_int_equal(ask_model(&ask, "m"), STATUS_PRECONDITION);
    ask_end(&ask);
    assert_int_equal(residency_of("m").failed_reloads, 1);
    assert_int_equal(wake("m"), STATUS_PRECONDITION);
    assert_ok(repository_find(bench.repository, "m", "", &found, &err));
    model_unref(found);
    assert_ok(unload("m"));
}

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

struct rest {
    struct model *model;
    enum residency where;
    bool rests;
};

static void *await_rest(void *arg)
{
    struct rest *rest = arg;

    rest->rests = model_await_rest(rest->model, CLOCK_NEVER, &rest->where);
    return NULL;
}

static void who_waits_for_the_end_of_a_move_hears_of_it(void **state)
{
    struct rest rest = {.rests = true};
    pthread_t thread;

    (void)state;
    write_multiplier("m", "max_batch_size: 8");
    load_everything();
    assert_ok(put_to_sleep("m", SLEEP_ALL));
    rest.model = find_m();
    take_move(rest.model);
    assert_false(model_await_rest(rest.model, clock_now_us(), &rest.where));
    assert_int_equal(pthread_create(&thread, NULL, await_rest, &rest), 0);
    resident_end_move(rest.model);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(rest.rests);
    assert_int_equal(rest.where, RESIDENCY_DROPPED);
    model_unref(rest.model);
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

static void a_pinned_model_leaves_with_its_unload_to_the_byte(void **state)
{
    uint64_t held;

    (void)state;
    write_multiplier("m", "parameters { key: 'sluice.pin' value { string_value: 'true' } }");
    load_everything();
    held = weight_bytes();
    assert_ok(unload("m"));
    assert_int_equal(bench.freed_bytes, held);
    assert_int_equal(weight_bytes(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_bench, tear_down_bench)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_model_sleeps_and_wakes),
        TEST(without_a_host_cache_a_model_is_dropped_at_once),
        TEST(a_full_host_cache_drops_the_coldest),
        TEST(a_pinned_model_stays_whoever_asks),
        TEST(the_governor_s_word_makes_idle_models_leave),
        TEST(idle_models_leave_when_their_time_is_up),
        TEST(a_system_short_of_memory_makes_the_coldest_in_host_memory_go),
        TEST(a_model_does_not_come_back_without_room_for_its_first_batch),
        TEST(a_load_that_is_itself_in_the_way_of_its_probes_does_not_wait),
        TEST(a_slow_way_back_does_not_hold_up_a_short_one),
        TEST(at_level_evict_comes_what_could_stay_and_idle_models_leave_for_it),
        TEST(at_level_evict_what_could_not_stay_is_refused_and_told_who_is_there),
        TEST(moves_survive_every_failed_allocation),
        TEST(a_command_that_finds_no_memory_says_so),
        TEST(requests_and_evictions_meet_without_harm),
        TEST(a_request_that_waits_for_a_model_is_answered_by_the_load_that_replaces_it),
        TEST(a_later_version_answers_who_named_none),
        TEST(who_waits_for_the_end_of_a_move_hears_of_it),
        TEST(who_does_not_fit_the_new_model_is_refused),
        TEST(a_model_whose_file_changed_does_not_come_back_but_can_be_unloaded),
        TEST(a_way_back_that_was_put_off_and_then_fails_is_told_to_who_waits),
        TEST(a_way_back_whose_last_client_goes_meanwhile_fails_once),
        TEST(a_wake_without_room_leaves_nobody_waiting),
        TEST(of_models_that_replace_each_other_only_the_last_holds_memory),
        TEST(a_retired_model_leaves_the_device_whatever_the_loader_does),
        TEST(a_pinned_model_leaves_with_its_unload_to_the_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
