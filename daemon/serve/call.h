/* One call: a gRPC stream, one message of a gRPC stream, or one HTTP/1.1 request, until its answer
 * is sent.
 *
 *   receiving ──admit──> (waiting for host memory) ──> received ──run──> [batcher, loader] ──>
 * answered
 *
 * Pooled by the server and counted: the connection (or the stream) holds one reference, work in the
 * batcher's or the loader's hands one, each piece of output not yet sent one.  When the client
 * leaves `connection` becomes NULL; whoever finishes the work later only drops its reference.
 * Threads: the I/O thread; `request` is the batcher's between submit and done.
 */
#ifndef SERVE_CALL_H
#define SERVE_CALL_H

#include "batch/request.h"
#include "serve/http1.h"

struct connection;
struct endpoint;
struct held_region;
struct infer_message;
struct model;
struct route;
struct server;
typedef struct ProtobufCMessage ProtobufCMessage;

enum body_state {
    BODY_NONE,    /* its size is not known yet */
    BODY_WAITING, /* for host memory; the peer's window is shut */
    BODY_OPEN,    /* bytes may come */
    BODY_REFUSED, /* answered with an error; what still comes is dropped */
};

struct body {
    enum body_state state;
    uint8_t *bytes; /* the message; 64-byte aligned where `align_at` is */
    size_t size;    /* in all, as announced; for chunked bodies: so far */
    size_t received;
    size_t room;     /* usable bytes from `bytes` on */
    uint8_t *spill;  /* what came before there was a buffer: at most the first window */
    size_t align_at; /* offset in the message whose address shall be aligned */
};

struct piece {
    const void *data;
    size_t size;
};

struct reply {
    enum status status;
    int http_code;            /* 0: that of the status */
    const char *text;         /* the sentence of a failure; lives as long as the call */
    const char *content_type; /* REST; NULL: application/json */
    const char *allow;        /* REST: of a 405, the methods that there are; else NULL */
    size_t json_size;         /* REST: JSON bytes before binary tensors; 0: no binary part */
    enum coding coding;       /* REST: how the pieces are coded */
    struct piece *pieces;
    size_t count;
    size_t size; /* sum of pieces */
};

struct lent_buffer { /* from the host pool, given back with the call */
    struct lent_buffer *next;
    void *data;
    size_t size;
};

struct call {
    struct list link; /* in connection->calls, or in stream->outbox */
    struct server *server;
    struct connection *connection; /* NULL: nobody waits for the answer */
    struct call *stream;           /* whose message this is; referenced.  NULL: a call of its own */
    struct list outbox;            /* a stream's messages, in the order of their requests */
    struct list waiting;           /* in server->waiting, server->watchers or alone */
    const struct endpoint *endpoint;
    const struct route *route; /* REST: how the request came and how the answer looks */
    int32_t stream_id;         /* 0: HTTP/1.1 */
    unsigned refs;
    struct call
        *receiving;     /* a stream: the message that is coming in; in the outbox.  NULL: none */
    unsigned messages;  /* received whole */
    unsigned unsent;    /* a stream: messages received and not answered to the end */
    size_t window_debt; /* a stream: bytes not yet given back to its window */

    bool is_rest;
    bool is_stream;    /* endpoint streams: messages become calls of their own */
    bool answered;     /* the reply stands; later ones are ignored */
    bool submitted;    /* the batcher has `request` */
    bool half_closed;  /* the client has sent all */
    bool head_sent;    /* response headers were submitted */
    bool compressed;   /* the message being received is */
    bool plain_errors; /* ModelStreamInfer: failures end the stream instead of being messages */
    int told_health;   /* Health.Watch: the status last sent */
    uint8_t seen;      /* HTTP/2: which of the headers that a call must have */
    size_t head_bytes; /* of its fields, each 32 more than name and value: RFC 9113, 6.5.2 */
    uint8_t prefix_size;
    uint8_t prefix[5];                  /* of the message being received */
    uint8_t out_prefix[5];              /* of the message being sent */
    enum coding coding;                 /* of the request: grpc-encoding or Content-Encoding */
    bool accepts_gzip, accepts_deflate; /* REST */
    bool has_json_size;
    uint64_t json_size;      /* REST: Inference-Header-Content-Length */
    int64_t deadline_us;     /* CLOCK_NEVER: none */
    int64_t own_deadline_us; /* the client's, while deadline_us is an earlier one; 0: it is not */
    size_t deadline_slot;    /* in server->deadlines; SIZE_MAX: not there */
    int64_t progress_us;     /* when bytes last moved */
    size_t sent;             /* of the reply, prefix included */

    struct body body;
    struct reply reply;
    struct lent_buffer *lent;
    struct held_region *regions; /* whose bytes its request uses (shared.h) */
    struct slice path[4];        /* REST: what the pattern's variables matched, decoded */
    struct slice query;          /* REST */
    struct model *model;         /* referenced */
    struct infer_message *infer;
    ProtobufCMessage
        *message;           /* of an endpoint that takes one; gRPC: in the arena, REST: malloc's */
    struct request request; /* its arena is the call's */
};

/* Out of the server's pool, with one reference; NULL when malloc refuses. */
struct call *call_create(struct server *server, struct connection *connection);
struct call *call_ref(struct call *call);
void call_unref(struct call *call);
/* The client is gone or wants no more: cancels what runs, drops the connection's reference. */
void call_abandon(struct call *call);
/* Frees what the pool keeps. */
void call_pool_trim(struct server *server);

/* Memory that lives as long as the call.  Small: its arena; big: the host pool. NULL: refused. */
void *call_take(struct call *call, size_t size);
void *call_take_pooled(struct call *call, size_t size);

/* Asks for room for a body of `size` bytes.  Its state is then OPEN, WAITING (connection's
 * `admitted` will be called) or REFUSED (answered). */
void call_admit(struct call *call, size_t size);
/* Chunked bodies: makes room for `more` bytes behind those received; false: refused and answered.
 */
bool call_grow(struct call *call, size_t more);

/* The whole request (or one message of a stream) is there: runs the endpoint. */
void call_run(struct call *call);

/* ---- answers; the first one stands ---- */

void call_fail(struct call *call, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void call_fail_with(struct call *call, const struct error *err);
/* gRPC: packs; REST: JSON as the route says. */
void call_reply_message(struct call *call, const ProtobufCMessage *message);
/* Ready-made bytes, owned by the call. */
void call_reply_pieces(struct call *call, struct piece *pieces, size_t count);
void call_reply_text(struct call *call, const char *content_type, const char *text, size_t size);

/* A message of a stream that gets no answer of its own. */
void call_discard(struct call *call);
/* On a stream: sends one more message, not an answer to a request. */
void call_push_message(struct call *stream, const ProtobufCMessage *message);
/* What streams end with in a drain. */
#define CALL_STOPPING "the server is shutting down"
/* On a stream: ends it once all its messages are sent. */
void call_end_stream(struct call *stream, enum status status, const char *text);

/* Its deadline passed (deadlines.c). */
void call_expire(struct call *call);
/* True while nobody has to wait for it any more. */
static inline bool call_is_gone(const struct call *call)
{
    return call->connection == NULL;
}

#endif
