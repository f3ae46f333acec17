/* What the program finds in this shared object. */
#include "device/plugin.h"

#include "device/cuda/cuda.h"
#include "plugin_border.h"

extern const struct plugin sluice_plugin;

__attribute__((visibility("default")))
const struct plugin sluice_plugin = {.abi = PLUGIN_ABI,
                                     .sizes = PLUGIN_SIZES,
                                     .version = SLUICE_VERSION,
                                     .ops = &device_cuda_ops,
                                     .border = PLUGIN_BORDER};
