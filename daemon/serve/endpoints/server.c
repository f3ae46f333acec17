/* ServerLive, ServerReady, ServerMetadata. */
#include "grpc_service.pb-c.h"
#include "serve/endpoint.h"
#include "serve/internal.h"

void run_server_live(struct call *call)
{
    Inference__ServerLiveResponse reply = INFERENCE__SERVER_LIVE_RESPONSE__INIT;

    reply.live = true;
    call_reply_message(call, &reply.base);
}

void run_server_ready(struct call *call)
{
    Inference__ServerReadyResponse reply = INFERENCE__SERVER_READY_RESPONSE__INIT;

    reply.ready = server_is_ready(call->server);
    call_reply_message(call, &reply.base);
}

void run_server_metadata(struct call *call)
{
    static char *extensions[] = {
        "classification",      "model_repository",     "schedule_policy",
        "model_configuration", "binary_tensor_data",   "parameters",
        "statistics",          "system_shared_memory", "cuda_shared_memory"};
    Inference__ServerMetadataResponse reply = INFERENCE__SERVER_METADATA_RESPONSE__INIT;

    reply.name = "sluice";
    reply.version = SLUICE_VERSION;
    reply.extensions = extensions;
    reply.n_extensions = sizeof(extensions) / sizeof(extensions[0]);
    call_reply_message(call, &reply.base);
}
