/* cuMem virtual memory management: addresses, handles, mappings and access apart from each other,
 * with the rules of each call checked and said in words when one is broken. */
#include "vmm.h"

#include "capture.h"
#include "device.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { GRANULE = 2 << 20 };

struct reservation {
    uint64_t address;
    size_t bytes;
    struct reservation *next;
};

/* Physical memory: lives until it is released and nowhere mapped. */
struct handle {
    uint32_t magic;
    unsigned references; /* of the program */
    unsigned mappings;
    struct extent extent;
    CUmemAllocationProp properties;
    struct handle *next; /* all there ever were */
};

enum { HANDLE_MAGIC = 0x68616e64 };

static struct reservation *reservations; /* under sim.exec */
static struct handle *handles;

static CUresult refuse(const char *call, const char *why)
{
    finding("%s: %s", call, why);
    return CUDA_ERROR_INVALID_VALUE;
}

static void count(enum open_kind kind, int change)
{
    sim_lock();
    open_count(kind, change);
    sim_unlock();
}

static bool properties_ok(const CUmemAllocationProp *prop)
{
    return prop != NULL && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && device_is_known(prop->location.id);
}

CUresult sim_cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
                                           CUmemAllocationGranularity_flags option)
{
    BEGIN_CU(cuMemGetAllocationGranularity);
    (void)option;
    if (out == NULL || !properties_ok(prop))
        return refuse("cuMemGetAllocationGranularity", "properties name no memory of a device");
    *out = GRANULE;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr wish,
                                 unsigned long long flags)
{
    BEGIN_CU(cuMemAddressReserve);
    if (out == NULL || bytes == 0 || bytes % GRANULE != 0 || flags != 0 ||
        (align & (align - 1)) != 0)
        return refuse("cuMemAddressReserve",
                      "size is no multiple of 2 MiB, or alignment no power of 2");
    struct reservation *reservation = calloc(1, sizeof(*reservation));
    uint64_t address = 0;
    exec_lock();
    bool taken =
        reservation != NULL && space_take(bytes, align > GRANULE ? align : GRANULE, wish, &address);
    if (taken) {
        *reservation = (struct reservation){address, bytes, reservations};
        reservations = reservation;
    }
    exec_unlock();
    if (!taken) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    count(OPEN_RESERVATION, 1);
    *out = address;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    BEGIN_CU(cuMemAddressFree);
    const char *why = "the range is no whole reservation";
    exec_lock();
    for (struct reservation **at = &reservations; *at != NULL; at = &(*at)->next) {
        struct reservation *found = *at;
        if (found->address != address || found->bytes != bytes)
            continue;
        why = "memory is still mapped in the range";
        if (region_in(address, bytes) != NULL)
            break;
        *at = found->next;
        space_drop(address, bytes);
        free(found);
        why = NULL;
        break;
    }
    exec_unlock();
    if (why != NULL)
        return refuse("cuMemAddressFree", why);
    count(OPEN_RESERVATION, -1);
    return CUDA_SUCCESS;
}

static struct handle *handle_of(CUmemGenericAllocationHandle value)
{
    struct handle *handle = (struct handle *)(uintptr_t)value;

    return handle != NULL && handle->magic == HANDLE_MAGIC && handle->references > 0 ? handle
                                                                                     : NULL;
}

/* Under sim.exec. */
static void handle_settle(struct handle *handle)
{
    if (handle->references > 0 || handle->mappings > 0 || handle->magic != HANDLE_MAGIC)
        return;
    extent_free(&handle->extent);
    discharge(handle->extent.bytes);
    handle->magic = 0; /* kept: a later use of it is a finding, not a crash */
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
                         const CUmemAllocationProp *prop, unsigned long long flags)
{
    BEGIN_CU(cuMemCreate);
    if (out == NULL || !properties_ok(prop) || flags != 0)
        return refuse("cuMemCreate", "properties name no memory of a device");
    if (bytes == 0 || bytes % GRANULE != 0)
        return refuse("cuMemCreate", "size is no multiple of 2 MiB");
    if (!charge(bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct handle *handle = calloc(1, sizeof(*handle));
    if (handle == NULL) {
        discharge(bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec_lock();
    *handle = (struct handle){HANDLE_MAGIC, 1, 0, extent_make(bytes), *prop, handles};
    handles = handle;
    exec_unlock();
    count(OPEN_HANDLE, 1);
    *out = (uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemRelease(CUmemGenericAllocationHandle value)
{
    BEGIN_CU(cuMemRelease);
    exec_lock();
    struct handle *handle = handle_of(value);
    if (handle != NULL && --handle->references == 0) {
        count(OPEN_HANDLE, -1);
        handle_settle(handle);
    }
    exec_unlock();
    return handle != NULL ? CUDA_SUCCESS
                          : refuse("cuMemRelease", "no handle, or one released already");
}

static bool inside_reservation(uint64_t address, size_t bytes)
{
    for (const struct reservation *at = reservations; at != NULL; at = at->next)
        if (address >= at->address && address + bytes <= at->address + at->bytes)
            return true;
    return false;
}

static const char *map_refusal(uint64_t address, size_t bytes, size_t offset,
                               const struct handle *handle)
{
    if (handle == NULL)
        return "no handle, or one released already";
    if (offset != 0)
        return "offset is not 0";
    if (bytes == 0 || bytes % GRANULE != 0 || address % GRANULE != 0 ||
        bytes > handle->extent.bytes)
        return "range is no multiple of 2 MiB or larger than the handle";
    if (!inside_reservation(address, bytes))
        return "range lies in no reservation";
    if (region_in(address, bytes) != NULL)
        return "something is mapped there already";
    return NULL;
}

CUresult sim_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle value, unsigned long long flags)
{
    BEGIN_CU(cuMemMap);
    (void)flags;
    if (capture_forbids("cuMemMap") != cudaSuccess)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    exec_lock();
    struct handle *handle = handle_of(value);
    const char *why = map_refusal(address, bytes, offset, handle);
    struct region *region = why == NULL ? calloc(1, sizeof(*region)) : NULL;
    if (region != NULL) {
        *region = (struct region){
            .address = address, .bytes = bytes, .kind = REGION_MAPPING, .owner = handle};
        region_add(region);
        handle->mappings++;
        count(OPEN_MAPPING, 1);
    }
    exec_unlock();
    return why == NULL ? CUDA_SUCCESS : refuse("cuMemMap", why);
}

/* Whether whole mappings, and nothing else, fill the range. */
static bool whole_mappings(uint64_t address, size_t bytes)
{
    for (uint64_t at = address; at < address + bytes;) {
        const struct region *region = region_find(at);
        if (region == NULL || region->kind != REGION_MAPPING || region->address != at)
            return false;
        at += region->bytes;
        if (at > address + bytes)
            return false;
    }
    return true;
}

static void unmap(struct region *region)
{
    struct handle *handle = region->owner;

    region_remove(region);
    if (region->accessible)
        extent_unmap(region->address, region->bytes);
    handle->mappings--;
    handle_settle(handle);
    free(region);
    count(OPEN_MAPPING, -1);
}

CUresult sim_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    BEGIN_CU(cuMemUnmap);
    if (capture_forbids("cuMemUnmap") != cudaSuccess)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    exec_lock();
    bool whole = bytes != 0 && whole_mappings(address, bytes);
    while (whole) {
        struct region *region = region_in(address, bytes);
        if (region == NULL)
            break;
        unmap(region);
    }
    exec_unlock();
    return whole ? CUDA_SUCCESS : refuse("cuMemUnmap", "the range is not whole mappings");
}

static void open_access(struct region *region)
{
    const struct handle *handle = region->owner;

    extent_map(region->address, &handle->extent, region->bytes);
    region->accessible = true;
}

CUresult sim_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc,
                            size_t count_of)
{
    BEGIN_CU(cuMemSetAccess);
    if (desc == NULL || count_of != 1 || desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !device_is_known(desc->location.id))
        return refuse("cuMemSetAccess", "one description, of a device, is simulated");
    exec_lock();
    bool whole = bytes != 0 && whole_mappings(address, bytes);
    for (uint64_t at = address; whole && at < address + bytes;) {
        struct region *region = region_find(at);
        const struct handle *handle = region->owner;
        if (handle->properties.location.id != desc->location.id) {
            exec_unlock();
            return refuse("cuMemSetAccess", "memory of another device: peers are not simulated");
        }
        bool want = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (want && !region->accessible)
            open_access(region);
        if (!want && region->accessible) {
            extent_unmap(region->address, region->bytes);
            region->accessible = false;
        }
        at += region->bytes;
    }
    exec_unlock();
    return whole ? CUDA_SUCCESS : refuse("cuMemSetAccess", "the range is not whole mappings");
}

CUresult sim_cuMemGetAccess(unsigned long long *out, const CUmemLocation *location,
                            CUdeviceptr address)
{
    BEGIN_CU(cuMemGetAccess);
    exec_lock();
    const struct region *region = region_find(address);
    bool mapped = region != NULL && region->kind == REGION_MAPPING;
    bool access = mapped && region->accessible;
    exec_unlock();
    if (!mapped || location == NULL || out == NULL)
        return refuse("cuMemGetAccess", "the address is not mapped");
    *out = access ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
                                                    CUmemGenericAllocationHandle value)
{
    BEGIN_CU(cuMemGetAllocationPropertiesFromHandle);
    exec_lock();
    const struct handle *handle = handle_of(value);
    if (handle != NULL)
        *out = handle->properties;
    exec_unlock();
    return handle != NULL ? CUDA_SUCCESS
                          : refuse("cuMemGetAllocationPropertiesFromHandle", "no such handle");
}

CUresult sim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    BEGIN_CU(cuMemRetainAllocationHandle);
    exec_lock();
    const struct region *region = region_find((uintptr_t)address);
    struct handle *handle = region != NULL && region->kind == REGION_MAPPING ? region->owner : NULL;
    if (handle != NULL) {
        if (handle->references++ == 0)
            count(OPEN_HANDLE, 1);
        *out = (uintptr_t)handle;
    }
    exec_unlock();
    return handle != NULL ? CUDA_SUCCESS
                          : refuse("cuMemRetainAllocationHandle", "the address is not mapped");
}
