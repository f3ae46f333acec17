/* Devices that come as plug-ins: shared objects opened when their name is first asked for.
 *
 * A plug-in `libsluice-<name>.so` exports one `struct plugin` named sluice_plugin.  It calls back
 * into the program by name: what it may use is listed in plugin_exports.def, and every operator's
 * op_def is the program's own, so that kernels may compare addresses.
 *
 * Looked for in this order: $SLUICE_PLUGIN_DIR when it is set (and then nowhere else), beside the
 * program's own file, the folder of the installation.
 */
#ifndef DEVICE_PLUGIN_H
#define DEVICE_PLUGIN_H

#include <stdint.h>

#include "device/device.h"

/* Raised whenever struct plugin itself changes. */
#define PLUGIN_ABI 2

/* Sizes of what crosses the border: a plug-in of another build is refused, not misread. */
#define PLUGIN_SIZES                                                                               \
    {                                                                                              \
        sizeof(struct device_ops), sizeof(struct device), sizeof(struct device_lane),              \
            sizeof(struct kernel), sizeof(struct kernel_prepare), sizeof(struct kernel_run),       \
            sizeof(struct op_def), sizeof(struct mem_source_ops), sizeof(struct mem_source),       \
            sizeof(struct device_config)                                                           \
    }
enum { PLUGIN_SIZE_COUNT = 10 };

struct plugin {
    uint32_t abi;
    uint32_t sizes[PLUGIN_SIZE_COUNT];
    const char *version; /* SLUICE_VERSION of its build */
    const struct device_ops *ops;
    /* PLUGIN_BORDER of plugin_border.h, which a build makes of all headers and tables that a
     * plug-in sees: attributes of operators, too, are read by both sides. */
    const char *border;
};

/* Opens the plug-in of device `name` ("cuda"); once for the whole process, it is never closed.
 * STATUS_NOT_FOUND: no file, or a library that it needs is not there; STATUS_PRECONDITION: another
 * build's.  The sentence names the file.  Threads: any. */
MUST_CHECK enum status plugin_load(const char *name, const struct device_ops **out_ops,
                                   struct error *err);

#endif
