/* libsluice-cuda.so of other builds: OTHER says what is another one's. */
#include "device/kernel.h"
#include "device/plugin.h"
#include "plugin_border.h"

enum { OTHER_ABI = 1, OTHER_SIZE, OTHER_VERSION, OTHER_BORDER, OTHER_NOTHING };

static enum status open_nothing(const struct device_config *config, struct device **out_device,
                                struct error *err)
{
    (void)config;
    (void)out_device;
    return error_set(err, STATUS_NOT_FOUND, "opened, and has no device");
}

static const struct device_ops ops = {.name = "cuda", .open = open_nothing};
static const uint32_t own_sizes[PLUGIN_SIZE_COUNT] = PLUGIN_SIZES;

extern struct plugin sluice_plugin;
__attribute__((visibility("default"))) struct plugin sluice_plugin = {
    .abi = OTHER == OTHER_ABI ? PLUGIN_ABI - 1 : PLUGIN_ABI,
    .sizes = PLUGIN_SIZES,
    .version = OTHER == OTHER_VERSION ? "0.0.1" : SLUICE_VERSION,
    .ops = &ops,
    .border = OTHER == OTHER_BORDER ? "another" : PLUGIN_BORDER};

__attribute__((constructor)) static void change_size(void)
{
    if (OTHER == OTHER_SIZE)
        sluice_plugin.sizes[PLUGIN_SIZE_COUNT - 1] = own_sizes[PLUGIN_SIZE_COUNT - 1] + 8;
}
