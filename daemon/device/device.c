/* The registry of devices: main says which ones it was linked with, everything else finds them by
 * name. */
#include "device/device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LOG_COMPONENT "device"
#include "device/faulty_source.h"
#include "device/host_room.h"
#include "device/plugin.h"
#include "memory/host_pool.h"
#include "observe/log.h"

enum { MAX_DEVICES = 8 };

static const struct device_ops *table[MAX_DEVICES];
static size_t count;

void device_register(const struct device_ops *ops)
{
    for (size_t i = 0; i < count; i++)
        if (table[i] == ops)
            return;
    assert(count < MAX_DEVICES);
    table[count++] = ops;
}

/* "cuda:1" names the device kind "cuda". */
static const struct device_ops *find(const char *name)
{
    size_t length = strcspn(name, ":");

    for (size_t i = 0; i < count; i++)
        if (strlen(table[i]->name) == length && strncmp(table[i]->name, name, length) == 0)
            return table[i];
    return NULL;
}

static bool is_cuda(const char *name)
{
    return strcmp(name, "cuda") == 0 || strncmp(name, "cuda:", strlen("cuda:")) == 0;
}

enum status device_check_precision(const char *name, const char *precision, struct error *err)
{
    static const struct {
        const char *name;
        bool on_cpu;
    } known[] = {{"default", true}, {"strict", true}, {"tf32", false},
                 {"fp16", false},   {"bf16", false},  {"int8", true}};
    bool on_cpu = strcmp(name, "cpu") == 0;
    size_t i = 0;

    if (precision == NULL || (!on_cpu && !is_cuda(name) && strcmp(name, "auto") != 0))
        return STATUS_OK;
    while (i < sizeof(known) / sizeof(known[0]) && strcmp(precision, known[i].name) != 0)
        i++;
    if (i == sizeof(known) / sizeof(known[0]))
        return error_set(err, STATUS_INVALID,
                         "precision '%s' is unknown; allowed are default, strict, tf32, fp16, bf16 "
                         "and int8",
                         precision);
    if (on_cpu && !known[i].on_cpu)
        return error_set(err, STATUS_INVALID,
                         "precision '%s' is not for the CPU; allowed are default, strict and int8",
                         precision);
    return STATUS_OK;
}

/* A device linked in (tests do that), else a plug-in. */
static enum status find_cuda(const struct device_ops **out_ops, struct error *err)
{
    *out_ops = find("cuda");
    return *out_ops != NULL ? STATUS_OK : plugin_load("cuda", out_ops, err);
}

static enum status open_cuda(const struct device_config *config, struct device **out_device,
                             struct error *err)
{
    const struct device_ops *cuda;

    TRY(find_cuda(&cuda, err));
    return cuda->open(config, out_device, err);
}

static enum status open_auto(const struct device_config *config, struct device **out_device,
                             struct error *err)
{
    const struct device_ops *cpu = find("cpu");
    struct device_config wanted = *config;
    struct error why;

    wanted.name = "cuda:0";
    if (open_cuda(&wanted, out_device, &why) == STATUS_OK)
        return STATUS_OK;
    log_info("no CUDA device, using the CPU: %s", why.text);
    if (cpu == NULL)
        return error_set(err, STATUS_NOT_FOUND, "device 'auto': this program has no CPU device");
    wanted.name = "cpu";
    return cpu->open(&wanted, out_device, err);
}

static enum status open_named(const struct device_config *config, struct device **out_device,
                              struct error *err)
{
    const struct device_ops *ops;
    char known[128] = "auto";

    if (strcmp(config->name, "auto") == 0)
        return open_auto(config, out_device, err);
    ops = find(config->name);
    if (ops != NULL)
        return ops->open(config, out_device, err);
    if (is_cuda(config->name))
        return open_cuda(config, out_device, err);
    for (size_t i = 0; i < count; i++) {
        strncat(known, ", ", sizeof(known) - strlen(known) - 1);
        strncat(known, table[i]->name, sizeof(known) - strlen(known) - 1);
    }
    return error_set(err, STATUS_NOT_FOUND, "there is no device '%s'; known are: %s, cuda",
                     config->name, known);
}

/* The CPU beside a device that cannot compute everything itself. */
static enum status open_host(const struct device_config *config, struct device *device,
                             struct error *err)
{
    const struct device_ops *cpu = find("cpu");
    struct device_config wanted = *config;

    if (device->ops->host_memory || cpu == NULL)
        return STATUS_OK;
    wanted.name = "cpu";
    wanted.lanes = device->lanes;
    wanted.precision = "default";
    return cpu->open(&wanted, &device->host, err);
}

/* What SLUICE_FAULT says of the device's memory. */
static enum status make_faulty(struct device *device, struct error *err)
{
    const char *words = getenv(FAULT_VARIABLE);

    if (words == NULL || words[0] == '\0')
        return STATUS_OK;
    TRY(faulty_source_create(device->memory, words, &device->faulty, err));
    device->memory = device->faulty;
    return STATUS_OK;
}

enum status device_open(const struct device_config *config, struct device **out_device,
                        struct error *err)
{
    struct device *device;
    enum status status;

    TRY(open_named(config, &device, err));
    status = make_faulty(device, err);
    if (status == STATUS_OK)
        status = open_host(config, device, err);
    if (status != STATUS_OK) {
        device_close(device);
        return status;
    }
    *out_device = device;
    return STATUS_OK;
}

void device_close(struct device *device)
{
    struct mem_source *faulty;
    struct device *host;

    if (device == NULL)
        return;
    faulty = device->faulty;
    host = device->host;
    device->ops->close(device);
    faulty_source_destroy(faulty);
    if (host != NULL)
        host->ops->close(host);
}

void device_give_back(struct device *device)
{
    if (device->memory->ops->trim != NULL)
        (void)device->memory->ops->trim(device->memory, 0);
}

bool device_is_lost(struct device *device)
{
    return device->ops->is_lost != NULL && device->ops->is_lost(device);
}

void device_settle(struct device *device)
{
    if (device->ops->settle != NULL)
        device->ops->settle(device);
}

enum status device_lane_open_host(struct device_lane *lane)
{
    struct device *host = lane->device->host;

    return host == NULL ? STATUS_OK : host->ops->lane_open(host, lane->index, &lane->host);
}

/* Page-locked memory of the system's own, uncounted. */
static enum status map_host_memory(struct device *device, size_t bytes, void **out_base)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED)
        return STATUS_NO_MEMORY;
    if (device->ops->pin != NULL)
        (void)device->ops->pin(device, base, bytes);
    *out_base = base;
    return STATUS_OK;
}

static void unmap_host_memory(struct device *device, void *base, size_t bytes)
{
    if (device->ops->unpin != NULL)
        device->ops->unpin(device, base);
    munmap(base, bytes);
}

void device_lane_give_host_memory(struct device_lane *lane)
{
    if (lane->host_memory == NULL)
        return;
    if (lane->host_pool != NULL)
        host_pool_give(lane->host_pool, lane->host_memory, lane->host_bytes);
    else
        unmap_host_memory(lane->device, lane->host_memory, lane->host_bytes);
    lane->host_memory = NULL;
    lane->host_bytes = 0;
}

enum status device_lane_host_memory(struct device_lane *lane, size_t bytes, void **out_base)
{
    size_t room = device_host_room(bytes);
    void *base;

    if (room > lane->host_bytes) {
        device_lane_give_host_memory(lane);
        TRY(lane->host_pool != NULL ? host_pool_take(lane->host_pool, room, &base)
                                    : map_host_memory(lane->device, room, &base));
        lane->host_memory = base;
        lane->host_bytes = room;
    }
    *out_base = lane->host_memory;
    return STATUS_OK;
}

void device_lane_close_host(struct device_lane *lane)
{
    device_lane_give_host_memory(lane);
    if (lane->host != NULL)
        lane->host->device->ops->lane_close(lane->host);
    lane->host = NULL;
}
