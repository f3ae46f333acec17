/* System and CUDA shared memory: clients ask for the status and unregister everything at start-up,
 * so those answer; regions cannot be registered in this version. */
#include "grpc_service.pb-c.h"
#include "serve/endpoint.h"

void run_system_shared_memory_status(struct call *call)
{
    Inference__SystemSharedMemoryStatusResponse reply =
        INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__INIT;

    call_reply_message(call, &reply.base);
}

void run_system_shared_memory_register(struct call *call)
{
    call_fail(call, STATUS_UNSUPPORTED, "system shared memory is not supported");
}

void run_system_shared_memory_unregister(struct call *call)
{
    Inference__SystemSharedMemoryUnregisterResponse reply =
        INFERENCE__SYSTEM_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;

    call_reply_message(call, &reply.base);
}

void run_cuda_shared_memory_status(struct call *call)
{
    Inference__CudaSharedMemoryStatusResponse reply =
        INFERENCE__CUDA_SHARED_MEMORY_STATUS_RESPONSE__INIT;

    call_reply_message(call, &reply.base);
}

void run_cuda_shared_memory_register(struct call *call)
{
    call_fail(call, STATUS_UNSUPPORTED, "CUDA shared memory is not supported");
}

void run_cuda_shared_memory_unregister(struct call *call)
{
    Inference__CudaSharedMemoryUnregisterResponse reply =
        INFERENCE__CUDA_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;

    call_reply_message(call, &reply.base);
}
