/* One inference request on its way: bytes, request, queue, batch, plan, reply.
 *
 * Made by serve/ on an I/O thread, owned by exactly one side at a time: the I/O thread until
 * batcher_submit(), the batcher until it calls `done`, then the I/O thread again.
 * `cancelled` may be set by the I/O thread at any time between.
 */
#ifndef BATCH_REQUEST_H
#define BATCH_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "tensor/tensor.h"

struct model_queue;
struct profile;
struct response_buffer;

/* Whose memory a tensor lies in.  What is not our own, another process may change at any time: it
 * is looked at in place only where that can do no more than spoil the answer. */
enum request_memory {
    MEMORY_OWN,    /* the host's, of this process alone */
    MEMORY_SHARED, /* the host's, a client's as well */
    MEMORY_DEVICE, /* the device's, a client's as well; only on devices without host_memory */
};

/* One input as it came: `data` holds `bytes` bytes, dense row-major.  STRING: an array of struct
 * bytes, always MEMORY_OWN together with what they point to. */
struct request_input {
    struct shape shape; /* as sent, batch dimension included */
    const void *data;   /* borrowed from the request's body, arena or a region until `done` */
    size_t bytes;
    enum request_memory memory;
};

/* Where the client wants an output: the batcher writes it there at once where it can.  Never for
 * STRING. */
struct request_room {
    void *data; /* NULL: it wants it in the answer */
    size_t bytes;
    enum request_memory memory;
    bool apart; /* no byte of it is one of the request's inputs or other rooms */
};

/* One output of one request: a slice of the batch's response buffer. */
struct request_output {
    bool wanted;
    struct request_room room;
    struct shape shape;
    const void *data; /* in `response`, or an input's (keeps_inputs); NULL when not wanted.  With a
                         room: room.data, where it is now */
    size_t bytes;     /* STRING: count x sizeof(struct bytes).  More than room.bytes: it is not
                         there, and `data` may be NULL */
};

struct request {
    struct list link;   /* in a queue or batch */
    struct mail mail;   /* for the way back */
    struct arena arena; /* everything small that belongs to this request */
    uint64_t id;        /* ours, for the log */

    /* Set by serve/: */
    size_t inputs;
    struct request_input *in; /* in the order of the model's inputs */
    size_t outputs;
    struct request_output *out; /* in the order of the model's outputs; `wanted` set by serve */
    int64_t rows;             /* size along the batch dimension; 1 when the model does not batch */
    uint64_t priority;        /* 1 highest; 0: the model's default */
    int64_t arrived_us;       /* when the whole request was there */
    int64_t deadline_us;      /* CLOCK_NEVER: none */
    int64_t queue_timeout_us; /* from the request's `timeout` parameter; 0: the policy's */
    atomic_bool cancelled;
    bool keeps_inputs; /* data of MEMORY_OWN outlives the answer, which may point into it */
    bool no_inline;    /* never on the caller's thread (its turn's share of the loop is spent) */
    struct profile *profile; /* measures the run, if the request runs alone; NULL: nothing does */
    bool any_version; /* it named none: a later version may answer in the place of the newest */
    void (*done)(
        struct request *request); /* any thread; hands the request back (usually a mailbox_put) */
    void *owner;                  /* serve's call object */

    /* Set by the batcher before `done`: */
    enum status status;
    struct error error;               /* when status is not OK */
    struct response_buffer *response; /* holds the outputs; released by request_release() */
    int64_t queued_us, started_us, computed_us, finished_us;
    int64_t batch_rows; /* rows of the batch it ran in */

    /* The batcher's own while it has the request; nobody else looks: */
    struct request_wait {
        struct model_queue *queue;
        uint64_t shape_key;   /* equal shapes behind the batch dimension have equal keys */
        uint64_t bytes;       /* of all inputs */
        int64_t timeout_us;   /* when its queue policy gives up on it; CLOCK_NEVER: does not */
        size_t level;         /* index of its priority level */
        uint64_t least_bytes; /* of activations: a run had to end for want of them; 0: none had */
        unsigned restarts;
        bool delayed; /* timed out under DELAY: served after all others of its level */
    } wait;
};

/* Outputs of one batch, shared by its requests and counted. */
struct response_buffer *response_ref(struct response_buffer *response);
void response_unref(struct response_buffer *response); /* NULL is fine */
/* Where it was queued last: that of a later version when its own was replaced meanwhile.  Of a
 * request that is done. */
struct model_queue *request_queue(const struct request *request);
/* Gives back the response and resets the arena. */
void request_release(struct request *request);

#endif
