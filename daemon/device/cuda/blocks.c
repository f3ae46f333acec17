/* Where the driver has no virtual memory management: a range is a block of the runtime's pool.
 *
 * It has all its memory from reserve() to release() and cannot grow, so its holders move
 * (mem_source.moves).  The pool keeps what is given back until trim().
 */
#include <stdlib.h>

#include "device/cuda/cuda.h"
#include "device/cuda/source_internal.h"

enum { UNIT_BYTES = 2 << 20 };

struct blocks {
    struct cuda_source common;
    cudaMemPool_t pool;
};

static struct blocks *blocks_of(struct mem_source *source)
{
    return CONTAINER_OF(cuda_source_of(source), struct blocks, common);
}

/* Taken in the order of the upload stream and waited for: any stream may use it then. */
static enum status reserve(struct mem_source *source, size_t bytes, void **out_base)
{
    struct blocks *blocks = blocks_of(source);
    void *base;

    if (bytes == 0)
        return STATUS_INVALID;
    cuda_source_enter(&blocks->common);
    CU_TRY(cudaMallocFromPoolAsync(&base, bytes, blocks->pool, blocks->common.upload));
    CU_TRY(cudaStreamSynchronize(blocks->common.upload));
    *out_base = base;
    return STATUS_OK;
}

/* What ran on it has been waited for. */
static void release(struct mem_source *source, void *base, size_t bytes)
{
    struct blocks *blocks = blocks_of(source);

    (void)bytes;
    cuda_source_enter(&blocks->common);
    (void)cuda_status(cudaFreeAsync(base, blocks->common.upload));
}

static enum status commit(struct mem_source *source, void *base, size_t bytes)
{
    (void)source, (void)base, (void)bytes;
    return STATUS_OK;
}

static void decommit(struct mem_source *source, void *base, size_t bytes)
{
    (void)source, (void)base, (void)bytes;
}

static uint64_t read_number(const struct blocks *blocks, enum cudaMemPoolAttr which)
{
    uint64_t bytes = 0;

    (void)cuda_status(cudaMemPoolGetAttribute(blocks->pool, which, &bytes));
    return bytes;
}

static void blocks_read(struct cuda_source *common, struct cuda_source_facts *out_facts)
{
    const struct blocks *blocks = CONTAINER_OF(common, struct blocks, common);
    uint64_t held = read_number(blocks, cudaMemPoolAttrReservedMemCurrent);
    uint64_t used = read_number(blocks, cudaMemPoolAttrUsedMemCurrent);

    *out_facts =
        (struct cuda_source_facts){.held_bytes = held, .kept_bytes = held > used ? held - used : 0};
}

static uint64_t trim(struct mem_source *source, uint64_t keep_bytes)
{
    struct blocks *blocks = blocks_of(source);
    struct cuda_source_facts before, after;

    cuda_source_enter(&blocks->common);
    (void)cuda_status(cudaStreamSynchronize(blocks->common.upload)); /* the last releases */
    blocks_read(&blocks->common, &before);
    if (before.kept_bytes <= keep_bytes)
        return 0;
    (void)cuda_status(cudaMemPoolTrimTo(
        blocks->pool, (size_t)(before.held_bytes - before.kept_bytes + keep_bytes)));
    blocks_read(&blocks->common, &after);
    return before.held_bytes > after.held_bytes ? before.held_bytes - after.held_bytes : 0;
}

static const struct mem_source_ops ops = {.reserve = reserve,
                                          .release = release,
                                          .commit = commit,
                                          .decommit = decommit,
                                          .query = cuda_source_query,
                                          .write = cuda_source_write,
                                          .read = cuda_source_fetch,
                                          .trim = trim};

static void blocks_destroy(struct cuda_source *common)
{
    struct blocks *blocks = CONTAINER_OF(common, struct blocks, common);

    if (blocks->pool != NULL)
        (void)cuda_status(cudaMemPoolDestroy(blocks->pool));
    free(blocks);
}

enum status blocks_create(int ordinal, struct cuda_source **out_source, struct error *err)
{
    const struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = ordinal}};
    struct blocks *blocks = calloc(1, sizeof(*blocks));
    uint64_t keep = UINT64_MAX; /* until trim() */
    cudaError_t error;

    if (blocks == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    blocks->common.destroy = blocks_destroy;
    blocks->common.read = blocks_read;
    blocks->common.source =
        (struct mem_source){.ops = &ops, .page_bytes = UNIT_BYTES, .moves = true};
    error = cudaMemPoolCreate(&blocks->pool, &props);
    if (error == cudaSuccess)
        error = cudaMemPoolSetAttribute(blocks->pool, cudaMemPoolAttrReleaseThreshold, &keep);
    if (error != cudaSuccess) {
        blocks_destroy(&blocks->common);
        return cuda_error(err, error, "a pool of device memory");
    }
    *out_source = &blocks->common;
    return STATUS_OK;
}
