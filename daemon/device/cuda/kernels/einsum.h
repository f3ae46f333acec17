/* Einsum: each output element is the sum over some axes of the product of all inputs' elements. */
#ifndef DEVICE_CUDA_KERNELS_EINSUM_H
#define DEVICE_CUDA_KERNELS_EINSUM_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "device/cuda/kernels/walk.h"

enum { EINSUM_INPUTS = 6 };

struct einsum {
    struct walk out; /* row-major over the output */
    struct walk sum; /* over what is summed */
    uint32_t inputs;
    uint32_t type; /* enum pointwise_type */
    uint32_t dtype;
    struct walk_strides out_strides[EINSUM_INPUTS];
    struct walk_strides sum_strides[EINSUM_INPUTS];
    const void *in[EINSUM_INPUTS];
    void *to;
};

/* Col2Im: columns of blocks added into the image they were cut out of; floats. */
enum { FOLD_AXES = 4 };
struct fold {
    int64_t planes, places, elements; /* elements: of a block */
    uint32_t axes;
    int64_t image[FOLD_AXES], block[FOLD_AXES], along[FOLD_AXES]; /* along: places of an axis */
    int64_t stride[FOLD_AXES], dilation[FOLD_AXES], pad[FOLD_AXES];
    const float *from;
    float *to;
};

/* `count` elements of `bytes` with the lowest of these bits. */
struct fill {
    int64_t count;
    uint64_t bits;
    uint32_t bytes; /* 1, 2, 4 or 8 */
    void *to;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_einsum(const struct einsum *einsum, cudaStream_t stream);
cudaError_t cuda_fold(const struct fold *fold, cudaStream_t stream);
cudaError_t cuda_fill(const struct fill *fill, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
