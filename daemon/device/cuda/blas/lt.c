#define LOG_COMPONENT "device"
#include "device/cuda/blas/lt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "observe/log.h"

#define LIBRARY "libcublasLt.so.13"

/* Row: field of struct lt, name in the library. */
static const struct {
    size_t offset;
    const char *name;
} functions[] = {
#define FUNCTION(name) {offsetof(struct lt, name), #name},
#include "device/cuda/blas/lt.def"
#undef FUNCTION
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over cuda_device.lt and lt_missing */

static const char *find_functions(struct lt *lt)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        log_info("CUDA: products are left to the plug-in's own kernels: %s", dlerror());
        return LIBRARY " is not here";
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = dlsym(library, functions[i].name);

        if (function == NULL) {
            log_warn("CUDA: %s has no %s", LIBRARY, functions[i].name);
            return LIBRARY " lacks a function";
        }
        memcpy((char *)lt + functions[i].offset, &function, sizeof(function));
    }
    return NULL;
}

/* NULL and lt->handle, or why not. */
static const char *open_library(struct cuda_device *cuda, struct lt *lt)
{
    const char *why = find_functions(lt);
    cublasStatus_t status;

    if (why != NULL)
        return why;
    if (cudaSetDevice(cuda->ordinal) != cudaSuccess)
        return "the device is gone";
    status = lt->cublasLtCreate(&lt->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        log_warn("CUDA: cuBLASLt does not start: %s", lt->cublasLtGetStatusString(status));
        return "cuBLASLt does not start";
    }
    log_info("CUDA: cuBLASLt %zu", lt->cublasLtGetVersion());
    return NULL;
}

const struct lt *lt_get(struct cuda_device *cuda, const char **out_why)
{
    pthread_mutex_lock(&lock);
    if (cuda->lt == NULL && cuda->lt_missing == NULL) {
        struct lt *lt = calloc(1, sizeof(*lt));

        cuda->lt_missing = lt == NULL ? "no memory for cuBLASLt" : open_library(cuda, lt);
        if (cuda->lt_missing == NULL)
            cuda->lt = lt;
        else
            free(lt);
    }
    *out_why = cuda->lt_missing;
    pthread_mutex_unlock(&lock);
    return cuda->lt;
}

void lt_close(struct cuda_device *cuda)
{
    if (cuda->lt == NULL)
        return;
    (void)cudaSetDevice(cuda->ordinal);
    (void)cuda->lt->cublasLtDestroy(cuda->lt->handle);
    free(cuda->lt);
    cuda->lt = NULL;
}

enum status lt_status(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return STATUS_OK;
    case CUBLAS_STATUS_ALLOC_FAILED:
        return STATUS_NO_MEMORY;
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return STATUS_UNSUPPORTED;
    case CUBLAS_STATUS_EXECUTION_FAILED: /* the runtime knows whether the context still lives */
        return cuda_is_lost(cudaPeekAtLastError()) ? STATUS_DEVICE_LOST : STATUS_INTERNAL;
    default:
        return STATUS_INTERNAL;
    }
}
