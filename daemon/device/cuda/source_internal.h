/* What vmm.c, blocks.c and source.c share. */
#ifndef DEVICE_CUDA_SOURCE_INTERNAL_H
#define DEVICE_CUDA_SOURCE_INTERNAL_H

#include <cuda_runtime_api.h>

#include "base/list.h"
#include "device/cuda/source.h"

struct cuda_source {
    struct mem_source source;
    int ordinal;
    char bus[32];
    cudaStream_t upload; /* what weights are written through */
    void (*destroy)(struct cuda_source *source);
    void (*read)(struct cuda_source *source, struct cuda_source_facts *out_facts);
};

static inline struct cuda_source *cuda_source_of(struct mem_source *source)
{
    return CONTAINER_OF(source, struct cuda_source, source);
}

/* Makes the device current for the calling thread: any thread may come. */
static inline void cuda_source_enter(struct cuda_source *source)
{
    (void)cudaSetDevice(source->ordinal);
}

/* For their tables of operations. */
enum status cuda_source_query(struct mem_source *source, uint64_t *out_free, uint64_t *out_total);
enum status cuda_source_write(struct mem_source *source, void *to, const void *from, size_t bytes);
enum status cuda_source_fetch(struct mem_source *source, void *to, const void *from, size_t bytes);

/* Without `ordinal`, `bus` and `upload`, which cuda_source_create() adds.  STATUS_UNSUPPORTED: the
 * driver cannot do it, the other kind may. */
enum status vmm_create(int ordinal, struct cuda_source **out_source, struct error *err);
enum status blocks_create(int ordinal, struct cuda_source **out_source, struct error *err);

#endif
