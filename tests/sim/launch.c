/* Launches: the stack of configurations that <<< >>> uses, the limits, and the run itself. */
#include "launch.h"

#include "capture.h"
#include "registration.h"

#include <stdlib.h>
#include <string.h>

struct configuration {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    struct CUstream_st *stream;
};

static _Thread_local struct configuration stack[16];
static _Thread_local unsigned depth;

SIM_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                struct CUstream_st *stream)
{
    if (depth == sizeof(stack) / sizeof(stack[0]))
        return 1;
    stack[depth++] = (struct configuration){grid, block, shared_bytes, stream};
    return 0;
}

SIM_EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *out_grid, dim3 *out_block,
                                                  size_t *out_shared_bytes, void *out_stream)
{
    if (depth == 0)
        return api_end(cudaErrorMissingConfiguration);
    const struct configuration *top = &stack[--depth];
    *out_grid = top->grid;
    *out_block = top->block;
    *out_shared_bytes = top->shared_bytes;
    *(struct CUstream_st **)out_stream = top->stream;
    return cudaSuccess;
}

const struct ptx_info *kernel_load(struct kernel *kernel)
{
    static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&loading);
    if (kernel->ptx == NULL)
        kernel->ptx = module_kernel(kernel->module, kernel->name);
    pthread_mutex_unlock(&loading);
    return kernel->ptx != NULL ? ptx_info(kernel->ptx) : NULL;
}

static bool grid_fits(dim3 grid)
{
    return grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7FFFFFFF && grid.y <= 65535 &&
           grid.z <= 65535;
}

static bool block_fits(dim3 block)
{
    return block.x >= 1 && block.y >= 1 && block.z >= 1 && block.x <= 1024 && block.y <= 1024 &&
           block.z <= 64 && (size_t)block.x * block.y * block.z <= BLOCK_THREADS;
}

static cudaError_t refusal(const struct kernel *kernel, const struct ptx_info *info, dim3 grid,
                           dim3 block, size_t shared_bytes)
{
    if (!grid_fits(grid) || !block_fits(block))
        return cudaErrorInvalidConfiguration;
    if (info->max_threads != 0 && (size_t)block.x * block.y * block.z > info->max_threads)
        return cudaErrorInvalidValue;
    size_t allowed = kernel->dynamic_shared_bytes;
    if (info->shared_bytes < SHARED_BYTES && allowed < SHARED_BYTES - info->shared_bytes)
        allowed = SHARED_BYTES - info->shared_bytes;
    return shared_bytes > allowed ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t kernel_work_make(struct kernel *kernel, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, struct work *out)
{
    const struct ptx_info *info = kernel_load(kernel);

    if (info == NULL)
        return cudaErrorNoKernelImageForDevice;
    cudaError_t error = refusal(kernel, info, grid, block, shared_bytes);
    if (error != cudaSuccess) {
        notice("%s: grid %u x %u x %u of %u x %u x %u threads with %zu bytes of dynamic shared "
               "memory is beyond the device",
               kernel->name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes);
        return error;
    }
    unsigned char *parameters = calloc(1, info->parameter_bytes + 1);
    if (parameters == NULL)
        return cudaErrorMemoryAllocation;
    for (size_t i = 0; i < info->parameter_count; i++)
        memcpy(parameters + info->parameters[i].offset, arguments[i], info->parameters[i].bytes);
    *out = (struct work){.kind = WORK_KERNEL};
    out->kernel = (struct kernel_work){kernel, grid, block, shared_bytes, parameters};
    return cudaSuccess;
}

static cudaError_t launch(struct kernel *kernel, dim3 grid, dim3 block, void **arguments,
                          size_t shared_bytes, cudaStream_t handle)
{
    struct CUstream_st *stream = stream_of(handle, "launch of a kernel");
    struct work work;

    if (stream == NULL)
        return cudaErrorInvalidResourceHandle;
    if (!stream_is_own(stream, "launch of a kernel"))
        return cudaErrorInvalidResourceHandle;
    if (kernel == NULL)
        return cudaErrorInvalidDeviceFunction;
    cudaError_t error = kernel_work_make(kernel, grid, block, arguments, shared_bytes, &work);
    return error != cudaSuccess ? error : stream_put(stream, work);
}

unsigned char *kernel_parameters_copy(const struct kernel_work *work)
{
    size_t bytes = ptx_info(work->kernel->ptx)->parameter_bytes + 1;
    unsigned char *copy = malloc(bytes);

    if (copy != NULL)
        memcpy(copy, work->parameters, bytes);
    return copy;
}

static const cudaError_t ends[] = {
    [PTX_DONE] = cudaSuccess,
    [PTX_ILLEGAL_ADDRESS] = cudaErrorIllegalAddress,
    [PTX_MISALIGNED] = cudaErrorMisalignedAddress,
    [PTX_ILLEGAL_INSTRUCTION] = cudaErrorIllegalInstruction,
    [PTX_ASSERT] = cudaErrorAssert,
    [PTX_FAILED] = cudaErrorLaunchFailure,
    [PTX_TIMEOUT] = cudaErrorLaunchTimeout,
};

void kernel_run(const struct kernel_work *work)
{
    struct ptx_grid grid = {
        .grid = {work->grid.x, work->grid.y, work->grid.z},
        .block = {work->block.x, work->block.y, work->block.z},
        .dynamic_shared_bytes = work->shared_bytes,
        .parameters = work->parameters,
        .threads = sim.threads,
        .order = sim.order,
        .endless = sim.endless,
        .check_races = sim.check_races,
        .check_uninitialised = sim.check_uninitialised,
    };
    enum ptx_end end = ptx_run(work->kernel->ptx, &grid);

    __atomic_fetch_add(&sim.instructions, grid.instructions, __ATOMIC_RELAXED);
    if (end != PTX_DONE)
        sim_stick(ends[end]);
}

SIM_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t handle, dim3 grid, dim3 block,
                                          void **arguments, size_t shared_bytes,
                                          cudaStream_t stream)
{
    BEGIN(cudaLaunchKernel);
    return api_end(launch(kernel_of(handle), grid, block, arguments, shared_bytes, stream));
}

SIM_EXPORT cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block,
                                        void **arguments, size_t shared_bytes, cudaStream_t stream)
{
    return __cudaLaunchKernel((cudaKernel_t)(uintptr_t)function, grid, block, arguments,
                              shared_bytes, stream);
}

/* Attributes of the launch that change no result are taken as they are. */
SIM_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                           void **arguments)
{
    BEGIN(cudaLaunchKernelExC);
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension ||
            config->attrs[i].id == cudaLaunchAttributeCooperative)
            return api_end(cudaErrorNotSupported);
    return api_end(launch(kernel_of(function), config->gridDim, config->blockDim, arguments,
                          config->dynamicSmemBytes, config->stream));
}

SIM_EXPORT cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute,
                                            int value)
{
    BEGIN(cudaFuncSetAttribute);
    struct kernel *kernel = kernel_of(function);
    const struct ptx_info *info = kernel != NULL ? kernel_load(kernel) : NULL;
    if (info == NULL)
        return api_end(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess; /* preferences */
    if (value < 0 || (size_t)value + info->shared_bytes > SHARED_OPTIN_BYTES)
        return api_end(cudaErrorInvalidValue);
    kernel->dynamic_shared_bytes = (size_t)value;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function)
{
    BEGIN(cudaFuncGetAttributes);
    struct kernel *kernel = kernel_of(function);
    const struct ptx_info *info = kernel != NULL ? kernel_load(kernel) : NULL;
    if (info == NULL)
        return api_end(cudaErrorInvalidDeviceFunction);
    memset(out, 0, sizeof(*out));
    out->sharedSizeBytes = info->shared_bytes;
    out->localSizeBytes = info->local_bytes;
    out->maxThreadsPerBlock = info->max_threads != 0 ? (int)info->max_threads : BLOCK_THREADS;
    out->numRegs = 32;
    out->ptxVersion = out->binaryVersion = sim.capability;
    out->maxDynamicSharedSizeBytes = kernel->dynamic_shared_bytes != 0
                                         ? (int)kernel->dynamic_shared_bytes
                                         : SHARED_BYTES - (int)info->shared_bytes;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *out, const void *function, int threads, size_t shared_bytes, unsigned flags)
{
    BEGIN(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    struct kernel *kernel = kernel_of(function);
    const struct ptx_info *info = kernel != NULL ? kernel_load(kernel) : NULL;
    (void)flags;
    if (info == NULL || threads <= 0)
        return api_end(cudaErrorInvalidValue);
    size_t by_threads = 2048 / (size_t)threads;
    size_t shared = info->shared_bytes + shared_bytes + 1024;
    size_t by_shared = (SHARED_OPTIN_BYTES + 1024) / shared;
    size_t blocks = by_threads < by_shared ? by_threads : by_shared;
    *out = (int)(blocks < 32 ? blocks : 32);
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *function,
                                                                     int threads,
                                                                     size_t shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, function, threads,
                                                                  shared_bytes, 0);
}
