/* A reply as HTTP/1.1 writes it: the head, and a body by reference. */
#include <string.h>

#include "serve/codec/inflate.h"
#include "serve/codec/text.h"
#include "serve/internal.h"

enum { HEAD_TEXT_MAX = 512 };

static const char *reason_of(int code)
{
    static const struct {
        int code;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
    };

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].code == code)
            return reasons[i].reason;
    return "Unknown";
}

static void put_text(char **at, const char *text)
{
    size_t size = strlen(text);

    memcpy(*at, text, size);
    *at += size;
}

static void put_number(char **at, size_t value)
{
    char digits[20];
    size_t count = 0;

    do
        digits[sizeof(digits) - ++count] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    memcpy(*at, digits + sizeof(digits) - count, count);
    *at += count;
}

/* By hand: this runs once a request. */
static size_t format_head(char *head, const struct reply *reply, int code, bool close)
{
    char *at = head;

    put_text(&at, "HTTP/1.1 ");
    put_number(&at, (size_t)code);
    put_text(&at, " ");
    put_text(&at, reason_of(code));
    put_text(&at, "\r\nContent-Type: ");
    put_text(&at, reply->content_type ? reply->content_type : "application/json");
    if (reply->json_size > 0) {
        put_text(&at, "\r\nInference-Header-Content-Length: ");
        put_number(&at, reply->json_size);
    }
    if (reply->coding != CODING_IDENTITY)
        put_text(&at, reply->coding == CODING_GZIP ? "\r\nContent-Encoding: gzip"
                                                   : "\r\nContent-Encoding: deflate");
    if (reply->allow != NULL) {
        put_text(&at, "\r\nAllow: ");
        put_text(&at, reply->allow);
    }
    if (code == 429 || code == 503)
        put_text(&at, "\r\nRetry-After: 1");
    if (close)
        put_text(&at, "\r\nConnection: close");
    put_text(&at, "\r\nContent-Length: ");
    put_number(&at, reply->size);
    put_text(&at, "\r\n\r\n");
    return (size_t)(at - head);
}

static void put_error_body(struct call *call)
{
    struct piece *piece = call_take(call, sizeof(*piece));
    struct text text;

    text_init(&text, call);
    text_string(&text, "{\"error\":");
    text_json_string(&text, call->reply.text, strlen(call->reply.text));
    text_string(&text, "}");
    if (piece == NULL || text.failed)
        return;
    *piece = (struct piece){text.data, text.size};
    call->reply.pieces = piece;
    call->reply.count = 1;
    call->reply.size = text.size;
}

void http1_put_answer(struct call *call)
{
    struct output *output = &call->connection->output;
    const struct http1 *http1 = &call->connection->http1;
    const struct reply *reply = &call->reply;
    char head[HEAD_TEXT_MAX];
    int code = reply->http_code != 0 ? reply->http_code : status_http_code(reply->status);

    if (reply->status != STATUS_OK)
        put_error_body(call);
    deflate_reply(call);
    output_copy(output, head, format_head(head, reply, code, http1->close_after));
    for (size_t i = 0; i < reply->count && !http1->head_only; i++)
        output_refer(output, reply->pieces[i].data, reply->pieces[i].size, call);
}
