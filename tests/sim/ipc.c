/* Memory of other processes: cudaIpcGetMemHandle names this process and the extent in its files,
 * and cudaIpcOpenMemHandle maps the same bytes. */
#include "core.h"
#include "space.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ipc_name {
    uint32_t magic;
    int32_t process;
    int32_t data_fd;
    int32_t shadow_fd;
    uint64_t offset;
    uint64_t bytes;
};

enum { IPC_MAGIC = 0x69706373 };

SIM_EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *pointer)
{
    BEGIN(cudaIpcGetMemHandle);
    struct ipc_name name = {.magic = IPC_MAGIC, .process = getpid()};
    _Static_assert(sizeof(name) <= sizeof(*out), "the name fits the handle");
    exec_lock();
    const struct region *region = region_find((uintptr_t)pointer);
    bool ours = region != NULL && region->kind == REGION_DEVICE;
    if (ours) {
        extent_files(&name.data_fd, &name.shadow_fd);
        name.offset = region->extent.offset;
        name.bytes = region->bytes;
    }
    exec_unlock();
    memset(out, 0, sizeof(*out));
    memcpy(out, &name, sizeof(name));
    return api_end(ours ? cudaSuccess : cudaErrorInvalidValue);
}

static int other_file(int process, int fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", process, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* The other process's memory, at an address of ours. */
static cudaError_t ipc_map(const struct ipc_name *name, void **out)
{
    size_t whole = (name->bytes + SPACE_UNIT - 1) & ~(size_t)(SPACE_UNIT - 1);
    struct region *region = calloc(1, sizeof(*region));
    struct extent extent = {name->offset, whole, other_file(name->process, name->data_fd),
                            other_file(name->process, name->shadow_fd)};

    exec_lock();
    bool mapped = region != NULL && extent.data_fd >= 0 && extent.shadow_fd >= 0 &&
                  space_take(whole + SPACE_UNIT, SPACE_UNIT, 0, &region->address);
    if (mapped) {
        region->bytes = name->bytes;
        region->span = whole + SPACE_UNIT;
        region->kind = REGION_IPC;
        region->accessible = true;
        region->extent = extent;
        extent_map(region->address, &extent, whole);
        region_add(region);
        *out = (void *)(uintptr_t)region->address;
    }
    exec_unlock();
    if (mapped)
        return cudaSuccess;
    if (extent.data_fd >= 0)
        close(extent.data_fd);
    if (extent.shadow_fd >= 0)
        close(extent.shadow_fd);
    free(region);
    return cudaErrorMapBufferObjectFailed;
}

SIM_EXPORT cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned flags)
{
    BEGIN(cudaIpcOpenMemHandle);
    struct ipc_name name;
    memcpy(&name, &handle, sizeof(name));
    if (flags != cudaIpcMemLazyEnablePeerAccess || name.magic != IPC_MAGIC)
        return api_end(cudaErrorInvalidValue);
    if (name.process == getpid())
        return api_end(cudaErrorDeviceUninitialized); /* as CUDA has it: not in the same process */
    cudaError_t error = ipc_map(&name, out);
    if (error == cudaSuccess) {
        sim_lock();
        open_count(OPEN_ALLOCATION, 1);
        sim_unlock();
    }
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
    BEGIN(cudaIpcCloseMemHandle);
    exec_lock();
    struct region *region = region_find((uintptr_t)pointer);
    bool open =
        region != NULL && region->kind == REGION_IPC && region->address == (uintptr_t)pointer;
    if (open)
        region_free(region);
    exec_unlock();
    if (!open)
        return api_end(cudaErrorInvalidValue);
    sim_lock();
    open_count(OPEN_ALLOCATION, -1);
    sim_unlock();
    return cudaSuccess;
}
