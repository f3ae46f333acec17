#define LOG_COMPONENT "device"
#include "device/cuda/dnn/dnn.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "observe/log.h"

#define LIBRARY "libcudnn.so.9"

/* Row: field of struct dnn, name in the library. */
static const struct {
    size_t offset;
    const char *name;
} functions[] = {
#define FUNCTION(name) {offsetof(struct dnn, name), #name},
#include "device/cuda/dnn/dnn.def"
#undef FUNCTION
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over cuda_device.dnn, dnn_missing */

const char *dnn_open_library(struct dnn *dnn, const char *path)
{
    void *library = dlopen(path != NULL ? path : LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        log_info("CUDA: convolutions are left to the plug-in's own kernels: %s", dlerror());
        return LIBRARY " is not here";
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = dlsym(library, functions[i].name);

        if (function == NULL) {
            log_warn("CUDA: %s has no %s", LIBRARY, functions[i].name);
            return LIBRARY " lacks a function";
        }
        memcpy((char *)dnn + functions[i].offset, &function, sizeof(function));
    }
    return NULL;
}

/* NULL and all handles, or why not; what was made before is kept for end(). */
static const char *start(struct cuda_device *cuda, struct dnn *dnn)
{
    const char *why = dnn_open_library(dnn, NULL);
    cudnnStatus_t status;

    if (why != NULL)
        return why;
    dnn->lane = calloc(cuda->device.lanes, sizeof(*dnn->lane));
    if (dnn->lane == NULL)
        return "no memory for cuDNN's handles";
    if (cudaSetDevice(cuda->ordinal) != cudaSuccess)
        return "the device is gone";
    status = dnn->cudnnCreate(&dnn->maker);
    for (; status == CUDNN_STATUS_SUCCESS && dnn->lanes < cuda->device.lanes; dnn->lanes++)
        status = dnn->cudnnCreate(&dnn->lane[dnn->lanes]);
    if (status != CUDNN_STATUS_SUCCESS) {
        log_warn("CUDA: cuDNN does not start: %s", dnn->cudnnGetErrorString(status));
        return "cuDNN does not start";
    }
    log_info("CUDA: cuDNN %zu", dnn->cudnnGetVersion());
    return NULL;
}

static void end(struct dnn *dnn)
{
    for (size_t i = 0; i < dnn->lanes; i++)
        if (dnn->lane[i] != NULL)
            (void)dnn->cudnnDestroy(dnn->lane[i]);
    if (dnn->maker != NULL)
        (void)dnn->cudnnDestroy(dnn->maker);
    free(dnn->lane);
    pthread_mutex_destroy(&dnn->lock);
    free(dnn);
}

const struct dnn *dnn_get(struct cuda_device *cuda, const char **out_why)
{
    pthread_mutex_lock(&lock);
    if (cuda->dnn == NULL && cuda->dnn_missing == NULL) {
        struct dnn *dnn = calloc(1, sizeof(*dnn));

        cuda->dnn_missing = dnn == NULL ? "no memory for cuDNN" : NULL;
        if (dnn != NULL) {
            pthread_mutex_init(&dnn->lock, NULL);
            cuda->dnn_missing = start(cuda, dnn);
        }
        if (cuda->dnn_missing == NULL)
            cuda->dnn = dnn;
        else if (dnn != NULL)
            end(dnn);
    }
    *out_why = cuda->dnn_missing;
    pthread_mutex_unlock(&lock);
    return cuda->dnn;
}

void dnn_close(struct cuda_device *cuda)
{
    if (cuda->dnn == NULL)
        return;
    (void)cudaSetDevice(cuda->ordinal);
    end(cuda->dnn);
    cuda->dnn = NULL;
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
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_EXECUTION_FAILED &&
        cuda_is_lost(cudaPeekAtLastError()))
        return STATUS_DEVICE_LOST;
    return STATUS_INTERNAL;
}
