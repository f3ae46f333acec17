/* config.pbtxt or a JSON override into a ModelConfig that makes sense by itself. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/json_format.h"
#include "models/message.h"
#include "models/model_config.h"
#include "models/plain_file.h"
#include "models/text_format.h"

enum { MAX_CONFIG_BYTES = 1 << 20 };

void model_config_destroy(Inference__ModelConfig *config)
{
    message_destroy((ProtobufCMessage *)config);
}

Inference__ModelConfig *model_config_copy(const Inference__ModelConfig *config)
{
    size_t size = inference__model_config__get_packed_size(config);
    uint8_t *bytes = malloc(size == 0 ? 1 : size);
    Inference__ModelConfig *copy = NULL;

    if (bytes == NULL)
        return NULL;
    if (inference__model_config__pack(config, bytes) == size)
        copy = inference__model_config__unpack(NULL, size, bytes);
    free(bytes);
    return copy;
}

/* The file whole; STATUS_NOT_FOUND when there is none.  The caller frees the text. */
static enum status read_file(const char *path, char **out_text, size_t *out_size, struct error *err)
{
    enum status status = STATUS_OK;
    FILE *from = NULL;
    char *text;

    TRY(plain_file_open(path, MAX_CONFIG_BYTES, &from, err));
    text = malloc(MAX_CONFIG_BYTES + 1);
    *out_size = text == NULL ? 0 : fread(text, 1, MAX_CONFIG_BYTES + 1, from);
    if (text == NULL)
        status = error_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
    else if (ferror(from))
        status = error_set(err, STATUS_IO, "%s: cannot be read", path);
    else if (*out_size > MAX_CONFIG_BYTES)
        status = error_set(err, STATUS_INVALID, "%s: more than %d bytes", path, MAX_CONFIG_BYTES);
    (void)fclose(from);
    if (status != STATUS_OK) {
        free(text);
        return status;
    }
    *out_text = text;
    return STATUS_OK;
}

static enum status read_text(const char *folder, ProtobufCMessage *message, struct error *err)
{
    char path[4096], *text = NULL;
    enum status status;
    size_t size = 0;

    if ((size_t)snprintf(path, sizeof(path), "%s/config.pbtxt", folder) >= sizeof(path))
        return error_set(err, STATUS_INVALID, "the path of config.pbtxt is too long");
    TRY(read_file(path, &text, &size, err));
    status = text_format_fill(message, text, size, path, err);
    free(text);
    return status;
}

/* ---- checks that need no model ---- */

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

static enum status check_names(const Inference__ModelConfig *config, const char *model,
                               struct error *err)
{
    static const char *const platforms[] = {"", "onnxruntime_onnx", "onnx_onnxv1", NULL};
    static const char *const backends[] = {"", "onnxruntime", "sluice", NULL};

    if (config->name[0] != '\0' && strcmp(config->name, model) != 0)
        return error_set(
            err, STATUS_INVALID,
            "model '%s': the configuration says name: '%s', it must be that of the folder", model,
            config->name);
    if (!is_one_of(config->platform, platforms))
        return error_set(err, STATUS_UNSUPPORTED,
                         "model '%s': platform '%s' is not supported, only 'onnxruntime_onnx' is",
                         model, config->platform);
    if (!is_one_of(config->backend, backends))
        return error_set(err, STATUS_UNSUPPORTED,
                         "model '%s': backend '%s' is not supported, only 'onnxruntime' is", model,
                         config->backend);
    return STATUS_OK;
}

/* A name of a file inside the model's folder. */
static enum status check_file_name(const char *model, const char *field, const char *name,
                                   struct error *err)
{
    const char *at = name;

    if (name[0] == '/')
        return error_set(err, STATUS_DENIED, "model '%s': %s '%s' is an absolute path", model,
                         field, name);
    while ((at = strstr(at, "..")) != NULL) {
        if ((at == name || at[-1] == '/') && (at[2] == '\0' || at[2] == '/'))
            return error_set(err, STATUS_DENIED, "model '%s': %s '%s' leaves the folder", model,
                             field, name);
        at += 2;
    }
    return STATUS_OK;
}

static enum status check_files(const Inference__ModelConfig *config, const char *model,
                               struct error *err)
{
    TRY(check_file_name(model, "default_model_filename", config->default_model_filename, err));
    for (size_t i = 0; i < config->n_output; i++)
        TRY(check_file_name(model, "label_filename", config->output[i]->label_filename, err));
    return STATUS_OK;
}

static enum status check_preferred(const Inference__ModelConfig *config, const char *model,
                                   struct error *err)
{
    const Inference__ModelDynamicBatching *batching = config->dynamic_batching;

    for (size_t i = 0; i < batching->n_preferred_batch_size; i++) {
        int32_t size = batching->preferred_batch_size[i];

        if (size < 1 || (config->max_batch_size > 0 && size > config->max_batch_size))
            return error_set(err, STATUS_INVALID,
                             "model '%s': preferred_batch_size %" PRId32
                             " is outside 1 to max_batch_size %" PRId32,
                             model, size, config->max_batch_size);
    }
    return STATUS_OK;
}

static enum status check_batching(const Inference__ModelConfig *config, const char *model,
                                  struct error *err)
{
    if (config->max_batch_size < 0 || config->max_batch_size > MAX_BATCH_SIZE)
        return error_set(err, STATUS_INVALID,
                         "model '%s': max_batch_size is %" PRId32 ", it must be 0 to %d", model,
                         config->max_batch_size, MAX_BATCH_SIZE);
    if (!model_config_asks_for_batching(config))
        return STATUS_OK;
    if (config->dynamic_batching->priority_levels > 0 &&
        config->dynamic_batching->default_priority_level == 0)
        return error_set(err, STATUS_INVALID,
                         "model '%s': priority_levels is %" PRIu64
                         " but default_priority_level is not set",
                         model, config->dynamic_batching->priority_levels);
    return check_preferred(config, model, err);
}

static enum status check_versions(const Inference__ModelConfig *config, const char *model,
                                  struct error *err)
{
    const Inference__ModelVersionPolicy *policy = config->version_policy;

    if (policy == NULL)
        return STATUS_OK;
    if (policy->policy_choice_case == INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC &&
        policy->specific->n_versions == 0)
        return error_set(err, STATUS_INVALID,
                         "model '%s': version_policy specific names no version", model);
    return STATUS_OK;
}

static enum status check_instances(const Inference__ModelConfig *config, const char *model,
                                   struct error *err)
{
    for (size_t i = 0; i < config->n_instance_group; i++)
        if (config->instance_group[i]->count < 0)
            return error_set(err, STATUS_INVALID,
                             "model '%s': instance_group count is %" PRId32
                             ", it must not be negative",
                             model, config->instance_group[i]->count);
    return STATUS_OK;
}

static enum status check_alone(const Inference__ModelConfig *config, const char *model,
                               struct error *err)
{
    TRY(check_names(config, model, err));
    TRY(check_files(config, model, err));
    TRY(check_batching(config, model, err));
    TRY(check_versions(config, model, err));
    TRY(check_instances(config, model, err));
    return model_config_check_fields(config, model, err);
}

static enum status read_into(Inference__ModelConfig *config, const char *folder, const char *model,
                             const char *json, bool *out_batch_given, struct error *err)
{
    enum status status;

    /* proto3 cannot tell what is 0 from what is not there, but its texts can. */
    config->max_batch_size = INT32_MIN;
    if (json != NULL) {
        status = json_format_fill_text(&config->base, json, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "model '%s': config override", model);
    } else {
        status = read_text(folder, &config->base, err);
        if (status != STATUS_OK && status != STATUS_NOT_FOUND)
            return status;
    }
    *out_batch_given = config->max_batch_size != INT32_MIN;
    if (!*out_batch_given)
        config->max_batch_size = 0;
    return check_alone(config, model, err);
}

enum status model_config_read(const char *folder, const char *model, const char *json,
                              Inference__ModelConfig **out_config, bool *out_batch_given,
                              struct error *err)
{
    ProtobufCMessage *message = message_create(&inference__model_config__descriptor);
    enum status status;

    if (message == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", model);
    status =
        read_into((Inference__ModelConfig *)message, folder, model, json, out_batch_given, err);
    if (status != STATUS_OK) {
        message_destroy(message);
        return status;
    }
    *out_config = (Inference__ModelConfig *)message;
    return STATUS_OK;
}
