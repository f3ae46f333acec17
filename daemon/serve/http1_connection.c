/* HTTP/1.1 on a connection: one request at a time, its body received in place.
 *
 *   HEAD ──> BODY ─────────────────────────────────────────────> BUSY ──> HEAD | LAST
 *       └──> CHUNK_SIZE ⇄ CHUNK_DATA, CHUNK_END … ──> TRAILER ──┘
 *
 * Bytes behind the running request are kept (`pending`) and reading stops, so a peer that pipelines
 * cannot make us grow.  After the last answer (LAST) the connection is left as linger.c says.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/endpoint.h"
#include "serve/internal.h"

enum { HEAD_US = 5 * 1000000 };
enum { PENDING_MAX = 16 << 10 }; /* read ahead of a running request */
enum { BLANK_LINES_MAX = 4 };    /* let pass before a request: some clients end a body with one */

static bool start(struct connection *connection)
{
    connection->http1.state = HTTP1_HEAD;
    return true;
}

static void stop(struct connection *connection)
{
    free(connection->http1.partial);
    free(connection->http1.pending);
    connection->http1.partial = connection->http1.pending = NULL;
    connection->http1.call = NULL; /* the connection's list abandons it */
}

static void answer(struct call *call)
{
    struct connection *connection = call->connection;
    struct http1 *http1 = &connection->http1;
    bool is_early = http1->state != HTTP1_BUSY; /* its body was not read to the end */

    if (is_early || connection->draining)
        http1->close_after = true;
    http1_put_answer(call);
    http1->call = NULL;
    http1->state = http1->close_after ? HTTP1_LAST : HTTP1_HEAD;
    connection->since_us = connection->server->turn_us;
    connection_touch(connection);
    call->connection = NULL;
    list_remove(&call->link);
    call_unref(call);
}

/* Refuses what is no request: there may be no call yet. */
static void refuse(struct connection *connection, int code, const char *why)
{
    struct call *call = connection->http1.call;

    if (call == NULL) {
        call = call_create(connection->server, connection);
        if (call == NULL) {
            connection_close(connection);
            return;
        }
        call->is_rest = true;
        list_append(&connection->calls, &call->link);
        connection->http1.call = call;
    }
    connection->http1.close_after = true;
    call->reply.http_code = code;
    call_fail(call, code == 413 ? STATUS_NO_MEMORY : STATUS_INVALID, "%s", why);
}

/* ---- requests ---- */

static void run(struct connection *connection)
{
    struct call *call = connection->http1.call;

    connection->http1.state = HTTP1_BUSY;
    call->half_closed = true;
    if (call->reply.http_code != 0)
        call_fail(call, STATUS_NOT_FOUND, "%s",
                  call->reply.http_code == 405   ? "Method Not Allowed"
                  : call->reply.http_code == 400 ? "a name in the path has a bad %, a / or a NUL"
                                                 : "Not Found");
    else
        call_run(call);
}

static void apply_head(struct connection *connection, struct call *call,
                       const struct http1_head *head)
{
    struct server *server = connection->server;

    connection->http1.close_after = !head->keep_alive;
    call->is_rest = true;
    call->coding = head->coding;
    call->accepts_gzip = head->accepts_gzip;
    call->accepts_deflate = head->accepts_deflate;
    call->has_json_size = head->has_json_length;
    call->json_size = head->json_length;
    if (server->limits.request_timeout_us > 0)
        call->deadline_us = connection->since_us + server->limits.request_timeout_us;
    /* A request to nowhere is still read to its end, so that the connection can go on. */
    call->reply.http_code = route_find(call, connection->role, head);
}

/* The body has its room: a client that asked first may send it. */
static void let_continue(struct connection *connection)
{
    if (connection->http1.expects_continue)
        output_copy(&connection->output, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    connection->http1.expects_continue = false;
}

static void on_head(struct connection *connection, const char *bytes, size_t size)
{
    struct http1 *http1 = &connection->http1;
    struct http1_head head;
    const char *why = NULL;
    int refusal = http1_parse_head(bytes, size, &head, &why);
    struct call *call;

    http1->blank_lines = 0;
    http1->head_only = refusal == 0 && head.method == HTTP1_HEAD_ONLY;
    connection->since_us = connection->server->turn_us;
    if (refusal != 0) {
        refuse(connection, refusal, why);
        return;
    }
    call = call_create(connection->server, connection);
    if (call == NULL) {
        connection_close(connection);
        return;
    }
    http1->call = call;
    list_append(&connection->calls, &call->link);
    apply_head(connection, call, &head);
    http1->state = head.chunked ? HTTP1_CHUNK_SIZE : HTTP1_BODY;
    if (head.has_json_length)
        call->body.align_at = head.json_length;
    if (head.chunked)
        call->body.state = BODY_OPEN;
    else
        call_admit(call, head.content_length);
    http1->expects_continue = head.expects_continue && (head.chunked || head.content_length > 0);
    if (http1->call == call && call->body.state == BODY_OPEN)
        let_continue(connection);
}

static void admitted(struct call *call)
{
    struct connection *connection = call->connection;

    connection->since_us = connection->server->turn_us;
    let_continue(connection);
    connection_touch(connection); /* reads again, and looks at what is pending */
}

/* ---- bytes ---- */

static void keep_body(struct connection *connection, const char *bytes, size_t size)
{
    struct call *call = connection->http1.call;

    memcpy(call->body.bytes + call->body.received, bytes, size);
    call->body.received += size;
    connection->since_us = connection->server->turn_us;
}

static size_t take_body(struct connection *connection, const char *bytes, size_t size)
{
    struct http1 *http1 = &connection->http1;
    struct call *call = http1->call;
    size_t left = http1->state == HTTP1_BODY ? call->body.size - call->body.received
                                             : (size_t)http1->chunk_left;
    size_t taken = size < left ? size : left;

    if (http1->state == HTTP1_CHUNK_DATA) {
        if (!call_grow(call, taken))
            return size; /* answered: the rest is read and forgotten */
        http1->chunk_left -= taken;
        if (http1->chunk_left == 0)
            http1->state = HTTP1_CHUNK_END;
    }
    keep_body(connection, bytes, taken);
    return taken;
}

static void on_chunk_size(struct connection *connection, const char *line, size_t size)
{
    struct http1 *http1 = &connection->http1;

    if (!http1_parse_chunk_size(line, size, &http1->chunk_left))
        refuse(connection, 400, "bad chunk");
    else if (http1->chunk_left >
             connection->server->limits.max_message_bytes - http1->call->body.received)
        refuse(connection, 413, "request is larger than the limit (MaxMessageBytes)");
    else
        http1->state = http1->chunk_left > 0 ? HTTP1_CHUNK_DATA : HTTP1_TRAILER;
}

static void on_line(struct connection *connection, const char *line, size_t size)
{
    struct http1 *http1 = &connection->http1;

    if (http1->state == HTTP1_HEAD) {
        on_head(connection, line, size);
    } else if (http1->state == HTTP1_CHUNK_SIZE) {
        on_chunk_size(connection, line, size - 2);
    } else if (http1->state == HTTP1_CHUNK_END) {
        if (size != 2)
            refuse(connection, 400, "bad chunk");
        else
            http1->state = HTTP1_CHUNK_SIZE;
    } else if (size == 2) { /* the blank line behind the trailer, whose fields are dropped */
        http1->call->body.size = http1->call->body.received;
        http1->state = HTTP1_BODY;
    }
}

/* What there is of a head or line: the status it is refused with, and why; 0: it is not. */
static int refuse_line(bool is_head, const char *line, size_t size, bool is_whole,
                       const char **out_why)
{
    size_t most = is_head ? HTTP1_HEAD_MAX : HTTP1_LINE_MAX;

    if (size > most || (size == most && !is_whole)) {
        *out_why = is_head ? "head too large" : "bad chunk";
        return is_head ? 431 : 400;
    }
    *out_why = is_head && !is_whole ? http1_find_hopeless(line, size) : NULL;
    return *out_why != NULL ? 400 : 0;
}

/* Keeps the first bytes of a head or line; false: no memory. */
static bool keep_part(struct connection *connection, const char *bytes, size_t size)
{
    struct http1 *http1 = &connection->http1;

    if (http1->partial == NULL)
        http1->partial = malloc(HTTP1_HEAD_MAX);
    if (http1->partial == NULL)
        return false;
    memcpy(http1->partial, bytes, size);
    if (http1->state == HTTP1_HEAD)
        connection->since_us = connection->server->turn_us;
    return true;
}

/* A head, or one line of a chunked body: gathered in `partial` when it comes in pieces. */
static size_t take_line(struct connection *connection, const char *bytes, size_t size)
{
    struct http1 *http1 = &connection->http1;
    bool is_head = http1->state == HTTP1_HEAD;
    size_t old = http1->partial_size, count = size, length;
    const char *whole = bytes, *end, *why;
    int refusal;

    if (old > 0) {
        count = count < HTTP1_HEAD_MAX - old ? count : HTTP1_HEAD_MAX - old;
        memcpy(http1->partial + old, bytes, count);
        whole = http1->partial;
        count += old;
    }
    end = memmem(whole, count, is_head ? "\r\n\r\n" : "\r\n", is_head ? 4 : 2);
    length = end != NULL ? (size_t)(end - whole) + (is_head ? 4 : 2) : count;
    refusal = refuse_line(is_head, whole, length, end != NULL, &why);
    http1->partial_size = end == NULL ? count : 0;
    if (refusal != 0)
        refuse(connection, refusal, why);
    else if (end != NULL)
        on_line(connection, whole, length);
    else if (old == 0 && !keep_part(connection, bytes, size))
        connection_close(connection);
    return end != NULL ? length - old : size;
}

/* RFC 9112 2.2: an empty line before a request line is let pass.  Returns the bytes of one, or of
 * its end when its CR came alone; 0: there is none.  It is no sign of life: the idle time goes on.
 */
static size_t skip_blank_line(struct http1 *http1, const char *bytes, size_t size)
{
    bool has_cr = http1->partial_size == 1 && http1->partial[0] == '\r';
    size_t length = has_cr ? 1 : 2;

    if (http1->state != HTTP1_HEAD || http1->blank_lines >= BLANK_LINES_MAX || size < length ||
        (http1->partial_size > 0 && !has_cr) || memcmp(bytes, &"\r\n"[has_cr], length) != 0)
        return 0;
    http1->partial_size = 0;
    http1->blank_lines++;
    return length;
}

static bool keep_pending(struct http1 *http1, const char *bytes, size_t size)
{
    if (http1->pending_capacity < size) {
        char *grown = malloc(size);

        if (grown == NULL)
            return false;
        free(http1->pending);
        http1->pending = grown;
        http1->pending_capacity = size;
    }
    memmove(http1->pending, bytes, size);
    http1->pending_size = size;
    return true;
}

static bool body_waits(const struct http1 *http1)
{
    return http1->call != NULL && http1->call->body.state == BODY_WAITING;
}

/* Uses up all bytes: parsed, or kept.  False: close. */
static bool feed(struct connection *connection, const char *bytes, size_t size)
{
    struct http1 *http1 = &connection->http1;

    while (!connection->closed && http1->state != HTTP1_LAST) {
        size_t taken;

        if (http1->state == HTTP1_BUSY || body_waits(http1) ||
            !output_has_room(&connection->output))
            return size == 0 || keep_pending(http1, bytes, size);
        if (http1->state == HTTP1_BODY && http1->call->body.received == http1->call->body.size) {
            run(connection);
            continue;
        }
        if (size == 0)
            return true;
        if (http1->state == HTTP1_BODY || http1->state == HTTP1_CHUNK_DATA)
            taken = take_body(connection, bytes, size);
        else if ((taken = skip_blank_line(http1, bytes, size)) == 0)
            taken = take_line(connection, bytes, size);
        bytes += taken;
        size -= taken;
    }
    return true;
}

static void space(struct connection *connection, struct space *out_space)
{
    struct http1 *http1 = &connection->http1;
    struct body *body = http1->call != NULL ? &http1->call->body : NULL;

    if (http1->state == HTTP1_BUSY)
        out_space->pieces[0].iov_len = PENDING_MAX;
    if (http1->state != HTTP1_BODY || body->state != BODY_OPEN || body->received == body->size)
        return;
    out_space->in_place = body->size - body->received;
    out_space->pieces[0] = (struct iovec){body->bytes + body->received, out_space->in_place};
}

static bool received(struct connection *connection, const struct space *from, size_t size)
{
    struct http1 *http1 = &connection->http1;

    if (from->in_place == 0)
        return feed(connection, from->pieces[0].iov_base, size);
    http1->call->body.received += size;
    connection->since_us = connection->server->turn_us;
    return feed(connection, NULL, 0);
}

/* Goes on with what was kept, now that the request before it is answered. */
static bool produce(struct connection *connection)
{
    struct http1 *http1 = &connection->http1;
    size_t size = http1->pending_size;

    if (http1->state == HTTP1_BUSY || body_waits(http1) || http1->state == HTTP1_LAST)
        return true;
    if (size == 0 && http1->state != HTTP1_BODY)
        return true;
    http1->pending_size = 0;
    return feed(connection, http1->pending, size);
}

static enum ending ending(const struct connection *connection)
{
    const struct http1 *http1 = &connection->http1;

    if (http1->state == HTTP1_LAST)
        return ENDING_LEAVE;
    if (connection->draining && connection->server->drain_last_step && http1->state == HTTP1_HEAD &&
        http1->partial_size == 0)
        return ENDING_CLOSE;
    return ENDING_NONE;
}

static bool wants_bytes(const struct connection *connection)
{
    /* While a request runs one read more is allowed: only so a client that left is noticed. */
    return connection->http1.pending_size == 0 && !body_waits(&connection->http1);
}

static size_t missing(const struct connection *connection)
{
    const struct call *call = connection->http1.call;

    if (connection->http1.state != HTTP1_BODY || call == NULL || call->body.state != BODY_OPEN)
        return 0;
    return call->body.size - call->body.received;
}

static bool sweep(struct connection *connection, int64_t now_us)
{
    const struct http1 *http1 = &connection->http1;
    const struct limits *limits = &connection->server->limits;
    int64_t age_us;

    if (http1->state != HTTP1_BUSY && http1->call != NULL && !body_waits(http1) &&
        http1->call->deadline_us <= now_us)
        call_expire(http1->call); /* its bytes drip, but were not all there at its deadline */
    age_us = now_us - connection->since_us;
    switch (http1->state) {
    case HTTP1_BUSY:
    case HTTP1_LAST: /* its answer is being sent */
        return true;
    case HTTP1_HEAD:
        return age_us <= (http1->partial_size > 0 ? HEAD_US : limits->idle_timeout_us);
    default:
        return body_waits(http1) || age_us <= limits->receive_timeout_us;
    }
}

static void drain(struct connection *connection, bool is_last_step)
{
    (void)is_last_step; /* ending() closes what idles; answers say `Connection: close` */
    connection_touch(connection);
}

const struct protocol protocol_http1 = {
    .name = "http1",
    .start = start,
    .space = space,
    .received = received,
    .produce = produce,
    .ending = ending,
    .wants_bytes = wants_bytes,
    .missing = missing,
    .admitted = admitted,
    .answer = answer,
    .sweep = sweep,
    .drain = drain,
    .stop = stop,
};
