/* HTTP/2 and gRPC on a connection: nghttp2 as a pure machine between bytes and frames.
 *
 * In:  a message gets its buffer at its 5-byte prefix (admission), then DATA is received straight
 * into it: read() is given {rest of the DATA frame -> body, receive buffer}, and nghttp2 is handed
 *      that same memory, so its callback finds the bytes where they belong.
 * Windows: a stream may send FIRST_WINDOW before its message is admitted; then the window opens to
 * the whole message.  What comes before admission waits in `spill`; the connection's own window is
 *      given back at once, for spills are bounded over all connections.
 * Out: NO_COPY frames; the frame header is copied, the tensor is referenced.
 * Only nghttp2_submit_*() is called from callbacks.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_COMPONENT "serve"
#include "base/clock.h"
#include "observe/log.h"
#include "serve/codec/infer_request.h"
#include "serve/endpoint.h"
#include "serve/infer.h"
#include "serve/internal.h"

enum { PREFIX = 5, FRAME_HEAD = 9, IN_PLACE_LEAST = 4096, HEADER_LIST_MAX = 16 << 10 };
enum { RESET_BURST = 100000, RESET_RATE = 10000, STREAM_MESSAGES = 64 };
enum { TEXT_MAX = 2048 };

static nghttp2_session_callbacks *callbacks; /* made once, shared by all sessions */
static nghttp2_option *options;

static struct call *call_of(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

/* ---- answers ---- */

#define NV(name, value)                                                                            \
    {                                                                                              \
        (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1,             \
            sizeof(value) - 1, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE        \
    }

/* Percent-encodes what a header may not hold; cuts long texts, for clients refuse headers over 8
 * KiB. */
static size_t encode_text(const char *text, char *to, size_t room)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t size = 0;

    for (const unsigned char *c = (const unsigned char *)text; *c != '\0' && size + 3 < room; c++) {
        if (*c >= 0x20 && *c <= 0x7E && *c != '%') {
            to[size++] = (char)*c;
        } else {
            to[size++] = '%';
            to[size++] = hex[*c >> 4];
            to[size++] = hex[*c & 15];
        }
    }
    return size;
}

/* grpc-status and grpc-message, as trailers or as a response without a body. */
static void submit_status(struct call *call, bool is_trailer)
{
    nghttp2_session *session = call->connection->http2.session;
    char digits[12], text[TEXT_MAX];
    nghttp2_nv fields[5] = {NV(":status", "200"), NV("content-type", "application/grpc"),
                            NV("grpc-status", "0")};
    nghttp2_nv *first = is_trailer ? &fields[2] : fields;
    size_t count = is_trailer ? 1 : 3;
    int code = status_grpc_code(call->reply.status);

    if (code != 0) {
        fields[2].value = (uint8_t *)digits;
        fields[2].valuelen = (size_t)snprintf(digits, sizeof(digits), "%d", code);
        fields[2].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
    }
    if (call->reply.text != NULL) {
        fields[3] = (nghttp2_nv)NV("grpc-message", "");
        fields[3].value = (uint8_t *)text;
        fields[3].valuelen = encode_text(call->reply.text, text, sizeof(text));
        fields[3].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
        count++;
    }
    if (call->coding == CODING_UNKNOWN && !is_trailer)
        fields[count++] = (nghttp2_nv)NV("grpc-accept-encoding", "identity,deflate,gzip");
    if (is_trailer)
        (void)nghttp2_submit_trailer(session, call->stream_id, first, count);
    else
        (void)nghttp2_submit_response(session, call->stream_id, first, count, NULL);
    call->head_sent = true;
}

/* Whose message goes out next on the stream: its own, or the oldest of its outbox that is answered.
 */
static struct call *next_message(struct call *call)
{
    struct call *first;

    if (!call->is_stream)
        return call;
    first = LIST_FIRST(&call->outbox, struct call, link);
    return first != NULL && first->answered ? first : NULL;
}

static size_t message_left(const struct call *message)
{
    return PREFIX + message->reply.size - message->sent;
}

static ssize_t on_read(nghttp2_session *session, int32_t stream_id, uint8_t *buffer, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct call *call = source->ptr;
    struct call *message = next_message(call);
    size_t size;

    (void)session, (void)stream_id, (void)buffer, (void)user;
    if (message == NULL && !call->answered)
        return NGHTTP2_ERR_DEFERRED;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    size = message != NULL ? message_left(message) : 0;
    if (call->is_stream ? message == NULL : size <= length) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_status(call, true);
    }
    return (ssize_t)(size < length ? size : length);
}

/* Gives the stream's window back unless too many of its messages are under way. */
static void pay_window(struct call *call)
{
    if (call->window_debt == 0 || call->unsent >= STREAM_MESSAGES)
        return;
    (void)nghttp2_session_consume_stream(call->connection->http2.session, call->stream_id,
                                         call->window_debt);
    call->window_debt = 0;
}

/* A message of the stream is over. */
static void leave_outbox(struct call *call, struct call *message)
{
    if (call->unsent > 0)
        call->unsent--;
    pay_window(call);
    list_remove(&message->link);
    message->connection = NULL;
    call_unref(message);
}

/* Health.Watch goes on until the client has enough; other streams end with their requests. */
static void end_stream_if_done(struct call *call)
{
    if (call->is_stream && call->half_closed && list_is_empty(&call->outbox) &&
        call->endpoint != &endpoint_health_watch)
        call_end_stream(call, STATUS_OK, NULL);
}

/* Puts `size` bytes of the message, from `sent` on: prefix, then pieces. */
static void put_message(struct output *output, struct call *message, size_t size)
{
    size_t at = message->sent, start = PREFIX;

    message->sent += size;
    if (at < PREFIX) {
        size_t part = PREFIX - at < size ? PREFIX - at : size;

        output_copy(output, message->out_prefix + at, part);
        at += part;
        size -= part;
    }
    for (size_t i = 0; i < message->reply.count && size > 0; i++) {
        const struct piece *piece = &message->reply.pieces[i];

        if (at < start + piece->size) {
            size_t skip = at - start;
            size_t part = piece->size - skip < size ? piece->size - skip : size;

            output_refer(output, (const uint8_t *)piece->data + skip, part, message);
            at += part;
            size -= part;
        }
        start += piece->size;
    }
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                        size_t length, nghttp2_data_source *source, void *user)
{
    struct connection *connection = user;
    struct call *call = source->ptr;
    struct call *message;

    (void)session, (void)frame;
    if (!output_has_room(&connection->output))
        return NGHTTP2_ERR_WOULDBLOCK;
    output_copy(&connection->output, head, FRAME_HEAD);
    message = next_message(call);
    if (message == NULL || length == 0)
        return 0;
    put_message(&connection->output, message, length);
    call->progress_us = connection->sent_us;
    if (message != call && message_left(message) == 0) {
        leave_outbox(call, message);
        end_stream_if_done(call);
    }
    return 0;
}

/* Frames as large as the peer takes; nghttp2 would stop at 16 KiB. */
static ssize_t on_read_length(nghttp2_session *session, uint8_t type, int32_t stream_id,
                              int32_t session_window, int32_t stream_window, uint32_t frame_max,
                              void *user)
{
    int32_t window = session_window < stream_window ? session_window : stream_window;
    uint32_t most = frame_max < MAX_FRAME ? frame_max : MAX_FRAME;

    (void)session, (void)type, (void)stream_id, (void)user;
    return window < (int32_t)most ? window : (int32_t)most;
}

static void set_prefix(struct call *message)
{
    uint32_t size = htonl((uint32_t)message->reply.size);

    message->out_prefix[0] = 0;
    memcpy(message->out_prefix + 1, &size, sizeof(size));
}

static void start_answer(struct call *call)
{
    static const nghttp2_nv fields[] = {NV(":status", "200"),
                                        NV("content-type", "application/grpc")};
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = on_read};
    nghttp2_session *session = call->connection->http2.session;

    if (call->head_sent) {
        (void)nghttp2_session_resume_data(session, call->stream_id);
        return;
    }
    call->head_sent = true;
    (void)nghttp2_submit_response(session, call->stream_id, fields, 2, &provider);
}

static void answer(struct call *message)
{
    struct call *call = message->stream != NULL ? message->stream : message;

    connection_touch(call->connection);
    call->progress_us = call->server->turn_us;
    if (message == call) {
        if (!call->head_sent && (call->reply.status != STATUS_OK || call->is_stream)) {
            submit_status(call, false);
            return;
        }
    } else if (message->reply.status != STATUS_OK && !infer_fail_in_band(message)) {
        /* The stream ends with the status of its message. */
        call_fail(call, message->reply.status, "%s", message->reply.text);
        leave_outbox(call, message);
        return;
    }
    set_prefix(message);
    start_answer(call);
}

/* After an answer that came before the request's end, asks the client to stop.  Submitting this
 * beside the answer would lose the answer. */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct call *call;

    (void)user;
    if (frame->hd.type != NGHTTP2_HEADERS || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    call = call_of(session, frame->hd.stream_id);
    if (call != NULL && !call->half_closed)
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_NO_ERROR);
    return 0;
}

/* ---- requests ---- */

static bool starts_with(const uint8_t *value, size_t size, const char *start)
{
    size_t length = strlen(start);

    return size >= length && memcmp(value, start, length) == 0;
}

static bool is_name(const uint8_t *name, size_t size, const char *text)
{
    return size == strlen(text) && memcmp(name, text, size) == 0;
}

/* "5010m" and the like; false: no timeout. */
static bool parse_timeout(const uint8_t *value, size_t size, int64_t *out_us)
{
    static const char units[] = "numSMH";
    static const int64_t ns[] = {1, 1000, 1000000, 1000000000, 60000000000, 3600000000000};
    int64_t count = 0;
    const char *unit;

    if (size < 2 || size > 9)
        return false;
    for (size_t i = 0; i + 1 < size; i++) {
        if (value[i] < '0' || value[i] > '9')
            return false;
        count = count * 10 + (value[i] - '0');
    }
    unit = memchr(units, value[size - 1], sizeof(units) - 1);
    if (unit == NULL)
        return false;
    if (count > INT64_MAX / 4 / ns[unit - units])
        *out_us = INT64_MAX / 4000;
    else
        *out_us = (count * ns[unit - units] + 999) / 1000;
    return true;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct connection *connection = user;
    struct call *call;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    call = call_create(connection->server, connection);
    if (call == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    call->stream_id = frame->hd.stream_id;
    call->progress_us = connection->since_us;
    list_append(&connection->calls, &call->link);
    (void)nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
}

enum { SAW_POST = 1, SAW_PATH = 2, SAW_GRPC = 4, SAW_TWICE = 8, SAW_ALL = 7 };

static void on_pseudo_header(struct call *call, const uint8_t *name, size_t name_size,
                             const uint8_t *value, size_t size)
{
    if (is_name(name, name_size, ":path")) {
        call->seen |= (call->seen & SAW_PATH) != 0 ? SAW_TWICE : SAW_PATH;
        call->endpoint = endpoint_find(call->connection->role, (const char *)value, size);
    } else if (is_name(name, name_size, ":method")) {
        if (is_name(value, size, "POST"))
            call->seen |= SAW_POST;
    }
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t size, uint8_t flags, void *user)
{
    struct call *call = call_of(session, frame->hd.stream_id);
    int64_t timeout_us;

    (void)flags, (void)user;
    if (call == NULL || frame->headers.cat != NGHTTP2_HCAT_REQUEST || name_size == 0)
        return 0;
    if (name[0] == ':') {
        on_pseudo_header(call, name, name_size, value, size);
    } else if (is_name(name, name_size, "content-type")) {
        if (starts_with(value, size, "application/grpc"))
            call->seen |= SAW_GRPC;
    } else if (is_name(name, name_size, "grpc-timeout")) {
        if (parse_timeout(value, size, &timeout_us))
            call->deadline_us = call->server->turn_us + timeout_us;
    } else if (is_name(name, name_size, "grpc-encoding")) {
        call->coding = is_name(value, size, "identity")  ? CODING_IDENTITY
                       : is_name(value, size, "gzip")    ? CODING_GZIP
                       : is_name(value, size, "deflate") ? CODING_DEFLATE
                                                         : CODING_UNKNOWN;
    } else if (is_name(name, name_size, "triton_grpc_error")) {
        call->plain_errors = is_name(value, size, "true");
    }
    return 0;
}

static void refuse_http(struct call *call, bool is_grpc)
{
    static const nghttp2_nv not_grpc[] = {NV(":status", "415")};
    static const nghttp2_nv bad[] = {NV(":status", "400")};

    call->answered = call->head_sent = true;
    call->body.state = BODY_REFUSED;
    (void)nghttp2_submit_response(call->connection->http2.session, call->stream_id,
                                  is_grpc ? bad : not_grpc, 1, NULL);
}

static void on_headers(struct call *call)
{
    struct server *server = call->server;
    bool has_own_deadline = call->deadline_us != CLOCK_NEVER;

    if (call->seen != SAW_ALL) {
        refuse_http(call, (call->seen & SAW_GRPC) != 0);
        return;
    }
    if (call->endpoint == NULL) {
        call->body.state = BODY_REFUSED;
        call_fail(call, STATUS_UNSUPPORTED, "unknown service or method");
        return;
    }
    if (call->coding == CODING_UNKNOWN) {
        call->body.state = BODY_REFUSED;
        call_fail(call, STATUS_UNSUPPORTED, "grpc-encoding is none of identity, gzip, deflate");
        return;
    }
    call->is_stream = call->endpoint->is_stream;
    if (!has_own_deadline && !call->is_stream && server->limits.request_timeout_us > 0)
        call->deadline_us = call->server->turn_us + server->limits.request_timeout_us;
    if (has_own_deadline && deadlines_add(server, call) != STATUS_OK)
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
}

/* ---- messages ---- */

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

    if (message->body.size + PREFIX > FIRST_WINDOW &&
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
    call->window_debt += message->body.size + PREFIX;
    pay_window(call);
    call_run(message);
}

/* Takes bytes of one message; returns how many. */
static size_t take_message(struct call *call, struct call *message, const uint8_t *data,
                           size_t size)
{
    struct body *body = &message->body;
    size_t used = 0, part;

    while (message->prefix_size < PREFIX && used < size)
        message->prefix[message->prefix_size++] = data[used++];
    if (message->prefix_size < PREFIX)
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

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                   size_t size, void *user)
{
    struct connection *connection = user;
    struct call *call = call_of(session, stream_id);

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

static void admitted(struct call *message)
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

static void on_half_close(struct call *call)
{
    call->half_closed = true;
    if (call->answered)
        return;
    if (call->is_stream) {
        if (call->receiving != NULL)
            call_fail(call, STATUS_INTERNAL, "the stream ends within a message");
        else
            end_stream_if_done(call);
    } else if (call->body.state == BODY_WAITING && call->body.received == call->body.size) {
        return; /* admitted() runs it */
    } else if (call->messages == 1) {
        call_run(call);
    } else {
        call_fail(call, STATUS_INTERNAL, "a call of no whole message");
    }
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct call *call;

    (void)user;
    if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    call = call_of(session, frame->hd.stream_id);
    if (call == NULL)
        return 0;
    (void)call_ref(call);
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        on_headers(call);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 && call->connection != NULL)
        on_half_close(call);
    call_unref(call);
    return 0;
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *user)
{
    struct http2 *http2 = &((struct connection *)user)->http2;
    bool is_data = head->type == NGHTTP2_DATA && (head->flags & NGHTTP2_FLAG_PADDED) == 0;

    http2->frame_call = is_data ? call_of(session, head->stream_id) : NULL;
    http2->frame_left = is_data ? head->length : 0;
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t code, void *user)
{
    struct http2 *http2 = &((struct connection *)user)->http2;
    struct call *call = call_of(session, stream_id);

    (void)code;
    if (call == NULL)
        return 0;
    (void)nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    if (http2->frame_call == call)
        http2->frame_call = NULL;
    call_abandon(call);
    return 0;
}

/* ---- the connection ---- */

static bool make_callbacks(void)
{
    if (callbacks != NULL)
        return true;
    if (nghttp2_option_new(&options) != 0 || nghttp2_session_callbacks_new(&callbacks) != 0)
        return false;
    nghttp2_option_set_no_auto_window_update(options, 1);
    nghttp2_option_set_no_closed_streams(options, 1);
    /* Its checks refuse a Unix path in :authority, which several clients send.  What matters is
     * checked in on_header(). */
    nghttp2_option_set_no_http_messaging(options, 1);
    nghttp2_option_set_stream_reset_rate_limit(options, RESET_BURST, RESET_RATE);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, on_read_length);
    return true;
}

static bool start(struct connection *connection)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, connection->server->limits.max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, FIRST_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, MAX_FRAME},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_LIST_MAX},
    };
    nghttp2_session **session = &connection->http2.session;

    if (!make_callbacks() ||
        nghttp2_session_server_new2(session, callbacks, connection, options) != 0)
        return false;
    if (connection->draining)
        (void)nghttp2_submit_shutdown_notice(*session);
    return nghttp2_submit_settings(*session, NGHTTP2_FLAG_NONE, settings, 4) == 0 &&
           nghttp2_session_set_local_window_size(*session, NGHTTP2_FLAG_NONE, 0,
                                                 CONNECTION_WINDOW) == 0;
}

static void stop(struct connection *connection)
{
    /* Calls no on_stream_close for open streams: the connection's list abandons their calls. */
    nghttp2_session_del(connection->http2.session);
    connection->http2.session = NULL;
    connection->http2.frame_call = NULL;
}

/* The body that the DATA frame under way goes to, when that is worth receiving in place. */
static struct body *open_body(const struct connection *connection)
{
    struct call *call = connection->http2.frame_call;

    if (call == NULL || call->answered)
        return NULL;
    if (call->is_stream)
        call = call->receiving;
    return call != NULL && call->body.state == BODY_OPEN ? &call->body : NULL;
}

static void space(struct connection *connection, struct space *out_space)
{
    struct body *body = open_body(connection);
    size_t left = connection->http2.frame_left;

    if (body == NULL || left < IN_PLACE_LEAST || body->received + left > body->size)
        return;
    out_space->in_place = left;
    out_space->pieces[1] = out_space->pieces[0];
    out_space->pieces[0] = (struct iovec){body->bytes + body->received, left};
    out_space->count = 2;
}

static bool feed(struct connection *connection, const void *bytes, size_t size)
{
    return size == 0 ||
           nghttp2_session_mem_recv(connection->http2.session, bytes, size) == (ssize_t)size;
}

static bool received(struct connection *connection, const struct space *from, size_t size)
{
    size_t first = size < from->pieces[0].iov_len ? size : from->pieces[0].iov_len;

    connection->since_us = connection->server->turn_us;
    if (!feed(connection, from->pieces[0].iov_base, first))
        return false;
    return from->count < 2 || feed(connection, from->pieces[1].iov_base, size - first);
}

static bool produce(struct connection *connection)
{
    struct output *output = &connection->output;
    const uint8_t *bytes;
    ssize_t size;

    while (output_has_room(output)) {
        size = nghttp2_session_mem_send(connection->http2.session, &bytes);
        if (size < 0)
            return false;
        if (size == 0)
            break;
        output_copy(output, bytes, (size_t)size);
    }
    return !output->failed;
}

static bool is_over(struct connection *connection)
{
    nghttp2_session *session = connection->http2.session;

    return !nghttp2_session_want_read(session) && !nghttp2_session_want_write(session);
}

static bool wants_bytes(const struct connection *connection)
{
    (void)connection;
    return true;
}

static size_t missing(const struct connection *connection)
{
    const struct body *body = open_body(connection);

    return body != NULL ? body->size - body->received : 0;
}

static bool sweep(struct connection *connection, int64_t now_us)
{
    const struct limits *limits = &connection->server->limits;
    struct call *call;

    LIST_FOR_EACH (call, &connection->calls, struct call, link) {
        bool receives = !call->half_closed && !call->answered && !call->is_stream &&
                        call->body.state != BODY_WAITING;
        bool sends = call->answered && output_is_empty(&connection->output);

        if ((receives && now_us - call->progress_us > limits->receive_timeout_us) ||
            (sends && now_us - call->progress_us > limits->idle_timeout_us))
            (void)nghttp2_submit_rst_stream(connection->http2.session, NGHTTP2_FLAG_NONE,
                                            call->stream_id, NGHTTP2_CANCEL);
    }
    connection_touch(connection);
    return true;
}

static void drain(struct connection *connection, bool is_last_step)
{
    nghttp2_session *session = connection->http2.session;

    if (!is_last_step)
        (void)nghttp2_submit_shutdown_notice(session);
    else
        (void)nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE,
                                    nghttp2_session_get_last_proc_stream_id(session),
                                    NGHTTP2_NO_ERROR, NULL, 0);
}

const struct protocol protocol_http2 = {
    .name = "http2",
    .start = start,
    .space = space,
    .received = received,
    .produce = produce,
    .is_over = is_over,
    .wants_bytes = wants_bytes,
    .missing = missing,
    .admitted = admitted,
    .answer = answer,
    .sweep = sweep,
    .drain = drain,
    .stop = stop,
};
