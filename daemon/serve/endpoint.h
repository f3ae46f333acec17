/* Endpoints: what can be called, and the two ways to call it.
 *
 * One row in endpoints.def and one function in endpoints/ serve both protocols: the request comes
 * as a message (or, for inference, as the body), the answer goes out as a message, packed for gRPC
 * or printed as JSON for REST.  routes.def says which path leads where and how a REST answer looks.
 */
#ifndef SERVE_ENDPOINT_H
#define SERVE_ENDPOINT_H

#include <protobuf-c/protobuf-c.h>

#include "serve/call.h"
#include "serve/listener.h"

enum service { SERVICE_INFERENCE = 1, SERVICE_METRICS = 2, SERVICE_ADMIN = 4 };

struct endpoint {
    const char *path; /* gRPC: "/inference.GRPCInferenceService/ModelInfer"; NULL: REST only */
    enum service service;
    bool is_stream; /* each message of the stream is run as a call of its own */
    const ProtobufCMessageDescriptor *request; /* NULL: run() takes the body itself */
    void (*run)(struct call *call);
};

enum route_answer {
    ANSWER_MESSAGE,  /* the message as a JSON object */
    ANSWER_LIST,     /* its first field alone: a top-level array */
    ANSWER_FLAG,     /* as an object; its first field, a bool, decides 200 or 400 */
    ANSWER_TEXT,     /* its first field, a string that is JSON already */
    ANSWER_SETTINGS, /* its first field, a map of settings, as an object */
};

struct route {
    enum http1_method method;
    const char *pattern; /* "/v2/models/{name}/ready": {…} fills the request's field of that name */
    const struct endpoint *endpoint;
    enum route_answer answer;
};

/* By gRPC path; NULL: UNIMPLEMENTED.  Services that the listener does not carry do not exist. */
const struct endpoint *endpoint_find(enum listener_role role, const char *path, size_t size);
/* By method and path.  Fills call->route, call->endpoint and call->path.  NULL, or 404 / 405. */
int route_find(struct call *call, enum listener_role role, const struct http1_head *head);
unsigned listener_services(enum listener_role role);
/* All of them, for reflection and tests. */
const struct endpoint *const *endpoint_table(size_t *out_count);
const struct route *route_table(size_t *out_count);

#define ENDPOINT(id, path, service, request, stream) extern const struct endpoint endpoint_##id;
#include "serve/endpoints.def"
#undef ENDPOINT

#define ENDPOINT(id, path, service, request, stream) void run_##id(struct call *call);
#include "serve/endpoints.def"
#undef ENDPOINT

#endif
