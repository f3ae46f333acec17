/* Resize: each output element is a weighted sum of one, two or four input elements an axis. */
#ifndef DEVICE_CUDA_KERNELS_RESIZE_H
#define DEVICE_CUDA_KERNELS_RESIZE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "device/cuda/kernels/walk.h"

/* As the operator's attributes of these names (ops/indexing.h), in the same order. */
enum resize_by { RESIZE_BY_NEAREST, RESIZE_BY_LINES, RESIZE_BY_CUBES };
enum resize_rule {
    RULE_HALF_PIXEL,
    RULE_HALF_PIXEL_SYMMETRIC,
    RULE_PYTORCH_HALF_PIXEL,
    RULE_ALIGN_CORNERS,
    RULE_ASYMMETRIC,
    RULE_CROP
};
enum resize_rounding { ROUND_TO_FLOOR, ROUND_TO_CEIL, ROUND_DOWN, ROUND_UP };

struct resize_line {
    int64_t in, out;
    float scale;
    float roi_start, roi_end;
    uint32_t same; /* out[i] is in[i] */
};

struct resize {
    struct walk walk; /* over the output, axes not merged, in the order of memory */
    struct walk_strides to, from;
    struct resize_line axes[WALK_RANK];
    uint32_t by;       /* enum resize_by */
    uint32_t rule;     /* enum resize_rule */
    uint32_t rounding; /* enum resize_rounding */
    uint32_t exclude_outside;
    float cubic_a;
    float outside; /* the value where RULE_CROP looks beyond the input */
    uint32_t type; /* enum pointwise_type */
    uint32_t dtype;
    uint32_t bytes; /* an element */
    void *to_data;
    const void *from_data;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_resize(const struct resize *resize, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
