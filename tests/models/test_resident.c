/* Moves of models, by word and by the clock, and under failing allocations.
 * batcher_create() and repository_create() start threads. */
#include "models/bench_resident.h"
#include "support/fail_alloc.h"

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

/* ---- every allocation failing ---- */

struct mover {
    struct model *model;
    uint64_t held;
};

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
        TEST(who_waits_for_the_end_of_a_move_hears_of_it),
        TEST(a_model_whose_file_changed_does_not_come_back_but_can_be_unloaded),
        TEST(a_pinned_model_leaves_with_its_unload_to_the_byte),
        TEST(moves_survive_every_failed_allocation),
        TEST(a_command_that_finds_no_memory_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
