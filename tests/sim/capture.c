#include "capture.h"

#include <stdlib.h>

struct capture {
    struct CUgraph_st *graph;
    struct CUstream_st *origin;
    pthread_t thread;
    enum cudaStreamCaptureMode mode;
    bool broken;
    bool over;
    unsigned long long id;
    struct capture *next; /* all that go on, or all that are over */
};

static struct capture *captures; /* under sim.lock */
static struct capture *past;     /* kept: events may still point there */
static unsigned long long last_id;
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* The capture that forbids unsafe calls to this thread, or NULL.  Under sim.lock. */
static struct capture *concerned(bool always)
{
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        bool own = pthread_equal(capture->thread, pthread_self()) != 0;
        if (always)
            return capture;
        if (thread_mode == cudaStreamCaptureModeRelaxed)
            continue;
        if (own && capture->mode != cudaStreamCaptureModeRelaxed)
            return capture;
        if (capture->mode == cudaStreamCaptureModeGlobal &&
            thread_mode == cudaStreamCaptureModeGlobal)
            return capture;
    }
    return NULL;
}

cudaError_t capture_break(struct capture *capture, const char *call)
{
    if (!capture->broken)
        notice("%s during a capture of a stream: the capture is broken", call);
    capture->broken = true;
    return cudaErrorStreamCaptureUnsupported;
}

static cudaError_t forbids(const char *call, bool always)
{
    sim_lock();
    struct capture *capture = concerned(always);
    cudaError_t error = capture != NULL ? capture_break(capture, call) : cudaSuccess;
    sim_unlock();
    return error;
}

cudaError_t capture_forbids(const char *call)
{
    return forbids(call, false);
}

cudaError_t capture_forbids_always(const char *call)
{
    return forbids(call, true);
}

cudaError_t capture_forbids_event(const struct CUevent_st *event, const char *call)
{
    if (event->capture != NULL) {
        capture_break(event->capture, call);
        return cudaErrorCapturedEvent;
    }
    return forbids(call, false);
}

bool capture_hits_legacy(void)
{
    bool hits = false;

    sim_lock();
    for (struct capture *capture = captures; capture != NULL; capture = capture->next) {
        if ((capture->origin->flags & cudaStreamNonBlocking) != 0)
            continue;
        capture_break(capture, "work on the default stream");
        hits = true;
    }
    sim_unlock();
    return hits;
}

cudaError_t capture_add(struct CUstream_st *stream, struct work work)
{
    struct capture *capture = stream->capture;

    if (capture->broken) {
        work_release(&work);
        return cudaErrorStreamCaptureInvalidated;
    }
    struct CUgraphNode_st *node = graph_add(capture->graph, work, stream->capture_after);
    if (node == NULL)
        return cudaErrorMemoryAllocation;
    node_set_only(stream->capture_after, node->number);
    return cudaSuccess;
}

void capture_forget_event(struct CUevent_st *event)
{
    if (event->capture == NULL)
        return;
    event->capture = NULL;
    node_set_free(event->after);
    free(event->after);
    event->after = NULL;
}

cudaError_t capture_record(struct CUstream_st *stream, struct CUevent_st *event)
{
    capture_forget_event(event);
    event->after = calloc(1, sizeof(*event->after));
    if (event->after == NULL)
        return cudaErrorMemoryAllocation;
    node_set_join(event->after, stream->capture_after);
    event->capture = stream->capture;
    event->stream = NULL;
    return stream->capture->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

/* A stream outside joins the capture of the event it waits for. */
cudaError_t capture_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    if (event->capture == NULL)
        return event->stream == NULL ? cudaSuccess : cudaErrorStreamCaptureIsolation;
    if (event->capture->over)
        return cudaErrorCapturedEvent;
    if (stream->capture != NULL && stream->capture != event->capture) {
        stream->capture->broken = event->capture->broken = true;
        return cudaErrorStreamCaptureMerge;
    }
    if (stream == stream_default())
        return cudaErrorStreamCaptureImplicit;
    if (stream->capture == NULL) {
        stream->capture_after = calloc(1, sizeof(*stream->capture_after));
        if (stream->capture_after == NULL)
            return cudaErrorMemoryAllocation;
        stream->capture = event->capture;
    }
    node_set_join(stream->capture_after, event->after);
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    BEGIN(cudaStreamBeginCapture);
    struct CUstream_st *stream = stream_of(handle, "cudaStreamBeginCapture");
    if (stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    if (stream == stream_default())
        return api_end(cudaErrorStreamCaptureUnsupported);
    if (stream->capture != NULL)
        return api_end(cudaErrorIllegalState);
    struct capture *capture = calloc(1, sizeof(*capture));
    struct node_set *after = calloc(1, sizeof(*after));
    struct CUgraph_st *graph = graph_make();
    if (capture == NULL || after == NULL || graph == NULL)
        return api_end(cudaErrorMemoryAllocation);
    *capture =
        (struct capture){.graph = graph, .origin = stream, .thread = pthread_self(), .mode = mode};
    sim_lock();
    capture->id = ++last_id;
    capture->next = captures;
    captures = capture;
    stream->capture = capture;
    stream->capture_after = after;
    sim_unlock();
    return cudaSuccess;
}

/* Nodes that nothing follows must be behind the origin stream, or a stream was not joined. */
static bool unjoined(const struct capture *capture)
{
    const struct CUgraph_st *graph = capture->graph;
    const struct node_set *last = capture->origin->capture_after;
    size_t loose = 0;

    for (size_t i = 0; i < graph->count; i++) {
        bool followed = false;
        for (size_t k = i + 1; k < graph->count && !followed; k++)
            for (size_t n = 0; n < graph->nodes[k]->after.count; n++)
                followed = followed || graph->nodes[k]->after.nodes[n] == i;
        for (size_t n = 0; n < last->count; n++)
            followed = followed || last->nodes[n] == i;
        loose += followed ? 0 : 1;
    }
    return loose > 0;
}

/* Under sim.lock. */
static void capture_close(struct capture *capture)
{
    for (struct capture **at = &captures; *at != NULL; at = &(*at)->next)
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    capture->over = true;
    capture->next = past;
    past = capture;
}

SIM_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out)
{
    BEGIN(cudaStreamEndCapture);
    struct CUstream_st *stream = stream_of(handle, "cudaStreamEndCapture");
    if (stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    struct capture *capture = stream->capture;
    *out = NULL;
    if (capture == NULL)
        return api_end(cudaErrorIllegalState);
    if (capture->origin != stream)
        return api_end(cudaErrorStreamCaptureUnmatched);
    cudaError_t error = cudaSuccess;
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        pthread_equal(capture->thread, pthread_self()) == 0)
        return api_end(cudaErrorStreamCaptureWrongThread);
    if (capture->broken)
        error = cudaErrorStreamCaptureInvalidated;
    else if (unjoined(capture))
        error = cudaErrorStreamCaptureUnjoined;
    streams_leave(capture);
    sim_lock();
    capture_close(capture);
    if (error == cudaSuccess)
        open_count(OPEN_GRAPH, 1);
    sim_unlock();
    if (error == cudaSuccess)
        *out = capture->graph;
    else
        graph_free(capture->graph);
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *out)
{
    BEGIN(cudaStreamIsCapturing);
    const struct CUstream_st *stream = stream_of(handle, "cudaStreamIsCapturing");
    if (stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    *out = stream->capture == NULL   ? cudaStreamCaptureStatusNone
           : stream->capture->broken ? cudaStreamCaptureStatusInvalidated
                                     : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle,
                                                enum cudaStreamCaptureStatus *out_status,
                                                unsigned long long *out_id, cudaGraph_t *out_graph,
                                                const cudaGraphNode_t **out_after,
                                                const cudaGraphEdgeData **out_edges,
                                                size_t *out_count)
{
    BEGIN(cudaStreamGetCaptureInfo);
    cudaError_t error = cudaStreamIsCapturing(handle, out_status);
    if (error != cudaSuccess || *out_status == cudaStreamCaptureStatusNone)
        return api_end(error);
    const struct CUstream_st *stream = stream_of(handle, "cudaStreamGetCaptureInfo");
    if (out_after != NULL || out_edges != NULL || out_count != NULL)
        return api_end(cudaErrorNotSupported);
    if (out_id != NULL)
        *out_id = stream->capture->id;
    if (out_graph != NULL)
        *out_graph = stream->capture->graph;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    BEGIN(cudaThreadExchangeStreamCaptureMode);
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}
