#include "space.h"

#include "core.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t WINDOW = (uint64_t)1 << 38; /* 256 GiB */

struct taken {
    uint64_t address;
    size_t bytes;
};

static uint64_t base; /* first address of the window */
static int data_file = -1;
static int shadow_file = -1;
static uint64_t file_end;     /* extents are never given out twice */
static uint64_t next_address; /* where the search for addresses goes on */

static struct taken *taken; /* sorted by address */
static size_t takens;
static size_t takens_room;
static struct region **regions; /* sorted by address */
static size_t region_count;
static size_t regions_room;

static _Noreturn void die(const char *what)
{
    perror(what);
    abort();
}

static int nameless_file(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)1 << 46) != 0)
        die("sim: memfd");
    return fd;
}

static void space_start(void)
{
    if (base != 0)
        return;
    size_t all = WINDOW * 2 + WINDOW / 8 + (2 << 20);
    void *at = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        die("sim: window of addresses");
    base = ((uint64_t)(uintptr_t)at + (2 << 20) - 1) & ~(uint64_t)((2 << 20) - 1);
    next_address = base + (2 << 20);
    data_file = nameless_file("sim device memory");
    shadow_file = nameless_file("sim shadow");
}

static void *alias_of(uint64_t address)
{
    return (void *)(uintptr_t)(address + WINDOW);
}

static void *shadow_of(uint64_t address)
{
    return (void *)(uintptr_t)(base + 2 * WINDOW + (address - base) / 8);
}

bool space_owns(uint64_t address)
{
    return base != 0 && address >= base && address < base + WINDOW;
}

/* Index of the first range that ends behind `address`. */
static size_t taken_from(uint64_t address)
{
    size_t low = 0;
    size_t high = takens;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (taken[middle].address + taken[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_free(uint64_t address, size_t bytes)
{
    size_t i = taken_from(address);

    return address >= base && address + bytes <= base + WINDOW &&
           (i == takens || taken[i].address >= address + bytes);
}

static bool search(uint64_t from, size_t bytes, size_t align, uint64_t *out)
{
    uint64_t at = (from + align - 1) & ~(uint64_t)(align - 1);

    for (size_t i = taken_from(at); i < takens && taken[i].address < at + bytes; i++)
        at = (taken[i].address + taken[i].bytes + align - 1) & ~(uint64_t)(align - 1);
    *out = at;
    return at + bytes <= base + WINDOW;
}

static void *grown(void *array, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return array;
    *room = *room * 2 + 64;
    return realloc(array, *room * size);
}

bool space_take(size_t bytes, size_t align, uint64_t wish, uint64_t *out_address)
{
    uint64_t at;

    space_start();
    if (bytes > WINDOW / 2)
        return false;
    if (wish != 0 && wish % align == 0 && is_free(wish, bytes))
        at = wish;
    else if (!search(next_address, bytes, align, &at) && !search(base, bytes, align, &at))
        return false;
    else
        next_address = at + bytes;
    size_t i = taken_from(at);
    taken = grown(taken, takens, &takens_room, sizeof(*taken));
    memmove(taken + i + 1, taken + i, (takens - i) * sizeof(*taken));
    taken[i] = (struct taken){at, bytes};
    takens++;
    *out_address = at;
    return true;
}

void space_drop(uint64_t address, size_t bytes)
{
    size_t i = taken_from(address);

    if (i == takens || taken[i].address != address || taken[i].bytes != bytes)
        die("sim: addresses given back that were not taken");
    takens--;
    memmove(taken + i, taken + i + 1, (takens - i) * sizeof(*taken));
}

struct extent extent_make(size_t bytes)
{
    static char poison[SPACE_UNIT];
    struct extent extent = {file_end, bytes, -1, -1};

    space_start();
    memset(poison, 0xFF, sizeof(poison));
    for (size_t done = 0; done < bytes; done += sizeof(poison))
        if (pwrite(data_file, poison, sizeof(poison), (off_t)(file_end + done)) !=
            (ssize_t)sizeof(poison))
            die("sim: device memory");
    file_end += bytes;
    return extent;
}

void extent_free(const struct extent *extent)
{
    if (extent->data_fd >= 0) {
        close(extent->data_fd);
        close(extent->shadow_fd);
        return;
    }
    const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    (void)fallocate(data_file, hole, (off_t)extent->offset, (off_t)extent->bytes);
    (void)fallocate(shadow_file, hole, (off_t)(extent->offset / 8), (off_t)(extent->bytes / 8));
}

static void map(void *at, size_t bytes, int fd, uint64_t offset)
{
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
             (off_t)offset) == MAP_FAILED)
        die("sim: mapping of device memory");
}

void extent_map(uint64_t address, const struct extent *extent, size_t bytes)
{
    bool ours = extent->data_fd < 0;

    map(alias_of(address), bytes, ours ? data_file : extent->data_fd, extent->offset);
    map(shadow_of(address), bytes / 8, ours ? shadow_file : extent->shadow_fd, extent->offset / 8);
}

static void bar(void *at, size_t bytes)
{
    if (mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
             0) == MAP_FAILED)
        die("sim: unmapping of device memory");
}

void extent_unmap(uint64_t address, size_t bytes)
{
    bar(alias_of(address), bytes);
    bar(shadow_of(address), bytes / 8);
}

void extent_files(int *out_data, int *out_shadow)
{
    space_start();
    *out_data = data_file;
    *out_shadow = shadow_file;
}

/* Index of the first region that ends behind `address`. */
static size_t region_from(uint64_t address)
{
    size_t low = 0;
    size_t high = region_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (regions[middle]->address + regions[middle]->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void region_add(struct region *region)
{
    size_t i = region_from(region->address);

    regions = grown(regions, region_count, &regions_room, sizeof(struct region *));
    memmove(regions + i + 1, regions + i, (region_count - i) * sizeof(struct region *));
    regions[i] = region;
    region_count++;
}

void region_remove(struct region *region)
{
    size_t i = region_from(region->address);

    if (i == region_count || regions[i] != region)
        die("sim: region removed that was not there");
    region_count--;
    memmove(regions + i, regions + i + 1, (region_count - i) * sizeof(struct region *));
}

struct region *region_find(uint64_t address)
{
    return region_in(address, 1);
}

struct region *region_in(uint64_t address, size_t bytes)
{
    size_t i = region_from(address);

    return i < region_count && regions[i]->address < address + bytes ? regions[i] : NULL;
}

static bool joins(const struct region *before, const struct region *after)
{
    return before->address + before->bytes == after->address && before->accessible &&
           after->accessible && before->kind != REGION_HOST && after->kind != REGION_HOST;
}

bool span_find(uint64_t address, struct span *out)
{
    size_t first = region_from(address);

    if (first == region_count || regions[first]->address > address || !regions[first]->accessible)
        return false;
    size_t last = first;
    while (first > 0 && joins(regions[first - 1], regions[first]))
        first--;
    while (last + 1 < region_count && joins(regions[last], regions[last + 1]))
        last++;
    bool host = regions[first]->kind == REGION_HOST;
    out->low = regions[first]->address;
    out->high = regions[last]->address + regions[last]->bytes;
    out->to_host = host ? 0 : (int64_t)WINDOW;
    out->shadow = host ? NULL : shadow_of(base);
    out->shadow_from = base;
    return true;
}

struct region *region_make(size_t bytes, enum region_kind kind)
{
    size_t whole = (bytes + SPACE_UNIT - 1) & ~(size_t)(SPACE_UNIT - 1);
    struct region *region = calloc(1, sizeof(*region));

    /* A unit behind each allocation stays unmapped. */
    if (region == NULL || !space_take(whole + SPACE_UNIT, SPACE_UNIT, 0, &region->address)) {
        free(region);
        return NULL;
    }
    region->bytes = bytes;
    region->span = whole + SPACE_UNIT;
    region->kind = kind;
    region->accessible = true;
    region->extent = extent_make(whole);
    extent_map(region->address, &region->extent, whole);
    region_add(region);
    return region;
}

void region_free(struct region *region)
{
    region_remove(region);
    extent_unmap(region->address, region->span - SPACE_UNIT);
    extent_free(&region->extent);
    space_drop(region->address, region->span);
    free(region);
}
