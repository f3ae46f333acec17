/* Ranges of addresses, handles of memory.
 *
 *   range     ├─h─┤├─h─┤├─h─┤                                 ┤   one slot a page, 0: nothing there
 *   kept      h h h                                                 unmapped, ours
 *
 * A handle is a page of physical memory; it is created once and then mapped wherever memory is
 * wanted.  decommit() keeps handles, because what one lane gives back another wants next; trim()
 * releases them, and only then the device has the bytes again.  Handles are created only when none
 * is kept, so what is held never passes the most that was ever committed at once.
 *
 * Whoever decommits has waited for the work on those pages (a lane's arena gives back only what no
 * running batch uses; weights go when no plan is left): no handle is unmapped under a kernel.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/list.h"
#include "device/cuda/cuda.h"
#include "device/cuda/dmem.h"
#include "device/cuda/driver.h"
#include "device/cuda/source_internal.h"

struct range {
    struct range *next;
    CUdeviceptr base;
    size_t bytes;
    CUmemGenericAllocationHandle handles[]; /* by page; 0: none */
};

struct vmm {
    struct cuda_source common;
    struct cuda_driver driver;
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    pthread_mutex_t lock; /* guards what follows; held across driver calls, none of which waits */
    struct range *ranges;
    CUmemGenericAllocationHandle *kept;
    size_t kept_count, kept_room;
    size_t held_count; /* handles in all */
    uint64_t created_total;
};

static struct vmm *vmm_of(struct mem_source *source)
{
    return CONTAINER_OF(cuda_source_of(source), struct vmm, common);
}

static size_t page_of(const struct vmm *vmm)
{
    return vmm->common.source.page_bytes;
}

/* ---- handles; lock held ---- */

/* Room to keep every handle there is, so that giving one back cannot fail. */
static enum status grow_kept(struct vmm *vmm, size_t handles)
{
    CUmemGenericAllocationHandle *grown;
    size_t room = vmm->kept_room > 0 ? vmm->kept_room : 64;

    if (handles <= vmm->kept_room)
        return STATUS_OK;
    while (room < handles)
        room *= 2;
    grown = realloc(vmm->kept, room * sizeof(*grown));
    if (grown == NULL)
        return STATUS_NO_MEMORY;
    vmm->kept = grown;
    vmm->kept_room = room;
    return STATUS_OK;
}

static enum status take_handle(struct vmm *vmm, CUmemGenericAllocationHandle *out_handle)
{
    if (vmm->kept_count > 0) {
        *out_handle = vmm->kept[--vmm->kept_count];
        return STATUS_OK;
    }
    TRY(grow_kept(vmm, vmm->held_count + 1));
    CU_TRY(cuda_driver_error(vmm->driver.mem_create(out_handle, page_of(vmm), &vmm->prop, 0)));
    vmm->held_count++;
    vmm->created_total++;
    return STATUS_OK;
}

static void keep_handle(struct vmm *vmm, CUmemGenericAllocationHandle handle)
{
    vmm->kept[vmm->kept_count++] = handle;
}

static uint64_t release_kept(struct vmm *vmm, uint64_t keep_bytes)
{
    uint64_t freed = 0;

    while (vmm->kept_count * page_of(vmm) > keep_bytes) {
        (void)vmm->driver.mem_release(vmm->kept[--vmm->kept_count]);
        vmm->held_count--;
        freed += page_of(vmm);
    }
    return freed;
}

/* ---- ranges; lock held ---- */

static struct range *find_range(struct vmm *vmm, const void *at)
{
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)at;
    struct range *range = vmm->ranges;

    while (range != NULL && (address < range->base || address >= range->base + range->bytes))
        range = range->next;
    return range;
}

static void unmap(struct vmm *vmm, struct range *range, size_t from, size_t to)
{
    for (size_t page = from; page < to; page++) {
        if (range->handles[page] == 0)
            continue;
        (void)vmm->driver.mem_unmap(range->base + page * page_of(vmm), page_of(vmm));
        keep_handle(vmm, range->handles[page]);
        range->handles[page] = 0;
    }
}

static enum status map_page(struct vmm *vmm, struct range *range, size_t page)
{
    CUmemGenericAllocationHandle handle;
    enum status status;

    TRY(take_handle(vmm, &handle));
    status = cuda_status(cuda_driver_error(
        vmm->driver.mem_map(range->base + page * page_of(vmm), page_of(vmm), 0, handle, 0)));
    if (status != STATUS_OK) {
        keep_handle(vmm, handle);
        return status;
    }
    range->handles[page] = handle;
    return STATUS_OK;
}

static enum status map(struct vmm *vmm, struct range *range, size_t from, size_t to)
{
    enum status status = STATUS_OK;
    size_t page = from;

    for (; page < to && status == STATUS_OK; page++)
        status = map_page(vmm, range, page);
    if (status == STATUS_OK)
        status = cuda_status(cuda_driver_error(vmm->driver.mem_set_access(
            range->base + from * page_of(vmm), (to - from) * page_of(vmm), &vmm->access, 1)));
    if (status != STATUS_OK)
        unmap(vmm, range, from, page);
    return status;
}

/* ---- the source ---- */

static enum status reserve(struct mem_source *source, size_t bytes, void **out_base)
{
    struct vmm *vmm = vmm_of(source);
    size_t pages = bytes / page_of(vmm);
    struct range *range;
    enum status status;

    if (bytes == 0 || bytes % page_of(vmm) != 0)
        return STATUS_INVALID;
    range = calloc(1, sizeof(*range) + pages * sizeof(range->handles[0]));
    if (range == NULL)
        return STATUS_NO_MEMORY;
    cuda_source_enter(&vmm->common);
    status = cuda_status(cuda_driver_error(
        vmm->driver.mem_address_reserve(&range->base, bytes, page_of(vmm), 0, 0)));
    if (status != STATUS_OK) {
        free(range);
        return STATUS_NO_MEMORY;
    }
    range->bytes = bytes;
    pthread_mutex_lock(&vmm->lock);
    range->next = vmm->ranges;
    vmm->ranges = range;
    pthread_mutex_unlock(&vmm->lock);
    *out_base = (void *)(uintptr_t)range->base;
    return STATUS_OK;
}

static void release(struct mem_source *source, void *base, size_t bytes)
{
    struct vmm *vmm = vmm_of(source);
    struct range **link, *range;

    (void)bytes;
    cuda_source_enter(&vmm->common);
    pthread_mutex_lock(&vmm->lock);
    link = &vmm->ranges;
    while (*link != NULL && (*link)->base != (CUdeviceptr)(uintptr_t)base)
        link = &(*link)->next;
    range = *link;
    if (range != NULL) {
        *link = range->next;
        unmap(vmm, range, 0, range->bytes / page_of(vmm));
        (void)vmm->driver.mem_address_free(range->base, range->bytes);
    }
    pthread_mutex_unlock(&vmm->lock);
    free(range);
}

static enum status commit(struct mem_source *source, void *base, size_t bytes)
{
    struct vmm *vmm = vmm_of(source);
    enum status status = STATUS_INVALID;
    struct range *range;

    if (bytes == 0)
        return STATUS_OK;
    cuda_source_enter(&vmm->common);
    pthread_mutex_lock(&vmm->lock);
    range = find_range(vmm, base);
    if (range != NULL) {
        size_t from = ((CUdeviceptr)(uintptr_t)base - range->base) / page_of(vmm);

        status = map(vmm, range, from, from + bytes / page_of(vmm));
    }
    pthread_mutex_unlock(&vmm->lock);
    return status;
}

static void decommit(struct mem_source *source, void *base, size_t bytes)
{
    struct vmm *vmm = vmm_of(source);
    struct range *range;

    cuda_source_enter(&vmm->common);
    pthread_mutex_lock(&vmm->lock);
    range = find_range(vmm, base);
    if (range != NULL) {
        size_t from = ((CUdeviceptr)(uintptr_t)base - range->base) / page_of(vmm);

        unmap(vmm, range, from, from + bytes / page_of(vmm));
    }
    pthread_mutex_unlock(&vmm->lock);
}

static uint64_t trim(struct mem_source *source, uint64_t keep_bytes)
{
    struct vmm *vmm = vmm_of(source);
    uint64_t freed;

    cuda_source_enter(&vmm->common);
    pthread_mutex_lock(&vmm->lock);
    freed = release_kept(vmm, keep_bytes);
    pthread_mutex_unlock(&vmm->lock);
    return freed;
}

static const struct mem_source_ops ops = {.reserve = reserve,
                                          .release = release,
                                          .commit = commit,
                                          .decommit = decommit,
                                          .query = cuda_source_query,
                                          .write = cuda_source_write,
                                          .read = cuda_source_fetch,
                                          .trim = trim};

/* ---- its life ---- */

static void vmm_destroy(struct cuda_source *common)
{
    struct vmm *vmm = CONTAINER_OF(common, struct vmm, common);

    (void)release_kept(vmm, 0);
    pthread_mutex_destroy(&vmm->lock);
    free(vmm->kept);
    free(vmm);
}

static void vmm_read(struct cuda_source *common, struct cuda_source_facts *out_facts)
{
    struct vmm *vmm = CONTAINER_OF(common, struct vmm, common);

    pthread_mutex_lock(&vmm->lock);
    *out_facts = (struct cuda_source_facts){.is_vmm = true,
                                            .held_bytes = vmm->held_count * page_of(vmm),
                                            .kept_bytes = vmm->kept_count * page_of(vmm),
                                            .created_total = vmm->created_total};
    pthread_mutex_unlock(&vmm->lock);
}

static enum status describe_memory(struct vmm *vmm, int ordinal, struct error *err)
{
    size_t page = 0;
    CUresult result;

    vmm->prop =
        (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}};
    vmm->access = (CUmemAccessDesc){.location = vmm->prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = vmm->driver.mem_granularity(&page, &vmm->prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS || page == 0)
        return cuda_error(err, cuda_driver_error(result), "the size of a page of device memory");
    vmm->common.source = (struct mem_source){.ops = &ops, .page_bytes = page};
    return STATUS_OK;
}

enum status vmm_create(int ordinal, struct cuda_source **out_source, struct error *err)
{
    struct vmm *vmm = calloc(1, sizeof(*vmm));
    enum status status;

    if (vmm == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    pthread_mutex_init(&vmm->lock, NULL);
    vmm->common.destroy = vmm_destroy;
    vmm->common.read = vmm_read;
    status = cuda_driver_find(ordinal, &vmm->driver, err);
    if (status == STATUS_OK)
        status = describe_memory(vmm, ordinal, err);
    if (status != STATUS_OK) {
        vmm_destroy(&vmm->common);
        return status;
    }
    *out_source = &vmm->common;
    return STATUS_OK;
}
