#include "stream.h"

#include "capture.h"
#include "device.h"
#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct CUstream_st legacy = {.magic = STREAM_MAGIC, .tail = &legacy.head};
static struct CUstream_st *streams = &legacy;
static unsigned long long last_id = 0;
static pthread_once_t device_once = PTHREAD_ONCE_INIT;
static bool host_waits; /* a host function that nobody may be waiting for */

struct CUstream_st *stream_default(void)
{
    return &legacy;
}

struct CUstream_st *stream_of(cudaStream_t handle, const char *call)
{
    if (handle == NULL || handle == cudaStreamLegacy)
        return &legacy;
    if (handle->magic == STREAM_MAGIC)
        return handle;
    finding("%s: %p is no stream, or one that was destroyed", call, (void *)handle);
    return NULL;
}

/* Runs the head of the stream.  Under sim.lock, which it leaves while the work runs. */
static void run_head(struct CUstream_st *stream)
{
    struct work *work = stream->head;

    stream->busy = true;
    sim_unlock();
    if (work->kind == WORK_HOST) {
        if (sim.sticky == cudaSuccess) /* no callback comes from a dead context */
            work->host.fn(work->host.arg);
    } else {
        exec_lock();
        if (sim.sticky == cudaSuccess)
            work_run(work);
        exec_unlock();
    }
    sim_lock();
    stream->busy = false;
    stream->head = work->next;
    if (stream->head == NULL)
        stream->tail = &stream->head;
    stream->done = work->ticket;
    work_release(work);
    free(work);
    pthread_cond_broadcast(&sim.moved);
}

/* Under sim.lock. */
static void run_until(struct CUstream_st *stream, uint64_t ticket)
{
    while (stream->done < ticket) {
        struct work *head = stream->head;
        if (stream->busy || head->hung) {
            pthread_cond_wait(&sim.moved, &sim.lock);
        } else if (head->kind == WORK_WAIT && head->wait.stream->done < head->wait.ticket) {
            run_until(head->wait.stream, head->wait.ticket);
        } else {
            run_head(stream);
        }
    }
}

/* Runs what can be run without waiting.  Under sim.lock. */
static bool run_ready(struct CUstream_st *stream)
{
    bool moved = false;

    while (stream->head != NULL && !stream->busy && !stream->head->hung) {
        const struct work *head = stream->head;
        if (head->kind == WORK_WAIT && head->wait.stream->done < head->wait.ticket) {
            if (!run_ready(head->wait.stream))
                break;
            continue;
        }
        run_head(stream);
        moved = true;
    }
    return moved;
}

static bool run_all_ready(void)
{
    bool moved = false;

    for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next)
        moved = run_ready(stream) || moved;
    return moved;
}

/* The device's own thread. */
static void *device_main(void *unused)
{
    (void)unused;
    sim_lock();
    for (;;) {
        if (sim.mode == SIM_ASYNC) {
            if (!run_all_ready())
                pthread_cond_wait(&sim.moved, &sim.lock);
        } else if (sim.mode == SIM_LAZY && host_waits) {
            struct timespec pause;
            clock_gettime(CLOCK_REALTIME, &pause);
            pause.tv_nsec += 2000000;
            if (pause.tv_nsec >= 1000000000) {
                pause.tv_sec++;
                pause.tv_nsec -= 1000000000;
            }
            if (pthread_cond_timedwait(&sim.moved, &sim.lock, &pause) == ETIMEDOUT) {
                host_waits = false;
                run_all_ready();
            }
        } else {
            pthread_cond_wait(&sim.moved, &sim.lock);
        }
    }
    return NULL;
}

static void device_start(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, device_main, NULL) == 0)
        pthread_detach(thread);
}

/* Under sim.lock. */
static void append(struct CUstream_st *stream, struct work *work)
{
    work->ticket = ++stream->put;
    work->next = NULL;
    *stream->tail = work;
    stream->tail = &work->next;
    if (work->kind == WORK_HOST)
        host_waits = true;
}

static void append_wait(struct CUstream_st *stream, struct CUstream_st *other)
{
    if (other->done >= other->put)
        return;
    struct work *wait = calloc(1, sizeof(*wait));
    wait->kind = WORK_WAIT;
    wait->wait.stream = other;
    wait->wait.ticket = other->put;
    append(stream, wait);
}

/* The default stream and the blocking ones wait for each other.  Under sim.lock. */
static void legacy_order(struct CUstream_st *stream)
{
    if (stream != &legacy) {
        if ((stream->flags & cudaStreamNonBlocking) == 0)
            append_wait(stream, &legacy);
        return;
    }
    for (struct CUstream_st *other = streams; other != NULL; other = other->next)
        if (other != &legacy && (other->flags & cudaStreamNonBlocking) == 0)
            append_wait(&legacy, other);
}

/* Whether this launch is the one that a test chose to hang or break.  Under sim.lock. */
static void choose_fate(struct work *work)
{
    if (work->kind != WORK_KERNEL && work->kind != WORK_NATIVE && work->kind != WORK_GRAPH)
        return;
    sim.kernels++;
    work->hung = sim.kernels == sim.hang_at;
    if (work->hung)
        pthread_cond_broadcast(&sim.moved);
    if (sim.kernels == sim.break_at && sim.sticky == cudaSuccess)
        sim.sticky = sim.break_code;
}

cudaError_t stream_put(struct CUstream_st *stream, struct work work)
{
    if (stream->capture != NULL)
        return capture_add(stream, work);
    if (stream == &legacy && capture_hits_legacy()) {
        work_release(&work);
        return cudaErrorStreamCaptureImplicit;
    }
    struct work *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        work_release(&work);
        return cudaErrorMemoryAllocation;
    }
    *copy = work;
    pthread_once(&device_once, device_start);
    sim_lock();
    choose_fate(copy);
    legacy_order(stream);
    append(stream, copy);
    if (sim.mode == SIM_EAGER)
        run_ready(stream);
    else
        pthread_cond_broadcast(&sim.moved);
    sim_unlock();
    return cudaSuccess;
}

cudaError_t stream_wait(struct CUstream_st *stream, uint64_t ticket)
{
    sim_lock();
    run_until(stream, ticket);
    cudaError_t error = sim.sticky;
    sim_unlock();
    pools_settle();
    return error;
}

bool stream_is_done(struct CUstream_st *stream, uint64_t ticket)
{
    sim_lock();
    bool done = stream->done >= ticket;
    sim_unlock();
    return done;
}

void stream_nudge(struct CUstream_st *stream, uint64_t ticket)
{
    sim_lock();
    if (sim.mode == SIM_LAZY && stream->done < ticket) {
        const struct work *head = stream->head;
        if (!stream->busy && !head->hung)
            run_ready(stream);
    }
    sim_unlock();
}

cudaError_t streams_run_all(void)
{
    sim_lock();
    for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next)
        run_until(stream, stream->put);
    cudaError_t error = sim.sticky;
    sim_unlock();
    pools_settle();
    return error;
}

void streams_leave(const struct capture *capture)
{
    sim_lock();
    for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next) {
        if (stream->capture != capture)
            continue;
        node_set_free(stream->capture_after);
        free(stream->capture_after);
        stream->capture_after = NULL;
        stream->capture = NULL;
    }
    sim_unlock();
}

void sim_release_hung(void)
{
    sim_lock();
    for (struct CUstream_st *stream = streams; stream != NULL; stream = stream->next)
        for (struct work *work = stream->head; work != NULL; work = work->next)
            work->hung = false;
    pthread_cond_broadcast(&sim.moved);
    if (sim.mode == SIM_EAGER)
        run_all_ready();
    sim_unlock();
}

bool stream_is_own(const struct CUstream_st *stream, const char *call)
{
    return stream == &legacy || device_is_own(stream->device, call);
}

SIM_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    BEGIN(cudaStreamCreateWithPriority);
    if (out == NULL || (flags & ~(unsigned)cudaStreamNonBlocking) != 0)
        return api_end(cudaErrorInvalidValue);
    struct CUstream_st *stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return api_end(cudaErrorMemoryAllocation);
    stream->magic = STREAM_MAGIC;
    stream->flags = flags;
    stream->priority = priority;
    stream->device = device_current();
    stream->tail = &stream->head;
    sim_lock();
    stream->id = ++last_id;
    stream->next = streams;
    streams = stream;
    open_count(OPEN_STREAM, 1);
    sim_unlock();
    *out = stream;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    BEGIN(cudaStreamCreateWithFlags);
    return cudaStreamCreateWithPriority(out, flags, 0);
}

SIM_EXPORT cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    BEGIN(cudaStreamCreate);
    return cudaStreamCreateWithPriority(out, 0, 0);
}

/* The stream itself stays, marked as dead: a use of it later is found out. */
SIM_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    BEGIN_ALIVE(cudaStreamDestroy);
    struct CUstream_st *stream = stream_of(handle, "cudaStreamDestroy");
    if (stream == NULL || stream == &legacy)
        return api_end(cudaErrorInvalidResourceHandle);
    sim_lock();
    run_ready(stream);
    stream->magic = 0;
    open_count(OPEN_STREAM, -1);
    cudaError_t error = sim.sticky;
    sim_unlock();
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    BEGIN(cudaStreamSynchronize);
    struct CUstream_st *stream = stream_of(handle, "cudaStreamSynchronize");
    if (stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    if (stream->capture != NULL)
        return api_end(capture_break(stream->capture, "cudaStreamSynchronize"));
    return api_end(stream_wait(stream, stream->put));
}

SIM_EXPORT cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    BEGIN(cudaStreamQuery);
    struct CUstream_st *stream = stream_of(handle, "cudaStreamQuery");
    if (stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    if (stream->capture != NULL)
        return api_end(capture_break(stream->capture, "cudaStreamQuery"));
    if (stream_is_done(stream, stream->put))
        return api_end(sim.sticky);
    stream_nudge(stream, stream->put);
    return cudaErrorNotReady;
}

SIM_EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    BEGIN(cudaDeviceSynchronize);
    cudaError_t error = capture_forbids_always("cudaDeviceSynchronize");
    return api_end(error != cudaSuccess ? error : streams_run_all());
}

SIM_EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *out)
{
    BEGIN(cudaStreamGetFlags);
    struct CUstream_st *stream = stream_of(handle, "cudaStreamGetFlags");
    if (stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    *out = stream->flags;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *out)
{
    BEGIN(cudaStreamGetPriority);
    struct CUstream_st *stream = stream_of(handle, "cudaStreamGetPriority");
    if (stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    *out = stream->priority;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long *out)
{
    BEGIN(cudaStreamGetId);
    struct CUstream_st *stream = stream_of(handle, "cudaStreamGetId");
    if (stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    *out = stream->id;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn, void *arg)
{
    BEGIN(cudaLaunchHostFunc);
    struct CUstream_st *stream = stream_of(handle, "cudaLaunchHostFunc");
    if (stream == NULL || fn == NULL)
        return api_end(cudaErrorInvalidValue);
    struct work work = {.kind = WORK_HOST};
    work.host.fn = fn;
    work.host.arg = arg;
    return api_end(stream_put(stream, work));
}

int sim_enqueue(struct CUstream_st *handle, const char *name, void (*fn)(void *arg),
                const void *arg, size_t arg_bytes)
{
    sim_start();
    struct CUstream_st *stream = stream_of(handle, name);
    if (stream == NULL)
        return cudaErrorInvalidResourceHandle;
    struct work work = {.kind = WORK_NATIVE};
    work.native.name = name;
    work.native.fn = fn;
    work.native.arg = malloc(arg_bytes + 1);
    if (work.native.arg == NULL)
        return cudaErrorMemoryAllocation;
    memcpy(work.native.arg, arg, arg_bytes);
    work.native.bytes = arg_bytes;
    return stream_put(stream, work);
}
