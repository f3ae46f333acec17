/* Loading one version with every allocation failing in turn: nothing may be left behind.
 * (batcher_create() starts threads.) */
#include <sys/resource.h>

#include "onnx/writer.h"

/* The writer and the loader both have a `struct message`. */
#define message loader_message
#include "models/model.h"
#undef message

#include "models/bench_repository.h"
#include "support/fail_alloc.h"

static enum status load_once(void *arg)
{
    struct load_context *context = arg;
    Inference__ModelConfig *config = NULL;
    struct model *loaded = NULL;
    enum status status;

    status = model_config_read(context->folder, context->name, NULL, &config, &context->batch_given,
                               NULL);
    context->config = config;
    if (status == STATUS_OK)
        status = model_load(context, &loaded, NULL);
    if (status != STATUS_OK)
        assert_null(loaded);
    if (loaded != NULL)
        queue_close(loaded->queue, NULL, NULL);
    (void)model_destroy(loaded);
    model_config_destroy(config);
    assert_int_equal(weight_bytes(), 0);
    return status;
}

static void survive(bool may_prove_later)
{
    struct message graph = multiplier();
    char folder[128];
    struct load_context context = {.may_prove_later = may_prove_later,
                                   .folder = folder,
                                   .name = "m",
                                   .version = 1,
                                   .device = bench.device,
                                   .ledger = bench.ledger,
                                   .batcher = bench.batcher};

    write_model("m", 1, &graph);
    write_text("m/config.pbtxt", "max_batch_size: 4 dynamic_batching { }\n"
                                 "output { name: 'y' label_filename: 'l' }");
    write_text("m/l", "a\nb\nc\nd\n");
    (void)snprintf(folder, sizeof(folder), "%s/m", bench.path);
    assert_true(fail_each_alloc(load_once, &context) > 50);
}

static void a_load_survives_every_failed_allocation(void **state)
{
    (void)state;
    survive(false);
}

static void a_load_that_is_proven_later_survives_every_failed_allocation(void **state)
{
    (void)state;
    survive(true);
}

/* The first answer's texts are those of the row it was asked: both must last as long as the proof.
 */
static void texts_that_a_model_hands_through_are_proven(void **state)
{
    struct message graph = {0};
    struct model_info info;

    (void)state;
    put_text(&graph, GRAPH_NAME, "g");
    put_node(&graph, "Identity", "x", "y");
    put_port(&graph, GRAPH_INPUT, "x", STRING, 2, (int64_t[]){BATCH, 3});
    put_port(&graph, GRAPH_OUTPUT, "y", STRING, 2, (int64_t[]){BATCH, 3});
    write_model("texts", 1, &graph);
    open_repository();
    load_everything();
    assert_true(find_row("texts", "1", &info));
    assert_string_equal(info.batching, "on");
}

static long most_kilobytes(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* Every dimension open: what is tried for one is tried for all, so a large size is a great many
 * bytes. */
static struct message all_open(const char *op, size_t rank)
{
    struct message graph = {0};
    int64_t dims[SHAPE_MAX_RANK];

    for (size_t i = 0; i < rank; i++)
        dims[i] = BATCH;
    put_text(&graph, GRAPH_NAME, "g");
    put_node(&graph, op, "x", "t");
    put_port(&graph, GRAPH_INPUT, "x", FLOAT, rank, dims);
    put_port(&graph, GRAPH_OUTPUT, "y", FLOAT, rank, dims);
    return graph;
}

enum { LITTLE_KILOBYTES = 48 << 10 };

static void a_model_that_takes_no_size_takes_little_memory(void **state)
{
    static const float weights[4 * 3 * 2 * 2];
    struct message graph = all_open("Transpose", 4);
    long before = most_kilobytes();
    struct model_info info;

    (void)state;
    put_tensor(&graph, GRAPH_TENSOR, "w", FLOAT, 4, (int64_t[]){4, 3, 2, 2}, weights,
               sizeof(weights));
    put_node(&graph, "Conv", "t w", "y");
    write_model("conv", 1, &graph);
    open_repository();
    assert_ok(load("conv", NULL));
    assert_true(most_kilobytes() - before < LITTLE_KILOBYTES);
    assert_true(find_row("conv", "1", &info));
    assert_non_null(strstr(info.batching, "off: it could not be run to prove it: node"));
}

static void a_model_of_many_open_dimensions_is_proven_with_small_ones(void **state)
{
    struct message graph = all_open("Relu", 7);
    long before = most_kilobytes();
    struct model_info info;

    (void)state;
    put_node(&graph, "Neg", "t", "y");
    write_model("many", 1, &graph);
    open_repository();
    assert_ok(load("many", NULL));
    assert_true(most_kilobytes() - before < LITTLE_KILOBYTES);
    assert_true(find_row("many", "1", &info));
    assert_string_equal(info.batching, "on");
}

static void channels_that_are_open_are_those_of_the_weights(void **state)
{
    static const float weights[4 * 7 * 2 * 2];
    struct message graph = all_open("Relu", 4);
    struct model_info info;

    (void)state;
    put_tensor(&graph, GRAPH_TENSOR, "w", FLOAT, 4, (int64_t[]){4, 7, 2, 2}, weights,
               sizeof(weights));
    put_node(&graph, "Conv", "t w", "y");
    write_model("conv", 1, &graph);
    open_repository();
    assert_ok(load("conv", NULL));
    assert_true(find_row("conv", "1", &info));
    assert_string_equal(info.batching, "on");
}

static void no_file_of_a_model_is_waited_for(void **state)
{
    struct message graph = multiplier();
    struct model_info info;
    char path[160];

    (void)state;
    write_model("config", 1, &graph);
    (void)snprintf(path, sizeof(path), "%s/config/config.pbtxt", bench.path);
    assert_int_equal(mkfifo(path, 0600), 0);
    graph = multiplier();
    write_model("labels", 1, &graph);
    write_text("labels/config.pbtxt", "output { name: 'y' label_filename: 'l' }");
    (void)snprintf(path, sizeof(path), "%s/labels/l", bench.path);
    assert_int_equal(symlink("/dev/zero", path), 0);
    open_repository();
    load_everything();
    assert_true(find_row("config", "", &info));
    assert_non_null(strstr(info.reason, "config.pbtxt: is no ordinary file"));
    assert_true(find_row("labels", "1", &info));
    assert_non_null(strstr(info.reason, "labels/l: is no ordinary file"));
}

/* Between the reading of the file and the first row. */
static enum status cut_the_file(void *arg, const struct model *loading, struct error *err)
{
    (void)loading;
    (void)err;
    assert_int_equal(truncate(arg, 16), 0);
    return STATUS_OK;
}

static void a_load_whose_file_is_changed_in_place_fails(void **state)
{
    struct message graph = multiplier();
    char folder[128], file[160];
    struct load_context context = {.folder = folder,
                                   .name = "m",
                                   .version = 1,
                                   .device = bench.device,
                                   .ledger = bench.ledger,
                                   .batcher = bench.batcher,
                                   .may_stay = cut_the_file,
                                   .may_stay_arg = file};
    Inference__ModelConfig *config = NULL;
    struct model *loaded = NULL;
    struct error err;

    (void)state;
    write_model("m", 1, &graph);
    (void)snprintf(folder, sizeof(folder), "%s/m", bench.path);
    (void)snprintf(file, sizeof(file), "%s/1/model.onnx", folder);
    assert_ok(model_config_read(folder, "m", NULL, &config, &context.batch_given, &err));
    context.config = config;
    assert_int_equal(model_load(&context, &loaded, &err), STATUS_PRECONDITION);
    assert_string_equal(err.text, "model 'm': its weights cannot be read again: the model's file "
                                  "was changed in place; load the model again");
    model_config_destroy(config);
}

static enum status open_once(void *arg)
{
    struct repository *repository = NULL;
    enum status status = repository_create(&bench.config, &repository, NULL);

    (void)arg;
    if (status != STATUS_OK)
        assert_null(repository);
    repository_destroy(repository);
    return status;
}

static void a_repository_survives_every_failed_allocation(void **state)
{
    static const char *const names[] = {"m", "n"};
    struct message graph = multiplier();

    (void)state;
    write_model("m", 1, &graph);
    bench.config.load = (struct text_list){.count = 2, .items = names};
    assert_true(fail_each_alloc(open_once, NULL) > 1);
    assert_int_equal(weight_bytes(), 0);
}

/* The command's own allocations; those of the load fail in the test above. */
static void a_command_that_finds_no_memory_says_so(void **state)
{
    struct message graph = multiplier();
    enum status status;

    (void)state;
    write_model("m", 1, &graph);
    open_repository();
    for (unsigned nth = 1;; nth++) {
        bool fired;

        fail_alloc_arm(nth);
        status = load("m", "{\"max_batch_size\": 2}");
        fired = fail_alloc_disarm();
        if (!fired)
            break;
        assert_true(status == STATUS_NO_MEMORY || status == STATUS_OK);
    }
    assert_ok(status);
    assert_ok(unload("m"));
    assert_int_equal(weight_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_load_survives_every_failed_allocation, set_up_bench,
                                        tear_down_bench),
        cmocka_unit_test_setup_teardown(
            a_load_that_is_proven_later_survives_every_failed_allocation, set_up_bench,
            tear_down_bench),
        cmocka_unit_test_setup_teardown(a_repository_survives_every_failed_allocation, set_up_bench,
                                        tear_down_bench),
        cmocka_unit_test_setup_teardown(a_command_that_finds_no_memory_says_so, set_up_bench,
                                        tear_down_bench),
        cmocka_unit_test_setup_teardown(texts_that_a_model_hands_through_are_proven, set_up_bench,
                                        tear_down_bench),
        cmocka_unit_test_setup_teardown(a_model_that_takes_no_size_takes_little_memory,
                                        set_up_bench, tear_down_bench),
        cmocka_unit_test_setup_teardown(a_model_of_many_open_dimensions_is_proven_with_small_ones,
                                        set_up_bench, tear_down_bench),
        cmocka_unit_test_setup_teardown(channels_that_are_open_are_those_of_the_weights,
                                        set_up_bench, tear_down_bench),
        cmocka_unit_test_setup_teardown(a_load_whose_file_is_changed_in_place_fails, set_up_bench,
                                        tear_down_bench),
        cmocka_unit_test_setup_teardown(no_file_of_a_model_is_waited_for, set_up_bench,
                                        tear_down_bench),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
