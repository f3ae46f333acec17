/* Addresses are reserved with PROT_NONE and MAP_NORESERVE, which costs nothing; commit makes pages
 * accessible (the system fills them with zeros at first touch), decommit drops them with
 * MADV_DONTNEED and shuts them again, so that a stray access faults instead of growing the process.
 *
 * query: what /proc/meminfo calls available, or what the tightest cgroup above us leaves. */
#include "device/host_source.h"

#include <inttypes.h>
#include <link.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "device/host_cgroup.h"

enum { PAGE_BYTES = 4096, LARGE_PAGE_BYTES = 2 << 20 };

/* A range that may hold large pages starts at a multiple of their size. */
static enum status reserve(struct mem_source *source, size_t bytes, void **out_base)
{
    size_t slack = bytes >= LARGE_PAGE_BYTES ? LARGE_PAGE_BYTES : 0;
    char *base, *start;

    (void)source;
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return STATUS_INVALID;
    base = mmap(NULL, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return STATUS_NO_MEMORY;
    start = base;
    if (slack > 0) {
        size_t ahead = (LARGE_PAGE_BYTES - (uintptr_t)base % LARGE_PAGE_BYTES) % LARGE_PAGE_BYTES;

        start = base + ahead;
        if (ahead > 0)
            munmap(base, ahead);
        if (slack > ahead)
            munmap(start + bytes, slack - ahead);
        (void)madvise(start, bytes, MADV_HUGEPAGE); /* a wish: not every kernel has them */
    }
    *out_base = start;
    return STATUS_OK;
}

static void release(struct mem_source *source, void *base, size_t bytes)
{
    (void)source;
    munmap(base, bytes);
}

static enum status commit(struct mem_source *source, void *base, size_t bytes)
{
    (void)source;
    if (bytes == 0)
        return STATUS_OK;
    return mprotect(base, bytes, PROT_READ | PROT_WRITE) == 0 ? STATUS_OK : STATUS_NO_MEMORY;
}

/* Only a wish: what a system cannot do (before Linux 5.14), or has no room for, comes with the
 * first touch, or fails there. */
static void populate(struct mem_source *source, void *base, size_t bytes)
{
    uintptr_t from = (uintptr_t)base & ~(uintptr_t)(PAGE_BYTES - 1);

    (void)source;
#ifdef MADV_POPULATE_WRITE
    (void)madvise((void *)from, (uintptr_t)base + bytes - from, MADV_POPULATE_WRITE);
#else
    (void)from, (void)bytes;
#endif
}

static void decommit(struct mem_source *source, void *base, size_t bytes)
{
    (void)source;
    if (bytes == 0)
        return;
    (void)madvise(base, bytes, MADV_DONTNEED);
    (void)mprotect(base, bytes, PROT_NONE);
}

/* A line "key  1234 …" of a file of such lines; false when it is not there. */
static bool read_field(const char *path, const char *key, uint64_t *out_number)
{
    FILE *file = fopen(path, "re");
    char line[256];
    size_t length = strlen(key);
    bool found = false;

    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof(line), file) != NULL)
        found =
            strncmp(line, key, length) == 0 && sscanf(line + length, " %" SCNu64, out_number) == 1;
    fclose(file);
    return found;
}

static enum status query(struct mem_source *source, uint64_t *out_free, uint64_t *out_total)
{
    uint64_t available, total;
    struct host_cgroup cgroup;

    (void)source;
    if (!read_field("/proc/meminfo", "MemAvailable:", &available) ||
        !read_field("/proc/meminfo", "MemTotal:", &total))
        return STATUS_UNSUPPORTED;
    available *= 1024; /* both are in KiB */
    total *= 1024;
    if (host_cgroup_find(&cgroup))
        host_cgroup_limit(&cgroup, &available, &total);
    *out_free = available;
    *out_total = total;
    return STATUS_OK;
}

static const struct mem_source_ops ops = {.reserve = reserve,
                                          .release = release,
                                          .commit = commit,
                                          .populate = populate,
                                          .decommit = decommit,
                                          .query = query};

struct mem_source *host_source(void)
{
    static struct mem_source source = {&ops, PAGE_BYTES};

    return &source;
}

/* Segments that nobody ever wrote to, relocations included, are as the file has them. */
static int let_go_of_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size, (void)arg;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t from =
            (info->dlpi_addr + segment->p_vaddr + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1);
        uintptr_t to =
            (info->dlpi_addr + segment->p_vaddr + segment->p_memsz) & ~(uintptr_t)(PAGE_BYTES - 1);

        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_W) == 0 && from < to)
            (void)madvise((void *)from, to - from, MADV_DONTNEED);
    }
    return 0;
}

void host_trim(void)
{
    (void)malloc_trim(0);
    (void)dl_iterate_phdr(let_go_of_library, NULL);
}
