/* TraceSetting and LogSettings: what stands is told; a change is refused, for the log and its
 * levels are the operator's (SLUICE_LOG=, the journal). */
#include "grpc_service.pb-c.h"
#include "serve/endpoint.h"

typedef Inference__TraceSettingResponse__SettingsEntry trace_entry;
typedef Inference__TraceSettingResponse__SettingValue trace_value;
typedef Inference__LogSettingsResponse__SettingsEntry log_entry;
typedef Inference__LogSettingsResponse__SettingValue log_value;

enum { TRACE_SETTINGS = 4, LOG_SETTINGS = 5 };

void run_trace_setting(struct call *call)
{
    static char *const standing[TRACE_SETTINGS][2] = {{"trace_level", "OFF"},
                                                      {"trace_rate", "1000"},
                                                      {"trace_count", "-1"},
                                                      {"log_frequency", "0"}};
    const Inference__TraceSettingRequest *request = (const void *)call->message;
    Inference__TraceSettingResponse reply = INFERENCE__TRACE_SETTING_RESPONSE__INIT;
    trace_entry entries[TRACE_SETTINGS], *list[TRACE_SETTINGS];
    trace_value values[TRACE_SETTINGS];
    char *texts[TRACE_SETTINGS];

    if (request->n_settings > 0) {
        call_fail(call, STATUS_UNSUPPORTED, "trace settings cannot be changed");
        return;
    }
    for (size_t i = 0; i < TRACE_SETTINGS; i++) {
        inference__trace_setting_response__settings_entry__init(&entries[i]);
        inference__trace_setting_response__setting_value__init(&values[i]);
        texts[i] = standing[i][1];
        values[i].n_value = 1;
        values[i].value = &texts[i];
        entries[i].key = standing[i][0];
        entries[i].value = &values[i];
        list[i] = &entries[i];
    }
    reply.n_settings = TRACE_SETTINGS;
    reply.settings = list;
    call_reply_message(call, &reply.base);
}

static void set_flag(log_entry *entry, log_value *value, char *name, bool on)
{
    inference__log_settings_response__settings_entry__init(entry);
    inference__log_settings_response__setting_value__init(value);
    value->parameter_choice_case =
        INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM;
    value->bool_param = on;
    entry->key = name;
    entry->value = value;
}

void run_log_settings(struct call *call)
{
    const Inference__LogSettingsRequest *request = (const void *)call->message;
    Inference__LogSettingsResponse reply = INFERENCE__LOG_SETTINGS_RESPONSE__INIT;
    log_entry entries[LOG_SETTINGS], *list[LOG_SETTINGS];
    log_value values[LOG_SETTINGS];

    if (request->n_settings > 0) {
        call_fail(call, STATUS_UNSUPPORTED, "log settings cannot be changed by clients");
        return;
    }
    set_flag(&entries[0], &values[0], "log_info", true);
    set_flag(&entries[1], &values[1], "log_warning", true);
    set_flag(&entries[2], &values[2], "log_error", true);
    set_flag(&entries[3], &values[3], "log_verbose_level", false);
    values[3].parameter_choice_case =
        INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM;
    values[3].uint32_param = 0;
    set_flag(&entries[4], &values[4], "log_format", false);
    values[4].parameter_choice_case =
        INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM;
    values[4].string_param = "default";
    for (size_t i = 0; i < LOG_SETTINGS; i++)
        list[i] = &entries[i];
    reply.n_settings = LOG_SETTINGS;
    reply.settings = list;
    call_reply_message(call, &reply.base);
}
