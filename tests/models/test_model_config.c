/* Reading a configuration with every allocation failing in turn, and what configurations say alone.
 */
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/json_format.h"
#include "models/message.h"
#include "models/model_config.h"
#include "models/text_format.h"
#include "support/fail_alloc.h"

static const char text[] =
    "name: 'm' max_batch_size: 8 input [ { name: 'x' \"y\" data_type: TYPE_FP32 dims: [ 1, 2, 3 ] "
    "} ]\n"
    "dynamic_batching { preferred_batch_size: [ 8, 4 ] max_queue_delay_microseconds: 100\n"
    "  priority_levels: 2 default_priority_level: 1 preserve_ordering: true\n"
    "  default_queue_policy { max_queue_size: 7 timeout_action: DELAY }\n"
    "  priority_queue_policy { key: 2 value { default_timeout_microseconds: 5 } } }\n"
    "parameters { key: 'a' value { string_value: 'b' } } instance_group { count: 3 } "
    "instance_group { } instance_group { passive: true count: 9 }";

static enum status read_text(void *arg)
{
    ProtobufCMessage *message = NULL;
    enum status status = text_format_read(&inference__model_config__descriptor, text,
                                          sizeof(text) - 1, "c", &message, NULL);

    (void)arg;
    if (status != STATUS_OK)
        assert_null(message);
    message_destroy(message);
    return status;
}

static void reading_text_survives_every_failed_allocation(void **state)
{
    (void)state;
    assert_true(fail_each_alloc(read_text, NULL) > 10);
}

static Inference__ModelConfig *read_config(const char *config)
{
    ProtobufCMessage *message = NULL;
    struct error err;

    if (text_format_read(&inference__model_config__descriptor, config, strlen(config), "c",
                         &message, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return (Inference__ModelConfig *)message;
}

static enum status read_json(void *arg)
{
    ProtobufCMessage *message = NULL;
    enum status status =
        json_format_read(&inference__model_config__descriptor, arg, &message, NULL);

    if (status != STATUS_OK)
        assert_null(message);
    message_destroy(message);
    return status;
}

static void reading_json_survives_every_failed_allocation(void **state)
{
    Inference__ModelConfig *config = read_config(text);
    json_t *json = json_format_write(&config->base);

    (void)state;
    assert_non_null(json);
    assert_true(fail_each_alloc(read_json, json) > 10);
    json_decref(json);
    model_config_destroy(config);
}

static void a_queue_follows_dynamic_batching(void **state)
{
    Inference__ModelConfig *config = read_config(text);
    struct queue_config queue;
    struct arena arena;
    struct error err;

    (void)state;
    arena_init(&arena);
    assert_ok(model_config_queue(config, &arena, &queue, &err));
    assert_int_equal(queue.max_batch_size, 8);
    assert_int_equal(queue.preferred_count, 2);
    assert_int_equal(queue.preferred[0], 4); /* ascending */
    assert_int_equal(queue.max_queue_delay_us, 100);
    assert_true(queue.preserve_ordering);
    assert_int_equal(queue.priority_levels, 2);
    assert_int_equal(queue.policy.max_queue_size, 7);
    assert_true(queue.policy.delay_on_timeout);
    assert_int_equal(queue.level_policies, 1);
    assert_int_equal(queue.level_policy[0].level, 2);
    assert_int_equal(queue.level_policy[0].policy.default_timeout_us, 5);
    assert_int_equal(queue.instances, 4); /* 3 and 1; a passive group runs nothing */
    arena_deinit(&arena);
    model_config_destroy(config);
}

static void assert_refused_config(const char *config, const char *expected)
{
    char folder[] = "/tmp/sluice-config-XXXXXX", path[64];
    Inference__ModelConfig *read;
    struct error err;
    enum status status;
    bool given;
    FILE *to;

    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/config.pbtxt", folder);
    to = fopen(path, "w");
    assert_non_null(to);
    assert_true(fputs(config, to) >= 0);
    assert_int_equal(fclose(to), 0);
    status = model_config_read(folder, "m", NULL, &read, &given, &err);
    (void)unlink(path);
    (void)rmdir(folder);
    assert_int_not_equal(status, STATUS_OK);
    if (strstr(err.text, expected) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, expected);
}

static void what_makes_no_sense_is_refused_with_a_sentence(void **state)
{
    static const char *const rows[][2] = {
        {"name: 'n'", "the configuration says name: 'n', it must be that of the folder"},
        {"platform: 'tensorflow_savedmodel'", "platform 'tensorflow_savedmodel' is not supported"},
        {"backend: 'python'", "backend 'python' is not supported"},
        {"max_batch_size: -1", "max_batch_size is -1, it must be 0 to"},
        {"max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }",
         "preferred_batch_size 8 is outside 1 to max_batch_size 4"},
        {"dynamic_batching { priority_levels: 2 }", "default_priority_level is not set"},
        {"version_policy { specific { } }", "names no version"},
        {"instance_group { count: -2 }", "instance_group count is -2"},
        {"ensemble_scheduling { }", "field 'ensemble_scheduling' is not supported"},
        {"output { name: 'y' label_filename: 'a/../../b' }", "leaves the folder"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_refused_config(rows[i][0], rows[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_text_survives_every_failed_allocation),
        cmocka_unit_test(reading_json_survives_every_failed_allocation),
        cmocka_unit_test(a_queue_follows_dynamic_batching),
        cmocka_unit_test(what_makes_no_sense_is_refused_with_a_sentence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
