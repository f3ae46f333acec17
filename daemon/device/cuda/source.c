#include "device/cuda/source.h"

#include <stdio.h>
#include <stdlib.h>

#define LOG_COMPONENT "device"
#include "device/cuda/cuda.h"
#include "device/cuda/dmem.h"
#include "device/cuda/source_internal.h"
#include "observe/log.h"

/* What the driver says, which knows the limits of MIG and MPS, or what the tightest cgroup leaves.
 */
enum status cuda_source_query(struct mem_source *source, uint64_t *out_free, uint64_t *out_total)
{
    struct cuda_source *cuda = cuda_source_of(source);
    size_t free_bytes, total_bytes;
    uint64_t left, limit;

    cuda_source_enter(cuda);
    if (cuda_status(cudaMemGetInfo(&free_bytes, &total_bytes)) != STATUS_OK)
        return STATUS_UNSUPPORTED;
    *out_free = free_bytes;
    *out_total = total_bytes;
    if (!dmem_limit(cuda->bus, &left, &limit))
        return STATUS_OK;
    if (left < *out_free)
        *out_free = left;
    if (limit < *out_total)
        *out_total = limit;
    return STATUS_OK;
}

/* The caller's memory may be pageable: the copy is over when this returns, staged by the driver or
 * not. */
static enum status copy(struct mem_source *source, void *to, const void *from, size_t bytes,
                        enum cudaMemcpyKind kind)
{
    struct cuda_source *cuda = cuda_source_of(source);

    if (bytes == 0)
        return STATUS_OK;
    cuda_source_enter(cuda);
    CU_TRY(cudaMemcpyAsync(to, from, bytes, kind, cuda->upload));
    return cuda_status(cudaStreamSynchronize(cuda->upload));
}

enum status cuda_source_write(struct mem_source *source, void *to, const void *from, size_t bytes)
{
    return copy(source, to, from, bytes, cudaMemcpyHostToDevice);
}

enum status cuda_source_fetch(struct mem_source *source, void *to, const void *from, size_t bytes)
{
    return copy(source, to, from, bytes, cudaMemcpyDeviceToHost);
}

static enum status create(int ordinal, struct cuda_source **out_source, struct error *err)
{
    struct error why = {.text = ""};
    enum status status = vmm_create(ordinal, out_source, &why);

    if (status == STATUS_UNSUPPORTED) {
        log_info("memory that grows will move: %s", why.text);
        return blocks_create(ordinal, out_source, err);
    }
    if (status != STATUS_OK && err != NULL)
        *err = why;
    return status;
}

enum status cuda_source_create(int ordinal, const char *bus, struct mem_source **out_source,
                               struct error *err)
{
    struct cuda_source *source;
    cudaError_t error;

    TRY(create(ordinal, &source, err));
    source->ordinal = ordinal;
    (void)snprintf(source->bus, sizeof(source->bus), "%s", bus);
    error = cudaStreamCreateWithFlags(&source->upload, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        source->upload = NULL;
        cuda_source_destroy(&source->source);
        return cuda_error(err, error, "a stream for weights");
    }
    *out_source = &source->source;
    return STATUS_OK;
}

void cuda_source_destroy(struct mem_source *source)
{
    struct cuda_source *cuda;

    if (source == NULL)
        return;
    cuda = cuda_source_of(source);
    cuda_source_enter(cuda);
    if (cuda->upload != NULL)
        (void)cudaStreamDestroy(cuda->upload);
    cuda->destroy(cuda);
}

void cuda_source_read(struct mem_source *source, struct cuda_source_facts *out_facts)
{
    struct cuda_source *cuda = cuda_source_of(source);

    cuda->read(cuda, out_facts);
}
