/* The registry of devices: main says which ones it was linked with, everything else finds them by
 * name. */
#include "device/device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "device/faulty_source.h"

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

const struct device_ops *const *device_table(size_t *out_count)
{
    *out_count = count;
    return table;
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

static enum status open_auto(const struct device_config *config, struct device **out_device,
                             struct error *err)
{
    const struct device_ops *cuda = find("cuda");
    const struct device_ops *cpu = find("cpu");
    struct device_config wanted = *config;

    if (cuda != NULL) {
        struct error ignored;

        wanted.name = "cuda:0";
        if (cuda->open(&wanted, out_device, &ignored) == STATUS_OK)
            return STATUS_OK;
    }
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
    for (size_t i = 0; i < count; i++) {
        strncat(known, ", ", sizeof(known) - strlen(known) - 1);
        strncat(known, table[i]->name, sizeof(known) - strlen(known) - 1);
    }
    return error_set(err, STATUS_NOT_FOUND, "there is no device '%s'; known are: %s", config->name,
                     known);
}

enum status device_open(const struct device_config *config, struct device **out_device,
                        struct error *err)
{
    const char *words = getenv(FAULT_VARIABLE);
    struct device *device;
    enum status status = open_named(config, &device, err);

    if (status == STATUS_OK && words != NULL && words[0] != '\0') {
        status = faulty_source_create(device->memory, words, &device->faulty, err);
        if (status == STATUS_OK)
            device->memory = device->faulty;
        else
            device->ops->close(device);
    }
    if (status == STATUS_OK)
        *out_device = device;
    return status;
}

void device_close(struct device *device)
{
    struct mem_source *faulty;

    if (device == NULL)
        return;
    faulty = device->faulty;
    device->ops->close(device);
    faulty_source_destroy(faulty);
}
