#include "device/cuda/driver.h"

#include <string.h>

enum { CUDA_VERSION_WANTED = 12000 };

/* Row: field of struct cuda_driver, name in the driver. */
static const struct {
    size_t offset;
    const char *name;
} calls[] = {
    {offsetof(struct cuda_driver, mem_address_reserve), "cuMemAddressReserve"},
    {offsetof(struct cuda_driver, mem_address_free), "cuMemAddressFree"},
    {offsetof(struct cuda_driver, mem_create), "cuMemCreate"},
    {offsetof(struct cuda_driver, mem_release), "cuMemRelease"},
    {offsetof(struct cuda_driver, mem_map), "cuMemMap"},
    {offsetof(struct cuda_driver, mem_unmap), "cuMemUnmap"},
    {offsetof(struct cuda_driver, mem_set_access), "cuMemSetAccess"},
    {offsetof(struct cuda_driver, mem_granularity), "cuMemGetAllocationGranularity"},
};

enum status cuda_driver_call(const char *name, void **out_function, struct error *err)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, out_function, CUDA_VERSION_WANTED,
                                                         cudaEnableDefault, &found);

    if (error == cudaSuccess && found == cudaDriverEntryPointSuccess && *out_function != NULL)
        return STATUS_OK;
    (void)cudaGetLastError();
    return error_set(err, STATUS_UNSUPPORTED, "the driver has no %s", name);
}

static enum status check_device(int ordinal, struct error *err)
{
    CUresult (*attribute)(int *value, CUdevice_attribute which, CUdevice device);
    void *function = NULL;
    int supported = 0;

    TRY(cuda_driver_call("cuDeviceGetAttribute", &function, err));
    memcpy(&attribute, &function, sizeof(function));
    if (attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal) ==
            CUDA_SUCCESS &&
        supported != 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED, "the device has no virtual memory management");
}

enum status cuda_driver_find(int ordinal, struct cuda_driver *out_driver, struct error *err)
{
    struct cuda_driver driver;

    TRY(check_device(ordinal, err));
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *function = NULL;

        TRY(cuda_driver_call(calls[i].name, &function, err));
        memcpy((char *)&driver + calls[i].offset, &function, sizeof(function));
    }
    *out_driver = driver;
    return STATUS_OK;
}
