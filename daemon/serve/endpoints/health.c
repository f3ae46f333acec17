/* grpc.health.v1: Check and Watch.  A service is "" (the whole server), one of the daemon's
 * services, or the name of a model. */
#include <stdlib.h>
#include <string.h>

#include "health.pb-c.h"
#include "serve/endpoint.h"
#include "serve/internal.h"

typedef Grpc__Health__V1__HealthCheckResponse health_reply;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;

#define SERVING_YES     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define SERVING_NO      GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVING_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

static serving_status look_at(struct server *server, const char *service)
{
    static const char *const alive[] = {"liveness", "sluice.v1.Admin"};
    static const char *const whole[] = {"", "inference.GRPCInferenceService", "readiness"};
    bool ready = false;

    for (size_t i = 0; i < sizeof(alive) / sizeof(alive[0]); i++)
        if (strcmp(service, alive[i]) == 0)
            return SERVING_YES;
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
        if (strcmp(service, whole[i]) == 0)
            return server_is_ready(server) ? SERVING_YES : SERVING_NO;
    if (repository_is_model_ready(server->repository, service, "", &ready, NULL) != STATUS_OK)
        return SERVING_UNKNOWN;
    return ready && !server->draining ? SERVING_YES : SERVING_NO;
}

void run_health_check(struct call *call)
{
    const Grpc__Health__V1__HealthCheckRequest *request = (const void *)call->message;
    health_reply reply = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    reply.status = look_at(call->server, request->service);
    if (reply.status == SERVING_UNKNOWN)
        call_fail(call, STATUS_NOT_FOUND, "unknown service '%.200s'", request->service);
    else
        call_reply_message(call, &reply.base);
}

static void tell(struct call *stream)
{
    const Grpc__Health__V1__HealthCheckRequest *request = (const void *)stream->message;
    health_reply reply = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    reply.status = look_at(stream->server, request->service);
    if (stream->told_health == (int)reply.status)
        return;
    stream->told_health = (int)reply.status;
    call_push_message(stream, &reply.base);
}

/* The stream keeps the request; its message gets no answer of its own. */
void run_health_watch(struct call *call)
{
    const Grpc__Health__V1__HealthCheckRequest *request = (const void *)call->message;
    struct call *stream = call->stream;
    Grpc__Health__V1__HealthCheckRequest *kept;

    if (stream->message != NULL) {
        call_fail(call, STATUS_INVALID, "Watch takes one request");
        return;
    }
    kept = (void *)arena_copy(&stream->request.arena, request, sizeof(*request));
    if (kept == NULL || (kept->service = arena_copy_string(&stream->request.arena, request->service,
                                                           strlen(request->service))) == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return;
    }
    stream->message = &kept->base;
    stream->told_health = -1;
    list_append(&stream->server->watchers, &stream->waiting);
    call_discard(call);
    tell(stream);
}

void health_notify_watchers(struct server *server)
{
    struct call *stream;

    LIST_FOR_EACH (stream, &server->watchers, struct call, waiting) {
        tell(stream);
        if (server->draining)
            call_end_stream(stream, STATUS_UNAVAILABLE, CALL_STOPPING);
    }
}
