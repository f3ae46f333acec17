/* One HTTP/2 connection to the server and the unary calls on it.  See internal.h.
 *
 * nghttp2 keeps the protocol; this file moves bytes between it and a non-blocking socket and turns
 * streams into calls.  A call is done when its stream closed, whatever the reason; then its `error`
 * says how.  Deadlines are sent as grpc-timeout and kept here too.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "internal.h"

enum {
    PREFIX_BYTES = 5, /* gRPC: compressed flag and message length */
    READ_BYTES = 256 << 10,
    STREAM_WINDOW_BYTES = 4 << 20,
    CONNECTION_WINDOW_BYTES = 16 << 20,
    FRAME_BYTES = 1 << 20,
    REPLY_LIMIT_BYTES = 2047 << 20
};

struct sluice_call *call_create(struct sluice_client *client, size_t head_bytes,
                                const struct iovec *pieces, size_t piece_count)
{
    struct sluice_call *call = calloc(1, sizeof(*call));
    size_t message_bytes = head_bytes;

    if (call == NULL)
        return NULL;
    call->client = client;
    call->stream = -1;
    call->grpc_status = -1;
    call->head = malloc(PREFIX_BYTES + head_bytes);
    call->pieces = calloc(piece_count + 1, sizeof(*call->pieces));
    if (call->head == NULL || call->pieces == NULL) {
        call_destroy(call);
        return NULL;
    }
    call->piece_count = piece_count + 1;
    call->pieces[0] = (struct iovec){call->head, PREFIX_BYTES + head_bytes};
    for (size_t i = 0; i < piece_count; i++) {
        call->pieces[i + 1] = pieces[i];
        message_bytes += pieces[i].iov_len;
    }
    call->head[0] = 0;
    for (int i = 0; i < 4; i++)
        call->head[1 + i] = (unsigned char)(message_bytes >> (24 - 8 * i));
    return call;
}

static void unlink_call(struct sluice_call *call)
{
    for (struct sluice_call **at = &call->client->calls; *at != NULL; at = &(*at)->next)
        if (*at == call) {
            *at = call->next;
            return;
        }
}

void call_destroy(struct sluice_call *call)
{
    if (call == NULL)
        return;
    if (call->stream >= 0 && call->client->session != NULL) {
        (void)nghttp2_session_set_stream_user_data(call->client->session, call->stream, NULL);
        (void)nghttp2_submit_rst_stream(call->client->session, NGHTTP2_FLAG_NONE, call->stream,
                                        NGHTTP2_CANCEL);
        (void)transport_step(call->client, 0, NULL);
    }
    unlink_call(call);
    free(call->head);
    free(call->lengths);
    free(call->pieces);
    free(call->reply);
    free(call);
}

/* The call is over.  The first word counts: a later one does not change the outcome. */
static void finish(struct sluice_call *call, enum sluice_status status, const char *message)
{
    if (call->is_done)
        return;
    call->is_done = true;
    call->stream = -1;
    (void)client_error(&call->error, status, "%s", message);
}

static ssize_t read_request(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room,
                            uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct sluice_call *call = nghttp2_session_get_stream_user_data(session, stream);
    size_t copied = 0;

    (void)source, (void)arg;
    if (call == NULL) /* cancelled with DATA still queued: nobody owns the bytes any more */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    while (copied < room && call->piece < call->piece_count) {
        const struct iovec *piece = &call->pieces[call->piece];
        size_t count = piece->iov_len - call->piece_offset;

        if (count > room - copied)
            count = room - copied;
        if (count > 0)
            memcpy(to + copied, (const char *)piece->iov_base + call->piece_offset, count);
        copied += count;
        call->piece_offset += count;
        if (call->piece_offset == piece->iov_len) {
            call->piece++;
            call->piece_offset = 0;
        }
    }
    if (call->piece == call->piece_count)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)copied;
}

/* As long frames as the server takes: fewer, larger copies. */
static ssize_t choose_frame_bytes(nghttp2_session *session, uint8_t type, int32_t stream,
                                  int32_t connection_window, int32_t stream_window,
                                  uint32_t peer_frame_bytes, void *arg)
{
    int32_t window = connection_window < stream_window ? connection_window : stream_window;
    int32_t most = peer_frame_bytes < FRAME_BYTES ? (int32_t)peer_frame_bytes : FRAME_BYTES;

    (void)session, (void)type, (void)stream, (void)arg;
    return window < most ? window : most;
}

static uint32_t message_bytes_of(const unsigned char *prefix)
{
    return (uint32_t)prefix[1] << 24 | (uint32_t)prefix[2] << 16 | (uint32_t)prefix[3] << 8 |
           prefix[4];
}

/* Room for `bytes` more; once the prefix is there, for exactly the whole message. */
static bool grow_reply(struct sluice_call *call, size_t bytes)
{
    size_t need = call->reply_bytes + bytes;
    unsigned char *bigger;

    if (call->reply_bytes >= PREFIX_BYTES &&
        need < PREFIX_BYTES + (size_t)message_bytes_of(call->reply))
        need = PREFIX_BYTES + (size_t)message_bytes_of(call->reply);
    if (need <= call->reply_room)
        return true;
    bigger = need > REPLY_LIMIT_BYTES ? NULL : realloc(call->reply, need);
    if (bigger == NULL)
        return false;
    call->reply = bigger;
    call->reply_room = need;
    return true;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t bytes, void *arg)
{
    struct sluice_call *call = nghttp2_session_get_stream_user_data(session, stream);

    (void)flags, (void)arg;
    if (call == NULL)
        return 0;
    if (!grow_reply(call, bytes)) {
        finish(call, SLUICE_RESOURCE_EXHAUSTED, "no memory for the server's reply");
        (void)nghttp2_session_set_stream_user_data(session, stream, NULL);
        return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
    }
    memcpy(call->reply + call->reply_bytes, data, bytes);
    call->reply_bytes += bytes;
    return 0;
}

static bool header_is(const uint8_t *name, size_t length, const char *wanted)
{
    return length == strlen(wanted) && memcmp(name, wanted, length) == 0;
}

static int hex_value(uint8_t digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* grpc-message is percent-encoded (PROTOCOL-HTTP2.md, "Status-Message"). */
static void decode_message(const uint8_t *from, size_t length, char *to, size_t room)
{
    size_t written = 0;

    for (size_t i = 0; i < length && written + 1 < room; i++) {
        int high = i + 2 < length ? hex_value(from[i + 1]) : -1;
        int low = i + 2 < length ? hex_value(from[i + 2]) : -1;

        if (from[i] == '%' && high >= 0 && low >= 0) {
            to[written++] = (char)(high * 16 + low);
            i += 2;
        } else {
            to[written++] = (char)from[i];
        }
    }
    to[written] = '\0';
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                     void *arg)
{
    struct sluice_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    char number[16] = "";

    (void)flags, (void)arg;
    if (call == NULL)
        return 0;
    memcpy(number, value, value_bytes < sizeof(number) ? value_bytes : sizeof(number) - 1);
    if (header_is(name, name_bytes, ":status"))
        call->http_status = (int)strtol(number, NULL, 10);
    else if (header_is(name, name_bytes, "grpc-status"))
        call->grpc_status = (int)strtol(number, NULL, 10);
    else if (header_is(name, name_bytes, "grpc-message"))
        decode_message(value, value_bytes, call->error.message, sizeof(call->error.message));
    return 0;
}

/* What the trailers and the reply say, once the stream closed in order. */
static void finish_by_trailers(struct sluice_call *call)
{
    char message[sizeof(call->error.message)];

    if (call->http_status != 200) {
        (void)snprintf(message, sizeof(message), "the server answered HTTP status %d, not gRPC",
                       call->http_status);
        finish(call, SLUICE_UNKNOWN, message);
    } else if (call->grpc_status < 0) {
        finish(call, SLUICE_INTERNAL, "the server's reply has no grpc-status");
    } else if (call->grpc_status != SLUICE_OK) {
        memcpy(message, call->error.message, sizeof(message));
        finish(call, (enum sluice_status)call->grpc_status, message);
    } else if (call->reply_bytes < PREFIX_BYTES || call->reply[0] != 0 ||
               call->reply_bytes - PREFIX_BYTES != message_bytes_of(call->reply)) {
        finish(call, SLUICE_INTERNAL, "the server's reply is not one uncompressed gRPC message");
    } else {
        finish(call, SLUICE_OK, "");
    }
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t code, void *arg)
{
    struct sluice_call *call = nghttp2_session_get_stream_user_data(session, stream);

    (void)arg;
    if (call == NULL)
        return 0;
    if (code == NGHTTP2_REFUSED_STREAM)
        finish(call, SLUICE_UNAVAILABLE, "the server refused the call: it is stopping or busy");
    else if (code != NGHTTP2_NO_ERROR && call->grpc_status < 0)
        finish(call, SLUICE_INTERNAL, "the server reset the call");
    else
        finish_by_trailers(call);
    return 0;
}

static bool make_session(struct sluice_client *client)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option = NULL;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_BYTES},
    };
    bool is_made;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return false;
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, choose_frame_bytes);
    is_made = nghttp2_option_new(&option) == 0 &&
              nghttp2_session_client_new2(&client->session, callbacks, client, option) == 0;
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    if (!is_made)
        return false;
    return nghttp2_submit_settings(client->session, NGHTTP2_FLAG_NONE, settings,
                                   sizeof(settings) / sizeof(settings[0])) == 0 &&
           nghttp2_session_set_local_window_size(client->session, NGHTTP2_FLAG_NONE, 0,
                                                 CONNECTION_WINDOW_BYTES) == 0;
}

/* Waits for a connect under way; the socket's own error, or ETIMEDOUT. */
static int wait_connected(int fd, int64_t until_us)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int64_t left_ms = until_us == INT64_MAX ? -1 : (until_us - client_now_us() + 999) / 1000;
    int failure = 0;
    socklen_t size = sizeof(failure);

    if (until_us != INT64_MAX && left_ms < 0)
        left_ms = 0;
    if (poll(&wait, 1, left_ms > INT32_MAX ? -1 : (int)left_ms) <= 0)
        return ETIMEDOUT;
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
    return failure;
}

static int connect_to(const struct sockaddr *address, socklen_t size, int64_t until_us,
                      int *out_error)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;

    if (fd < 0) {
        *out_error = errno;
        return -1;
    }
    if (address->sa_family != AF_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    *out_error = connect(fd, address, size) == 0 ? 0 : errno;
    if (*out_error == EINPROGRESS || *out_error == EAGAIN)
        *out_error = wait_connected(fd, until_us);
    if (*out_error == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static int connect_unix(const char *path, int64_t until_us, int *out_error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, path,
           strlen(path)); /* its length was checked when the client was made */
    return connect_to((const struct sockaddr *)&address, sizeof(address), until_us, out_error);
}

static int connect_tcp(const struct sluice_client *client, int64_t until_us, int *out_error,
                       const char **out_why)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int fd = -1, failure = getaddrinfo(client->host, client->port, &hints, &found);

    if (failure != 0) {
        *out_why = gai_strerror(failure);
        return -1;
    }
    for (struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next)
        fd = connect_to(at->ai_addr, at->ai_addrlen, until_us, out_error);
    freeaddrinfo(found);
    return fd;
}

enum sluice_status transport_connect(struct sluice_client *client, int64_t until_us,
                                     struct sluice_error *error)
{
    const char *why = NULL; /* the host's name means nothing */
    int failure = 0;

    if (client->fd >= 0)
        return SLUICE_OK;
    client->fd = client->is_unix ? connect_unix(client->host, until_us, &failure)
                                 : connect_tcp(client, until_us, &failure, &why);
    if (client->fd < 0)
        return client_error(error, SLUICE_UNAVAILABLE, "cannot connect to %s%s%s%s: %s",
                            client->is_unix ? "unix:" : "", client->host,
                            client->is_unix ? "" : ":", client->is_unix ? "" : client->port,
                            why != NULL ? why : strerror(failure));
    if (!make_session(client)) {
        transport_close(client, "no memory for a connection");
        return client_error(error, SLUICE_RESOURCE_EXHAUSTED, "no memory for a connection");
    }
    return SLUICE_OK;
}

void transport_close(struct sluice_client *client, const char *why)
{
    nghttp2_session_del(client->session);
    client->session = NULL;
    client->unsent_bytes = 0;
    if (client->fd >= 0)
        (void)close(client->fd);
    client->fd = -1;
    for (struct sluice_call *call = client->calls; call != NULL; call = call->next)
        finish(call, SLUICE_UNAVAILABLE, why);
}

#define HEADER(name, value)                                                                        \
    {                                                                                              \
        (uint8_t *)(name), (uint8_t *)(value), strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE   \
    }

enum sluice_status transport_start(struct sluice_call *call, const char *method, int64_t timeout_us,
                                   struct sluice_error *error)
{
    struct sluice_client *client = call->client;
    char timeout[32];
    const nghttp2_nv headers[] = {
        HEADER(":method", "POST"),
        HEADER(":scheme", "http"),
        HEADER(":authority", client->is_unix ? "localhost" : client->host),
        HEADER(":path", method),
        HEADER("content-type", "application/grpc"),
        HEADER("te", "trailers"),
        HEADER("user-agent", "libsluice/" SLUICE_VERSION),
        {(uint8_t *)"grpc-timeout", (uint8_t *)timeout, strlen("grpc-timeout"),
         /* at most 8 digits: milliseconds from 100 s on */
         (size_t)snprintf(timeout, sizeof(timeout), "%lld%c",
                          (long long)(timeout_us < 100000000 ? timeout_us : timeout_us / 1000),
                          timeout_us < 100000000 ? 'u' : 'm'),
         NGHTTP2_NV_FLAG_NONE},
    };
    size_t count = sizeof(headers) / sizeof(headers[0]) - (timeout_us <= 0 ? 1 : 0);
    const nghttp2_data_provider provider = {.read_callback = read_request};
    int32_t stream = nghttp2_submit_request(client->session, NULL, headers, count, &provider, call);

    if (stream < 0)
        return client_error(error, SLUICE_UNAVAILABLE, "cannot start a call: %s",
                            nghttp2_strerror(stream));
    call->stream = stream;
    call->next = client->calls;
    client->calls = call;
    return SLUICE_OK;
}

/* Sends until the socket is full or nghttp2 has nothing more. */
static int send_some(struct sluice_client *client)
{
    for (;;) {
        ssize_t count;

        if (client->unsent_bytes == 0) {
            count = nghttp2_session_mem_send(client->session, &client->unsent);
            if (count <= 0)
                return count < 0 ? EPROTO : 0;
            client->unsent_bytes = (size_t)count;
        }
        count = send(client->fd, client->unsent, client->unsent_bytes, MSG_NOSIGNAL);
        if (count < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : errno;
        client->unsent += count;
        client->unsent_bytes -= (size_t)count;
    }
}

static int receive_some(struct sluice_client *client)
{
    static _Thread_local uint8_t buffer[READ_BYTES];
    ssize_t count = recv(client->fd, buffer, sizeof(buffer), 0);

    if (count < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : errno;
    if (count == 0)
        return ECONNRESET;
    return nghttp2_session_mem_recv(client->session, buffer, (size_t)count) < 0 ? EPROTO : 0;
}

enum sluice_status transport_step(struct sluice_client *client, int timeout_ms,
                                  struct sluice_error *error)
{
    struct pollfd wait = {.fd = client->fd, .events = POLLIN};
    int failure;

    if (client->fd < 0)
        return client_error(error, SLUICE_UNAVAILABLE, "there is no connection");
    failure = send_some(client);
    if (client->unsent_bytes > 0)
        wait.events |= POLLOUT;
    if (failure == 0 && poll(&wait, 1, timeout_ms) > 0 && (wait.revents & ~POLLOUT) != 0)
        failure = receive_some(client);
    if (failure == 0)
        failure = send_some(client);
    if (failure == 0 && nghttp2_session_want_read(client->session) == 0 &&
        nghttp2_session_want_write(client->session) == 0)
        failure = ECONNRESET; /* after GOAWAY the last call is over */
    if (failure == 0)
        return SLUICE_OK;
    transport_close(client, failure == EPROTO ? "the server does not speak HTTP/2"
                                              : "the server closed the connection");
    return client_error(error, SLUICE_UNAVAILABLE, "the connection is lost: %s", strerror(failure));
}

enum sluice_status transport_wait(struct sluice_call *call, int64_t until_us,
                                  struct sluice_error *error)
{
    while (!call->is_done) {
        int64_t left_us = until_us == INT64_MAX ? INT64_MAX : until_us - client_now_us();

        if (left_us <= 0)
            return client_error(error, SLUICE_DEADLINE_EXCEEDED,
                                "no answer within the time allowed");
        (void)transport_step(call->client,
                             left_us / 1000 >= INT32_MAX ? -1 : (int)(left_us / 1000 + 1), NULL);
    }
    if (call->error.status != SLUICE_OK && error != NULL)
        *error = call->error;
    return call->error.status;
}
