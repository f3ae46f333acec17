/* One accepted socket: receives in place, sends by reference, closes itself.
 *
 * Its first bytes tell the protocol (HTTP/2's preface or not); from then on a `struct protocol`
 * says where bytes go and what they mean.  A connection is freed at the end of the loop turn in
 * which it closed, so code on the stack may still look at `closed`. Threads: the I/O thread it was
 * accepted on.
 */
#ifndef SERVE_CONNECTION_H
#define SERVE_CONNECTION_H

#include <event2/event_struct.h>
#include <nghttp2/nghttp2.h>
#include <sys/uio.h>

#include "base/list.h"
#include "serve/listener.h"
#include "serve/output.h"

struct call;
struct connection;
struct server;

enum { RECEIVE_BYTES = 256 << 10, LOWAT_BYTES = 128 << 10, LOWAT_LEAST_MISSING = 32 << 10 };

/* Where the next recv() may put bytes. */
struct space {
    struct iovec pieces[2];
    int count;
    size_t in_place; /* bytes of the first piece that are a body's own memory; 0: none */
};

enum ending {
    ENDING_NONE,  /* it goes on */
    ENDING_LEAVE, /* the last word is said, and the peer may still be talking */
    ENDING_CLOSE, /* nobody waits for a word */
};

struct protocol {
    const char *name;
    bool (*start)(struct connection *connection); /* false: no memory */
    void (*space)(struct connection *connection, struct space *out_space);
    /* `size` bytes arrived in `space`; false: close.  */
    bool (*received)(struct connection *connection, const struct space *space, size_t size);
    /* Moves what there is to say into the output; false: close. */
    bool (*produce)(struct connection *connection);
    /* All that was queued is sent: what becomes of the connection? */
    enum ending (*ending)(const struct connection *connection);
    bool (*wants_bytes)(const struct connection *connection); /* false: leave them in the socket */
    size_t (*missing)(const struct connection *connection);   /* bytes of a body still to come */
    void (*admitted)(struct call *call);                      /* its body is OPEN now */
    void (*answer)(struct call *call);                        /* its reply stands */
    bool (*sweep)(struct connection *connection, int64_t now_us); /* false: close */
    void (*drain)(struct connection *connection, bool is_last_step);
    void (*stop)(struct connection *connection); /* frees its part of the connection */
};
extern const struct protocol protocol_http1;
extern const struct protocol protocol_http2;
extern const struct protocol protocol_leaving; /* linger.c */

enum http1_state {
    HTTP1_HEAD,
    HTTP1_BODY, /* also while it waits for admission */
    HTTP1_CHUNK_SIZE,
    HTTP1_CHUNK_DATA,
    HTTP1_CHUNK_END,
    HTTP1_TRAILER,
    HTTP1_BUSY, /* the request runs */
    HTTP1_LAST, /* the last answer is given: what comes after it is dropped */
};

struct http1 {
    enum http1_state state;
    bool close_after;
    bool head_only; /* the request is a HEAD: an answer has no body, whatever its head says */
    bool expects_continue; /* the client waits for a word before it sends the body */
    struct call *call;
    char *partial; /* a head or line that came in pieces; HTTP1_HEAD_MAX bytes when there */
    size_t partial_size;
    unsigned blank_lines; /* skipped before the next head */
    char *pending;        /* bytes behind the running request */
    size_t pending_size, pending_capacity;
    uint64_t chunk_left;
};

struct http2 {
    nghttp2_session *session;
    struct call *frame_call; /* whose DATA frame is being received */
    size_t frame_left;
    /* When a call began or ended last, the connection began, or it was told to go. */
    int64_t called_us;
    bool told_to_go; /* for want of calls */
};

struct connection {
    struct list link; /* in server->connections or server->closed */
    struct server *server;
    const struct protocol *protocol; /* NULL: not known yet */
    struct event read_event, write_event;
    struct list calls;
    struct list dirty_link; /* in server->dirty */
    int fd;
    enum listener_role role;
    bool is_unix;
    bool closed;
    bool reading, writing; /* events that are armed */
    bool draining;
    int lowat;
    unsigned first_size;
    char first[4];    /* bytes before the protocol is known */
    int64_t since_us; /* last progress, by the meaning of the protocol's state */
    int64_t sent_us;  /* last time output moved or was empty */
    struct http1 http1;
    struct http2 http2;
    struct output output;
};

/* Adopts the descriptor, also on failure. */
void connection_open(struct server *server, int fd, enum listener_role role, bool is_unix);
void connection_close(struct connection *connection);
/* Says that no more comes and closes when the peer does, or after 2 to 3 s (linger.c). */
void connection_leave(struct connection *connection);
/* Ends what its protocol has here: its state and the calls without an answer. */
void connection_stop_protocol(struct connection *connection);
/* Has something to say or to read again: looked at at the end of this loop turn. */
void connection_touch(struct connection *connection);
/* Called for touched ones by the server at the end of a turn. */
void connection_settle(struct connection *connection);
/* The one-second look at deadlines of the protocol. */
void connection_sweep(struct connection *connection, int64_t now_us);
void connection_free(struct connection *connection);
/* http1_answer.c: queues the head and body of a call's reply. */
void http1_put_answer(struct call *call);

#endif
