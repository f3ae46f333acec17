/* ModelReady, ModelMetadata, ModelConfig. */
#include <stdlib.h>
#include <string.h>

#include "grpc_service.pb-c.h"
#include "serve/endpoint.h"
#include "serve/internal.h"

void run_model_ready(struct call *call)
{
    const Inference__ModelReadyRequest *request = (const void *)call->message;
    Inference__ModelReadyResponse reply = INFERENCE__MODEL_READY_RESPONSE__INIT;
    struct error err;
    bool ready = false;

    if (repository_is_model_ready(call->server->repository, request->name, request->version, &ready,
                                  &err) != STATUS_OK) {
        call_fail_with(call, &err);
        return;
    }
    reply.ready = ready && !call->server->draining;
    call_reply_message(call, &reply.base);
}

typedef Inference__ModelMetadataResponse__TensorMetadata port_metadata;

static port_metadata **describe_ports(struct call *call, const struct model_port *ports,
                                      size_t count)
{
    port_metadata **list = call_take(call, count * sizeof(port_metadata *));

    for (size_t i = 0; list != NULL && i < count; i++) {
        port_metadata *port = call_take(call, sizeof(*port));
        int64_t *shape = arena_copy(&call->request.arena, ports[i].shape.dims,
                                    ports[i].shape.rank * sizeof(int64_t));

        if (port == NULL || shape == NULL)
            return NULL;
        inference__model_metadata_response__tensor_metadata__init(port);
        port->name = (char *)(uintptr_t)ports[i].name;
        port->datatype = (char *)(uintptr_t)dtype_oip_name(ports[i].dtype);
        port->shape = shape;
        port->n_shape = ports[i].shape.rank;
        list[i] = port;
    }
    return list;
}

struct version_list {
    struct call *call;
    const char *name;
    char **versions;
    size_t count;
};

static int by_number(const void *a, const void *b)
{
    long long left = atoll(*(char *const *)a), right = atoll(*(char *const *)b);

    return (left > right) - (left < right);
}

enum { VERSIONS_MAX = 256 };

static void add_version(void *arg, const struct model_info *info, struct model *model)
{
    struct version_list *list = arg;
    char *copy;

    (void)model;
    if (info->state != MODEL_READY || strcmp(info->name, list->name) != 0 ||
        list->count == VERSIONS_MAX)
        return;
    copy = arena_copy_string(&list->call->request.arena, info->version, strlen(info->version));
    if (copy != NULL)
        list->versions[list->count++] = copy;
}

void run_model_metadata(struct call *call)
{
    const Inference__ModelMetadataRequest *request = (const void *)call->message;
    Inference__ModelMetadataResponse reply = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    struct version_list list = {.call = call, .name = request->name};
    struct error err;
    const struct model_port *ports;

    if (repository_find(call->server->repository, request->name, request->version, &call->model,
                        &err) != STATUS_OK) {
        call_fail_with(call, &err);
        return;
    }
    list.versions = call_take(call, VERSIONS_MAX * sizeof(char *));
    reply.n_inputs = model_inputs(call->model, &ports);
    reply.inputs = describe_ports(call, ports, reply.n_inputs);
    reply.n_outputs = model_outputs(call->model, &ports);
    reply.outputs = describe_ports(call, ports, reply.n_outputs);
    if (reply.inputs == NULL || reply.outputs == NULL || list.versions == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory for the answer");
        return;
    }
    repository_for_each(call->server->repository, add_version, &list);
    qsort(list.versions, list.count, sizeof(char *), by_number);
    reply.name = (char *)(uintptr_t)model_name(call->model);
    reply.versions = list.versions;
    reply.n_versions = list.count;
    reply.platform = (char *)(uintptr_t)model_platform(call->model);
    call_reply_message(call, &reply.base);
}

void run_model_config(struct call *call)
{
    const Inference__ModelConfigRequest *request = (const void *)call->message;
    Inference__ModelConfigResponse reply = INFERENCE__MODEL_CONFIG_RESPONSE__INIT;
    struct error err;

    if (repository_find(call->server->repository, request->name, request->version, &call->model,
                        &err) != STATUS_OK) {
        call_fail_with(call, &err);
        return;
    }
    reply.config = (Inference__ModelConfig *)(uintptr_t)model_config(call->model);
    call_reply_message(call, &reply.base);
}
