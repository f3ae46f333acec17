/* cudaMalloc, page-locked host memory, and what pointers are. */
#include "memory.h"

#include "capture.h"
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t process_total(void)
{
    size_t limit = sim.process_limit_bytes;

    return limit != 0 && limit < sim.total_bytes ? limit : sim.total_bytes;
}

/* What others hold: set by the test, or written by it into a file while the program runs. */
static size_t others_bytes(void)
{
    const char *path = getenv("SLUICE_SIM_OTHERS_FILE");
    FILE *file = path != NULL ? fopen(path, "r") : NULL;
    size_t bytes = sim.others_bytes;

    if (file == NULL)
        return bytes;
    if (fscanf(file, "%zu", &bytes) != 1)
        bytes = sim.others_bytes;
    fclose(file);
    return bytes;
}

/* Under sim.lock. */
static size_t free_bytes(void)
{
    size_t device_taken = others_bytes() + sim.context_bytes + sim.used_bytes;
    size_t ours = sim.context_bytes + sim.used_bytes;
    size_t device = device_taken < sim.total_bytes ? sim.total_bytes - device_taken : 0;
    size_t process = ours < process_total() ? process_total() - ours : 0;

    return device < process ? device : process;
}

bool charge(size_t bytes)
{
    sim_lock();
    bool fits = bytes <= free_bytes();
    if (fits) {
        sim.used_bytes += bytes;
        if (sim.used_bytes > sim.peak_bytes)
            sim.peak_bytes = sim.used_bytes;
    }
    sim_unlock();
    return fits;
}

void discharge(size_t bytes)
{
    sim_lock();
    sim.used_bytes -= bytes;
    sim_unlock();
}

void memory_info(size_t *out_free, size_t *out_total)
{
    sim_lock();
    *out_free = free_bytes();
    *out_total = process_total();
    sim_unlock();
}

size_t charge_of(size_t bytes)
{
    const size_t block = bytes >= (1 << 20) ? 2 << 20 : 512;

    return (bytes + block - 1) / block * block;
}

static void count(enum open_kind kind, int change)
{
    sim_lock();
    open_count(kind, change);
    sim_unlock();
}

SIM_EXPORT cudaError_t cudaMemGetInfo(size_t *out_free, size_t *out_total)
{
    BEGIN(cudaMemGetInfo);
    memory_info(out_free, out_total);
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaMalloc(void **out, size_t bytes)
{
    BEGIN(cudaMalloc);
    cudaError_t error = capture_forbids("cudaMalloc");
    if (error != cudaSuccess)
        return api_end(error);
    if (out == NULL)
        return api_end(cudaErrorInvalidValue);
    *out = NULL;
    if (bytes == 0)
        return cudaSuccess;
    if (!charge(charge_of(bytes)))
        return api_end(cudaErrorMemoryAllocation);
    exec_lock();
    struct region *region = region_make(bytes, REGION_DEVICE);
    exec_unlock();
    if (region == NULL) {
        discharge(charge_of(bytes));
        return api_end(cudaErrorMemoryAllocation);
    }
    count(OPEN_ALLOCATION, 1);
    *out = (void *)(uintptr_t)region->address;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaFree(void *pointer)
{
    BEGIN(cudaFree);
    cudaError_t error = capture_forbids("cudaFree");
    if (error != cudaSuccess)
        return api_end(error);
    if (pointer == NULL)
        return cudaSuccess;
    streams_run_all(); /* cudaFree waits for the device */
    exec_lock();
    struct region *region = region_find((uintptr_t)pointer);
    bool starts = region != NULL && region->address == (uintptr_t)pointer;
    bool pooled = starts && region->kind == REGION_POOL;
    bool found = starts && region->kind == REGION_DEVICE;
    if (found) {
        discharge(charge_of(region->bytes));
        region_free(region);
        count(OPEN_ALLOCATION, -1);
    }
    exec_unlock();
    if (pooled)
        return api_end(cudaFreeAsync(pointer, NULL));
    if (!found) {
        finding("cudaFree of %p, which no cudaMalloc returned or which is free already", pointer);
        return api_end(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

/* Page-locked memory: a page that is nobody's stands behind it. */
static cudaError_t host_make(void **out, size_t bytes, unsigned flags)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole = (bytes + page - 1) & ~(page - 1);
    struct region *region = calloc(1, sizeof(*region));

    *out = NULL;
    if (bytes == 0) {
        free(region);
        return cudaSuccess;
    }
    char *at = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == NULL || at == MAP_FAILED) {
        free(region);
        return cudaErrorMemoryAllocation;
    }
    mprotect(at + whole, page, PROT_NONE);
    memset(at, 0xFF, whole);
    *region = (struct region){.address = (uintptr_t)at,
                              .bytes = bytes,
                              .span = whole + page,
                              .kind = REGION_HOST,
                              .accessible = true,
                              .flags = flags};
    exec_lock();
    region_add(region);
    exec_unlock();
    count(OPEN_HOST_ALLOCATION, 1);
    *out = at;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    BEGIN(cudaHostAlloc);
    const unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    cudaError_t error = capture_forbids("cudaHostAlloc");
    if (error != cudaSuccess)
        return api_end(error);
    if (out == NULL || (flags & ~known) != 0)
        return api_end(cudaErrorInvalidValue);
    return api_end(host_make(out, bytes, flags));
}

SIM_EXPORT cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    BEGIN(cudaMallocHost);
    cudaError_t error = capture_forbids("cudaMallocHost");
    if (error != cudaSuccess)
        return api_end(error);
    if (out == NULL)
        return api_end(cudaErrorInvalidValue);
    return api_end(host_make(out, bytes, 0));
}

static struct region *host_region(const void *pointer, bool registered)
{
    struct region *region = region_find((uintptr_t)pointer);

    if (region == NULL || region->kind != REGION_HOST || region->address != (uintptr_t)pointer ||
        (region->span == 0) != registered)
        return NULL;
    return region;
}

SIM_EXPORT cudaError_t cudaFreeHost(void *pointer)
{
    BEGIN(cudaFreeHost);
    cudaError_t error = capture_forbids("cudaFreeHost");
    if (error != cudaSuccess)
        return api_end(error);
    if (pointer == NULL)
        return cudaSuccess;
    streams_run_all();
    exec_lock();
    struct region *region = host_region(pointer, false);
    if (region != NULL) {
        region_remove(region);
        munmap(pointer, region->span);
        free(region);
    }
    exec_unlock();
    if (region == NULL) {
        finding("cudaFreeHost of %p, which no cudaHostAlloc returned or which is free already",
                pointer);
        return api_end(cudaErrorInvalidValue);
    }
    count(OPEN_HOST_ALLOCATION, -1);
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    BEGIN(cudaHostRegister);
    if (pointer == NULL || bytes == 0)
        return api_end(cudaErrorInvalidValue);
    exec_lock();
    struct region *other = region_in((uintptr_t)pointer, bytes);
    struct region *region = other == NULL ? calloc(1, sizeof(*region)) : NULL;
    if (region != NULL) {
        *region = (struct region){.address = (uintptr_t)pointer,
                                  .bytes = bytes,
                                  .kind = REGION_HOST,
                                  .accessible = true,
                                  .flags = flags};
        region_add(region);
    }
    exec_unlock();
    if (other != NULL)
        return api_end(cudaErrorHostMemoryAlreadyRegistered);
    count(OPEN_HOST_ALLOCATION, 1);
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaHostUnregister(void *pointer)
{
    BEGIN(cudaHostUnregister);
    streams_run_all();
    exec_lock();
    struct region *region = host_region(pointer, true);
    if (region != NULL) {
        region_remove(region);
        free(region);
    }
    exec_unlock();
    if (region == NULL)
        return api_end(cudaErrorHostMemoryNotRegistered);
    count(OPEN_HOST_ALLOCATION, -1);
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaHostGetDevicePointer(void **out, void *pointer, unsigned flags)
{
    BEGIN(cudaHostGetDevicePointer);
    exec_lock();
    const struct region *region = region_find((uintptr_t)pointer);
    bool host = region != NULL && region->kind == REGION_HOST;
    exec_unlock();
    if (!host || flags != 0)
        return api_end(cudaErrorInvalidValue);
    *out = pointer;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaHostGetFlags(unsigned *out, void *pointer)
{
    BEGIN(cudaHostGetFlags);
    exec_lock();
    const struct region *region = region_find((uintptr_t)pointer);
    bool host = region != NULL && region->kind == REGION_HOST;
    if (host)
        *out = region->flags;
    exec_unlock();
    return api_end(host ? cudaSuccess : cudaErrorInvalidValue);
}

SIM_EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out,
                                                const void *pointer)
{
    BEGIN(cudaPointerGetAttributes);
    exec_lock();
    const struct region *region = region_find((uintptr_t)pointer);
    memset(out, 0, sizeof(*out));
    out->device = region != NULL ? 0 : cudaInvalidDeviceId;
    out->type = cudaMemoryTypeUnregistered;
    if (region != NULL && region->kind == REGION_HOST) {
        out->type = cudaMemoryTypeHost;
        out->hostPointer = (void *)(uintptr_t)pointer;
        out->devicePointer = out->hostPointer;
    } else if (region != NULL) {
        out->type = cudaMemoryTypeDevice;
        out->devicePointer = (void *)(uintptr_t)pointer;
    }
    exec_unlock();
    return cudaSuccess;
}
