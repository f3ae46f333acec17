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
    {offsetof(struct cuda_driver, device_attribute), "cuDeviceGetAttribute"},
};

enum status cuda_driver_find(struct cuda_driver *out_driver, struct error *err)
{
    struct cuda_driver driver;

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        void *function = NULL;
        cudaError_t error = cudaGetDriverEntryPointByVersion(
            calls[i].name, &function, CUDA_VERSION_WANTED, cudaEnableDefault, &found);

        if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || function == NULL) {
            (void)cudaGetLastError();
            return error_set(err, STATUS_UNSUPPORTED, "the driver has no %s", calls[i].name);
        }
        memcpy((char *)&driver + calls[i].offset, &function, sizeof(function));
    }
    *out_driver = driver;
    return STATUS_OK;
}
