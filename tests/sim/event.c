/* Events: a stream and the ticket it had when the event was recorded. */
#include "event.h"

#include "capture.h"
#include "device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static _Atomic int64_t taken_nanoseconds; /* sim_take_time() */

static struct CUevent_st *event_of(cudaEvent_t event, const char *call)
{
    if (event != NULL && event->magic == EVENT_MAGIC)
        return event;
    finding("%s: %p is no event, or one that was destroyed", call, (void *)event);
    return NULL;
}

SIM_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    static struct CUevent_st *all; /* dead ones stay: a later use of them is found out */

    BEGIN(cudaEventCreateWithFlags);
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (out == NULL || (flags & ~known) != 0)
        return api_end(cudaErrorInvalidValue);
    struct CUevent_st *event = calloc(1, sizeof(*event));
    if (event == NULL)
        return api_end(cudaErrorMemoryAllocation);
    event->magic = EVENT_MAGIC;
    event->flags = flags;
    event->device = device_current();
    sim_lock();
    event->next = all;
    all = event;
    open_count(OPEN_EVENT, 1);
    sim_unlock();
    *out = event;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    BEGIN(cudaEventCreate);
    return cudaEventCreateWithFlags(out, 0);
}

SIM_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    BEGIN_ALIVE(cudaEventDestroy);
    struct CUevent_st *event = event_of(handle, "cudaEventDestroy");
    if (event == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    sim_lock();
    event->magic = 0;
    open_count(OPEN_EVENT, -1);
    cudaError_t error = sim.sticky;
    sim_unlock();
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle,
                                                unsigned flags)
{
    BEGIN(cudaEventRecordWithFlags);
    struct CUevent_st *event = event_of(handle, "cudaEventRecord");
    struct CUstream_st *stream = stream_of(stream_handle, "cudaEventRecord");
    if (event == NULL || stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    if (flags != 0)
        return api_end(cudaErrorNotSupported);
    if (stream != stream_default() && stream->device != event->device) {
        finding("cudaEventRecord: an event of device %d in a stream of device %d", event->device,
                stream->device);
        return api_end(cudaErrorInvalidResourceHandle);
    }
    if (stream->capture != NULL)
        return api_end(capture_record(stream, event));
    struct work work = {.kind = WORK_RECORD};
    work.record.event = event;
    work.record.generation = event->generation + 1;
    sim_lock();
    uint64_t before = stream->put;
    sim_unlock();
    cudaError_t error = stream_put(stream, work);
    sim_lock();
    if (error == cudaSuccess) {
        capture_forget_event(event);
        event->generation++;
        event->stream = stream;
        event->ticket = stream->put > before ? stream->put : before;
    }
    sim_unlock();
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    BEGIN(cudaEventRecord);
    return cudaEventRecordWithFlags(event, stream, 0);
}

SIM_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle,
                                           unsigned flags)
{
    BEGIN(cudaStreamWaitEvent);
    struct CUevent_st *event = event_of(handle, "cudaStreamWaitEvent");
    struct CUstream_st *stream = stream_of(stream_handle, "cudaStreamWaitEvent");
    if (event == NULL || stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    if (flags != 0)
        return api_end(cudaErrorNotSupported);
    if (event->capture != NULL || stream->capture != NULL)
        return api_end(capture_wait(stream, event));
    if (event->stream == NULL)
        return cudaSuccess; /* never recorded: nothing to wait for */
    struct work work = {.kind = WORK_WAIT};
    work.wait.stream = event->stream;
    work.wait.ticket = event->ticket;
    return api_end(stream_put(stream, work));
}

SIM_EXPORT cudaError_t cudaEventQuery(cudaEvent_t handle)
{
    BEGIN(cudaEventQuery);
    struct CUevent_st *event = event_of(handle, "cudaEventQuery");
    if (event == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    cudaError_t error = capture_forbids_event(event, "cudaEventQuery");
    if (error != cudaSuccess)
        return api_end(error);
    if (event->stream == NULL || stream_is_done(event->stream, event->ticket))
        return api_end(sim.sticky);
    stream_nudge(event->stream, event->ticket);
    return cudaErrorNotReady;
}

SIM_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
    BEGIN(cudaEventSynchronize);
    struct CUevent_st *event = event_of(handle, "cudaEventSynchronize");
    if (event == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    cudaError_t error = capture_forbids_event(event, "cudaEventSynchronize");
    if (error != cudaSuccess)
        return api_end(error);
    if (event->stream == NULL)
        return cudaSuccess;
    return api_end(stream_wait(event->stream, event->ticket));
}

SIM_EXPORT cudaError_t cudaEventElapsedTime(float *out_ms, cudaEvent_t from_handle,
                                            cudaEvent_t to_handle)
{
    BEGIN(cudaEventElapsedTime);
    struct CUevent_st *from = event_of(from_handle, "cudaEventElapsedTime");
    struct CUevent_st *to = event_of(to_handle, "cudaEventElapsedTime");
    if (from == NULL || to == NULL || from->stream == NULL || to->stream == NULL ||
        ((from->flags | to->flags) & cudaEventDisableTiming) != 0)
        return api_end(cudaErrorInvalidResourceHandle);
    if (!stream_is_done(from->stream, from->ticket) || !stream_is_done(to->stream, to->ticket))
        return cudaErrorNotReady;
    *out_ms = (float)((double)(to->nanoseconds - from->nanoseconds) / 1e6);
    return cudaSuccess;
}

void event_run(struct CUevent_st *event, uint64_t generation)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (event->generation <= generation)
        event->nanoseconds =
            (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + atomic_load(&taken_nanoseconds);
}

void sim_take_time(double milliseconds)
{
    atomic_fetch_add(&taken_nanoseconds, (int64_t)(milliseconds * 1e6));
}
