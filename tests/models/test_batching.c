/* Whether the rows of a model are served together, and the reason where they are not.
 * repository_create() starts threads. */
#include "models/bench_repository.h"

static void a_model_without_configuration_is_ready_and_batches(void **state)
{
    struct message graph = adder(1);
    struct model_info info = {0};
    struct model *found;
    struct error err;

    (void)state;
    write_model("add", 1, &graph);
    load_everything();
    assert_true(repository_is_ready(bench.repository, true));
    assert_true(find_row("add", "1", &info));
    assert_int_equal(info.state, MODEL_READY);
    assert_string_equal(info.batching, "on");
    assert_ok(repository_find(bench.repository, "add", "", &found, &err));
    assert_string_equal(model_version(found), "1");
    assert_string_equal(model_platform(found), "onnx_onnxv1");
    assert_int_equal(model_max_batch_size(found), 32);
    model_unref(found);
}

static void a_model_whose_rows_depend_on_each_other_is_served_one_by_one(void **state)
{
    struct message graph = mixer();
    struct model_info info = {0};
    struct model *found;
    struct error err;

    (void)state;
    write_model("mix", 1, &graph);
    make_folder("asked");
    write_model("asked", 1, &graph);
    write_text("asked/config.pbtxt", "max_batch_size: 4 dynamic_batching { }");
    load_everything();
    assert_true(find_row("mix", "1", &info));
    assert_int_equal(info.state, MODEL_READY);
    assert_string_equal(info.batching, "off: rows together differ from rows apart in output 'y'");
    assert_ok(repository_find(bench.repository, "mix", "", &found, &err));
    assert_int_equal(model_max_batch_size(found), 0); /* derived, not proven: no batch dimension */
    model_unref(found);
    assert_ok(repository_find(bench.repository, "asked", "", &found, &err));
    assert_int_equal(model_max_batch_size(found), 4); /* configured: requests keep their shape */
    model_unref(found);
    assert_true(find_row("asked", "1", &info));
    assert_string_equal(info.batching, "off: rows together differ from rows apart in output 'y'");
}

static void
a_model_whose_graph_works_across_rows_is_served_one_by_one_whatever_rows_show(void **state)
{
    struct message graph = quiet_mixer();
    struct model_info info = {0};

    (void)state;
    write_model("quiet", 1, &graph);
    load_everything();
    assert_true(find_row("quiet", "1", &info));
    assert_int_equal(info.state, MODEL_READY);
    assert_string_equal(info.batching,
                        "off: node 'ReduceMax' (ReduceMax) works across the rows of a batch");
}

static void an_output_whose_first_dimension_is_not_the_batch_is_seen(void **state)
{
    struct message graph = turner();
    struct model_info info = {0};

    (void)state;
    write_model("turn", 1, &graph);
    load_everything();
    assert_true(find_row("turn", "1", &info));
    assert_int_equal(info.state, MODEL_READY);
    assert_string_equal(info.batching,
                        "off: output 'y' has the shape [4,1] for one row and [4,2] for "
                        "2, its first dimension is not the batch");
}

static void a_configuration_without_dynamic_batching_does_not_batch(void **state)
{
    struct message graph = adder(1);
    struct model_info info = {0};

    (void)state;
    write_model("add", 1, &graph);
    write_text("add/config.pbtxt", "max_batch_size: 4");
    load_everything();
    assert_true(find_row("add", "1", &info));
    assert_string_equal(info.batching, "off: its configuration has no dynamic_batching");
}

static void assert_batching(const char *config, const char *expected, int64_t rows)
{
    struct message graph = adder(1);
    struct model_info info = {0};
    struct model *found;

    write_model("add", 1, &graph);
    write_text("add/config.pbtxt", config);
    assert_ok(load("add", NULL));
    assert_true(find_row("add", "1", &info));
    if (strcmp(info.batching, expected) != 0)
        fail_msg("'%s': batching %s, not %s", config, info.batching, expected);
    assert_ok(repository_find(bench.repository, "add", "", &found, NULL));
    assert_int_equal(model_max_batch_size(found), rows);
    model_unref(found);
}

static void a_file_without_max_batch_size_batches_as_none_does(void **state)
{
    static const char *const configs[] = {
        "",
        "name: 'add'",
        "parameters { key: 'sluice.pin' value { string_value: 'false' } }",
        "optimization { }",
        "dynamic_batching { }",
        "input { name: 'x' data_type: TYPE_FP32 dims: 4 }",
    };

    (void)state;
    open_repository();
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++)
        assert_batching(configs[i], "on", 32);
    assert_batching("dynamic_batching { preferred_batch_size: 48 }", "on", 48);
    assert_ok(load("add", "{\"maxBatchSize\": 0}"));
    assert_ok(load("add", "{\"name\": \"add\"}"));
    assert_batching("name: 'add'", "on", 32);
}

static void no_batching_has_a_true_reason(void **state)
{
    (void)state;
    open_repository();
    assert_batching("max_batch_size: 0", "off: its configuration says max_batch_size: 0", 0);
    assert_batching("max_batch_size: 0 dynamic_batching { }",
                    "off: its configuration says max_batch_size: 0", 0);
    assert_batching("input { name: 'x' data_type: TYPE_FP32 dims: [ -1, 4 ] }",
                    "off: its configuration gives shapes with the batch in them, and no "
                    "max_batch_size",
                    0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_model_without_configuration_is_ready_and_batches),
        TEST(a_model_whose_rows_depend_on_each_other_is_served_one_by_one),
        TEST(a_model_whose_graph_works_across_rows_is_served_one_by_one_whatever_rows_show),
        TEST(an_output_whose_first_dimension_is_not_the_batch_is_seen),
        TEST(a_configuration_without_dynamic_batching_does_not_batch),
        TEST(a_file_without_max_batch_size_batches_as_none_does),
        TEST(no_batching_has_a_true_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
