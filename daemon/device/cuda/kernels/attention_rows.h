/* Whether 16-bit attention has a kernel of ours. */
#ifndef DEVICE_CUDA_KERNELS_ATTENTION_ROWS_H
#define DEVICE_CUDA_KERNELS_ATTENTION_ROWS_H

#include "device/cuda/cuda.h"

/* Whether kernel_attention_tensor takes it; for device_ops.takes_attention. */
bool tensor_takes_attention(struct device *device, const struct attention_attrs *attrs,
                            enum dtype dtype, const struct shape *const *shapes);

#endif
