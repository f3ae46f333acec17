/* Addresses, errors, and blocking calls over the connection of transport.c. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>

#include "internal.h"

static const char *const status_names[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

const char *sluice_status_name(enum sluice_status status)
{
    return (size_t)status < sizeof(status_names) / sizeof(status_names[0]) ? status_names[status]
                                                                           : "UNKNOWN";
}

enum sluice_status client_error(struct sluice_error *error, enum sluice_status status,
                                const char *format, ...)
{
    if (error != NULL) {
        va_list args;

        va_start(args, format);
        (void)vsnprintf(error->message, sizeof(error->message), format, args);
        va_end(args);
        error->status = status;
    }
    return status;
}

int64_t client_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static bool is_port(const char *text)
{
    size_t length = strlen(text);

    return length > 0 && length <= 5 && strspn(text, "0123456789") == length &&
           strtoul(text, NULL, 10) <= 65535;
}

/* Splits "host:port" or "[::1]:port".  False when it is neither. */
static bool split_address(const char *address, char **out_host, char **out_port)
{
    const char *colon = strrchr(address, ':');
    const char *host = address;
    size_t length;

    if (colon == NULL || colon == address || !is_port(colon + 1))
        return false;
    length = (size_t)(colon - address);
    if (host[0] == '[' && host[length - 1] == ']' && length > 2) {
        host++;
        length -= 2;
    } else if (memchr(host, '[', length) != NULL || memchr(host, ':', length) != NULL) {
        return false;
    }
    *out_host = strndup(host, length);
    *out_port = strdup(colon + 1);
    return true;
}

/* "unix:/path" and "unix:///path", as gRPC's naming has both. */
static const char *unix_path(const char *address)
{
    if (strncmp(address, "unix:", 5) != 0)
        return NULL;
    address += 5;
    return strncmp(address, "///", 3) == 0 ? address + 2 : address;
}

static enum sluice_status parse_address(struct sluice_client *client, const char *address,
                                        struct sluice_error *error)
{
    const char *path = unix_path(address);

    if (path != NULL) {
        if (strlen(path) == 0 || strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
            return client_error(error, SLUICE_INVALID_ARGUMENT,
                                "address '%s': a socket's path has 1 to 107 bytes", address);
        client->is_unix = true;
        client->host = strdup(path);
    } else if (!split_address(address, &client->host, &client->port)) {
        return client_error(error, SLUICE_INVALID_ARGUMENT,
                            "address '%s' is neither host:port nor unix:/path", address);
    }
    if (client->host == NULL || (!client->is_unix && client->port == NULL))
        return client_error(error, SLUICE_RESOURCE_EXHAUSTED, "no memory for a client");
    return SLUICE_OK;
}

enum sluice_status sluice_open(const char *address, struct sluice_client **out_client,
                               struct sluice_error *error)
{
    struct sluice_client *client = calloc(1, sizeof(*client));
    enum sluice_status status;

    if (client == NULL)
        return client_error(error, SLUICE_RESOURCE_EXHAUSTED, "no memory for a client");
    client->fd = -1;
    status = parse_address(client, address, error);
    if (status != SLUICE_OK) {
        sluice_close(client);
        return status;
    }
    *out_client = client;
    return SLUICE_OK;
}

void sluice_close(struct sluice_client *client)
{
    if (client == NULL)
        return;
    transport_close(client, "the client was closed");
    while (client->calls != NULL)
        call_destroy(client->calls);
    free(client->host);
    free(client->port);
    free(client);
}

void sluice_set_timeout(struct sluice_client *client, int64_t timeout_us)
{
    client->timeout_us = timeout_us;
}

int sluice_client_fd(const struct sluice_client *client, bool *out_wants_write)
{
    *out_wants_write = client->unsent_bytes > 0;
    return client->fd;
}

enum sluice_status sluice_client_step(struct sluice_client *client, int timeout_ms,
                                      struct sluice_error *error)
{
    return transport_step(client, timeout_ms, error);
}

bool sluice_call_is_done(const struct sluice_call *call)
{
    return call->is_done;
}

enum sluice_status sluice_call(struct sluice_client *client, const char *method,
                               const void *request, size_t request_bytes, int64_t timeout_us,
                               void **out_reply, size_t *out_reply_bytes,
                               struct sluice_error *error)
{
    int64_t allowed_us = timeout_us > 0 ? timeout_us : client->timeout_us;
    int64_t until_us = allowed_us > 0 ? client_now_us() + allowed_us : INT64_MAX;
    struct sluice_call *call;
    enum sluice_status status = transport_connect(client, until_us, error);

    if (status != SLUICE_OK)
        return status;
    call = call_create(client, request_bytes, NULL, 0);
    if (call == NULL)
        return client_error(error, SLUICE_RESOURCE_EXHAUSTED, "no memory for a call");
    if (request_bytes > 0)
        memcpy(call->head + 5, request, request_bytes);
    status = transport_start(call, method, allowed_us, error);
    if (status == SLUICE_OK)
        status = transport_wait(call, until_us, error);
    if (status == SLUICE_OK) {
        *out_reply_bytes = call->reply_bytes - 5;
        memmove(call->reply, call->reply + 5, *out_reply_bytes);
        *out_reply = call->reply;
        call->reply = NULL;
    }
    call_destroy(call);
    return status;
}
