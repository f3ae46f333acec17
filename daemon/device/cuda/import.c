#include "device/cuda/import.h"

#include <inttypes.h>
#include <string.h>

#include "device/cuda/cuda.h"
#include "device/cuda/driver.h"

typedef CUresult (*pointer_attribute_fn)(void *value, CUpointer_attribute which,
                                         CUdeviceptr address);

/* Bytes from the address to the end of what was exported, and the device they lie on. */
static enum status measure(const void *address, uint64_t *out_bytes, int *out_ordinal,
                           struct error *err)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)address, start = 0;
    pointer_attribute_fn attribute;
    void *function = NULL;
    size_t bytes = 0;

    TRY(cuda_driver_call("cuPointerGetAttribute", &function, err));
    memcpy(&attribute, &function, sizeof(function));
    if (attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at) != CUDA_SUCCESS ||
        attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at) != CUDA_SUCCESS ||
        attribute(out_ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) != CUDA_SUCCESS)
        return error_set(err, STATUS_INVALID, "the driver does not know the imported memory");
    *out_bytes = start <= at && bytes > at - start ? bytes - (at - start) : 0;
    return STATUS_OK;
}

static enum status check(const struct cuda_device *cuda, const void *address, uint64_t wanted_bytes,
                         struct error *err)
{
    uint64_t bytes = 0;
    int ordinal = -1;

    TRY(measure(address, &bytes, &ordinal, err));
    if (ordinal != cuda->ordinal)
        return error_set(err, STATUS_INVALID, "the imported memory lies on device %d, not on %d",
                         ordinal, cuda->ordinal);
    if (wanted_bytes > bytes)
        return error_set(err, STATUS_INVALID,
                         "%" PRIu64 " bytes were asked for, the imported memory has %" PRIu64,
                         wanted_bytes, bytes);
    return STATUS_OK;
}

enum status cuda_import_open(struct device *device, const struct device_import *import,
                             void **out_address, struct error *err)
{
    const struct cuda_device *cuda = cuda_device_of(device);
    cudaIpcMemHandle_t handle;
    void *address = NULL;
    cudaError_t error;
    enum status status;

    if (import->device_id != cuda->ordinal)
        return error_set(err, STATUS_INVALID,
                         "device_id %" PRId64 " is not the daemon's, which is %d",
                         import->device_id, cuda->ordinal);
    if (import->handle_bytes != sizeof(handle))
        return error_set(err, STATUS_INVALID, "a CUDA handle has %zu bytes, not %zu",
                         sizeof(handle), import->handle_bytes);
    memcpy(&handle, import->handle, sizeof(handle));
    CU_TRY(cudaSetDevice(cuda->ordinal));
    error = cudaIpcOpenMemHandle(&address, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
        (void)cudaGetLastError(); /* a client's, not the next call's */
        return error_set(err, cuda_is_lost(error) ? STATUS_DEVICE_LOST : STATUS_INVALID,
                         "the CUDA handle cannot be opened: %s", cudaGetErrorString(error));
    }
    status = check(cuda, address, import->bytes, err);
    if (status != STATUS_OK) {
        cuda_import_close(device, address);
        return status;
    }
    *out_address = address;
    return STATUS_OK;
}

void cuda_import_close(struct device *device, void *address)
{
    (void)cudaSetDevice(cuda_device_of(device)->ordinal);
    (void)cuda_status(cudaIpcCloseMemHandle(address));
}
