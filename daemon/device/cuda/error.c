/* What the runtime says, as a status.
 *
 * Most errors are one call's.  Some are "sticky": the context is gone, every later call of this
 * process answers the same, and only a new process finds the device well again.
 */
#include <stdatomic.h>

#define LOG_COMPONENT "device"
#include "device/cuda/cuda.h"
#include "observe/log.h"

static atomic_bool was_lost;

bool cuda_was_lost(void)
{
    return atomic_load(&was_lost);
}

void cuda_forget_loss(void)
{
    atomic_store(&was_lost, false);
}

bool cuda_is_lost(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsClientTerminated:
    case cudaErrorCudartUnloading:
    case cudaErrorUnknown:
        return true;
    default:
        return false;
    }
}

bool cuda_context_is_lost(void)
{
    size_t free_bytes, total;

    return cuda_is_lost(cudaMemGetInfo(&free_bytes, &total));
}

static enum status status_of(cudaError_t error)
{
    if (error == cudaErrorMemoryAllocation)
        return STATUS_NO_MEMORY;
    if (!cuda_is_lost(error))
        return STATUS_INTERNAL;
    atomic_store(&was_lost, true);
    return STATUS_DEVICE_LOST;
}

enum status cuda_status(cudaError_t error)
{
    if (error == cudaSuccess)
        return STATUS_OK;
    log_debug("CUDA: %s (%d): %s", cudaGetErrorName(error), (int)error, cudaGetErrorString(error));
    (void)cudaGetLastError(); /* one that is not sticky is told once */
    return status_of(error);
}

enum status cuda_error(struct error *err, cudaError_t error, const char *what)
{
    (void)cudaGetLastError();
    return error_set(err, status_of(error), "CUDA: %s: %s (%s)", what, cudaGetErrorString(error),
                     cudaGetErrorName(error));
}
