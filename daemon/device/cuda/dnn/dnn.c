#define LOG_COMPONENT "device"
#include "device/cuda/dnn/compiled.h"

#include <stdlib.h>

#include "observe/log.h"

static const struct cuda_function functions[] = {
#define FUNCTION(name) {offsetof(struct dnn, name), #name},
#include "device/cuda/dnn/dnn.def"
#undef FUNCTION
};

static const char *start(struct cuda_device *cuda, void *library)
{
    struct dnn *dnn = library;
    cudnnStatus_t status;

    pthread_mutex_init(&dnn->lock, NULL);
    dnn->lane = calloc(cuda->device.lanes, sizeof(*dnn->lane));
    dnn->decisions = dnn_decisions_create();
    dnn->cuda = cuda;
    if (dnn->lane == NULL || dnn->decisions == NULL)
        return cuda_library_no_memory;
    status = dnn->cudnnCreate(&dnn->maker);
    for (; status == CUDNN_STATUS_SUCCESS && dnn->lanes < cuda->device.lanes; dnn->lanes++)
        status = dnn->cudnnCreate(&dnn->lane[dnn->lanes]);
    if (status != CUDNN_STATUS_SUCCESS) {
        log_warn("CUDA: cuDNN does not start: %s", dnn->cudnnGetErrorString(status));
        /* "Not initialised" is what it says where the device is full. */
        return dnn_status(status) == STATUS_NO_MEMORY || status == CUDNN_STATUS_NOT_INITIALIZED
                   ? cuda_library_no_memory
                   : "cuDNN does not start";
    }
    log_info("CUDA: cuDNN %zu", dnn->cudnnGetVersion());
    return NULL;
}

static void end(void *library)
{
    struct dnn *dnn = library;

    for (size_t i = 0; i < dnn->lanes; i++)
        if (dnn->lane[i] != NULL)
            (void)dnn->cudnnDestroy(dnn->lane[i]);
    if (dnn->maker != NULL)
        (void)dnn->cudnnDestroy(dnn->maker);
    dnn_decisions_destroy(dnn->decisions);
    free(dnn->lane);
    pthread_mutex_destroy(&dnn->lock);
}

static const struct cuda_library cudnn = {
    .name = "libcudnn.so.9",
    .missing = "libcudnn.so.9 is not here",
    .lacks = "libcudnn.so.9 lacks a function",
    .without = "convolutions are left to the plug-in's own kernels",
    .functions = functions,
    .count = sizeof(functions) / sizeof(functions[0]),
    .bytes = sizeof(struct dnn),
    .start = start,
    .end = end,
};

const char *dnn_open_library(struct dnn *dnn, const char *path)
{
    return cuda_library_open(&cudnn, path, dnn);
}

const struct dnn *dnn_get(struct cuda_device *cuda, const char **out_why)
{
    return cuda_library_get(cuda, &cuda->dnn, &cudnn, out_why);
}

void dnn_close(struct cuda_device *cuda)
{
    cuda_library_close(cuda, &cuda->dnn, &cudnn);
}

enum status dnn_status(cudnnStatus_t status)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return STATUS_OK;
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED)
        return STATUS_UNSUPPORTED;
    if (status == CUDNN_STATUS_ALLOC_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return STATUS_NO_MEMORY;
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_EXECUTION_FAILED && cuda_context_is_lost())
        return STATUS_DEVICE_LOST;
    return STATUS_INTERNAL;
}
