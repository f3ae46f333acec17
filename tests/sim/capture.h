/* Capture of streams into graphs, and what is forbidden meanwhile. */
#ifndef SLUICE_TESTS_SIM_CAPTURE_H
#define SLUICE_TESTS_SIM_CAPTURE_H

#include "event.h"
#include "graph.h"

/* A call that may not be made while a capture goes on that concerns this thread: by the mode of the
 * capture, its own (thread-local) or anyone's (global).  Breaks the capture. */
cudaError_t capture_forbids(const char *call);
/* The same for calls that no mode allows: waiting for the whole device. */
cudaError_t capture_forbids_always(const char *call);
/* The same for questions about an event. */
cudaError_t capture_forbids_event(const struct CUevent_st *event, const char *call);
/* Whether work on the default stream falls into someone's capture of a blocking stream. */
bool capture_hits_legacy(void);

/* The capture is worth nothing from now on; returns the error of the call that broke it. */
cudaError_t capture_break(struct capture *capture, const char *call);

/* Work put on a stream that is captured. */
cudaError_t capture_add(struct CUstream_st *stream, struct work work);
cudaError_t capture_record(struct CUstream_st *stream, struct CUevent_st *event);
cudaError_t capture_wait(struct CUstream_st *stream, struct CUevent_st *event);
void capture_forget_event(struct CUevent_st *event);

#endif
