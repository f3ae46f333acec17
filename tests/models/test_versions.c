/* Which versions are served, and how polls follow the folder.  repository_create() starts threads.
 */
#include <semaphore.h>

#include "models/bench_repository.h"

static void the_version_policy_chooses(void **state)
{
    struct message graph = adder(1);
    struct model *found;
    struct error err;

    (void)state;
    for (int version = 1; version <= 3; version++) {
        write_model("latest", version, &graph);
        write_model("two", version, &graph);
        write_model("all", version, &graph);
        write_model("some", version, &graph);
        write_model("gone", version, &graph);
    }
    make_folder("latest/notes");
    make_folder("latest/04");
    write_text("two/config.pbtxt", "version_policy { latest { num_versions: 2 } }");
    write_text("all/config.pbtxt", "version_policy { all { } }");
    write_text("some/config.pbtxt", "version_policy { specific { versions: [ 1, 3 ] } }");
    write_text("gone/config.pbtxt", "version_policy { specific { versions: [ 9 ] } }");
    load_everything();
    assert_false(find_row("latest", "1", NULL));
    assert_false(find_row("latest", "2", NULL));
    assert_int_equal(state_of("latest", "3"), MODEL_READY);
    assert_false(find_row("two", "1", NULL));
    assert_int_equal(state_of("two", "2"), MODEL_READY);
    assert_int_equal(state_of("two", "3"), MODEL_READY);
    assert_int_equal(state_of("all", "1"), MODEL_READY);
    assert_int_equal(state_of("some", "1"), MODEL_READY);
    assert_false(find_row("some", "2", NULL));
    assert_int_equal(state_of("some", "3"), MODEL_READY);
    assert_int_equal(state_of("gone", ""), MODEL_UNAVAILABLE);
    assert_ok(repository_find(bench.repository, "all", "", &found, &err));
    assert_string_equal(model_version(found), "3");
    model_unref(found);
    assert_ok(repository_find(bench.repository, "all", "2", &found, &err));
    assert_string_equal(model_version(found), "2");
    model_unref(found);
}

static void poll_follows_the_folder(void **state)
{
    struct message one = adder(1), ten = adder(10);
    float x[4] = {0};
    struct ask ask = {.in = {floats(x, 1, 4)}};

    (void)state;
    bench.config.control = CONTROL_POLL;
    bench.config.poll_interval_us = 2000;
    write_model("add", 1, &one);
    open_repository();
    assert_ok(ask_model(&ask, "add"));
    assert_float_equal(*(const float *)ask.out[0].data, 1, 0);
    ask_end(&ask);

    write_model("late", 1, &one);
    await_state("late", "1", MODEL_READY);
    write_model("add", 2, &ten);
    await_state("add", "2", MODEL_READY);
    await_state("add", "1", MODEL_UNAVAILABLE); /* only the newest is wanted */
    ask = (struct ask){.in = {floats(x, 1, 4)}};
    assert_ok(ask_model(&ask, "add"));
    assert_float_equal(*(const float *)ask.out[0].data, 10, 0);
    ask_end(&ask);

    remove_folder("late");
    await_state("late", "1", MODEL_UNKNOWN); /* nothing of it is left in the index */
    assert_int_equal(state_of("add", "2"), MODEL_READY);
}

static void a_changed_file_replaces_the_version(void **state)
{
    struct message one = adder(1), ten = adder(10);
    float x[4] = {0}, seen = 1;

    (void)state;
    bench.config.control = CONTROL_POLL;
    bench.config.poll_interval_us = 2000;
    write_model("add", 1, &one);
    open_repository();
    write_model("add", 1, &ten);
    /* The version is ready all the time; every answer is whole, old or new. */
    while (seen == 1) {
        struct ask ask = {.in = {floats(x, 1, 4)}};
        enum status status = ask_model(&ask, "add");

        if (status == STATUS_UNAVAILABLE) { /* found before, closed when it was submitted */
            ask_end(&ask);
            continue;
        }
        assert_int_equal(status, STATUS_OK);
        seen = *(const float *)ask.out[0].data;
        assert_true(seen == 1 || seen == 10);
        ask_end(&ask);
    }
}

static struct {
    sem_t entered, never;
    atomic_bool inside;
} slow_listener;

/* Takes 50 ms, in which who takes it away has long returned if he does not wait. */
static void listen_slowly(void *arg)
{
    struct timespec until;

    (void)arg;
    atomic_store(&slow_listener.inside, true);
    sem_post(&slow_listener.entered);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)sem_timedwait(&slow_listener.never, &until);
    atomic_store(&slow_listener.inside, false);
}

static void a_listener_is_not_called_any_more_once_it_was_taken_away(void **state)
{
    struct message graph = adder(2);

    (void)state;
    sem_init(&slow_listener.entered, 0, 0);
    sem_init(&slow_listener.never, 0, 0);
    write_model("add", 1, &graph);
    open_repository();
    repository_on_change(bench.repository, listen_slowly, NULL);
    repository_load(bench.repository, "add", NULL, on_command_done, NULL);
    sem_wait(&slow_listener.entered);
    repository_on_change(bench.repository, NULL, NULL);
    assert_false(atomic_load(&slow_listener.inside));
    assert_ok(await_command());
    sem_destroy(&slow_listener.never);
    sem_destroy(&slow_listener.entered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_version_policy_chooses),
        TEST(poll_follows_the_folder),
        TEST(a_changed_file_replaces_the_version),
        TEST(a_listener_is_not_called_any_more_once_it_was_taken_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
