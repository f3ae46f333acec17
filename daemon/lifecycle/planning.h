/* From the configuration to the device, and to how its plans are packed. */
#ifndef LIFECYCLE_PLANNING_H
#define LIFECYCLE_PLANNING_H

#include "config/config.h"
#include "device/device.h"
#include "engine/engine.h"

enum { PLANNING_FOLDER_BYTES = 4096 };

/* PlanCacheDir=auto is "plans" in systemd's CacheDirectory= ($CACHE_DIRECTORY), nothing without it,
 * as "none" is.  The path is put into `folder`, which the result points to. */
struct network_planning planning_read(const struct config *config,
                                      char folder[PLANNING_FOLDER_BYTES]);
/* KernelCacheDir= likewise, auto being "kernels".  NULL: nowhere; else `folder`. */
const char *planning_kernel_folder(const struct config *config, char folder[PLANNING_FOLDER_BYTES]);

/* Opens the device of the configuration; device_open() says what it may fail with. */
enum status planning_open_device(const struct config *config, struct device **out_device,
                                 struct error *err);

#endif
