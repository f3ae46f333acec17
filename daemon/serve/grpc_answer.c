/* gRPC answers on HTTP/2: response headers, messages by reference, status in the trailers.
 *
 * A unary call sends its own message; a stream sends those of its outbox, in their order, as they
 * are answered.  DATA frames are NO_COPY: the frame header is copied, the tensor referenced. Only
 * nghttp2_submit_*() is called here, for this runs inside nghttp2's callbacks.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "serve/endpoint.h"
#include "serve/grpc.h"
#include "serve/infer.h"
#include "serve/internal.h"

enum { FRAME_HEAD = 9, STREAM_MESSAGES = 64, TEXT_MAX = 2048 };

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
    nghttp2_nv fields[5] = {GRPC_NV(":status", "200"), GRPC_NV("content-type", "application/grpc"),
                            GRPC_NV("grpc-status", "0")};
    nghttp2_nv *first = is_trailer ? &fields[2] : fields;
    size_t count = is_trailer ? 1 : 3;
    int code = status_grpc_code(call->reply.status);

    if (code != 0) {
        fields[2].value = (uint8_t *)digits;
        fields[2].valuelen = (size_t)snprintf(digits, sizeof(digits), "%d", code);
        fields[2].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
    }
    if (call->reply.text != NULL) {
        fields[3] = (nghttp2_nv)GRPC_NV("grpc-message", "");
        fields[3].value = (uint8_t *)text;
        fields[3].valuelen = encode_text(call->reply.text, text, sizeof(text));
        fields[3].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
        count++;
    }
    if (call->coding == CODING_UNKNOWN && !is_trailer)
        fields[count++] = (nghttp2_nv)GRPC_NV("grpc-accept-encoding", "identity,deflate,gzip");
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
    return GRPC_PREFIX + message->reply.size - message->sent;
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
void grpc_pay_window(struct call *call)
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
    grpc_pay_window(call);
    list_remove(&message->link);
    message->connection = NULL;
    call_unref(message);
}

/* Health.Watch goes on until the client has enough, and ends by itself in a drain. */
void grpc_end_stream_if_done(struct call *call)
{
    if (!call->is_stream || !list_is_empty(&call->outbox) ||
        call->endpoint == &endpoint_health_watch)
        return;
    if (call->half_closed)
        call_end_stream(call, STATUS_OK, NULL);
    else if (call->server->drain_last_step)
        call_end_stream(call, STATUS_UNAVAILABLE, CALL_STOPPING);
}

/* Puts `size` bytes of the message, from `sent` on: prefix, then pieces. */
static void put_message(struct output *output, struct call *message, size_t size)
{
    size_t at = message->sent, start = GRPC_PREFIX;

    message->sent += size;
    if (at < GRPC_PREFIX) {
        size_t part = GRPC_PREFIX - at < size ? GRPC_PREFIX - at : size;

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

int grpc_on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
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
        grpc_end_stream_if_done(call);
    }
    return 0;
}

/* Frames as large as the peer takes; nghttp2 would stop at 16 KiB. */
ssize_t grpc_on_read_length(nghttp2_session *session, uint8_t type, int32_t stream_id,
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
    static const nghttp2_nv fields[] = {GRPC_NV(":status", "200"),
                                        GRPC_NV("content-type", "application/grpc")};
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = on_read};
    nghttp2_session *session = call->connection->http2.session;

    if (call->head_sent) {
        (void)nghttp2_session_resume_data(session, call->stream_id);
        return;
    }
    call->head_sent = true;
    (void)nghttp2_submit_response(session, call->stream_id, fields, 2, &provider);
}

void grpc_answer(struct call *message)
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
int grpc_on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct call *call;

    (void)user;
    if (frame->hd.type != NGHTTP2_HEADERS || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    call = grpc_call(session, frame->hd.stream_id);
    if (call != NULL && !call->half_closed)
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_NO_ERROR);
    return 0;
}
