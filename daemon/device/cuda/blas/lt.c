#define LOG_COMPONENT "device"
#include "device/cuda/blas/choose.h"

#include "observe/log.h"

static const struct cuda_function functions[] = {
#define FUNCTION(name) {offsetof(struct lt, name), #name},
#include "device/cuda/blas/lt.def"
#undef FUNCTION
};

static const char *start(struct cuda_device *cuda, void *library)
{
    struct lt *lt = library;
    cublasStatus_t status;

    lt->nan = &cuda->nan;
    lt->choices = lt_choices_create();
    if (lt->choices == NULL)
        return cuda_library_no_memory;
    status = lt->cublasLtCreate(&lt->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        log_warn("CUDA: cuBLASLt does not start: %s", lt->cublasLtGetStatusString(status));
        /* "Not initialised" is what it says where the device is full. */
        return status == CUBLAS_STATUS_ALLOC_FAILED || status == CUBLAS_STATUS_NOT_INITIALIZED
                   ? cuda_library_no_memory
                   : "cuBLASLt does not start";
    }
    log_info("CUDA: cuBLASLt %zu", lt->cublasLtGetVersion());
    return NULL;
}

static void end(void *library)
{
    struct lt *lt = library;

    if (lt->handle != NULL)
        (void)lt->cublasLtDestroy(lt->handle);
    lt_choices_destroy(lt->choices);
}

static const struct cuda_library cublaslt = {
    .name = "libcublasLt.so.13",
    .missing = "libcublasLt.so.13 is not here",
    .lacks = "libcublasLt.so.13 lacks a function",
    .without = "products are left to the plug-in's own kernels",
    .functions = functions,
    .count = sizeof(functions) / sizeof(functions[0]),
    .bytes = sizeof(struct lt),
    .start = start,
    .end = end,
};

const struct lt *lt_get(struct cuda_device *cuda, const char **out_why)
{
    return cuda_library_get(cuda, &cuda->lt, &cublaslt, out_why);
}

void lt_close(struct cuda_device *cuda)
{
    cuda_library_close(cuda, &cuda->lt, &cublaslt);
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
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return cuda_context_is_lost() ? STATUS_DEVICE_LOST : STATUS_INTERNAL;
    default:
        return STATUS_INTERNAL;
    }
}
