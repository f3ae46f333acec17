/* Driver calls that the runtime has no form of: virtual memory management.
 *
 * Found through the runtime, so that nothing links against libcuda and a machine without a driver
 * gets a sentence.
 */
#ifndef DEVICE_CUDA_DRIVER_H
#define DEVICE_CUDA_DRIVER_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "base/error.h"

struct cuda_driver {
    CUresult (*mem_address_reserve)(CUdeviceptr *ptr, size_t size, size_t alignment,
                                    CUdeviceptr addr, unsigned long long flags);
    CUresult (*mem_address_free)(CUdeviceptr ptr, size_t size);
    CUresult (*mem_create)(CUmemGenericAllocationHandle *handle, size_t size,
                           const CUmemAllocationProp *prop, unsigned long long flags);
    CUresult (*mem_release)(CUmemGenericAllocationHandle handle);
    CUresult (*mem_map)(CUdeviceptr ptr, size_t size, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags);
    CUresult (*mem_unmap)(CUdeviceptr ptr, size_t size);
    CUresult (*mem_set_access)(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                               size_t count);
    CUresult (*mem_granularity)(size_t *granularity, const CUmemAllocationProp *prop,
                                CUmemAllocationGranularity_flags option);
};

/* STATUS_UNSUPPORTED: the device cannot do it, or names the call that the driver does not have. */
MUST_CHECK enum status cuda_driver_find(int ordinal, struct cuda_driver *out_driver,
                                        struct error *err);
/* One call of the driver by its name; STATUS_UNSUPPORTED names it. */
MUST_CHECK enum status cuda_driver_call(const char *name, void **out_function, struct error *err);
/* As a runtime error, for cuda_status(): the numbers are the same. */
static inline cudaError_t cuda_driver_error(CUresult result)
{
    return (cudaError_t)(int)result;
}

#endif
