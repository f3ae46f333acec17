/* Memory of this GPU that another process exported by cudaIpcGetMemHandle(). */
#ifndef DEVICE_CUDA_IMPORT_H
#define DEVICE_CUDA_IMPORT_H

#include "device/device.h"

/* device_ops.import_open and import_close. */
enum status cuda_import_open(struct device *device, const struct device_import *import,
                             void **out_address, struct error *err);
void cuda_import_close(struct device *device, void *address);

#endif
