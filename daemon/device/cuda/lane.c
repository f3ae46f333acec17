/* Everything of a batch goes on the lane's one stream, in order: copies in, kernels, copies out,
 * and the event that the lane's thread sleeps on.  Copies and kernels of different lanes overlap.
 */
#include "device/cuda/lane.h"

#include <stdlib.h>

#include "device/cuda/cuda.h"

static enum status open_parts(struct cuda_lane *lane)
{
    const struct cuda_device *cuda = cuda_device_of(lane->lane.device);

    CU_TRY(cudaSetDevice(cuda->ordinal));
    CU_TRY(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking));
    CU_TRY(cudaEventCreateWithFlags(&lane->done, cudaEventDisableTiming | cudaEventBlockingSync));
    CU_TRY(cudaHostAlloc((void **)&lane->words, sizeof(*lane->words), cudaHostAllocMapped));
    *lane->words = (struct cuda_words){0};
    return device_lane_open_host(&lane->lane);
}

enum status cuda_lane_open(struct device *device, unsigned index, struct device_lane **out_lane)
{
    struct cuda_lane *lane = calloc(1, sizeof(*lane));
    enum status status;

    if (lane == NULL)
        return STATUS_NO_MEMORY;
    lane->lane = (struct device_lane){.device = device, .index = index, .threads = 1};
    status = open_parts(lane);
    if (status != STATUS_OK) {
        cuda_lane_close(&lane->lane);
        return status;
    }
    *out_lane = &lane->lane;
    return STATUS_OK;
}

void cuda_lane_close(struct device_lane *device_lane)
{
    struct cuda_lane *lane = cuda_lane_of(device_lane);

    device_lane_close_host(device_lane);
    if (lane->words != NULL)
        (void)cudaFreeHost(lane->words);
    if (lane->done != NULL)
        (void)cudaEventDestroy(lane->done);
    if (lane->stream != NULL)
        (void)cudaStreamDestroy(lane->stream);
    free(lane);
}

void cuda_lane_enter(struct device_lane *lane)
{
    (void)cudaSetDevice(cuda_device_of(lane->device)->ordinal);
    if (lane->host != NULL)
        lane->host->device->ops->lane_enter(lane->host);
}

static enum status wait_for_stream(struct cuda_lane *lane)
{
    CU_TRY(cudaEventRecord(lane->done, lane->stream));
    return cuda_status(cudaEventSynchronize(lane->done));
}

enum status cuda_lane_wait(struct device_lane *device_lane)
{
    struct cuda_lane *lane = cuda_lane_of(device_lane);

    TRY(wait_for_stream(lane));
    if (lane->words->fault == 0)
        return STATUS_OK;
    lane->words->fault = 0;
    return STATUS_INVALID;
}

/* A fault raised before is left for the end of the batch. */
enum status cuda_lane_found(struct device_lane *device_lane, int64_t *out_found)
{
    struct cuda_lane *lane = cuda_lane_of(device_lane);

    TRY(wait_for_stream(lane));
    *out_found = lane->words->found;
    return STATUS_OK;
}

static enum status copy(struct device_lane *lane, void *to, const void *from, size_t bytes,
                        enum cudaMemcpyKind kind)
{
    if (bytes == 0)
        return STATUS_OK;
    return cuda_status(cudaMemcpyAsync(to, from, bytes, kind, cuda_lane_of(lane)->stream));
}

enum status cuda_lane_copy_in(struct device_lane *lane, void *to, const void *from, size_t bytes)
{
    return copy(lane, to, from, bytes, cudaMemcpyHostToDevice);
}

enum status cuda_lane_copy_out(struct device_lane *lane, void *to, const void *from, size_t bytes)
{
    return copy(lane, to, from, bytes, cudaMemcpyDeviceToHost);
}

enum status cuda_lane_copy(struct device_lane *lane, void *to, const void *from, size_t bytes)
{
    return copy(lane, to, from, bytes, cudaMemcpyDeviceToDevice);
}

/* ---- recordings: CUDA graphs ---- */

struct device_recording {
    int ordinal;
    cudaGraphExec_t exec;
};

/* Thread-local: other threads may load models, which allocates, while this one records. */
enum status cuda_lane_record_begin(struct device_lane *lane)
{
    return cuda_status(
        cudaStreamBeginCapture(cuda_lane_of(lane)->stream, cudaStreamCaptureModeThreadLocal));
}

static enum status instantiate(struct device_recording *recording, cudaGraph_t graph)
{
    enum status status = cuda_status(cudaGraphInstantiate(&recording->exec, graph, 0));

    (void)cuda_status(cudaGraphDestroy(graph));
    return status;
}

/* A capture that something made invalid ends with an error; that it ended is made sure of. */
static cudaError_t end_capture(cudaStream_t stream, cudaGraph_t *out_graph)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamEndCapture(stream, out_graph);

    if (error != cudaSuccess && cudaStreamIsCapturing(stream, &state) == cudaSuccess &&
        state != cudaStreamCaptureStatusNone)
        (void)cuda_status(cudaStreamEndCapture(stream, out_graph));
    return error;
}

enum status cuda_lane_record_end(struct device_lane *lane, struct device_recording **out_recording)
{
    struct device_recording *recording = calloc(1, sizeof(*recording));
    cudaGraph_t graph = NULL;
    cudaError_t error = end_capture(cuda_lane_of(lane)->stream, &graph);
    enum status status;

    if (error != cudaSuccess || graph == NULL || recording == NULL) {
        free(recording);
        if (graph != NULL)
            (void)cuda_status(cudaGraphDestroy(graph));
        return cuda_status(error) == STATUS_DEVICE_LOST ? STATUS_DEVICE_LOST : STATUS_UNSUPPORTED;
    }
    recording->ordinal = cuda_device_of(lane->device)->ordinal;
    status = instantiate(recording, graph);
    if (status != STATUS_OK) {
        free(recording);
        return status == STATUS_DEVICE_LOST ? status : STATUS_UNSUPPORTED;
    }
    *out_recording = recording;
    return STATUS_OK;
}

enum status cuda_lane_replay(struct device_lane *lane, struct device_recording *recording)
{
    return cuda_status(cudaGraphLaunch(recording->exec, cuda_lane_of(lane)->stream));
}

void cuda_recording_destroy(struct device_recording *recording)
{
    if (recording == NULL)
        return;
    (void)cudaSetDevice(recording->ordinal);
    (void)cuda_status(cudaGraphExecDestroy(recording->exec));
    free(recording);
}
