/* RepositoryIndex, RepositoryModelLoad, RepositoryModelUnload. */
#include <string.h>

#include "grpc_service.pb-c.h"
#include "serve/control.h"
#include "serve/endpoint.h"
#include "serve/internal.h"

typedef Inference__RepositoryIndexResponse__ModelIndex index_row;

struct index {
    struct call *call;
    bool only_ready;
    index_row **rows;
    size_t count, capacity;
    bool failed;
};

static bool grow(struct index *index)
{
    size_t capacity = index->capacity ? index->capacity * 2 : 64;
    index_row **rows = call_take(index->call, capacity * sizeof(index_row *));

    if (rows == NULL)
        return false;
    if (index->count > 0)
        memcpy(rows, index->rows, index->count * sizeof(index_row *));
    index->rows = rows;
    index->capacity = capacity;
    return true;
}

static char *copy(struct index *index, const char *text)
{
    char *copied = arena_copy_string(&index->call->request.arena, text, strlen(text));

    index->failed |= copied == NULL;
    return copied;
}

static void add_row(void *arg, const struct model_info *info, struct model *model)
{
    struct index *index = arg;
    index_row *row;

    (void)model;
    if (index->only_ready && info->state != MODEL_READY)
        return;
    row = call_take(index->call, sizeof(*row));
    if (row == NULL || (index->count == index->capacity && !grow(index))) {
        index->failed = true;
        return;
    }
    inference__repository_index_response__model_index__init(row);
    row->name = copy(index, info->name);
    row->version = copy(index, info->version);
    row->state =
        info->state == MODEL_UNKNOWN ? "" : (char *)(uintptr_t)model_state_name(info->state);
    row->reason = copy(index, info->reason);
    index->rows[index->count++] = row;
}

static bool refuses_repository(struct call *call, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return false;
    call_fail(call, STATUS_UNSUPPORTED, "'repository_name' specification is not supported");
    return true;
}

void run_repository_index(struct call *call)
{
    const Inference__RepositoryIndexRequest *request = (const void *)call->message;
    Inference__RepositoryIndexResponse reply = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
    struct index index = {.call = call, .only_ready = request->ready};

    if (refuses_repository(call, request->repository_name))
        return;
    repository_for_each(call->server->repository, add_row, &index);
    if (index.failed) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory for the answer");
        return;
    }
    reply.models = index.rows;
    reply.n_models = index.count;
    call_reply_message(call, &reply.base);
}

/* KServe's clients put the model's name into field 1, where Triton has the repository's. */
static const char *take_name(struct call *call, const char *repository, const char *model)
{
    if (model[0] == '\0' && repository[0] != '\0' && !call->is_rest)
        return repository;
    return refuses_repository(call, repository) ? NULL : model;
}

static const char *text_parameter(struct call *call,
                                  Inference__RepositoryModelLoadRequest__ParametersEntry *entry)
{
    const Inference__ModelRepositoryParameter *value = entry->value;

    if (value != NULL && value->parameter_choice_case ==
                             INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
        return value->string_param;
    call_fail(call, STATUS_INVALID, "load parameter '%.100s' must be a string", entry->key);
    return NULL;
}

static void answer_load(struct call *call, const char *model, uint64_t freed_bytes)
{
    Inference__RepositoryModelLoadResponse reply = INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;

    (void)freed_bytes;
    reply.model_name = (char *)(uintptr_t)model;
    reply.is_loaded = true;
    call_reply_message(call, &reply.base);
}

void run_repository_model_load(struct call *call)
{
    const Inference__RepositoryModelLoadRequest *request = (const void *)call->message;
    const char *name = take_name(call, request->repository_name, request->model_name);
    const char *config = NULL;

    if (name == NULL)
        return;
    for (size_t i = 0; i < request->n_parameters; i++) {
        if (strcmp(request->parameters[i]->key, "config") != 0) {
            call_fail(call, STATUS_UNSUPPORTED,
                      "load parameter '%.100s' is not supported, only 'config' is",
                      request->parameters[i]->key);
            return;
        }
        config = text_parameter(call, request->parameters[i]);
        if (config == NULL)
            return;
    }
    control_load(call, name, config, answer_load);
}

static void answer_unload(struct call *call, const char *model, uint64_t freed_bytes)
{
    Inference__RepositoryModelUnloadResponse reply =
        INFERENCE__REPOSITORY_MODEL_UNLOAD_RESPONSE__INIT;

    reply.model_name = (char *)(uintptr_t)model;
    reply.is_unloaded = true;
    reply.freed_bytes = freed_bytes;
    call_reply_message(call, &reply.base);
}

void run_repository_model_unload(struct call *call)
{
    const Inference__RepositoryModelUnloadRequest *request = (const void *)call->message;
    const char *name = take_name(call, request->repository_name, request->model_name);

    if (name != NULL)
        control_unload(call, name, answer_unload);
}
