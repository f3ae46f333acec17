/* wire_echo: the floor that `./dev bench wire` measures against.
 *
 *     wire_echo 127.0.0.1:PORT
 *
 * One epoll thread, gRPC (h2c by nghttp2) and HTTP/1.1 on one port; ModelInfer and …/infer give the
 * first raw input back as the output.  No queue, no model, no checks, no limits: a measuring aid
 * that trusts its client.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct buffer {
    uint8_t *bytes;
    size_t count, room;
};

struct stream {
    struct buffer in, out;
    size_t sent;
};

struct connection {
    int fd;
    int is_http2; /* 0: not known yet, -1: HTTP/1.1 */
    nghttp2_session *session;
    struct buffer in, out;
    size_t sent;
    int waits_to_write;
};

static int epoll_fd;
static nghttp2_session_callbacks *callbacks;

static void put(struct buffer *buffer, const void *bytes, size_t count)
{
    if (buffer->count + count > buffer->room) {
        buffer->room = buffer->room * 2 + 4096;
        if (buffer->room < buffer->count + count)
            buffer->room = buffer->count + count;
        buffer->bytes = realloc(buffer->bytes, buffer->room);
        if (buffer->bytes == NULL)
            abort();
    }
    if (count > 0)
        memcpy(buffer->bytes + buffer->count, bytes, count);
    buffer->count += count;
}

static void make_room(struct buffer *buffer, size_t count)
{
    if (buffer->room < count) {
        buffer->room = count;
        buffer->bytes = realloc(buffer->bytes, count);
        if (buffer->bytes == NULL)
            abort();
    }
}

/* ---- the infer messages, top level only ---- */

static size_t get_varint(const uint8_t *at, const uint8_t *end, uint64_t *out_value)
{
    *out_value = 0;
    for (size_t i = 0; at + i < end && i < 10; i++) {
        *out_value |= (uint64_t)(at[i] & 127) << (7 * i);
        if ((at[i] & 128) == 0)
            return i + 1;
    }
    return 0;
}

static void put_varint(struct buffer *buffer, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;

    do {
        bytes[count] = (uint8_t)(value & 127);
        value >>= 7;
        if (value != 0)
            bytes[count] |= 128;
        count++;
    } while (value != 0);
    put(buffer, bytes, count);
}

static void put_field(struct buffer *buffer, unsigned field, const void *bytes, size_t count)
{
    put_varint(buffer, field << 3 | 2);
    put_varint(buffer, count);
    put(buffer, bytes, count);
}

struct slice {
    const uint8_t *bytes;
    size_t count;
};

/* The first occurrence of each length-delimited field below 8. */
static void find_fields(const uint8_t *at, const uint8_t *end, struct slice fields[8])
{
    while (at < end) {
        uint64_t tag, length;
        size_t count = get_varint(at, end, &tag);

        at += count;
        if (count == 0 || (count = get_varint(at, end, &length)) == 0)
            return;
        at += count;
        if ((tag & 7) == 0)
            continue;
        if ((tag & 7) != 2 || length > (size_t)(end - at))
            return;
        if (tag >> 3 < 8 && fields[tag >> 3].bytes == NULL)
            fields[tag >> 3] = (struct slice){at, length};
        at += length;
    }
}

static void echo_message(const uint8_t *bytes, size_t count, struct buffer *out)
{
    static struct buffer tensor;
    struct slice request[8] = {0}, input[8] = {0};

    find_fields(bytes, bytes + count, request);
    if (request[5].bytes != NULL)
        find_fields(request[5].bytes, request[5].bytes + request[5].count, input);
    put_field(out, 1, request[1].bytes, request[1].count);
    put_field(out, 2, "1", 1);
    tensor.count = 0;
    put_field(&tensor, 1, "y", 1);
    put_field(&tensor, 2, "FP32", 4);
    put_field(&tensor, 3, input[3].bytes, input[3].count);
    put_field(out, 5, tensor.bytes, tensor.count);
    put_field(out, 6, request[7].bytes, request[7].count);
}

/* ---- gRPC ---- */

static ssize_t read_reply(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                          uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct stream *stream = source->ptr;
    size_t count = stream->out.count - stream->sent;
    nghttp2_nv trailer = {(uint8_t *)"grpc-status", (uint8_t *)"0", 11, 1, 0};

    (void)arg;
    if (count > room)
        count = room;
    memcpy(to, stream->out.bytes + stream->sent, count);
    stream->sent += count;
    if (stream->sent == stream->out.count) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        (void)nghttp2_submit_trailer(session, id, &trailer, 1);
    }
    return (ssize_t)count;
}

static void answer(nghttp2_session *session, int32_t id, struct stream *stream)
{
    uint8_t prefix[5] = {0};
    uint32_t length;
    nghttp2_nv headers[] = {
        {(uint8_t *)":status", (uint8_t *)"200", 7, 3, 0},
        {(uint8_t *)"content-type", (uint8_t *)"application/grpc", 12, 16, 0},
    };
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_reply};

    put(&stream->out, prefix, sizeof(prefix));
    if (stream->in.count > 5)
        echo_message(stream->in.bytes + 5, stream->in.count - 5, &stream->out);
    length = htonl((uint32_t)(stream->out.count - 5));
    memcpy(stream->out.bytes + 1, &length, sizeof(length));
    (void)nghttp2_submit_response(session, id, headers, 2, &provider);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    (void)arg;
    return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id,
                                                calloc(1, sizeof(struct stream)));
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t count, void *arg)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    uint32_t length;

    (void)flags, (void)arg;
    put(&stream->in, bytes, count);
    if (stream->in.count == count && count >= 5) { /* the first piece tells the size of all */
        memcpy(&length, bytes + 1, sizeof(length));
        make_room(&stream->in, ntohl(length) + 5);
    }
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    (void)arg;
    if (stream != NULL && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
        (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS))
        answer(session, frame->hd.stream_id, stream);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);

    (void)code, (void)arg;
    if (stream != NULL) {
        free(stream->in.bytes);
        free(stream->out.bytes);
        free(stream);
    }
    return 0;
}

static void start_http2(struct connection *connection)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1024},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 4 << 20},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, 1 << 20},
    };

    (void)nghttp2_session_server_new(&connection->session, callbacks, connection);
    (void)nghttp2_submit_settings(connection->session, 0, settings, 3);
    (void)nghttp2_session_set_local_window_size(connection->session, 0, 0, 16 << 20);
}

/* ---- HTTP/1.1 with the binary tensor extension ---- */

static size_t header_number(const char *head, size_t head_bytes, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = head; at + length < head + head_bytes; at++)
        if (at[-1] == '\n' && strncasecmp(at, name, length) == 0)
            return strtoul(at + length, NULL, 10);
    return 0;
}

/* Answers every whole request in connection->in. */
static void serve_http1(struct connection *connection)
{
    for (;;) {
        struct buffer *in = &connection->in;
        char *end = in->count == 0 ? NULL : memmem(in->bytes, in->count, "\r\n\r\n", 4);
        char head[512], json[256];
        size_t head_bytes, body, json_in, raw;
        int head_out, json_out;

        if (end == NULL)
            return;
        head_bytes = (size_t)(end - (char *)in->bytes) + 4;
        body = header_number((char *)in->bytes + 1, head_bytes - 1, "content-length:");
        json_in = header_number((char *)in->bytes + 1, head_bytes - 1,
                                "inference-header-content-length:");
        if (in->count < head_bytes + body) {
            make_room(in, head_bytes + body);
            return;
        }
        raw = body - json_in;
        json_out =
            snprintf(json, sizeof(json),
                     "{\"model_name\":\"m\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"y\","
                     "\"datatype\":"
                     "\"FP32\",\"shape\":[1,%zu],\"parameters\":{\"binary_data_size\":%zu}}]}",
                     raw / 4, raw);
        head_out = snprintf(head, sizeof(head),
                            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                            "Inference-Header-Content-Length: %d\r\nContent-Length: %zu\r\n\r\n",
                            json_out, (size_t)json_out + raw);
        put(&connection->out, head, (size_t)head_out);
        put(&connection->out, json, (size_t)json_out);
        put(&connection->out, in->bytes + head_bytes + json_in, raw);
        in->count -= head_bytes + body;
        memmove(in->bytes, in->bytes + head_bytes + body, in->count);
    }
}

/* ---- sockets ---- */

static void drop(struct connection *connection)
{
    (void)close(connection->fd);
    nghttp2_session_del(connection->session);
    free(connection->in.bytes);
    free(connection->out.bytes);
    free(connection);
}

static void gather(struct connection *connection)
{
    const uint8_t *bytes;
    ssize_t count;

    while (connection->session != NULL && connection->out.count - connection->sent < (256 << 10) &&
           (count = nghttp2_session_mem_send(connection->session, &bytes)) > 0)
        put(&connection->out, bytes, (size_t)count);
}

static int flush(struct connection *connection)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    int waits;

    for (;;) {
        ssize_t count;

        gather(connection);
        if (connection->sent == connection->out.count)
            break;
        count = send(connection->fd, connection->out.bytes + connection->sent,
                     connection->out.count - connection->sent, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN)
            break;
        if (count < 0)
            return -1;
        connection->sent += (size_t)count;
        if (connection->sent == connection->out.count)
            connection->sent = connection->out.count = 0;
    }
    waits = connection->out.count != connection->sent;
    if (waits != connection->waits_to_write) {
        event.events |= waits ? EPOLLOUT : 0;
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_MOD, connection->fd, &event);
        connection->waits_to_write = waits;
    }
    return 0;
}

static int receive(struct connection *connection)
{
    static uint8_t bytes[256 << 10];
    ssize_t count = recv(connection->fd, bytes, sizeof(bytes), 0);

    if (count <= 0)
        return count < 0 && errno == EAGAIN ? 0 : -1;
    if (connection->is_http2 == 0) {
        connection->is_http2 = count >= 3 && memcmp(bytes, "PRI", 3) == 0 ? 1 : -1;
        if (connection->is_http2 == 1)
            start_http2(connection);
    }
    if (connection->session != NULL)
        return nghttp2_session_mem_recv(connection->session, bytes, (size_t)count) < 0 ? -1 : 0;
    put(&connection->in, bytes, (size_t)count);
    serve_http1(connection);
    return 0;
}

static void accept_all(int listener)
{
    int fd, on = 1;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct connection *connection = calloc(1, sizeof(*connection));
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};

        if (connection == NULL)
            abort();
        connection->fd = fd;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
    }
}

static int listen_on(const char *address)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *colon = strrchr(address, ':');
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

    name.sin_port = htons((uint16_t)strtoul(colon != NULL ? colon + 1 : address, NULL, 10));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (const struct sockaddr *)&name, sizeof(name)) != 0 || listen(fd, 512) != 0) {
        perror("wire_echo: listen");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv)
{
    struct epoll_event event = {.events = EPOLLIN}, events[64];
    int listener = listen_on(argc > 1 ? argv[1] : "127.0.0.1:9001");

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return 1;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(epoll_fd, events, 64, -1);

        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            int is_lost;

            if (connection == NULL) {
                accept_all(listener);
                continue;
            }
            is_lost = (events[i].events & ~(uint32_t)EPOLLOUT) != 0 && receive(connection) != 0;
            if (is_lost || flush(connection) != 0)
                drop(connection);
        }
    }
}
