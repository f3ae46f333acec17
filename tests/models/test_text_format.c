#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/json_format.h"
#include "models/message.h"
#include "models/text_format.h"
#include "proto/model_config.pb-c.h"

static Inference__ModelConfig *read_config(const char *text)
{
    ProtobufCMessage *message = NULL;
    struct error err;

    if (text_format_read(&inference__model_config__descriptor, text, strlen(text), "c", &message,
                         &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return (Inference__ModelConfig *)message;
}

static void assert_refused(const char *text, const char *expected)
{
    ProtobufCMessage *message = NULL;
    struct error err;

    assert_int_not_equal(text_format_read(&inference__model_config__descriptor, text, strlen(text),
                                          "c", &message, &err),
                         STATUS_OK);
    assert_null(message);
    assert_string_equal(err.text, expected);
}

static void drop(Inference__ModelConfig *config)
{
    message_destroy(&config->base);
}

static void scalars_of_every_type_are_read(void **state)
{
    Inference__ModelConfig *config =
        read_config("# a comment\nname: 'm' # another\nmax_batch_size: 0x10\n"
                    "model_transaction_policy { decoupled: True }\n"
                    "model_metrics { metric_control { histogram_options { buckets: [1, 2.5e1, .5f, "
                    "-inf] } } }\n"
                    "version_policy: { specific: { versions: [ -9223372036854775808, 017 ] } }");
    const Inference__ModelMetrics__MetricControl__HistogramOptions *options;

    (void)state;
    assert_string_equal(config->name, "m");
    assert_int_equal(config->max_batch_size, 16);
    assert_true(config->model_transaction_policy->decoupled);
    options = config->model_metrics->metric_control[0]->histogram_options;
    assert_int_equal(options->n_buckets, 4);
    assert_float_equal(options->buckets[1], 25, 0);
    assert_float_equal(options->buckets[2], 0.5, 0);
    assert_true(options->buckets[3] < -1e300);
    assert_true(config->version_policy->specific->versions[0] == INT64_MIN);
    assert_int_equal(config->version_policy->specific->versions[1], 15);
    drop(config);
}

static void lists_may_be_short_long_or_repeated(void **state)
{
    Inference__ModelConfig *config = read_config("input [ { name: \"a\" dims: [ ] }, { name: \"b\" "
                                                 "dims: 1 dims: [2, 3], dims: -1 } ]\n"
                                                 "input < name: 'c'; >\n"
                                                 "input: { name: 'd' }");

    (void)state;
    assert_int_equal(config->n_input, 4);
    assert_int_equal(config->input[0]->n_dims, 0);
    assert_int_equal(config->input[1]->n_dims, 4);
    assert_int_equal(config->input[1]->dims[2], 3);
    assert_int_equal(config->input[1]->dims[3], -1);
    assert_string_equal(config->input[2]->name, "c");
    assert_string_equal(config->input[3]->name, "d");
    drop(config);
}

static void enums_come_by_name_or_number(void **state)
{
    Inference__ModelConfig *config =
        read_config("input { data_type: TYPE_FP32 } input { data_type: 13 }");

    (void)state;
    assert_int_equal(config->input[0]->data_type, INFERENCE__DATA_TYPE__TYPE_FP32);
    assert_int_equal(config->input[1]->data_type, INFERENCE__DATA_TYPE__TYPE_STRING);
    drop(config);
}

static void strings_have_escapes_and_join(void **state)
{
    Inference__ModelConfig *config =
        read_config("name: \"a\\tb\" 'c' # between\n  \"\\x41\\102\\u00e9\\\"\"");

    (void)state;
    assert_string_equal(config->name, "a\tbcAB\xc3\xa9\"");
    drop(config);
}

static void maps_are_entries_and_the_last_of_a_key_holds(void **state)
{
    Inference__ModelConfig *config = read_config(
        "parameters { key: 'a' value { string_value: '1' } }\n"
        "parameters [ { key: 'b' value: { string_value: '2' } }, "
        "{ key: 'a' value: { string_value: '3' } } ]\n"
        "dynamic_batching { priority_queue_policy { key: 2 value { max_queue_size: 5 } } }");

    (void)state;
    assert_int_equal(config->n_parameters, 2);
    assert_string_equal(config->parameters[0]->key, "a");
    assert_string_equal(config->parameters[0]->value->string_value, "3");
    assert_int_equal(config->dynamic_batching->priority_queue_policy[0]->key, 2);
    assert_int_equal(config->dynamic_batching->priority_queue_policy[0]->value->max_queue_size, 5);
    drop(config);
}

static void an_empty_message_in_a_oneof_counts(void **state)
{
    Inference__ModelConfig *config = read_config("version_policy: { all {} } dynamic_batching { }");

    (void)state;
    assert_int_equal(config->version_policy->policy_choice_case,
                     INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_ALL);
    assert_int_equal(config->scheduling_choice_case,
                     INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING);
    drop(config);
}

static void errors_name_file_line_and_column(void **state)
{
    (void)state;
    assert_refused(
        "name: 'a'\n  max_batchsize: 3",
        "c:2:3: ModelConfig has no field 'max_batchsize'; did you mean 'max_batch_size'?");
    assert_refused("xyzzyplugh: 3", "c:1:1: ModelConfig has no field 'xyzzyplugh'");
    assert_refused("name: 'a' name: 'b'", "c:1:11: field 'name' is given twice");
    assert_refused("max_batch_size: 2147483648",
                   "c:1:17: field 'max_batch_size' is int32, 2147483648 is outside its range");
    assert_refused("max_batch_size: 1.5",
                   "c:1:17: '1.5' is no integer, as field 'max_batch_size' wants");
    assert_refused("input { data_type: TYPE_FLOAT }",
                   "c:1:20: 'TYPE_FLOAT' is no value of DataType, as field 'data_type' wants");
    assert_refused("input { name: 'a'", "c:1:18: the file ends where '}' is missing");
    assert_refused("name: 'a\nb'", "c:1:7: the string does not end on its line");
    assert_refused("name 'a'", "c:1:6: a ':' is missing behind 'name'");
    assert_refused("name: ['a']", "c:1:1: field 'name' takes one value, not a list");
    assert_refused("dynamic_batching {} sequence_batching {}",
                   "c:1:21: field 'sequence_batching' excludes another one given before");
    assert_refused("name: '\\q'", "c:1:7: the string has an escape that means nothing");
    assert_refused("name: 'a\\0b'", "c:1:7: the string holds a zero byte");
    assert_refused("name: 'a' platform: 'b\\377'", "c:1:21: the string is not UTF-8 text");
    assert_refused("name: '\xc3' '\xa9'\n }",
                   "c:2:2: found '}' where the name of a field of ModelConfig belongs");
    assert_refused("model_transaction_policy { decoupled: maybe }",
                   "c:1:39: 'maybe' is neither true nor false, as field 'decoupled' wants");
    assert_refused("input [ { name: 'a' } { name: 'b' } ]", "c:1:23: found '{' where ']' belongs");
    assert_refused("\x01",
                   "c:1:1: found byte 0x01 where the name of a field of ModelConfig belongs");
}

static void deep_nesting_is_refused(void **state)
{
    char text[4096] = "";

    (void)state;
    /* Only a message that contains itself nests without end; ModelConfig has none, so the
     * descriptor stops it. */
    for (int i = 0; i < 100; i++)
        strcat(text, "input { reshape { ");
    assert_refused(text, "c:1:19: ModelTensorReshape has no field 'input'");
}

static void json_says_the_same_as_text(void **state)
{
    Inference__ModelConfig *config = read_config(
        "name: 'm' max_batch_size: 8 input { name: 'x' data_type: TYPE_FP32 dims: [ 3, -1 ] }\n"
        "dynamic_batching { max_queue_delay_microseconds: 18446744073709551615 }\n"
        "parameters { key: 'k' value { string_value: 'v' } } version_policy { all {} }");
    json_t *json = json_format_write(&config->base), *again;
    ProtobufCMessage *back = NULL;
    struct error err;

    (void)state;
    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "name")), "m");
    assert_int_equal(json_integer_value(json_object_get(json, "max_batch_size")), 8);
    assert_true(json_is_array(json_object_get(json, "output")));
    assert_null(json_object_get(json, "sequence_batching"));
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(json, "input"), 0), "data_type")),
                        "TYPE_FP32");
    assert_int_equal(json_format_read(&inference__model_config__descriptor, json, &back, &err),
                     STATUS_OK);
    again = json_format_write(back);
    assert_true(json_equal(json, again));
    json_decref(json);
    json_decref(again);
    message_destroy(back);
    drop(config);
}

static void json_takes_camel_names_strings_and_numbers(void **state)
{
    ProtobufCMessage *message = NULL;
    Inference__ModelConfig *config;
    struct error err;

    (void)state;
    assert_int_equal(
        json_format_read_text(&inference__model_config__descriptor,
                              "{\"maxBatchSize\": 4, \"input\": [{\"dims\": [\"3\", 4], "
                              "\"data_type\": 11}], \"platform\": null}",
                              &message, &err),
        STATUS_OK);
    config = (Inference__ModelConfig *)message;
    assert_int_equal(config->max_batch_size, 4);
    assert_int_equal(config->input[0]->dims[0], 3);
    assert_int_equal(config->input[0]->data_type, INFERENCE__DATA_TYPE__TYPE_FP32);
    message_destroy(message);
}

static void json_errors_name_the_place(void **state)
{
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"[]", "ModelConfig is a list, an object belongs there"},
        {"{\"nam\": 1}", "ModelConfig has no field 'nam'; did you mean 'name'?"},
        {"{\"name\": 1}", "field 'name' is an integer, a string belongs there"},
        {"{\"input\": [{}, {\"dims\": [1, \"x\"]}]}",
         "input[1]: dims[1]: field 'dims': 'x' is no integer"},
        {"{\"max_batch_size\": 4294967296}",
         "field 'max_batch_size' is int32, 4294967296 is outside its range"},
        {"{\"parameters\": {\"a\": {\"stringvalue\": \"b\"}}}",
         "parameters['a']: ModelParameter has no field 'stringvalue'; did you mean "
         "'string_value'?"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ProtobufCMessage *message = NULL;
        struct error err;

        assert_int_not_equal(json_format_read_text(&inference__model_config__descriptor,
                                                   rows[i].text, &message, &err),
                             STATUS_OK);
        assert_null(message);
        assert_string_equal(err.text, rows[i].error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_of_every_type_are_read),
        cmocka_unit_test(lists_may_be_short_long_or_repeated),
        cmocka_unit_test(enums_come_by_name_or_number),
        cmocka_unit_test(strings_have_escapes_and_join),
        cmocka_unit_test(maps_are_entries_and_the_last_of_a_key_holds),
        cmocka_unit_test(an_empty_message_in_a_oneof_counts),
        cmocka_unit_test(errors_name_file_line_and_column),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(json_says_the_same_as_text),
        cmocka_unit_test(json_takes_camel_names_strings_and_numbers),
        cmocka_unit_test(json_errors_name_the_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
