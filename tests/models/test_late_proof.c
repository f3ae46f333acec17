/* Models of the start, which answer before their batching is proven.  repository_create() starts
 * threads. */
#include "onnx/writer.h"

/* The writer and the loader both have a `struct message`. */
#define message loader_message
#include "models/internal.h"
#undef message

#include "models/bench_repository.h"

enum { WIDTH = 64 };

static float asked[2 * WIDTH] = {1, 2, 3};

/* ---- the moment between publication and proof ---- */

static struct {
    void (*act)(void); /* what is done then, on the loader's thread */
    unsigned times;
    bool was_settled;
    struct model_info seen;
} moment;

static void on_moment(void *arg)
{
    struct model_info info;

    if (moment.times == 0 && find_row("m", "1", &info) && info.state == MODEL_READY &&
        strcmp(info.batching, "off: it is being proven") == 0) {
        moment.times++;
        moment.seen = info;
        moment.was_settled = repository_is_settled(bench.repository);
        if (moment.act != NULL)
            moment.act();
    }
    on_change(arg);
}

static uint64_t weights_of_m(void)
{
    uint64_t held;

    load_everything();
    held = weight_bytes();
    repository_destroy(bench.repository);
    bench.repository = NULL;
    return held;
}

/* Starts the repository with `act` at that moment; returns when the start is over. */
static void start_with(void (*act)(void))
{
    uint64_t held = weights_of_m();
    uint64_t taken = BUDGET - (held + 4095) / 4096 * 4096;
    struct error err;

    memset(&moment, 0, sizeof(moment));
    moment.act = act;
    assert_ok(ledger_reserve(bench.ledger, taken, NULL)); /* its first row waits for memory */
    assert_ok(repository_create(&bench.config, &bench.repository, &err));
    repository_on_change(bench.repository, on_moment, NULL);
    ledger_unreserve(bench.ledger, taken);
    pthread_mutex_lock(&bench.lock);
    while (!repository_is_settled(bench.repository))
        pthread_cond_wait(&bench.moved, &bench.lock);
    pthread_mutex_unlock(&bench.lock);
    assert_int_equal(moment.times, 1);
}

static void await_batching(const char *text)
{
    pthread_mutex_lock(&bench.lock);
    for (;;) {
        unsigned moves = bench.moves;
        struct model_info info;
        bool reached;

        pthread_mutex_unlock(&bench.lock);
        reached = find_row("m", "1", &info) && strcmp(info.batching, text) == 0;
        pthread_mutex_lock(&bench.lock);
        if (reached)
            break;
        while (bench.moves == moves)
            pthread_cond_wait(&bench.moved, &bench.lock);
    }
    pthread_mutex_unlock(&bench.lock);
}

static const char *batching_of_m(void)
{
    static struct model_info info;

    assert_true(find_row("m", "1", &info));
    return info.batching;
}

/* ---- what is done then ---- */

static void ask_m(void)
{
    struct ask ask = {.in = {floats(asked, 2, WIDTH)}};

    assert_ok(ask_model(&ask, "m"));
    assert_int_equal(ask.out[0].shape.dims[0], 2);
    ask_end(&ask);
}

static void on_moved(void *arg, const struct residency_answer *answer, const struct error *err)
{
    (void)arg;
    on_command_done(NULL, err == NULL ? STATUS_OK : err->status, err, answer->freed_bytes);
}

static void drop_m(void)
{
    repository_sleep(bench.repository, "m", SLEEP_ALL, on_moved, NULL);
    assert_ok(await_command());
}

static void stop_loading(void)
{
    repository_stop_loading(bench.repository);
}

/* ---- the tests ---- */

static void a_model_of_the_start_answers_before_it_is_proven(void **state)
{
    (void)state;
    write_two_steps("m");
    start_with(ask_m);
    assert_false(moment.was_settled);
    assert_string_equal(batching_of_m(), "on");
}

static void a_model_that_left_unproven_is_proven_when_it_is_back(void **state)
{
    struct model_info info;

    (void)state;
    write_two_steps("m");
    start_with(drop_m);
    assert_true(find_row("m", "1", &info));
    assert_string_equal(info.batching, "off: it is being proven");
    assert_int_equal(info.residency.where, RESIDENCY_DROPPED);
    ask_m();
    await_batching("on");
}

static void an_unproven_model_is_unloaded_to_the_byte(void **state)
{
    (void)state;
    write_two_steps("m");
    start_with(drop_m);
    assert_ok(unload("m"));
    assert_int_equal(weight_bytes(), 0);
    assert_int_equal(state_of("m", "1"), MODEL_UNAVAILABLE);
}

static void a_load_in_the_place_of_an_unproven_model_is_proven_before_it_is_seen(void **state)
{
    (void)state;
    write_two_steps("m");
    start_with(drop_m);
    assert_ok(load("m", NULL));
    assert_int_equal(moment.times, 1);
    assert_string_equal(batching_of_m(), "on");
}

static void a_daemon_that_stops_does_not_wait_for_proofs(void **state)
{
    (void)state;
    write_two_steps("m");
    start_with(stop_loading);
    assert_string_equal(batching_of_m(), "off: it is being proven");
}

/* Its rows look apart, and its answers are not. */
static void a_batch_dimension_that_was_guessed_is_taken_back_when_the_late_proof_fails(void **state)
{
    struct message graph = mixer();
    struct model *found;
    struct error err;

    (void)state;
    write_model("m", 1, &graph);
    start_with(NULL);
    assert_string_equal(batching_of_m(), "off: rows together differ from rows apart in output 'y'");
    assert_ok(repository_find(bench.repository, "m", "", &found, &err));
    assert_int_equal(model_max_batch_size(found), 0);
    model_unref(found);
}

static void a_configured_batch_dimension_stays_when_the_late_proof_fails(void **state)
{
    struct message graph = mixer();
    struct model *found;
    struct error err;

    (void)state;
    write_model("m", 1, &graph);
    write_text("m/config.pbtxt", "max_batch_size: 4 dynamic_batching { }");
    start_with(NULL);
    assert_string_equal(batching_of_m(), "off: rows together differ from rows apart in output 'y'");
    assert_ok(repository_find(bench.repository, "m", "", &found, &err));
    assert_int_equal(model_max_batch_size(found), 4);
    model_unref(found);
}

/* Its first answer tells already that the proof would fail. */
static void an_answer_without_rows_is_not_published_unproven(void **state)
{
    struct message graph = turner();

    (void)state;
    write_model("m", 1, &graph);
    memset(&moment, 0, sizeof(moment));
    load_everything();
    assert_int_equal(strncmp(batching_of_m(), "off: output 'y' has the shape", 29), 0);
    assert_int_equal(repository_load_counts(bench.repository).ok, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_model_of_the_start_answers_before_it_is_proven),
        TEST(a_model_that_left_unproven_is_proven_when_it_is_back),
        TEST(an_unproven_model_is_unloaded_to_the_byte),
        TEST(a_load_in_the_place_of_an_unproven_model_is_proven_before_it_is_seen),
        TEST(a_daemon_that_stops_does_not_wait_for_proofs),
        TEST(a_batch_dimension_that_was_guessed_is_taken_back_when_the_late_proof_fails),
        TEST(a_configured_batch_dimension_stays_when_the_late_proof_fails),
        TEST(an_answer_without_rows_is_not_published_unproven),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
