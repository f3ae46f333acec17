#include <string.h>

#include "admin.pb-c.h"
#include "grpc_service.pb-c.h"
#include "health.pb-c.h"
#include "reflection.pb-c.h"
#include "reflection_v1alpha.pb-c.h"
#include "serve/endpoint.h"

#define IS_UNARY  false
#define IS_STREAM true
#define ENDPOINT(id, path_, service_, request_, kind)                                              \
    const struct endpoint endpoint_##id = {.path = path_,                                          \
                                           .service = SERVICE_##service_,                          \
                                           .is_stream = IS_##kind,                                 \
                                           .request = request_,                                    \
                                           .run = run_##id};
#include "serve/endpoints.def"
#undef ENDPOINT

static const struct endpoint *const endpoints[] = {
#define ENDPOINT(id, path, service, request, kind) &endpoint_##id,
#include "serve/endpoints.def"
#undef ENDPOINT
};

static const struct route routes[] = {
#define ROUTE(method, pattern, id, answer)                                                         \
    {HTTP1_##method, pattern, &endpoint_##id, ANSWER_##answer},
#include "serve/routes.def"
#undef ROUTE
};

enum { ENDPOINTS = sizeof(endpoints) / sizeof(endpoints[0]) };
enum { ROUTES = sizeof(routes) / sizeof(routes[0]) };

const struct endpoint *const *endpoint_table(size_t *out_count)
{
    *out_count = ENDPOINTS;
    return endpoints;
}

const struct route *route_table(size_t *out_count)
{
    *out_count = ROUTES;
    return routes;
}

unsigned listener_services(enum listener_role role)
{
    switch (role) {
    case ROLE_METRICS:
        return SERVICE_METRICS;
    case ROLE_ADMIN:
        return SERVICE_INFERENCE | SERVICE_METRICS | SERVICE_ADMIN;
    default:
        return SERVICE_INFERENCE;
    }
}

const struct endpoint *endpoint_find(enum listener_role role, const char *path, size_t size)
{
    for (size_t i = 0; i < ENDPOINTS; i++) {
        const struct endpoint *endpoint = endpoints[i];

        if (endpoint->path != NULL && slice_is((struct slice){path, size}, endpoint->path))
            return (listener_services(role) & endpoint->service) != 0 ? endpoint : NULL;
    }
    return NULL;
}

/* ---- REST paths ---- */

/* One segment of a path, without its slash. */
static struct slice next_segment(const char **at, const char *end)
{
    const char *start = *at + 1; /* behind the slash */
    const char *slash = start < end ? memchr(start, '/', (size_t)(end - start)) : NULL;

    *at = slash != NULL ? slash : end;
    return (struct slice){start, (size_t)(*at - start)};
}

static bool match(const char *pattern, struct slice path, struct slice *variables)
{
    const char *p = pattern, *p_end = pattern + strlen(pattern);
    const char *at = path.data, *end = path.data + path.size;
    size_t found = 0;

    while (p < p_end && at < end) {
        struct slice wanted, segment;

        if (*at != '/')
            return false;
        wanted = next_segment(&p, p_end);
        segment = next_segment(&at, end);
        if (wanted.size > 0 && *wanted.data == '{') {
            if (segment.size == 0)
                return false;
            variables[found++] = segment;
        } else if (segment.size != wanted.size ||
                   memcmp(segment.data, wanted.data, wanted.size) != 0) {
            return false;
        }
    }
    return p == p_end && at == end;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes %XX into the call's memory; a slash or NUL in a name is refused. */
static bool decode(struct call *call, struct slice *segment)
{
    char *copy = arena_copy_string(&call->request.arena, segment->data, segment->size);
    size_t size = 0;

    if (copy == NULL)
        return false;
    for (size_t i = 0; i < segment->size; i++) {
        char c = copy[i];

        if (c == '%') {
            int high = i + 2 < segment->size + 0 ? hex_digit(copy[i + 1]) : -1;
            int low = high >= 0 ? hex_digit(copy[i + 2]) : -1;

            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == '/' || c == '\0')
            return false;
        copy[size++] = c;
    }
    copy[size] = '\0';
    *segment = (struct slice){copy, size};
    return true;
}

/* For Allow, by a set of methods. */
static const char *method_names(unsigned methods)
{
    static const char *const names[] = {"", "GET", "POST", "GET, POST"};

    return names[methods & (1U << HTTP1_GET | 1U << HTTP1_POST)];
}

/* What answers yes or no can be asked by HEAD as well: balancers do. */
static bool takes(const struct route *route, enum http1_method method)
{
    return route->method == method || (method == HTTP1_HEAD_ONLY && route->method == HTTP1_GET &&
                                       route->answer == ANSWER_FLAG);
}

int route_find(struct call *call, enum listener_role role, const struct http1_head *head)
{
    struct slice path = head->path;
    unsigned methods = 0;

    if (path.size > 1 && path.data[path.size - 1] == '/')
        path.size--;
    for (size_t i = 0; i < ROUTES; i++) {
        const struct route *route = &routes[i];

        if ((listener_services(role) & route->endpoint->service) == 0 ||
            !match(route->pattern, path, call->path))
            continue;
        methods |= 1U << route->method;
        if (!takes(route, head->method))
            continue;
        call->route = route;
        call->endpoint = route->endpoint;
        for (size_t v = 0; v < sizeof(call->path) / sizeof(call->path[0]); v++)
            if (call->path[v].data != NULL && !decode(call, &call->path[v]))
                return 400;
        if (head->query.size > 0)
            call->query.data =
                arena_copy_string(&call->request.arena, head->query.data, head->query.size);
        call->query.size = call->query.data != NULL ? head->query.size : 0;
        return 0;
    }
    if (methods == 0)
        return 404;
    call->reply.allow = method_names(methods);
    return 405;
}
