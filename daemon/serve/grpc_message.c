/* gRPC messages coming in on HTTP/2: prefix, admission, bytes, and what runs when they are whole.
 *
 * A stream may send FIRST_WINDOW before its message is admitted; then the window opens to the whole
 * message.  What comes before admission waits in `spill`; the connection's own window is given back
 * at once, for spills are bounded over all connections.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/codec/infer_request.h"
#include "serve/endpoint.h"
#include "serve/grpc.h"
#include "serve/internal.h"

/* The call that takes the next message: the call itself, or a new one of the stream. */
static struct call *message_call(struct call *call)
{
    struct call *message;

    if (!call->is_stream)
        return call;
    if (call->receiving != NULL)
        return call->receiving;
    message = call_create(call->server, call->connection);
    if (message == NULL)
        return NULL;
    message->endpoint = call->endpoint;
    message->stream = call_ref(call);
    message->stream_id = call->stream_id;
    message->coding = call->coding;
    message->plain_errors = call->plain_errors;
    message->deadline_us = call->deadline_us;
    if (call->deadline_us == CLOCK_NEVER && call->server->limits.request_timeout_us > 0)
        message->deadline_us = call->server->turn_us + call->server->limits.request_timeout_us;
    call->receiving = message;
    list_append(&call->outbox, &message->link);
    return message;
}

static void open_window(struct call *message)
{
    nghttp2_session *session = message->connection->http2.session;
    int32_t wanted = (int32_t)(message->body.size + FIRST_WINDOW);

    if (message->body.size + GRPC_PREFIX > FIRST_WINDOW &&
        wanted >
            nghttp2_session_get_stream_effective_local_window_size(session, message->stream_id))
        (void)nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, message->stream_id,
                                                    wanted);
}

/* Keeps bytes of a message that waits for its memory. */
static void keep_spill(struct call *message, const uint8_t *data, size_t size)
{
    struct server *server = message->server;
    struct body *body = &message->body;
    struct host_pool_stats stats;

    if (size == 0)
        return;
    if (body->spill == NULL) {
        size_t room = body->size < FIRST_WINDOW ? body->size : FIRST_WINDOW;

        host_pool_read(server->host_pool, &stats);
        if (server->spill_bytes + size <= stats.limit_bytes / SPILL_SHARE)
            body->spill = malloc(room);
    }
    if (body->spill == NULL || body->received + size > FIRST_WINDOW) {
        body->state = BODY_REFUSED;
        call_fail(message, STATUS_NO_MEMORY, "too many requests wait for host memory (HostLimit)");
        return;
    }
    memcpy(body->spill + body->received, data, size);
    body->received += size;
    server->spill_bytes += size;
}

/* The 5-byte prefix is whole: admission.  `data` is what follows it in this frame. */
static void on_prefix(struct call *message, const uint8_t *data, size_t size)
{
    uint32_t length;

    memcpy(&length, message->prefix + 1, sizeof(length));
    length = ntohl(length);
    message->compressed = message->prefix[0] == 1;
    if (message->prefix[0] > 1) {
        message->body.state = BODY_REFUSED;
        call_fail(message, STATUS_INTERNAL, "bad compressed flag %u", message->prefix[0]);
        return;
    }
    if (message->endpoint->request == NULL && !message->compressed)
        message->body.align_at = infer_request_raw_offset(data, size < length ? size : length);
    call_admit(message, length);
    if (message->body.state == BODY_OPEN)
        open_window(message);
}

static void finish_message(struct call *call, struct call *message)
{
    call->messages++;
    if (!call->is_stream)
        return; /* runs when the client has sent all */
    call->receiving = NULL;
    call->unsent++;
    call->window_debt += message->body.size + GRPC_PREFIX;
    grpc_pay_window(call);
    call_run(message);
}

/* Takes bytes of one message; returns how many. */
static size_t take_message(struct call *call, struct call *message, const uint8_t *data,
                           size_t size)
{
    struct body *body = &message->body;
    size_t used = 0, part;

    while (message->prefix_size < GRPC_PREFIX && used < size)
        message->prefix[message->prefix_size++] = data[used++];
    if (message->prefix_size < GRPC_PREFIX)
        return used;
    if (body->state == BODY_NONE)
        on_prefix(message, data + used, size - used);
    part = body->size - body->received < size - used ? body->size - body->received : size - used;
    if (body->state == BODY_REFUSED)
        return size;
    if (body->state == BODY_WAITING) {
        keep_spill(message, data + used, part);
        return body->state == BODY_REFUSED ? size : used + part;
    }
    if (body->bytes + body->received != data + used && part > 0)
        memcpy(body->bytes + body->received, data + used, part); /* else it was received in place */
    body->received += part;
    if (body->received == body->size)
        finish_message(call, message);
    return used + part;
}

int grpc_on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                 size_t size, void *user)
{
    struct connection *connection = user;
    struct call *call = grpc_call(session, stream_id);

    (void)flags;
    connection->http2.frame_left -=
        size < connection->http2.frame_left ? size : connection->http2.frame_left;
    (void)nghttp2_session_consume_connection(session, size);
    if (call == NULL)
        return 0;
    call->progress_us = connection->since_us;
    (void)call_ref(call);
    while (size > 0 && !call->answered && call->connection != NULL) {
        struct call *message;
        size_t used;

        if (!call->is_stream && call->messages > 0) {
            call_fail(call, STATUS_UNSUPPORTED, "more than one message in a unary call");
            break;
        }
        if (call->is_stream && call->receiving == NULL && call->server->drain_last_step)
            break; /* the stream ends with the requests that it has */
        message = message_call(call);
        if (message == NULL) {
            call_fail(call, STATUS_NO_MEMORY, "out of memory");
            break;
        }
        (void)call_ref(message);
        used = take_message(call, message, data, size);
        call_unref(message);
        data += used;
        size -= used;
    }
    call_unref(call);
    return 0;
}

void grpc_admitted(struct call *message)
{
    struct call *call = message->stream != NULL ? message->stream : message;

    if (call->connection == NULL || message->connection == NULL)
        return;
    connection_touch(call->connection);
    call->progress_us = call->server->turn_us;
    open_window(message);
    if (message->body.received < message->body.size)
        return;
    finish_message(call, message);
    if (!call->is_stream && call->half_closed)
        call_run(call);
}

void grpc_on_half_close(struct call *call)
{
    call->half_closed = true;
    if (call->answered)
        return;
    if (call->is_stream) {
        if (call->receiving != NULL)
            call_fail(call, STATUS_INTERNAL, "the stream ends within a message");
        else
            grpc_end_stream_if_done(call);
    } else if (call->body.state == BODY_WAITING && call->body.received == call->body.size) {
        return; /* grpc_admitted() runs it */
    } else if (call->messages == 1) {
        call_run(call);
    } else {
        call_fail(call, STATUS_INTERNAL, "a call of no whole message");
    }
}
