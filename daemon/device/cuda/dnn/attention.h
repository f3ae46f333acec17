/* Attention in 16-bit types through cuDNN's scaled dot-product attention, which is compiled for
 * each shape (compiled.h): until it is there, attention stays two products with a Softmax between.
 */
#ifndef DEVICE_CUDA_DNN_ATTENTION_H
#define DEVICE_CUDA_DNN_ATTENTION_H

#include "device/cuda/cuda.h"

/* Whether it is one that the library may have an engine for, once that is compiled. */
bool dnn_may_take_attention(struct device *device, const struct attention_attrs *attrs,
                            enum dtype dtype, const struct shape *const *shapes);
/* Whether kernel_attention_dnn will take it, now and from now on; for device_ops.takes_attention.
 */
bool dnn_takes_attention(struct device *device, const struct attention_attrs *attrs,
                         enum dtype dtype, const struct shape *const *shapes);

#endif
