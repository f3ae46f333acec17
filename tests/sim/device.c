/* The device: one GPU of a capability and a size that tests choose. */
#include "device.h"

#include "capture.h"
#include "launch.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNTIME_VERSION = 13000, PCI_BUS = 0x41 };

static const unsigned char uuid_bytes[16] = {0x51, 0x0c, 0xe0, 0x00, 0x51, 0x4d, 0x40, 0x00,
                                             0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01};

/* Whether the tests want a machine without a GPU, or without a driver. */
static cudaError_t absence(void)
{
    const char *absent = getenv("SLUICE_SIM_ABSENT");

    if (absent == NULL)
        return cudaSuccess;
    return strcmp(absent, "driver") == 0 ? cudaErrorInsufficientDriver : cudaErrorNoDevice;
}

SIM_EXPORT cudaError_t cudaGetDeviceCount(int *out)
{
    BEGIN(cudaGetDeviceCount);
    cudaError_t error = absence();
    *out = error == cudaSuccess ? sim.devices : 0;
    return api_end(error);
}

bool device_is_known(int device)
{
    return device >= 0 && device < sim.devices;
}

static cudaError_t known(int device)
{
    cudaError_t error = absence();

    if (error != cudaSuccess)
        return error;
    return device_is_known(device) ? cudaSuccess : cudaErrorInvalidDevice;
}

static _Thread_local int current;

int device_current(void)
{
    return current;
}

bool device_is_own(int device, const char *call)
{
    if (device == current)
        return true;
    finding("%s: it belongs to device %d, and device %d is current", call, device, current);
    return false;
}

SIM_EXPORT cudaError_t cudaSetDevice(int device)
{
    BEGIN(cudaSetDevice);
    cudaError_t error = known(device);
    if (error == cudaSuccess)
        current = device;
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    BEGIN(cudaInitDevice);
    (void)device_flags, (void)flags;
    return api_end(known(device));
}

SIM_EXPORT cudaError_t cudaGetDevice(int *out)
{
    BEGIN(cudaGetDevice);
    *out = current;
    return api_end(absence());
}

SIM_EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    BEGIN(cudaSetDeviceFlags);
    (void)flags;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGetDeviceFlags(unsigned *out)
{
    BEGIN(cudaGetDeviceFlags);
    *out = 0;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaDeviceReset(void)
{
    BEGIN_ALIVE(cudaDeviceReset);
    finding("cudaDeviceReset: nothing in the daemon may need it");
    return api_end(cudaErrorNotSupported);
}

SIM_EXPORT cudaError_t cudaDriverGetVersion(int *out)
{
    BEGIN(cudaDriverGetVersion);
    *out = absence() == cudaErrorInsufficientDriver ? 0 : RUNTIME_VERSION;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaRuntimeGetVersion(int *out)
{
    BEGIN(cudaRuntimeGetVersion);
    *out = RUNTIME_VERSION;
    return cudaSuccess;
}

void device_uuid(int device, void *out)
{
    memcpy(out, uuid_bytes, sizeof(uuid_bytes));
    ((unsigned char *)out)[sizeof(uuid_bytes) - 1] += (unsigned char)device;
}

SIM_EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    BEGIN(cudaGetDeviceProperties);
    cudaError_t error = known(device);
    size_t unused;
    if (error != cudaSuccess)
        return api_end(error);
    *out = (struct cudaDeviceProp){
        .name = DEVICE_NAME,
        .sharedMemPerBlock = SHARED_BYTES,
        .regsPerBlock = 65536,
        .warpSize = 32,
        .memPitch = 0x7FFFFFFF,
        .maxThreadsPerBlock = BLOCK_THREADS,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {0x7FFFFFFF, 65535, 65535},
        .totalConstMem = 65536,
        .major = sim.capability / 10,
        .minor = sim.capability % 10,
        .textureAlignment = 512,
        .multiProcessorCount = DEVICE_PROCESSORS,
        .canMapHostMemory = 1,
        .concurrentKernels = 1,
        .pciBusID = PCI_BUS + device,
        .asyncEngineCount = 2,
        .unifiedAddressing = 1,
        .memoryBusWidth = 256,
        .l2CacheSize = 4 << 20,
        .maxThreadsPerMultiProcessor = 2048,
        .streamPrioritiesSupported = 1,
        .sharedMemPerMultiprocessor = SHARED_OPTIN_BYTES + 1024,
        .regsPerMultiprocessor = 65536,
        .cooperativeLaunch = 0,
        .sharedMemPerBlockOptin = SHARED_OPTIN_BYTES,
        .maxBlocksPerMultiProcessor = 32,
        .reservedSharedMemPerBlock = 1024,
        .hostRegisterSupported = 1,
        .memoryPoolsSupported = 1,
        .ipcEventSupported = 1,
        .gpuPciDeviceID = 0x51,
    };
    device_uuid(device, &out->uuid);
    memory_info(&unused, &out->totalGlobalMem);
    return cudaSuccess;
}

struct attribute {
    enum cudaDeviceAttr attribute;
    int value;
};

/* Attributes whose value never changes; all others are 0. */
static const struct attribute attributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, BLOCK_THREADS},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 0x7FFFFFFF},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, SHARED_BYTES},
    {cudaDevAttrTotalConstantMemory, 65536},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxPitch, 0x7FFFFFFF},
    {cudaDevAttrMaxRegistersPerBlock, 65536},
    {cudaDevAttrClockRate, 1000000},
    {cudaDevAttrTextureAlignment, 512},
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrMultiProcessorCount, DEVICE_PROCESSORS},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrMemoryClockRate, 1000000},
    {cudaDevAttrGlobalMemoryBusWidth, 256},
    {cudaDevAttrL2CacheSize, 4 << 20},
    {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
    {cudaDevAttrAsyncEngineCount, 2},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, SHARED_OPTIN_BYTES + 1024},
    {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, SHARED_OPTIN_BYTES},
    {cudaDevAttrHostRegisterSupported, 1},
    {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
    {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrIpcEventSupport, 1},
};

int device_attribute(int device, int attribute)
{
    if (attribute == cudaDevAttrPciBusId)
        return PCI_BUS + device;
    if (attribute == cudaDevAttrComputeCapabilityMajor)
        return sim.capability / 10;
    if (attribute == cudaDevAttrComputeCapabilityMinor)
        return sim.capability % 10;
    /* 102 is the driver's alone: CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED. */
    if (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
        return getenv("SLUICE_SIM_NO_VMM") == NULL;
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
        if ((int)attributes[i].attribute == attribute)
            return attributes[i].value;
    return 0;
}

SIM_EXPORT cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int device)
{
    BEGIN(cudaDeviceGetAttribute);
    cudaError_t error = known(device);
    if (error == cudaSuccess)
        *out = device_attribute(device, (int)attribute);
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device)
{
    BEGIN(cudaDeviceGetPCIBusId);
    cudaError_t error = known(device);
    if (error == cudaSuccess)
        snprintf(out, (size_t)bytes, "0000:%02X:00.0", PCI_BUS + device);
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaDeviceGetByPCIBusId(int *out, const char *name)
{
    BEGIN(cudaDeviceGetByPCIBusId);
    unsigned domain;
    unsigned bus;
    if (sscanf(name, "%x:%x:", &domain, &bus) != 2 || bus < PCI_BUS ||
        !device_is_known((int)bus - PCI_BUS))
        return api_end(cudaErrorInvalidDevice);
    *out = (int)bus - PCI_BUS;
    return api_end(absence());
}

SIM_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *out_least, int *out_greatest)
{
    BEGIN(cudaDeviceGetStreamPriorityRange);
    if (out_least != NULL)
        *out_least = 0;
    if (out_greatest != NULL)
        *out_greatest = -5;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    BEGIN(cudaDeviceSetLimit);
    (void)limit, (void)value;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaDeviceGetLimit(size_t *out, enum cudaLimit limit)
{
    BEGIN(cudaDeviceGetLimit);
    *out = limit == cudaLimitStackSize ? 1024 : 0;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
    BEGIN(cudaDeviceSetCacheConfig);
    (void)config;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaDeviceCanAccessPeer(int *out, int device, int peer)
{
    BEGIN(cudaDeviceCanAccessPeer);
    *out = 0;
    return api_end(known(device) != cudaSuccess ? cudaErrorInvalidDevice : known(peer));
}
