/* The server's own state, shared by the files of serve/. */
#ifndef SERVE_INTERNAL_H
#define SERVE_INTERNAL_H

#include <event2/event.h>
#include <event2/event_struct.h>

#include "regions/regions.h"
#include "serve/call.h"
#include "serve/connection.h"
#include "serve/server.h"

enum {
    CALL_POOL = 256,         /* calls kept for reuse */
    FIRST_WINDOW = 64 << 10, /* HTTP/2: what a stream may send before its message is admitted */
    CONNECTION_WINDOW = 16 << 20,
    MAX_FRAME = 1 << 20,
    SPILL_SHARE = 8,       /* unadmitted bytes may take 1/8 of the host limit */
    ERROR_TEXT_MAX = 2048, /* of grpc-message: clients refuse headers over 8 KiB */
};

struct limits { /* LIVE keys */
    unsigned max_connections;
    unsigned max_streams;
    size_t max_message_bytes;
    int64_t request_timeout_us; /* 0: none */
    int64_t receive_timeout_us;
    int64_t idle_timeout_us;
    int64_t grpc_idle_timeout_us;
    bool strict_readiness;
};

struct deadlines { /* a binary heap by call->deadline_us */
    struct call **heap;
    size_t count, capacity;
    int64_t armed_us; /* the timer is set for; CLOCK_NEVER: it is not */
};

/* Something finished elsewhere that is not an inference: a load, a plan, a change of state. */
struct notice {
    struct mail mail;                   /* first: a notice is its mail */
    void (*run)(struct notice *notice); /* on the I/O thread; frees it */
    struct call *call;                  /* referenced; may be NULL */
};

struct server {
    struct event_base *base;
    struct repository *repository;
    struct batcher *batcher;
    struct warden *warden;
    struct host_pool *host_pool;
    struct regions *regions;
    struct server_hooks hooks;
    struct limits limits;
    int64_t started_us;
    char device[256];

    struct list listeners;
    struct list connections;
    struct list closed; /* connections to free at the end of this turn */
    struct list dirty;  /* connections to settle at the end of this turn */
    unsigned connection_count;
    unsigned role_connections[ROLE_COUNT];
    uint64_t accepted_total; /* for inference */
    bool listeners_paused;

    struct event turn_event; /* active while the end of this turn is due */
    bool turn_due;
    int64_t turn_us; /* when this turn began: near enough for deadlines and progress */
    struct event second_event;
    struct event deadline_event;
    struct event expiry_event; /* something in a queue expires */
    int64_t expiry_armed_us;   /* … then; CLOCK_NEVER: it is not armed */
    struct event drain_event;
    struct event finished_event, notice_event;
    struct mailbox finished; /* requests back from lanes */
    struct mailbox notices;
    struct mail *inline_first, **inline_last; /* requests finished on this thread */

    struct deadlines deadlines;
    struct list waiting;  /* calls whose body waits for host memory, oldest first */
    struct list watchers; /* streams of Health.Watch */
    size_t spill_bytes;
    bool wake_batcher;
    size_t busy; /* calls whose endpoint runs */
    struct call *pool;
    unsigned pooled;
    uint64_t next_request_id;

    bool planning;     /* one plan for the admin service at a time */
    bool snapshotting; /* and one snapshot */
    bool draining;
    bool drain_last_step;
    void (*drained)(void *arg);
    void *drained_arg;
    atomic_bool change_noted; /* a notice about changed models is on its way */
    struct notice change_notice;

    uint8_t receive[RECEIVE_BYTES];
};

/* What a call of libevent failed with: STATUS_NO_MEMORY or STATUS_IO, by errno. */
enum status event_failure(void);
/* Every callback of the loop calls this first: the end of the turn will be looked after. */
void server_touch(struct server *server);
/* Puts a notice; any thread. */
void server_notify(struct server *server, struct notice *notice);
/* Hands the call's request to the batcher; infer_finish() is called when it is back. */
void server_submit(struct call *call, struct model_queue *queue);
void server_retry_waiting(struct server *server);
bool server_is_ready(struct server *server);

/* deadlines.c */
enum status deadlines_add(struct server *server, struct call *call);
void deadlines_remove(struct server *server, struct call *call);
void deadlines_run(struct server *server, int64_t now_us);
void deadlines_deinit(struct server *server);

/* endpoints/health.c: tells every watcher whose service changed. */
void health_notify_watchers(struct server *server);

#endif
