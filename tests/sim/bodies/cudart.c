/* A libcudart whose device is the host: memory is malloc's, to the byte, so that AddressSanitizer
 * knows its bounds; work is done by the call that enqueues it.  No virtual memory management (a
 * range is a block of a pool then) and no graphs: plans run without.  Only what the plug-in calls.
 */
#include "bodies.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { VERSION = 13000, ALIGNMENT = 256, PROCESSORS = 4 };
static const size_t total_bytes = (size_t)4 << 30;

static _Thread_local cudaError_t last;

static cudaError_t end(cudaError_t error)
{
    if (error != cudaSuccess)
        last = error;
    return error;
}

EXPORT cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last;

    last = cudaSuccess;
    return error;
}

EXPORT cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}

EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaSuccess             ? "no error"
                                              : "refused by the bodies' runtime";
}

/* ---- the device ---- */

EXPORT cudaError_t cudaGetDeviceCount(int *out)
{
    *out = 1;
    return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device)
{
    return end(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

EXPORT cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    (void)device_flags, (void)flags;
    return cudaSetDevice(device);
}

EXPORT cudaError_t cudaDriverGetVersion(int *out)
{
    *out = VERSION;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->name, sizeof(out->name), "kernels on the host");
    out->major = 9;
    out->totalGlobalMem = total_bytes;
    out->multiProcessorCount = PROCESSORS;
    out->sharedMemPerBlock = out->sharedMemPerBlockOptin = 48 << 10;
    return cudaSetDevice(device);
}

EXPORT cudaError_t cudaMemGetInfo(size_t *out_free, size_t *out_total)
{
    *out_free = *out_total = total_bytes;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *result)
{
    (void)name, (void)version, (void)flags;
    *out = NULL;
    if (result != NULL)
        *result = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

/* ---- memory ---- */

static cudaError_t take(void **out, size_t bytes)
{
    if (posix_memalign(out, ALIGNMENT, bytes > 0 ? bytes : 1) != 0)
        return end(cudaErrorMemoryAllocation);
    memset(*out, 0xFF, bytes); /* NaN to whoever reads what nobody wrote */
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return take(out, bytes);
}

EXPORT cudaError_t cudaFreeHost(void *base)
{
    free(base);
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostRegister(void *base, size_t bytes, unsigned flags)
{
    (void)base, (void)bytes, (void)flags;
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostUnregister(void *base)
{
    (void)base;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *props)
{
    (void)props;
    *out = malloc(1); /* a name */
    return *out != NULL ? cudaSuccess : end(cudaErrorMemoryAllocation);
}

EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    free(pool);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr which,
                                           void *value)
{
    (void)pool, (void)which, (void)value;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr which,
                                           void *value)
{
    (void)pool, (void)which;
    *(uint64_t *)value = 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes)
{
    (void)pool, (void)bytes;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool,
                                           cudaStream_t stream)
{
    (void)pool, (void)stream;
    return take(out, bytes);
}

EXPORT cudaError_t cudaFreeAsync(void *base, cudaStream_t stream)
{
    (void)stream;
    free(base);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                   enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind, (void)stream;
    memmove(to, from, bytes);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(to, value, bytes);
    return cudaSuccess;
}

/* ---- streams, events, graphs ---- */

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    *out = malloc(1); /* a name */
    return *out != NULL ? cudaSuccess : end(cudaErrorMemoryAllocation);
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    *out = malloc(1); /* a name */
    return *out != NULL ? cudaSuccess : end(cudaErrorMemoryAllocation);
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)event, (void)stream;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)stream, (void)mode;
    return end(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    (void)stream;
    *out = NULL;
    return end(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    (void)stream;
    *out = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                        unsigned long long flags)
{
    (void)graph, (void)flags;
    *out = NULL;
    return end(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    (void)graph, (void)stream;
    return end(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    (void)graph;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    (void)graph;
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function)
{
    (void)function;
    memset(out, 0, sizeof(*out));
    return cudaSuccess;
}

/* ---- what no kernel needs: libraries, clients' memory ---- */

#define NOT_HERE(name, parameters)                                                                 \
    EXPORT cudaError_t name parameters                                                             \
    {                                                                                              \
        return end(cudaErrorNotSupported);                                                         \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter"
NOT_HERE(cudaEventCreate, (cudaEvent_t * out))
NOT_HERE(cudaEventElapsedTime, (float *out_ms, cudaEvent_t from, cudaEvent_t to))
NOT_HERE(cudaLaunchKernel, (const void *function, dim3 blocks, dim3 threads, void **arguments,
                            size_t shared_bytes, cudaStream_t stream))
NOT_HERE(cudaLibraryLoadData,
         (cudaLibrary_t * out, const void *code, enum cudaJitOption *options, void **values,
          unsigned count, enum cudaLibraryOption *library_options, void **library_values,
          unsigned library_count))
NOT_HERE(cudaLibraryGetKernel, (cudaKernel_t * out, cudaLibrary_t library, const char *name))
NOT_HERE(cudaLibraryUnload, (cudaLibrary_t library))
NOT_HERE(cudaIpcOpenMemHandle, (void **out, cudaIpcMemHandle_t handle, unsigned flags))
NOT_HERE(cudaIpcCloseMemHandle, (void *at))
