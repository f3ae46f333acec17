/* Streams: queues of work, and the order between them.
 *
 * Each piece of work gets the next ticket of its stream; a stream has run all up to its `done`
 * ticket.  An event is a stream and a ticket; a wait is work that needs another stream to be done
 * up to one.  Who runs the work depends on the mode: the caller that puts it (eager), the caller
 * that waits for it (lazy), or the device's thread (async; in the lazy mode it comes after a pause,
 * for host functions that nobody waits for).
 */
#ifndef SLUICE_TESTS_SIM_STREAM_H
#define SLUICE_TESTS_SIM_STREAM_H

#include "core.h"

struct kernel;
struct graph_exec;

enum work_kind {
    WORK_KERNEL,
    WORK_COPY,
    WORK_SET,
    WORK_RECORD, /* of an event: only its time */
    WORK_WAIT,
    WORK_HOST,   /* cudaLaunchHostFunc */
    WORK_NATIVE, /* sim_enqueue */
    WORK_GRAPH,
    WORK_FREE,  /* cudaFreeAsync */
    WORK_EMPTY, /* a node of a graph that only orders */
};

struct copy_work {
    void *to;
    const void *from;
    size_t to_pitch;
    size_t from_pitch;
    size_t width; /* bytes of a row */
    size_t height;
    enum cudaMemcpyKind kind;
    void *staged; /* a copy of pageable memory that `from` is; owned */
};

struct set_work {
    void *to;
    size_t pitch;
    size_t width; /* elements of a row */
    size_t height;
    unsigned value;
    unsigned element; /* bytes: 1, 2, 4 */
};

struct kernel_work {
    struct kernel *kernel;
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    unsigned char *parameters; /* the block of parameters, copied; owned */
};

struct native_work {
    const char *name;
    void (*fn)(void *arg);
    void *arg; /* owned */
    size_t bytes;
};

struct work {
    enum work_kind kind;
    bool hung;
    uint64_t ticket;
    struct work *next;
    union {
        struct copy_work copy;
        struct set_work set;
        struct kernel_work kernel;
        struct native_work native;
        struct {
            cudaHostFn_t fn;
            void *arg;
        } host;
        struct {
            struct CUevent_st *event;
            uint64_t generation;
        } record;
        struct {
            struct CUstream_st *stream;
            uint64_t ticket;
        } wait;
        struct graph_exec *graph; /* a reference */
        struct region *freed;
    };
};

struct CUstream_st {
    uint32_t magic;
    unsigned flags;
    int priority;
    int device;
    unsigned long long id;
    struct CUstream_st *next; /* all streams, dead ones too */
    struct work *head;
    struct work **tail;
    uint64_t put;  /* last ticket given */
    uint64_t done; /* last ticket done */
    bool busy;     /* a thread runs its head */
    struct capture *capture;
    struct node_set *capture_after; /* nodes that the next one follows */
};

enum { STREAM_MAGIC = 0x73747265 };

/* The stream behind a handle; NULL, and a finding, when it is none or was destroyed.  NULL and
 * cudaStreamLegacy are the default stream. */
struct CUstream_st *stream_of(cudaStream_t handle, const char *call);
struct CUstream_st *stream_default(void);
/* A finding, and false, when it was made for another device than the current one. */
bool stream_is_own(const struct CUstream_st *stream, const char *call);

/* Adds work at the end, or a node to the graph that the stream captures.  Takes what the work owns
 * over, also when it fails. */
cudaError_t stream_put(struct CUstream_st *stream, struct work work);

/* Runs, or lets run, until the stream has done `ticket`.  The sticky error of the device when it
 * has one. */
cudaError_t stream_wait(struct CUstream_st *stream, uint64_t ticket);
bool stream_is_done(struct CUstream_st *stream, uint64_t ticket);
/* Everything on every stream. */
cudaError_t streams_run_all(void);

/* Takes every stream out of a capture that ends. */
void streams_leave(const struct capture *capture);

/* In the lazy mode a question for the state moves the work, so that who polls gets on. */
void stream_nudge(struct CUstream_st *stream, uint64_t ticket);

/* Frees what the work owns. */
void work_release(struct work *work);
/* A copy that owns its own. */
struct work work_copy(const struct work *work);
/* Runs it.  Under sim.exec, but host functions, which run under no lock. */
void work_run(const struct work *work);

#endif
