/* The repository: loads, lookups, unloads, requests.  batcher_create() and
 * repository_create() start threads. */
#include "models/bench_repository.h"

static void a_loaded_model_answers(void **state)
{
    struct message graph = adder(2);
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct ask ask = {.in = {floats(x, 2, 4)}};

    (void)state;
    write_model("add", 1, &graph);
    load_everything();
    assert_ok(ask_model(&ask, "add"));
    for (size_t i = 0; i < 8; i++)
        assert_float_equal(((const float *)ask.out[0].data)[i], x[i] + 2, 0);
    ask_end(&ask);
}

static void a_failed_load_leaves_no_byte_and_its_reason(void **state)
{
    struct message graph = multiplier();
    struct model_info info = {0};
    struct model *found;
    struct error err;

    (void)state;
    make_folder("bad");
    make_folder("bad/1");
    write_text("bad/1/model.onnx", "this is no model");
    make_folder("empty");
    write_model("typo", 1, &graph);
    write_text("typo/config.pbtxt", "input { name: 'x' data_type: TYPE_INT8 dims: [ 64 ] }\n"
                                    "max_batch_size: 1");
    write_model("sequence", 1, &graph);
    write_text("sequence/config.pbtxt", "sequence_batching { }");
    load_everything();
    assert_false(repository_is_ready(bench.repository, true));
    assert_true(repository_is_ready(bench.repository, false));
    assert_true(find_row("bad", "1", &info));
    assert_int_equal(info.state, MODEL_UNAVAILABLE);
    assert_true(info.reason[0] != '\0');
    assert_true(find_row("empty", "", &info));
    assert_int_equal(info.state, MODEL_UNAVAILABLE);
    assert_non_null(strstr(info.reason, "no version"));
    assert_true(find_row("typo", "1", &info));
    assert_string_equal(info.reason, "model 'typo': input 'x' is configured as TYPE_INT8, but the "
                                     "model has TYPE_FP32");
    assert_true(find_row("sequence", "", &info));
    assert_non_null(strstr(info.reason, "'sequence_batching'"));
    assert_int_equal(weight_bytes(), 0);
    assert_int_equal(repository_load_counts(bench.repository).ok, 0);
    assert_int_equal(repository_load_counts(bench.repository).failed, 4);
    assert_int_equal(repository_find(bench.repository, "bad", "1", &found, &err),
                     STATUS_UNAVAILABLE);
    assert_string_equal(err.text,
                        "Request for unknown model: 'bad' version 1 is not at ready state");
}

static void lookups_fail_with_tritons_words(void **state)
{
    struct message graph = adder(1);
    struct model *found;
    struct error err;
    bool ready = true;

    (void)state;
    write_model("add", 1, &graph);
    make_folder("void");
    load_everything();
    assert_int_equal(repository_find(bench.repository, "no", "", &found, &err), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "Request for unknown model: 'no' is not found");
    assert_int_equal(repository_find(bench.repository, "add", "7", &found, &err), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "Request for unknown model: 'add' version 7 is not found");
    assert_int_equal(repository_find(bench.repository, "void", "", &found, &err), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "Request for unknown model: 'void' has no available versions");
    assert_int_equal(repository_find(bench.repository, "add", "-1", &found, &err), STATUS_INVALID);
    assert_int_equal(repository_find(bench.repository, "add", "1x", &found, &err), STATUS_INVALID);
    assert_ok(repository_is_model_ready(bench.repository, "void", "", &ready, &err));
    assert_false(ready);
    assert_ok(repository_is_model_ready(bench.repository, "add", "1", &ready, &err));
    assert_true(ready);
    assert_int_equal(repository_is_model_ready(bench.repository, "no", "", &ready, &err),
                     STATUS_NOT_FOUND);
}

static char said_while_loading[256];

static void look_while_loading(void *arg)
{
    struct model *found;
    struct error err;

    (void)arg;
    if (state_of("add", "1") != MODEL_LOADING)
        return;
    assert_int_equal(repository_find(bench.repository, "add", "", &found, &err),
                     STATUS_UNAVAILABLE);
    (void)snprintf(said_while_loading, sizeof(said_while_loading), "%.255s", err.text);
}

static void a_lookup_of_a_model_that_loads_says_so(void **state)
{
    struct message graph = adder(1);

    (void)state;
    write_model("add", 1, &graph);
    open_repository();
    repository_on_change(bench.repository, look_while_loading, NULL);
    assert_ok(load("add", NULL));
    assert_string_equal(said_while_loading, "model 'add' is being loaded, it is not ready yet");
}

static void unload_frees_to_the_byte(void **state)
{
    struct message graph = multiplier();
    struct model_info info = {0};
    struct model *found;
    struct error err;

    (void)state;
    write_model("a", 1, &graph);
    write_model("b", 1, &graph);
    open_repository();
    assert_int_equal(state_of("a", ""), MODEL_UNKNOWN);
    assert_ok(load("a", NULL));
    uint64_t before = weight_bytes();
    assert_true(before > 0);
    assert_ok(load("b", NULL));
    assert_true(find_row("b", "1", &info));
    assert_int_equal(weight_bytes(), before + info.resident_bytes);
    assert_ok(unload("b"));
    assert_int_equal(bench.freed_bytes, info.resident_bytes);
    assert_int_equal(weight_bytes(), before);
    assert_int_equal(state_of("b", "1"), MODEL_UNAVAILABLE);
    assert_int_equal(repository_find(bench.repository, "b", "1", &found, &err), STATUS_UNAVAILABLE);
    assert_ok(load("b", NULL));
    assert_int_equal(state_of("b", "1"), MODEL_READY);
}

static void unload_waits_for_those_who_hold_the_model(void **state)
{
    struct message graph = adder(1);
    struct model *found;
    struct error err;

    (void)state;
    write_model("add", 1, &graph);
    load_everything();
    assert_ok(repository_find(bench.repository, "add", "", &found, &err));
    repository_unload(bench.repository, "add", on_command_done, NULL);
    await_state("add", "1", MODEL_UNLOADING);
    assert_false(bench.done);
    assert_string_equal(model_name(found), "add");
    model_unref(found);
    assert_ok(await_command());
    assert_int_equal(state_of("add", "1"), MODEL_UNAVAILABLE);
}

static void commands_fail_with_a_reason(void **state)
{
    (void)state;
    make_folder("empty");
    open_repository();
    assert_int_equal(load("nobody", NULL), STATUS_INTERNAL);
    assert_string_equal(bench.error.text,
                        "failed to load 'nobody', failed to poll from model repository: "
                        "it has no folder of that name");
    assert_int_equal(load("../etc", NULL), STATUS_INTERNAL);
    assert_int_equal(unload("nobody"), STATUS_NOT_FOUND);
    assert_int_equal(load("empty", NULL), STATUS_NOT_FOUND);
    assert_int_equal(load("empty", "{\"max_batch_size\": \"many\"}"), STATUS_INVALID);
    assert_non_null(strstr(bench.error.text, "max_batch_size"));
    assert_ok(unload("empty"));
    assert_int_equal(bench.freed_bytes, 0);
}

static void commands_are_refused_in_other_modes(void **state)
{
    (void)state;
    bench.config.control = CONTROL_POLL;
    bench.config.poll_interval_us = 10000000;
    open_repository();
    assert_int_equal(load("m", NULL), STATUS_UNAVAILABLE);
    assert_string_equal(bench.error.text,
                        "explicit model load / unload is not allowed if polling is enabled");
}

static void an_override_takes_the_place_of_the_file(void **state)
{
    struct message graph = adder(1);
    struct model *found;
    struct model_info info;
    struct error err;

    (void)state;
    write_model("add", 1, &graph);
    write_text("add/config.pbtxt", "max_batch_size: 4");
    open_repository();
    assert_ok(load("add", "{\"max_batch_size\": 16, \"dynamic_batching\": {}}"));
    assert_ok(repository_find(bench.repository, "add", "", &found, &err));
    assert_int_equal(model_max_batch_size(found), 16);
    model_unref(found);
    assert_true(find_row("add", "1", &info));
    assert_string_equal(info.batching, "on");
}

static void a_request_must_fit_the_model(void **state)
{
    struct message graph = adder(1);
    float x[4 * 8] = {0};
    struct ask ask;

    (void)state;
    write_model("add", 1, &graph);
    write_text("add/config.pbtxt", "max_batch_size: 4");
    load_everything();
    ask = (struct ask){.in = {floats(x, 8, 4)}};
    assert_int_equal(ask_model(&ask, "add"), STATUS_INVALID);
    assert_string_equal(ask.request.error.text,
                        "inference request batch-size must be <= 4 for 'add'");
    ask_end(&ask);
    ask = (struct ask){.in = {floats(x, 1, 5)}};
    assert_int_equal(ask_model(&ask, "add"), STATUS_INVALID);
    assert_non_null(strstr(ask.request.error.text,
                           "unexpected shape for input 'x' for model 'add'. "
                           "Expected [-1,4], got [1,5]."));
    ask_end(&ask);
    ask = (struct ask){.in = {floats(x, 1, 4)}};
    ask.in[0].bytes = 12;
    assert_int_equal(ask_model(&ask, "add"), STATUS_INVALID);
    assert_string_equal(ask.request.error.text, "input byte size mismatch for input 'x' for model "
                                                "'add'. Expected 16, got 12");
    ask_end(&ask);
    ask = (struct ask){.in = {{.data = NULL}}};
    assert_int_equal(ask_model(&ask, "add"), STATUS_INVALID);
    assert_non_null(
        strstr(ask.request.error.text, "expected 1 inputs but got 0 inputs for model 'add'"));
    assert_non_null(strstr(ask.request.error.text, "missing required input(s) ['x']"));
    ask_end(&ask);
}

static void labels_are_read(void **state)
{
    struct message graph = adder(1);
    const struct model_port *ports;
    struct model *found;
    struct error err;

    (void)state;
    write_model("add", 1, &graph);
    write_text("add/config.pbtxt", "max_batch_size: 4\n"
                                   "output { name: 'y' label_filename: 'names.txt' }");
    write_text("add/names.txt", "cat\ndog\r\n\nfish");
    load_everything();
    assert_ok(repository_find(bench.repository, "add", "", &found, &err));
    assert_int_equal(model_outputs(found, &ports), 1);
    assert_int_equal(ports[0].labels, 4);
    assert_string_equal(ports[0].label[1], "dog");
    assert_string_equal(ports[0].label[3], "fish");
    assert_int_equal(ports[0].shape.rank, 2);
    model_unref(found);
}

static void a_warm_up_is_run_and_checked(void **state)
{
    struct message graph = adder(1);
    static const float row[4] = {1, 2, 3, 4};
    struct model_info info = {0};

    (void)state;
    write_model("good", 1, &graph);
    make_folder("good/warmup");
    write_file("good/warmup/row", row, sizeof(row));
    write_text(
        "good/config.pbtxt",
        "max_batch_size: 4 model_warmup [ { name: 'w' batch_size: 3 count: 2 inputs { key: 'x' "
        "value { data_type: TYPE_FP32 dims: 4 input_data_file: 'row' } } } ]");
    write_model("bad", 1, &graph);
    write_text("bad/config.pbtxt",
               "max_batch_size: 4 model_warmup { name: 'w' batch_size: 3 inputs { key: 'z' value { "
               "data_type: TYPE_FP32 dims: 4 zero_data: true } } }");
    load_everything();
    assert_int_equal(state_of("good", "1"), MODEL_READY);
    assert_true(find_row("bad", "1", &info));
    assert_string_equal(info.reason, "model 'bad': model_warmup 'w' has no input 'x'");
}

static void paths_that_leave_the_folder_are_refused(void **state)
{
    struct message graph = adder(1);
    struct model_info info = {0};

    (void)state;
    write_model("up", 1, &graph);
    write_text("up/config.pbtxt", "default_model_filename: '../../secret'");
    write_model("abs", 1, &graph);
    write_text("abs/config.pbtxt", "output { name: 'y' label_filename: '/etc/passwd' }");
    load_everything();
    assert_true(find_row("up", "", &info));
    assert_non_null(strstr(info.reason, "leaves the folder"));
    assert_true(find_row("abs", "", &info));
    assert_non_null(strstr(info.reason, "absolute"));
}

/* ---- many at once ---- */

static atomic_bool stop_asking;

static void *ask_without_end(void *arg)
{
    float x[4] = {5, 6, 7, 8};
    uint64_t *answers = arg;

    while (!atomic_load(&stop_asking)) {
        struct ask ask = {.in = {floats(x, 1, 4)}};
        enum status status = ask_model(&ask, "add");

        if (status == STATUS_NOT_FOUND ||
            (status == STATUS_UNAVAILABLE && ask.request.done == NULL))
            continue; /* not there at the moment */
        if (status == STATUS_OK) {
            if (((const float *)ask.out[0].data)[3] != 9)
                abort();
            ++*answers;
        } else if (status != STATUS_UNAVAILABLE) {
            abort();
        }
        ask_end(&ask);
    }
    return NULL;
}

static void requests_run_while_models_come_and_go(void **state)
{
    struct message graph = adder(1), other = multiplier();
    uint64_t answers[3] = {0}, bytes;
    pthread_t threads[3];

    (void)state;
    write_model("add", 1, &graph);
    write_model("other", 1, &other);
    load_everything();
    bytes = weight_bytes();
    atomic_store(&stop_asking, false);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_without_end, &answers[i]), 0);
    for (int i = 0; i < 20; i++) {
        assert_ok(load("add", NULL));
        assert_ok(unload("other"));
        assert_ok(load("other", NULL));
        if (i % 5 == 4) {
            assert_ok(unload("add"));
            assert_ok(load("add", NULL));
        }
    }
    atomic_store(&stop_asking, true);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(answers[i] > 0);
    }
    assert_int_equal(weight_bytes(), bytes);
}

/* ---- real repositories ---- */

static void open_real(const char *path)
{
    if (access(path, F_OK) != 0)
        skip();
    bench.config.path = path;
    bench.config.control = CONTROL_NONE;
    open_repository();
}

static void the_demo_model_loads_and_batches(void **state)
{
    struct model_info info = {0};

    (void)state;
    open_real(SOURCE_DIR "/models");
    assert_true(find_row("magika", "1", &info));
    assert_string_equal(info.reason, "");
    assert_int_equal(info.state, MODEL_READY);
    assert_string_equal(info.batching, "on");
}

static void tritons_examples_load(void **state)
{
    struct model_info info = {0};

    (void)state;
    open_real(SOURCE_DIR "/../shared/triton-example-repository");
    assert_int_equal(state_of("simple", "1"), MODEL_READY);
    assert_int_equal(state_of("simple_int8", "1"), MODEL_READY);
    assert_true(find_row("simple_string", "1", &info));
    assert_string_equal(info.reason, "");
    assert_int_equal(info.state, MODEL_READY);
    assert_true(find_row("simple_sequence", "", &info));
    assert_non_null(strstr(info.reason, "'sequence_batching' is not supported"));
    assert_true(find_row("simple_dyna_sequence", "", &info));
    assert_non_null(strstr(info.reason, "'sequence_batching' is not supported"));
}

static void a_folder_that_may_not_be_read_stops_the_start(void **state)
{
    char path[] = "/tmp/sluice-models-XXXXXX";
    struct repository_config config = {.path = path};
    struct repository *repository = NULL;
    bool is_root = geteuid() == 0;
    enum status status;
    struct error err;

    (void)state;
    assert_non_null(mkdtemp(path));
    assert_int_equal(chmod(path, 0), 0);
    if (is_root) /* who may read anything */
        assert_int_equal(seteuid(65534), 0);
    status = repository_create(&config, &repository, &err);
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(status, STATUS_IO);
    assert_non_null(strstr(err.text, "Permission denied"));
    assert_null(repository);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_that_may_not_be_read_stops_the_start),
        TEST(a_loaded_model_answers),
        TEST(a_failed_load_leaves_no_byte_and_its_reason),
        TEST(lookups_fail_with_tritons_words),
        TEST(a_lookup_of_a_model_that_loads_says_so),
        TEST(unload_frees_to_the_byte),
        TEST(unload_waits_for_those_who_hold_the_model),
        TEST(commands_fail_with_a_reason),
        TEST(commands_are_refused_in_other_modes),
        TEST(an_override_takes_the_place_of_the_file),
        TEST(a_request_must_fit_the_model),
        TEST(labels_are_read),
        TEST(a_warm_up_is_run_and_checked),
        TEST(paths_that_leave_the_folder_are_refused),
        TEST(requests_run_while_models_come_and_go),
        TEST(the_demo_model_loads_and_batches),
        TEST(tritons_examples_load),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
