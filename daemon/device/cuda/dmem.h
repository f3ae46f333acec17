/* The cgroup controller of device memory, `dmem`: what it leaves of a device's memory.
 *
 * Files hold one line a region, "drm/0000:81:00.0/vram0 8589934592" or "… max".  A region belongs
 * to the device whose bus address stands in its name.
 */
#ifndef DEVICE_CUDA_DMEM_H
#define DEVICE_CUDA_DMEM_H

#include <stdbool.h>
#include <stdint.h>

/* The least of our own cgroup and those above it.  False: none limits the device on `bus`. */
bool dmem_limit(const char *bus, uint64_t *out_left, uint64_t *out_limit);
/* The same for the cgroup in `folder` alone. */
bool dmem_limit_of(const char *folder, const char *bus, uint64_t *out_left, uint64_t *out_limit);

#endif
