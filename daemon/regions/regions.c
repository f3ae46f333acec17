#include "regions/regions.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOG_COMPONENT "regions"
#include "base/clock.h"
#include "base/guard.h"
#include "base/utf8.h"
#include "device/device.h"
#include "observe/log.h"
#include "regions/internal.h"

struct regions {
    struct device *device;
    struct region_limits limits;
    struct list named;
    unsigned count[REGION_KINDS];
    uint64_t bytes[REGION_KINDS]; /* whole pages; of what is still in use too */
    uint64_t leaving_bytes;
};

static const char *const kind_names[REGION_KINDS] = {"system", "cuda"};
static const char *const kind_words[REGION_KINDS] = {"system", "CUDA"};

const char *region_kind_name(enum region_kind kind)
{
    return kind_names[kind];
}

enum status regions_create(struct device *device, struct regions **out_regions)
{
    struct regions *regions = calloc(1, sizeof(*regions));

    if (regions == NULL)
        return STATUS_NO_MEMORY;
    regions->device = device;
    list_init(&regions->named);
    *out_regions = regions;
    return STATUS_OK;
}

void regions_set_limits(struct regions *regions, const struct region_limits *limits)
{
    regions->limits = *limits;
}

static struct region *find(const struct regions *regions, struct region_name name)
{
    struct region *region;

    LIST_FOR_EACH (region, &regions->named, struct region, link)
        if (region->name_size == name.size && memcmp(region->name, name.data, name.size) == 0)
            return region;
    return NULL;
}

/* What it counts against the limit. */
static uint64_t charge_of(const struct region *region)
{
    return region->kind == REGION_SYSTEM ? system_page_bytes(region->offset, region->bytes)
                                         : region->bytes;
}

/* ---- life of one ---- */

static void region_free(struct region *region)
{
    struct regions *regions = region->regions;

    if (region->imported != NULL)
        regions->device->ops->import_close(regions->device, region->imported);
    system_unmap(region);
    if (region->owner_fd >= 0)
        (void)close(region->owner_fd);
    free(region);
}

static void drop(struct region *region)
{
    struct regions *regions = region->regions;
    uint64_t charge = charge_of(region);

    if (--region->references > 0)
        return;
    regions->bytes[region->kind] -= charge;
    regions->leaving_bytes -= charge;
    region_free(region);
}

/* The name goes at once, the memory with the last use. */
static void unname(struct region *region)
{
    struct regions *regions = region->regions;

    log_debug("region '%s': unregistered, %u uses", region->name, region->references - 1);
    list_remove(&region->link);
    regions->count[region->kind]--;
    regions->leaving_bytes += charge_of(region);
    drop(region);
}

void regions_destroy(struct regions *regions)
{
    struct region *region;

    if (regions == NULL)
        return;
    while ((region = LIST_FIRST(&regions->named, struct region, link)) != NULL)
        unname(region);
    free(regions);
}

/* ---- registration ---- */

static enum status check_policy(const struct regions *regions, enum region_kind kind,
                                const struct region_order *order, struct error *err)
{
    const struct device *device = regions->device;

    if (regions->limits.policy == REGIONS_OFF)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s shared memory is turned off here (SharedMemory=off)",
                         kind_words[kind]);
    if (regions->limits.policy == REGIONS_LOCAL && !order->peer.is_local)
        return error_set(err, STATUS_DENIED,
                         "shared memory regions are for clients on the daemon's machine "
                         "(SharedMemory=local)");
    if (kind == REGION_CUDA && (device == NULL || device->ops->import_open == NULL))
        return error_set(err, STATUS_UNSUPPORTED,
                         "CUDA shared memory is not supported: the daemon runs on the device '%s'",
                         device != NULL ? device->ops->name : "none");
    return STATUS_OK;
}

/* Printable: names and keys are shown in logs and tables. */
static bool is_text(struct region_name name)
{
    for (size_t i = 0, length; i < name.size; i += length) {
        unsigned char first = (unsigned char)name.data[i];

        length = utf8_length(name.data + i, name.size - i);
        if (length == 0 || first < 0x20 || first == 0x7F)
            return false;
    }
    return true;
}

static enum status check_order(const struct regions *regions, enum region_kind kind,
                               const struct region_order *order, struct error *err)
{
    const struct region_name *name = &order->name;
    uint64_t charge =
        kind == REGION_SYSTEM ? system_page_bytes(order->offset, order->bytes) : order->bytes;
    uint64_t held = regions->bytes[REGION_SYSTEM] + regions->bytes[REGION_CUDA];

    if (name->size == 0 || name->size > REGION_NAME_MAX)
        return error_set(err, STATUS_INVALID,
                         "the name of a shared memory region has 1 to %d bytes, not %zu",
                         REGION_NAME_MAX, name->size);
    if (!is_text(*name) || (kind == REGION_SYSTEM && !is_text(order->key)))
        return error_set(err, STATUS_INVALID,
                         "the name and the key of a shared memory region are UTF-8 without control "
                         "characters");
    if (find(regions, *name) != NULL)
        return error_set(err, STATUS_EXISTS, "shared memory region '%.*s' already in manager",
                         (int)name->size, name->data);
    if (order->bytes == 0)
        return error_set(err, STATUS_INVALID,
                         "failed to register shared memory region '%.*s': it has no bytes",
                         (int)name->size, name->data);
    if (regions->count[REGION_SYSTEM] + regions->count[REGION_CUDA] >= regions->limits.regions)
        return error_set(err, STATUS_NO_MEMORY,
                         "failed to register shared memory region '%.*s': there are %u already, "
                         "the limit (SharedMemoryRegions)",
                         (int)name->size, name->data, regions->limits.regions);
    if (charge > regions->limits.bytes || held > regions->limits.bytes - charge)
        return error_set(err, STATUS_NO_MEMORY,
                         "failed to register shared memory region '%.*s': %llu bytes beside %llu "
                         "are more than the limit of %llu (SharedMemoryLimit)",
                         (int)name->size, name->data, (unsigned long long)order->bytes,
                         (unsigned long long)held, (unsigned long long)regions->limits.bytes);
    return STATUS_OK;
}

/* Who registers over a Unix socket takes the region along when it goes.  In another namespace of
 * processes it has no number here: the region stays. */
static void note_owner(struct region *region, const struct region_peer *peer)
{
    if (!peer->is_known || peer->pid <= 0)
        return;
    region->owner_fd = (int)syscall(SYS_pidfd_open, peer->pid, 0);
    if (region->owner_fd >= 0)
        region->owner = peer->pid;
}

static enum status import_memory(struct region *region, const struct region_order *order,
                                 struct error *err)
{
    struct device *device = region->regions->device;
    const struct device_import import = {.handle = order->handle,
                                         .handle_bytes = order->handle_bytes,
                                         .device_id = order->device_id,
                                         .bytes = order->bytes};

    if (order->handle_bytes != sizeof(region->handle))
        return error_set(err, STATUS_INVALID,
                         "failed to register shared memory region '%s': its handle has %zu bytes, "
                         "not %zu",
                         region->name, order->handle_bytes, sizeof(region->handle));
    memcpy(region->handle, order->handle, sizeof(region->handle));
    region->device_id = order->device_id;
    TRY(device->ops->import_open(device, &import, &region->imported, err));
    region->data = region->imported;
    return STATUS_OK;
}

static struct region *make_region(struct regions *regions, enum region_kind kind,
                                  const struct region_order *order)
{
    struct region *region = calloc(1, sizeof(*region));

    if (region == NULL)
        return NULL;
    list_init(&region->link);
    region->regions = regions;
    region->kind = kind;
    memcpy(region->name, order->name.data, order->name.size);
    region->name_size = order->name.size;
    region->offset = kind == REGION_SYSTEM ? order->offset : 0;
    region->bytes = order->bytes;
    region->references = 1;
    region->owner_fd = -1;
    region->since_us = region->last_use_us = clock_now_us();
    return region;
}

enum status regions_register(struct regions *regions, enum region_kind kind,
                             const struct region_order *order, struct error *err)
{
    struct region *region;
    enum status status;

    TRY(check_policy(regions, kind, order, err));
    TRY(check_order(regions, kind, order, err));
    region = make_region(regions, kind, order);
    if (region == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    status =
        kind == REGION_SYSTEM ? system_map(region, order, err) : import_memory(region, order, err);
    if (status != STATUS_OK) {
        region_free(region);
        return status;
    }
    note_owner(region, &order->peer);
    list_append(&regions->named, &region->link);
    regions->count[kind]++;
    regions->bytes[kind] += charge_of(region);
    log_debug("region '%s': %llu bytes of %s shared memory", region->name,
              (unsigned long long)region->bytes, kind_names[kind]);
    return STATUS_OK;
}

void regions_unregister(struct regions *regions, enum region_kind kind, struct region_name name)
{
    struct region *region;

    LIST_FOR_EACH (region, &regions->named, struct region, link)
        if (region->kind == kind &&
            (name.size == 0 ||
             (region->name_size == name.size && memcmp(region->name, name.data, name.size) == 0)))
            unname(region);
}

void regions_sweep(struct regions *regions)
{
    struct region *region;

    LIST_FOR_EACH (region, &regions->named, struct region, link) {
        struct pollfd end = {.fd = region->owner_fd, .events = POLLIN};

        if (region->owner_fd < 0 || poll(&end, 1, 0) <= 0)
            continue;
        log_info("region '%s': the process %d that registered it is gone", region->name,
                 (int)region->owner);
        unname(region);
    }
}

/* ---- use ---- */

enum status region_take(struct regions *regions, struct region_name name, uint64_t offset,
                        uint64_t bytes, bool writes, struct region_span *out_span,
                        struct error *err)
{
    struct region *region = find(regions, name);

    if (region == NULL)
        return error_set(err, STATUS_NOT_FOUND, "Unable to find shared memory region: '%.*s'",
                         (int)(name.size < REGION_NAME_MAX ? name.size : REGION_NAME_MAX),
                         name.data);
    if (offset > region->bytes)
        return error_set(err, STATUS_INVALID, "Invalid offset for shared memory region: '%s'",
                         region->name);
    if (bytes > region->bytes - offset)
        return error_set(err, STATUS_INVALID,
                         "Invalid offset + byte size for shared memory region: '%s'", region->name);
    if (writes && region->kind == REGION_SYSTEM && !region->is_writable)
        return error_set(err, STATUS_DENIED,
                         "shared memory region '%s' may only be read by the daemon", region->name);
    TRY(region_check(region, err));
    region->references++;
    region->last_use_us = clock_now_us();
    *out_span = (struct region_span){
        .region = region, .data = (char *)region->data + offset, .offset = offset, .bytes = bytes};
    return STATUS_OK;
}

void region_give(struct region *region)
{
    drop(region);
}

enum status region_check(const struct region *region, struct error *err)
{
    if (!region->is_guarded || guard_is_whole(region->guard))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "shared memory region '%s' is broken: its object was truncated, or there was "
                     "no memory for it; register it again",
                     region->name);
}

enum region_kind region_kind_of(const struct region *region)
{
    return region->kind;
}

static bool ranges_meet(uint64_t first, uint64_t first_bytes, uint64_t second,
                        uint64_t second_bytes)
{
    return first < second + second_bytes && second < first + first_bytes;
}

bool region_spans_meet(const struct region_span *first, const struct region_span *second)
{
    const struct region *a = first->region, *b = second->region;
    bool same = a->kind == b->kind &&
                (a->kind == REGION_SYSTEM ? a->device == b->device && a->inode == b->inode
                                          : memcmp(a->handle, b->handle, sizeof(a->handle)) == 0);

    return same && ranges_meet(a->offset + first->offset, first->bytes, b->offset + second->offset,
                               second->bytes);
}

/* ---- to be told ---- */

static struct region_info describe(const struct region *region)
{
    return (struct region_info){
        .name = {region->name, region->name_size},
        .kind = region->kind,
        .key = region->key,
        .offset = region->offset,
        .bytes = region->bytes,
        .device_id = region->device_id,
        .uses = region->references - 1,
        .owner = region->owner,
        .since_us = region->since_us,
        .last_use_us = region->last_use_us,
        .is_whole = !region->is_guarded || guard_is_whole(region->guard),
    };
}

void regions_for_each(struct regions *regions, enum region_kind kind, regions_each_fn each,
                      void *arg)
{
    struct region *region;

    LIST_FOR_EACH (region, &regions->named, struct region, link) {
        struct region_info info = describe(region);

        if (kind == REGION_KINDS || kind == region->kind)
            each(arg, &info);
    }
}

enum status regions_find(struct regions *regions, enum region_kind kind, struct region_name name,
                         struct region_info *out_info, struct error *err)
{
    const struct region *region = find(regions, name);
    int size = (int)(name.size < REGION_NAME_MAX ? name.size : REGION_NAME_MAX);

    if (region == NULL)
        return error_set(err, STATUS_NOT_FOUND, "Unable to find %s shared memory region: '%.*s'",
                         kind_names[kind], size, name.data);
    if (region->kind != kind)
        return error_set(err, STATUS_NOT_FOUND,
                         "The region named '%.*s' is registered as %s shared memory, not %s shared "
                         "memory",
                         size, name.data, kind_words[region->kind], kind_words[kind]);
    *out_info = describe(region);
    return STATUS_OK;
}

void regions_read_use(const struct regions *regions, struct regions_use *out_use)
{
    *out_use = (struct regions_use){.leaving_bytes = regions->leaving_bytes,
                                    .limit_bytes = regions->limits.bytes};
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        out_use->bytes[kind] = regions->bytes[kind];
        out_use->count[kind] = regions->count[kind];
    }
}
