/* Every field of ModelConfig has a row: none is silently dropped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "models/message.h"
#include "models/model_config.h"

static unsigned walk(const ProtobufCMessageDescriptor *type, const char *prefix)
{
    unsigned count = 0;

    for (unsigned i = 0; i < type->n_fields; i++) {
        enum field_action action;
        const char *reason;
        char path[256];

        (void)snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".",
                       type->fields[i].name);
        if (!model_config_field(path, &action, &reason))
            fail_msg("field '%s' has no row in fields.def", path);
        if (action == FIELD_WARNED || action == FIELD_REFUSED)
            assert_true(reason[0] != '\0');
        count++;
        if (action == FIELD_PARTLY) {
            assert_true(message_field_is_message(&type->fields[i]));
            count += walk(type->fields[i].descriptor, path);
        }
    }
    return count;
}

static void every_field_has_a_row(void **state)
{
    (void)state;
    assert_true(walk(&inference__model_config__descriptor, "") > 50);
}

static void a_refused_field_is_named(void **state)
{
    Inference__ModelSequenceBatching sequence = INFERENCE__MODEL_SEQUENCE_BATCHING__INIT;
    Inference__ModelConfig config = INFERENCE__MODEL_CONFIG__INIT;
    struct error err;

    (void)state;
    config.scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;
    config.sequence_batching = &sequence;
    assert_int_equal(model_config_check_fields(&config, "m", &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.text, "model 'm': field 'sequence_batching' is not supported: stateful "
                                  "sequences are not supported yet");
}

static void a_refused_field_inside_a_list_is_named(void **state)
{
    Inference__ModelInput input = INFERENCE__MODEL_INPUT__INIT, *inputs[] = {&input};
    Inference__ModelConfig config = INFERENCE__MODEL_CONFIG__INIT;
    struct error err;

    (void)state;
    config.n_input = 1;
    config.input = inputs;
    assert_int_equal(model_config_check_fields(&config, "m", &err), STATUS_OK);
    input.allow_ragged_batch = true;
    assert_int_equal(model_config_check_fields(&config, "m", &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'input.allow_ragged_batch'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_has_a_row),
        cmocka_unit_test(a_refused_field_is_named),
        cmocka_unit_test(a_refused_field_inside_a_list_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
