#include "support/fake_source.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static enum status reserve(struct mem_source *source, size_t bytes, void **out_base)
{
    struct fake_source *fake = (struct fake_source *)source;
    void *base;

    if (fake->refuse_reserve)
        return STATUS_NO_MEMORY;
    base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return STATUS_NO_MEMORY;
    fake->reserved_bytes += bytes;
    *out_base = base;
    return STATUS_OK;
}

/* Pages of the range that a commit made accessible; the bookkeeping of a driver, kept by the
 * kernel. */
static size_t committed_in(char *base, size_t bytes)
{
    unsigned long from, to, end = (unsigned long)base + bytes;
    size_t committed = 0;
    char access[5], line[512];
    FILE *maps = fopen("/proc/self/maps", "r");

    assert(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%lx-%lx %4s", &from, &to, access) != 3 || access[0] != 'r')
            continue;
        from = from > (unsigned long)base ? from : (unsigned long)base;
        to = to < end ? to : end;
        committed += from < to ? to - from : 0;
    }
    fclose(maps);
    return committed;
}

static void release(struct mem_source *source, void *base, size_t bytes)
{
    struct fake_source *fake = (struct fake_source *)source;

    fake->committed_bytes -= committed_in(base, bytes);
    fake->reserved_bytes -= bytes;
    munmap(base, bytes);
}

static bool refuses(struct fake_source *fake, size_t bytes)
{
    if (fake->committed_bytes + bytes > fake->total_bytes)
        return true;
    return fake->refuse_after >= 0 && fake->refuse_after-- <= 0;
}

static enum status commit(struct mem_source *source, void *base, size_t bytes)
{
    struct fake_source *fake = (struct fake_source *)source;

    assert(bytes % source->page_bytes == 0 && (uintptr_t)base % source->page_bytes == 0);
    if (refuses(fake, bytes) || mprotect(base, bytes, PROT_READ | PROT_WRITE) != 0)
        return STATUS_NO_MEMORY;
    fake->committed_bytes += bytes;
    fake->commits++;
    return STATUS_OK;
}

static void decommit(struct mem_source *source, void *base, size_t bytes)
{
    struct fake_source *fake = (struct fake_source *)source;

    assert(bytes % source->page_bytes == 0 && committed_in(base, bytes) == bytes);
    madvise(base, bytes, MADV_DONTNEED);
    mprotect(base, bytes, PROT_NONE);
    fake->committed_bytes -= bytes;
    fake->decommits++;
}

static enum status query(struct mem_source *source, uint64_t *out_free, uint64_t *out_total)
{
    struct fake_source *fake = (struct fake_source *)source;

    *out_free = fake->total_bytes - fake->committed_bytes;
    *out_total = fake->total_bytes;
    return STATUS_OK;
}

static const struct mem_source_ops ops = {
    .reserve = reserve, .release = release, .commit = commit, .decommit = decommit, .query = query};

void fake_source_init(struct fake_source *fake, uint64_t total_bytes)
{
    *fake = (struct fake_source){
        .source = {.ops = &ops, .page_bytes = (size_t)sysconf(_SC_PAGESIZE)},
        .total_bytes = total_bytes,
        .refuse_after = -1,
    };
}

void fake_source_deinit(struct fake_source *fake)
{
    if (fake->reserved_bytes == 0 && fake->committed_bytes == 0)
        return;
    fprintf(stderr, "fake_source: %llu bytes of addresses, %llu of memory were not given back\n",
            (unsigned long long)fake->reserved_bytes, (unsigned long long)fake->committed_bytes);
    abort();
}
