/* out[i] = function(a[i], b[i]) */
#ifndef DEVICE_CUDA_KERNELS_POINTWISE_H
#define DEVICE_CUDA_KERNELS_POINTWISE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

enum pointwise_function { POINTWISE_RELU, POINTWISE_ADD };

struct pointwise {
    enum pointwise_function function;
    int64_t count; /* > 0 */
    const float *a;
    const float *b; /* NULL for functions of one operand */
    float *out;     /* may be a */
};

#ifdef __cplusplus
extern "C"
#endif
    cudaError_t
    cuda_pointwise(const struct pointwise *args, cudaStream_t stream);

#endif
