/* HTTP/2 on a connection: nghttp2 as a pure machine between bytes and frames.
 *
 * A message's DATA is received straight into its body: read() is given {rest of the DATA frame ->
 * body, receive buffer}, and nghttp2 is handed that same memory, so its callback finds the bytes
 * where they belong.  What messages and answers mean is in grpc_message.c and grpc_answer.c.
 */
#include <string.h>

#include "base/clock.h"
#include "serve/endpoint.h"
#include "serve/grpc.h"
#include "serve/internal.h"

enum { IN_PLACE_LEAST = 4096, HEADER_LIST_MAX = 16 << 10 };
/* gRPC's own clients look at connections without calls every 5 s. */
enum { GOING_GRACE_US = 10 * 1000 * 1000 };
enum { RESET_BURST = 100000, RESET_RATE = 10000 }; /* clients may cancel freely */

static nghttp2_session_callbacks *callbacks; /* made once, shared by all sessions */
static nghttp2_option *options;

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
    connection->http2.called_us = connection->server->turn_us;
    call->stream_id = frame->hd.stream_id;
    call->progress_us = connection->since_us;
    list_append(&connection->calls, &call->link);
    (void)nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
    return 0;
}

enum { SAW_POST = 1, SAW_PATH = 2, SAW_GRPC = 4, SAW_TWICE = 8, SAW_ALL = 7 };
enum { SAW_NO_TIME = 16 }; /* a timeout that cannot be read */

/* "application/grpc", with a suffix or parameters or without; gRPC-Web is framed in another way. */
static bool is_grpc(const uint8_t *value, size_t size)
{
    static const char type[] = "application/grpc";
    size_t length = sizeof(type) - 1;

    return starts_with(value, size, type) &&
           (size == length || value[length] == '+' || value[length] == ';' || value[length] == ' ');
}

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
    struct call *call = grpc_call(session, frame->hd.stream_id);
    int64_t timeout_us;

    (void)flags, (void)user;
    if (call == NULL || frame->headers.cat != NGHTTP2_HCAT_REQUEST || name_size == 0)
        return 0;
    call->head_bytes += name_size + size + 32;
    if (call->head_bytes > HEADER_LIST_MAX)
        return 0; /* refused when it has come to its end */
    if (name[0] == ':') {
        on_pseudo_header(call, name, name_size, value, size);
    } else if (is_name(name, name_size, "content-type")) {
        if (is_grpc(value, size))
            call->seen |= SAW_GRPC;
    } else if (is_name(name, name_size, "grpc-timeout")) {
        if (parse_timeout(value, size, &timeout_us))
            call->deadline_us = call->server->turn_us + timeout_us;
        else
            call->seen |= SAW_NO_TIME;
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
    static const nghttp2_nv not_grpc[] = {GRPC_NV(":status", "415")};
    static const nghttp2_nv bad[] = {GRPC_NV(":status", "400")};

    call->answered = call->head_sent = true;
    call->body.state = BODY_REFUSED;
    (void)nghttp2_submit_response(call->connection->http2.session, call->stream_id,
                                  is_grpc ? bad : not_grpc, 1, NULL);
}

static void on_headers(struct call *call)
{
    struct server *server = call->server;
    bool has_own_deadline = call->deadline_us != CLOCK_NEVER;

    if (call->head_bytes > HEADER_LIST_MAX) {
        call->body.state = BODY_REFUSED;
        call_fail(call, STATUS_NO_MEMORY, "headers of %zu bytes are larger than the limit of %d",
                  call->head_bytes, HEADER_LIST_MAX);
        return;
    }
    if ((call->seen & ~SAW_NO_TIME) != SAW_ALL) {
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
    if ((call->seen & SAW_NO_TIME) != 0) {
        call->body.state = BODY_REFUSED;
        call_fail(call, STATUS_INVALID,
                  "grpc-timeout is not 1 to 8 digits and one of the units H, M, S, m, u, n");
        return;
    }
    call->is_stream = call->endpoint->is_stream;
    if (!has_own_deadline && !call->is_stream && server->limits.request_timeout_us > 0)
        call->deadline_us = call->server->turn_us + server->limits.request_timeout_us;
    if (has_own_deadline && deadlines_add(server, call) != STATUS_OK)
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct call *call;

    (void)user;
    if (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    call = grpc_call(session, frame->hd.stream_id);
    if (call == NULL)
        return 0;
    (void)call_ref(call);
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        on_headers(call);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 && call->connection != NULL)
        grpc_on_half_close(call);
    call_unref(call);
    return 0;
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *user)
{
    struct http2 *http2 = &((struct connection *)user)->http2;
    bool is_data = head->type == NGHTTP2_DATA && (head->flags & NGHTTP2_FLAG_PADDED) == 0;

    http2->frame_call = is_data ? grpc_call(session, head->stream_id) : NULL;
    http2->frame_left = is_data ? head->length : 0;
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t code, void *user)
{
    struct http2 *http2 = &((struct connection *)user)->http2;
    struct call *call = grpc_call(session, stream_id);

    (void)code;
    if (call == NULL)
        return 0;
    (void)nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    if (http2->frame_call == call)
        http2->frame_call = NULL;
    http2->called_us = call->server->turn_us;
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
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, grpc_on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, grpc_on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, grpc_on_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, grpc_on_read_length);
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

    connection->http2.called_us = connection->server->turn_us;
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

static enum ending ending(const struct connection *connection)
{
    nghttp2_session *session = connection->http2.session;

    return nghttp2_session_want_read(session) || nghttp2_session_want_write(session) ? ENDING_NONE
                                                                                     : ENDING_LEAVE;
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

/* The message whose bytes are coming; NULL: none, or its memory is waited for. */
static const struct call *incoming(const struct call *call)
{
    const struct call *message = call->is_stream ? call->receiving : call;

    if (call->half_closed || call->answered || message == NULL ||
        message->body.state == BODY_WAITING)
        return NULL;
    return message;
}

/* A call whose bytes were not all there at its deadline, however steadily they drip. */
static struct call *find_late(struct connection *connection, int64_t now_us)
{
    struct call *call;

    LIST_FOR_EACH (call, &connection->calls, struct call, link)
        if (!call->is_stream && incoming(call) != NULL && call->deadline_us <= now_us)
            return call;
    return NULL;
}

/* Nobody uses it: first it is told to go, and is closed when calls that had been sent before the
 * peer heard of it have had their time to come.  The last GOAWAY names the last call taken. */
static void sweep_idle(struct connection *connection, int64_t now_us)
{
    struct http2 *http2 = &connection->http2;
    int64_t idle_us = now_us - http2->called_us;

    if (!list_is_empty(&connection->calls) || connection->draining)
        return;
    if (!http2->told_to_go && idle_us > connection->server->limits.grpc_idle_timeout_us) {
        http2->told_to_go = true;
        http2->called_us = now_us;
        (void)nghttp2_submit_shutdown_notice(http2->session);
    } else if (http2->told_to_go && idle_us > GOING_GRACE_US) {
        (void)nghttp2_session_terminate_session(http2->session, NGHTTP2_NO_ERROR);
    }
}

static bool sweep(struct connection *connection, int64_t now_us)
{
    const struct limits *limits = &connection->server->limits;
    struct call *call;

    while ((call = find_late(connection, now_us)) != NULL)
        call_expire(call);
    LIST_FOR_EACH (call, &connection->calls, struct call, link) {
        const struct call *message = incoming(call);
        bool sends = call->answered && output_is_empty(&connection->output);

        if ((message != NULL && (now_us - call->progress_us > limits->receive_timeout_us ||
                                 message->deadline_us <= now_us)) ||
            (sends && now_us - call->progress_us > limits->idle_timeout_us))
            (void)nghttp2_submit_rst_stream(connection->http2.session, NGHTTP2_FLAG_NONE,
                                            call->stream_id, NGHTTP2_CANCEL);
    }
    sweep_idle(connection, now_us);
    connection_touch(connection);
    return true;
}

static void drain(struct connection *connection, bool is_last_step)
{
    nghttp2_session *session = connection->http2.session;
    struct call *call;

    if (!is_last_step) {
        (void)nghttp2_submit_shutdown_notice(session);
        return;
    }
    (void)nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(session), NGHTTP2_NO_ERROR,
                                NULL, 0);
    LIST_FOR_EACH (call, &connection->calls, struct call, link)
        grpc_end_stream_if_done(call);
}

const struct protocol protocol_http2 = {
    .name = "http2",
    .start = start,
    .space = space,
    .received = received,
    .produce = produce,
    .ending = ending,
    .wants_bytes = wants_bytes,
    .missing = missing,
    .admitted = grpc_admitted,
    .answer = grpc_answer,
    .sweep = sweep,
    .drain = drain,
    .stop = stop,
};
