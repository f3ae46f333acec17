/* Pools: cudaMallocAsync gives memory at once, cudaFreeAsync takes it when its stream is there;
 * what is free stays reserved up to the pool's threshold, and above it until the next wait. */
#include "pool.h"

#include "capture.h"
#include "device.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

struct CUmemPoolHandle_st {
    uint32_t magic;
    size_t used;
    size_t used_high;
    size_t reserved;
    size_t reserved_high;
    uint64_t threshold;
    struct CUmemPoolHandle_st *next;
};

enum { POOL_MAGIC = 0x706f6f6c, POOL_BLOCK = 32 << 20 };

static struct CUmemPoolHandle_st first = {.magic = POOL_MAGIC};
static struct CUmemPoolHandle_st *pools = &first; /* under sim.exec */
static struct CUmemPoolHandle_st *current = &first;

static size_t pool_bytes(size_t bytes)
{
    return (bytes + 511) / 512 * 512;
}

/* Reserves enough for `bytes` more in use.  Under sim.exec. */
static bool pool_take(struct CUmemPoolHandle_st *pool, size_t bytes)
{
    size_t need = pool->used + bytes;

    if (need > pool->reserved) {
        size_t more = (need - pool->reserved + POOL_BLOCK - 1) / POOL_BLOCK * POOL_BLOCK;
        if (!charge(more)) {
            more = need - pool->reserved;
            if (!charge(more))
                return false;
        }
        pool->reserved += more;
    }
    pool->used = need;
    pool->used_high = need > pool->used_high ? need : pool->used_high;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return true;
}

static void pool_trim(struct CUmemPoolHandle_st *pool, size_t keep)
{
    size_t floor = pool->used > keep ? pool->used : keep;

    if (pool->reserved > floor) {
        discharge(pool->reserved - floor);
        pool->reserved = floor;
    }
}

void pools_settle(void)
{
    exec_lock();
    for (struct CUmemPoolHandle_st *pool = pools; pool != NULL; pool = pool->next)
        pool_trim(pool, pool->threshold);
    exec_unlock();
}

void pool_free_run(struct region *region)
{
    struct CUmemPoolHandle_st *pool = region->owner;

    pool->used -= pool_bytes(region->bytes);
    region_free(region);
    sim_lock();
    open_count(OPEN_ALLOCATION, -1);
    sim_unlock();
}

static struct CUmemPoolHandle_st *pool_of(cudaMemPool_t pool, const char *call)
{
    if (pool != NULL && pool->magic == POOL_MAGIC)
        return pool;
    finding("%s: %p is no pool", call, (void *)pool);
    return NULL;
}

static cudaError_t take_async(void **out, size_t bytes, struct CUmemPoolHandle_st *pool,
                              cudaStream_t handle, const char *call)
{
    const struct CUstream_st *stream = stream_of(handle, call);

    if (stream == NULL || pool == NULL || out == NULL)
        return cudaErrorInvalidValue;
    *out = NULL;
    if (stream->capture != NULL)
        return capture_break(stream->capture, call); /* allocation nodes are not simulated */
    if (bytes == 0)
        return cudaSuccess;
    exec_lock();
    struct region *region =
        pool_take(pool, pool_bytes(bytes)) ? region_make(bytes, REGION_POOL) : NULL;
    if (region != NULL)
        region->owner = pool;
    exec_unlock();
    if (region == NULL)
        return cudaErrorMemoryAllocation;
    sim_lock();
    open_count(OPEN_ALLOCATION, 1);
    sim_unlock();
    *out = (void *)(uintptr_t)region->address;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
    BEGIN(cudaMallocAsync);
    return api_end(take_async(out, bytes, current, stream, "cudaMallocAsync"));
}

SIM_EXPORT cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t handle,
                                               cudaStream_t stream)
{
    BEGIN(cudaMallocFromPoolAsync);
    struct CUmemPoolHandle_st *pool = pool_of(handle, "cudaMallocFromPoolAsync");
    return api_end(take_async(out, bytes, pool, stream, "cudaMallocFromPoolAsync"));
}

SIM_EXPORT cudaError_t cudaFreeAsync(void *pointer, cudaStream_t handle)
{
    BEGIN(cudaFreeAsync);
    struct CUstream_st *stream = stream_of(handle, "cudaFreeAsync");
    if (stream == NULL)
        return api_end(cudaErrorInvalidResourceHandle);
    if (stream->capture != NULL)
        return api_end(capture_break(stream->capture, "cudaFreeAsync"));
    exec_lock();
    struct region *region = region_find((uintptr_t)pointer);
    bool ours = region != NULL && region->kind == REGION_POOL &&
                region->address == (uintptr_t)pointer && region->flags == 0;
    if (ours)
        region->flags = 1; /* a second free of it is found out */
    exec_unlock();
    if (!ours) {
        finding("cudaFreeAsync of %p, which no pool gave or which is free already", pointer);
        return api_end(cudaErrorInvalidValue);
    }
    struct work work = {.kind = WORK_FREE};
    work.freed = region;
    return api_end(stream_put(stream, work));
}

SIM_EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *props)
{
    BEGIN(cudaMemPoolCreate);
    if (out == NULL || props == NULL || props->allocType != cudaMemAllocationTypePinned ||
        props->location.type != cudaMemLocationTypeDevice || !device_is_known(props->location.id))
        return api_end(cudaErrorInvalidValue);
    struct CUmemPoolHandle_st *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return api_end(cudaErrorMemoryAllocation);
    pool->magic = POOL_MAGIC;
    exec_lock();
    pool->next = pools;
    pools = pool;
    exec_unlock();
    sim_lock();
    open_count(OPEN_POOL, 1);
    sim_unlock();
    *out = pool;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle)
{
    BEGIN(cudaMemPoolDestroy);
    struct CUmemPoolHandle_st *pool = pool_of(handle, "cudaMemPoolDestroy");
    if (pool == NULL || pool == &first)
        return api_end(cudaErrorInvalidValue);
    exec_lock();
    bool leaks = pool->used != 0;
    pool->magic = 0; /* stays in the list: memory may come back to it */
    pool->threshold = 0;
    pool_trim(pool, 0);
    exec_unlock();
    if (leaks)
        finding("cudaMemPoolDestroy: %zu bytes of the pool are not free", pool->used);
    sim_lock();
    open_count(OPEN_POOL, -1);
    sim_unlock();
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t keep)
{
    BEGIN(cudaMemPoolTrimTo);
    struct CUmemPoolHandle_st *pool = pool_of(handle, "cudaMemPoolTrimTo");
    if (pool == NULL)
        return api_end(cudaErrorInvalidValue);
    exec_lock();
    pool_trim(pool, keep);
    exec_unlock();
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attr,
                                               void *value)
{
    BEGIN(cudaMemPoolSetAttribute);
    struct CUmemPoolHandle_st *pool = pool_of(handle, "cudaMemPoolSetAttribute");
    if (pool == NULL)
        return api_end(cudaErrorInvalidValue);
    exec_lock();
    if (attr == cudaMemPoolAttrReleaseThreshold)
        memcpy(&pool->threshold, value, sizeof(pool->threshold));
    else if (attr == cudaMemPoolAttrReservedMemHigh)
        pool->reserved_high = pool->reserved;
    else if (attr == cudaMemPoolAttrUsedMemHigh)
        pool->used_high = pool->used;
    exec_unlock();
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, enum cudaMemPoolAttr attr,
                                               void *value)
{
    BEGIN(cudaMemPoolGetAttribute);
    struct CUmemPoolHandle_st *pool = pool_of(handle, "cudaMemPoolGetAttribute");
    uint64_t wide = 0;
    int narrow = 1;
    if (pool == NULL)
        return api_end(cudaErrorInvalidValue);
    exec_lock();
    switch (attr) {
    case cudaMemPoolAttrReleaseThreshold:
        wide = pool->threshold;
        break;
    case cudaMemPoolAttrReservedMemCurrent:
        wide = pool->reserved;
        break;
    case cudaMemPoolAttrReservedMemHigh:
        wide = pool->reserved_high;
        break;
    case cudaMemPoolAttrUsedMemCurrent:
        wide = pool->used;
        break;
    case cudaMemPoolAttrUsedMemHigh:
        wide = pool->used_high;
        break;
    default: /* the switches of reuse: on */
        memcpy(value, &narrow, sizeof(narrow));
        exec_unlock();
        return cudaSuccess;
    }
    memcpy(value, &wide, sizeof(wide));
    exec_unlock();
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle,
                                            const struct cudaMemAccessDesc *list, size_t count)
{
    BEGIN(cudaMemPoolSetAccess);
    if (pool_of(handle, "cudaMemPoolSetAccess") == NULL || (list == NULL && count != 0))
        return api_end(cudaErrorInvalidValue);
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device)
{
    BEGIN(cudaDeviceGetDefaultMemPool);
    if (!device_is_known(device))
        return api_end(cudaErrorInvalidDevice);
    *out = &first;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *out, int device)
{
    BEGIN(cudaDeviceGetMemPool);
    if (!device_is_known(device))
        return api_end(cudaErrorInvalidDevice);
    *out = current;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t handle)
{
    BEGIN(cudaDeviceSetMemPool);
    struct CUmemPoolHandle_st *pool = pool_of(handle, "cudaDeviceSetMemPool");
    if (!device_is_known(device) || pool == NULL)
        return api_end(cudaErrorInvalidDevice);
    current = pool;
    return cudaSuccess;
}
