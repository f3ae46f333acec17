/* Copies and fills: checked when they are put, as the runtime does, and again when they run. */
#include "copy.h"

#include "capture.h"
#include "space.h"

#include <stdlib.h>
#include <string.h>

/* Where an address lies. */
static bool is_device(const void *pointer)
{
    exec_lock();
    const struct region *region = region_find((uintptr_t)pointer);
    bool device = region != NULL && region->kind != REGION_HOST;
    exec_unlock();
    return device || space_owns((uintptr_t)pointer);
}

/* What is wrong with the ends of a copy, or NULL. */
static const char *direction_fault(const struct copy_work *copy)
{
    bool to = is_device(copy->to);
    bool from = is_device(copy->from);

    switch (copy->kind) {
    case cudaMemcpyHostToHost:
        return to || from ? "memory of the device in a copy from host to host" : NULL;
    case cudaMemcpyHostToDevice:
        return !to ? "destination is not the device's" : from ? "source is the device's" : NULL;
    case cudaMemcpyDeviceToHost:
        return to ? "destination is the device's" : !from ? "source is not the device's" : NULL;
    case cudaMemcpyDeviceToDevice:
        return !to || !from ? "an end is not the device's" : NULL;
    case cudaMemcpyDefault:
        return NULL;
    }
    return "direction is none that exists";
}

/* Memory of the host that is not page-locked.  As CUDA has it, a copy from there has read it when
 * the call returns, and a copy to there has ended. */
static bool is_pageable(const void *pointer)
{
    exec_lock();
    bool known = region_find((uintptr_t)pointer) != NULL;
    exec_unlock();
    return !known && !space_owns((uintptr_t)pointer);
}

static bool stage(struct copy_work *copy)
{
    char *rows = malloc(copy->width * copy->height);

    if (rows == NULL)
        return false;
    for (size_t row = 0; row < copy->height; row++)
        memcpy(rows + row * copy->width, (const char *)copy->from + row * copy->from_pitch,
               copy->width);
    copy->from = copy->staged = rows;
    copy->from_pitch = copy->width;
    return true;
}

/* Whether memory that is mapped now ends before the range does. */
static bool overruns(const void *pointer, size_t bytes)
{
    struct span span;

    exec_lock();
    bool mapped = span_find((uintptr_t)pointer, &span);
    exec_unlock();
    return mapped && (uintptr_t)pointer + bytes > span.high;
}

static cudaError_t put_copy(const char *call, const struct copy_work *copy, cudaStream_t handle)
{
    struct CUstream_st *stream = stream_of(handle, call);

    if (stream == NULL)
        return cudaErrorInvalidResourceHandle;
    if (copy->width == 0 || copy->height == 0)
        return cudaSuccess;
    const char *fault = direction_fault(copy);
    if (fault != NULL) {
        finding("%s of %zu bytes from %p to %p: %s", call, copy->width * copy->height, copy->from,
                copy->to, fault);
        return cudaErrorInvalidValue;
    }
    size_t to_bytes = (copy->height - 1) * copy->to_pitch + copy->width;
    size_t from_bytes = (copy->height - 1) * copy->from_pitch + copy->width;
    if (overruns(copy->to, to_bytes) || overruns(copy->from, from_bytes)) {
        finding("%s of %zu bytes from %p to %p: more than there is", call, to_bytes, copy->from,
                copy->to);
        return cudaErrorInvalidValue;
    }
    if (copy->to_pitch < copy->width || copy->from_pitch < copy->width)
        return cudaErrorInvalidPitchValue;
    struct work work = {.kind = WORK_COPY};
    work.copy = *copy;
    bool staged = stream->capture == NULL && sim.mode != SIM_EAGER;
    if (staged && is_pageable(copy->from) && !stage(&work.copy))
        return cudaErrorMemoryAllocation;
    cudaError_t error = stream_put(stream, work);
    if (error == cudaSuccess && staged && is_pageable(copy->to))
        error = stream_wait(stream, stream->put);
    return error;
}

static cudaError_t put_set(const char *call, const struct set_work *set, cudaStream_t handle)
{
    struct CUstream_st *stream = stream_of(handle, call);

    if (stream == NULL)
        return cudaErrorInvalidResourceHandle;
    if (set->width == 0 || set->height == 0)
        return cudaSuccess;
    if (!is_device(set->to)) {
        finding("%s at %p: not memory of the device", call, set->to);
        return cudaErrorInvalidValue;
    }
    struct work work = {.kind = WORK_SET};
    work.set = *set;
    return stream_put(stream, work);
}

/* One end of a row: its bytes, and the span they are in.  False and the sticky error when not all
 * are there. */
static bool end_of(const char *what, const void *pointer, size_t bytes, struct span *out_span,
                   char **out_bytes)
{
    uint64_t address = (uintptr_t)pointer;

    *out_span = (struct span){0};
    *out_bytes = (char *)(uintptr_t)pointer;
    if (!span_find(address, out_span)) {
        if (!space_owns(address))
            return true; /* pageable memory of the host */
        finding("%s of %zu bytes at %p: no memory is mapped there", what, bytes, pointer);
        sim_stick(cudaErrorIllegalAddress);
        return false;
    }
    if (address + bytes > out_span->high) {
        finding("%s of %zu bytes at %p: only %zu are mapped", what, bytes, pointer,
                (size_t)(out_span->high - address));
        sim_stick(cudaErrorIllegalAddress);
        return false;
    }
    *out_bytes = (char *)(uintptr_t)(address + (uint64_t)out_span->to_host);
    return true;
}

static void copy_row(const struct copy_work *copy, size_t row)
{
    const char *to_address = (const char *)copy->to + row * copy->to_pitch;
    const char *from_address = (const char *)copy->from + row * copy->from_pitch;
    struct span to_span;
    struct span from_span;
    char *to;
    char *from;

    if (!end_of("copy to", to_address, copy->width, &to_span, &to) ||
        !end_of("copy from", from_address, copy->width, &from_span, &from))
        return;
    memmove(to, from, copy->width);
    if (to_span.shadow != NULL) {
        shadow_copy(&to_span, (uintptr_t)to_address, &from_span, (uintptr_t)from_address,
                    copy->width);
    } else if (from_span.shadow != NULL && sim.check_copies) {
        uint64_t undefined;
        if (!shadow_all_set(&from_span, (uintptr_t)from_address, copy->width, &undefined))
            finding("copy to the host of %zu bytes at %p: the byte at +%zu was never written",
                    copy->width, (const void *)from_address,
                    (size_t)(undefined - (uintptr_t)from_address));
    }
}

void copy_run(const struct copy_work *copy)
{
    for (size_t row = 0; row < copy->height && sim.sticky == cudaSuccess; row++)
        copy_row(copy, row);
}

void set_run(const struct set_work *set)
{
    size_t bytes = set->width * set->element;

    for (size_t row = 0; row < set->height && sim.sticky == cudaSuccess; row++) {
        const char *address = (const char *)set->to + row * set->pitch;
        struct span span;
        char *to;
        if (!end_of("fill", address, bytes, &span, &to))
            return;
        for (size_t i = 0; i < set->width && set->element > 1; i++)
            memcpy(to + i * set->element, &set->value, set->element);
        if (set->element == 1)
            memset(to, (int)set->value, bytes);
        if (span.shadow != NULL)
            shadow_set(&span, (uintptr_t)address, bytes);
    }
}

void *sim_view(const void *address, size_t bytes, bool write)
{
    struct span span;
    char *at;
    uint64_t undefined;

    if (!end_of(write ? "write" : "read", address, bytes, &span, &at))
        return NULL;
    if (span.shadow == NULL)
        return at;
    if (write)
        shadow_set(&span, (uintptr_t)address, bytes);
    else if (!shadow_all_set(&span, (uintptr_t)address, bytes, &undefined))
        finding("read of %zu bytes at %p: the byte at +%zu was never written", bytes, address,
                (size_t)(undefined - (uintptr_t)address));
    return at;
}

static struct copy_work flat(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return (struct copy_work){to, from, bytes, bytes, bytes, 1, kind, NULL};
}

SIM_EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                       enum cudaMemcpyKind kind, cudaStream_t stream)
{
    BEGIN(cudaMemcpyAsync);
    struct copy_work copy = flat(to, from, bytes, kind);
    return api_end(put_copy("cudaMemcpyAsync", &copy, stream));
}

SIM_EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                                         size_t from_pitch, size_t width, size_t height,
                                         enum cudaMemcpyKind kind, cudaStream_t stream)
{
    BEGIN(cudaMemcpy2DAsync);
    struct copy_work copy = {to, from, to_pitch, from_pitch, width, height, kind, NULL};
    return api_end(put_copy("cudaMemcpy2DAsync", &copy, stream));
}

/* The calls that wait use the default stream. */
static cudaError_t then_wait(cudaError_t error)
{
    struct CUstream_st *stream = stream_default();

    return error != cudaSuccess ? error : stream_wait(stream, stream->put);
}

SIM_EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                                  enum cudaMemcpyKind kind)
{
    BEGIN(cudaMemcpy);
    cudaError_t error = capture_forbids("cudaMemcpy");
    struct copy_work copy = flat(to, from, bytes, kind);
    if (error == cudaSuccess)
        error = then_wait(put_copy("cudaMemcpy", &copy, NULL));
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                    size_t width, size_t height, enum cudaMemcpyKind kind)
{
    BEGIN(cudaMemcpy2D);
    cudaError_t error = capture_forbids("cudaMemcpy2D");
    struct copy_work copy = {to, from, to_pitch, from_pitch, width, height, kind, NULL};
    if (error == cudaSuccess)
        error = then_wait(put_copy("cudaMemcpy2D", &copy, NULL));
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    BEGIN(cudaMemsetAsync);
    struct set_work set = {to, bytes, bytes, 1, (unsigned)value & 0xFF, 1};
    return api_end(put_set("cudaMemsetAsync", &set, stream));
}

SIM_EXPORT cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width,
                                         size_t height, cudaStream_t stream)
{
    BEGIN(cudaMemset2DAsync);
    struct set_work set = {to, pitch, width, height, (unsigned)value & 0xFF, 1};
    return api_end(put_set("cudaMemset2DAsync", &set, stream));
}

SIM_EXPORT cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    BEGIN(cudaMemset);
    cudaError_t error = capture_forbids("cudaMemset");
    struct set_work set = {to, bytes, bytes, 1, (unsigned)value & 0xFF, 1};
    if (error == cudaSuccess)
        error = then_wait(put_set("cudaMemset", &set, NULL));
    return api_end(error);
}

CUresult sim_cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    BEGIN_CU(cuMemsetD32Async);
    struct set_work set = {(void *)(uintptr_t)to, count * 4, count, 1, value, 4};
    return (CUresult)put_set("cuMemsetD32Async", &set, stream);
}
