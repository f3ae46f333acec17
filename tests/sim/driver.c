/* The driver's functions that cudaGetDriverEntryPoint hands out. */
#include "copy.h"
#include "device.h"
#include "memory.h"
#include "vmm.h"

#include <stdio.h>
#include <string.h>

static CUresult sim_cuInit(unsigned flags)
{
    BEGIN_CU(cuInit);
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult sim_cuDriverGetVersion(int *out)
{
    BEGIN_CU(cuDriverGetVersion);
    return (CUresult)cudaDriverGetVersion(out);
}

static CUresult sim_cuDeviceGet(CUdevice *out, int ordinal)
{
    BEGIN_CU(cuDeviceGet);
    *out = ordinal;
    return device_is_known(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult sim_cuDeviceGetCount(int *out)
{
    BEGIN_CU(cuDeviceGetCount);
    return (CUresult)cudaGetDeviceCount(out);
}

static CUresult sim_cuDeviceGetName(char *out, int bytes, CUdevice device)
{
    BEGIN_CU(cuDeviceGetName);
    snprintf(out, (size_t)bytes, "%s", DEVICE_NAME);
    return device_is_known(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult sim_cuDeviceGetUuid(CUuuid *out, CUdevice device)
{
    BEGIN_CU(cuDeviceGetUuid);
    device_uuid(device, out);
    return device_is_known(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult sim_cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device)
{
    BEGIN_CU(cuDeviceGetAttribute);
    *out = device_attribute(device, (int)attribute);
    return device_is_known(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult sim_cuDeviceTotalMem(size_t *out, CUdevice device)
{
    size_t unused;

    BEGIN_CU(cuDeviceTotalMem);
    memory_info(&unused, out);
    return device_is_known(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* One context, the primary one, which is always current. */
static char context;

static CUresult sim_cuCtxGetCurrent(CUcontext *out)
{
    BEGIN_CU(cuCtxGetCurrent);
    *out = (CUcontext)&context;
    return CUDA_SUCCESS;
}

static CUresult sim_cuCtxSetCurrent(CUcontext value)
{
    BEGIN_CU(cuCtxSetCurrent);
    return value == NULL || value == (CUcontext)&context ? CUDA_SUCCESS
                                                         : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult sim_cuCtxGetDevice(CUdevice *out)
{
    BEGIN_CU(cuCtxGetDevice);
    *out = device_current();
    return CUDA_SUCCESS;
}

static CUresult sim_cuCtxSynchronize(void)
{
    BEGIN_CU(cuCtxSynchronize);
    return (CUresult)cudaDeviceSynchronize();
}

static CUresult sim_cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    BEGIN_CU(cuDevicePrimaryCtxRetain);
    *out = (CUcontext)&context;
    return device_is_known(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult sim_cuDevicePrimaryCtxRelease(CUdevice device)
{
    BEGIN_CU(cuDevicePrimaryCtxRelease);
    return device_is_known(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult sim_cuMemGetInfo(size_t *out_free, size_t *out_total)
{
    BEGIN_CU(cuMemGetInfo);
    memory_info(out_free, out_total);
    return CUDA_SUCCESS;
}

static CUresult sim_cuPointerGetAttribute(void *out, CUpointer_attribute attribute,
                                          CUdeviceptr pointer)
{
    BEGIN_CU(cuPointerGetAttribute);
    exec_lock();
    const struct region *region = region_find(pointer);
    bool host = region != NULL && region->kind == REGION_HOST;
    uint64_t start = region != NULL ? region->address : 0;
    size_t bytes = region != NULL ? region->bytes : 0;
    exec_unlock();
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)out = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)out = pointer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = device_current(); /* another's memory is not reached */
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)out = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)out = start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)out = bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static CUresult sim_cuGetErrorName(CUresult error, const char **out)
{
    *out = cudaGetErrorName((cudaError_t)error);
    return CUDA_SUCCESS;
}

static CUresult sim_cuGetErrorString(CUresult error, const char **out)
{
    *out = cudaGetErrorString((cudaError_t)error);
    return CUDA_SUCCESS;
}

struct entry {
    const char *name;
    void (*function)(void);
};

#define ENTRY(name)                                                                                \
    {                                                                                              \
#name, (void (*)(void))sim_##name                                                          \
    }

static const struct entry entries[] = {
    ENTRY(cuInit),
    ENTRY(cuDriverGetVersion),
    ENTRY(cuDeviceGet),
    ENTRY(cuDeviceGetCount),
    ENTRY(cuDeviceGetName),
    ENTRY(cuDeviceGetUuid),
    ENTRY(cuDeviceGetAttribute),
    ENTRY(cuDeviceTotalMem),
    ENTRY(cuCtxGetCurrent),
    ENTRY(cuCtxSetCurrent),
    ENTRY(cuCtxGetDevice),
    ENTRY(cuCtxSynchronize),
    ENTRY(cuDevicePrimaryCtxRetain),
    ENTRY(cuDevicePrimaryCtxRelease),
    ENTRY(cuMemGetInfo),
    ENTRY(cuPointerGetAttribute),
    ENTRY(cuGetErrorName),
    ENTRY(cuGetErrorString),
    ENTRY(cuMemsetD32Async),
    ENTRY(cuMemAddressReserve),
    ENTRY(cuMemAddressFree),
    ENTRY(cuMemCreate),
    ENTRY(cuMemRelease),
    ENTRY(cuMemMap),
    ENTRY(cuMemUnmap),
    ENTRY(cuMemSetAccess),
    ENTRY(cuMemGetAccess),
    ENTRY(cuMemGetAllocationGranularity),
    ENTRY(cuMemGetAllocationPropertiesFromHandle),
    ENTRY(cuMemRetainAllocationHandle),
};

/* A machine whose driver lacks virtual memory management. */
static bool hidden(const char *name)
{
    return device_attribute(0, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0 &&
           (strcmp(name, "cuMemCreate") == 0 || strcmp(name, "cuMemMap") == 0 ||
            strcmp(name, "cuMemAddressReserve") == 0);
}

SIM_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **out, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *out_status)
{
    BEGIN(cudaGetDriverEntryPointByVersion);
    (void)version, (void)flags;
    *out = NULL;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (strcmp(entries[i].name, symbol) == 0 && !hidden(symbol))
            memcpy(out, &entries[i].function, sizeof(*out));
    if (out_status != NULL)
        *out_status =
            *out != NULL ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    if (*out == NULL)
        notice("driver entry point %s is not simulated", symbol);
    return api_end(*out != NULL || out_status != NULL ? cudaSuccess : cudaErrorSymbolNotFound);
}

SIM_EXPORT cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **out,
                                               unsigned long long flags,
                                               enum cudaDriverEntryPointQueryResult *out_status)
{
    BEGIN(cudaGetDriverEntryPoint);
    return cudaGetDriverEntryPointByVersion(symbol, out, CUDA_VERSION, flags, out_status);
}
