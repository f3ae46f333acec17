/* Walks every field that a configuration sets and looks its row up in fields.def. */
#define LOG_COMPONENT "models"

#include <stdio.h>
#include <string.h>

#include "models/message.h"
#include "models/model_config.h"
#include "observe/log.h"

enum { PATH_ROOM = 256 };

static const struct row {
    const char *path;
    enum field_action action;
    const char *reason;
} rows[] = {
#define FIELD(path, action, reason) {path, FIELD_##action, reason},
#include "models/fields.def"
#undef FIELD
};

bool model_config_field(const char *path, enum field_action *out_action, const char **out_reason)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].path, path) == 0) {
            *out_action = rows[i].action;
            *out_reason = rows[i].reason;
            return true;
        }
    return false;
}

static enum status check_message(const ProtobufCMessage *message, const char *prefix,
                                 const char *model, struct error *err);

static enum status check_below(const ProtobufCMessage *message,
                               const ProtobufCFieldDescriptor *field, const char *path,
                               const char *model, struct error *err)
{
    for (size_t i = 0; i < message_count(message, field); i++)
        TRY(check_message(message_get(message, field, i).message, path, model, err));
    return STATUS_OK;
}

static enum status check_field(const ProtobufCMessage *message,
                               const ProtobufCFieldDescriptor *field, const char *path,
                               const char *model, struct error *err)
{
    enum field_action action;
    const char *reason;

    if (!model_config_field(path, &action, &reason))
        return error_set(err, STATUS_UNSUPPORTED, "model '%s': field '%s' is not supported", model,
                         path);
    switch (action) {
    case FIELD_HONOURED:
        return STATUS_OK;
    case FIELD_PARTLY:
        return check_below(message, field, path, model, err);
    case FIELD_WARNED:
        log_warn("model '%s': field '%s' has no effect (%s), ignoring", model, path, reason);
        return STATUS_OK;
    default:
        return error_set(err, STATUS_UNSUPPORTED, "model '%s': field '%s' is not supported: %s",
                         model, path, reason);
    }
}

static enum status check_message(const ProtobufCMessage *message, const char *prefix,
                                 const char *model, struct error *err)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        char path[PATH_ROOM];

        if (message_count(message, field) == 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".",
                       field->name);
        TRY(check_field(message, field, path, model, err));
    }
    return STATUS_OK;
}

enum status model_config_check_fields(const Inference__ModelConfig *config, const char *model,
                                      struct error *err)
{
    return check_message(&config->base, "", model, err);
}
