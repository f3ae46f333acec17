/* Addresses of the operands of a product (product.h). */
#ifndef DEVICE_CUDA_KERNELS_PRODUCT_CUH
#define DEVICE_CUDA_KERNELS_PRODUCT_CUH

#include "device/cuda/kernels/product.h"
#include "device/cuda/kernels/walk.cuh"
#include "device/cuda/kernels/window.cuh"

/* Where the input cell under tap `tap` at place `place` lies; -1: outside. */
__device__ static inline int64_t cell_offset(const struct product &p,
                                             const int32_t (&place)[WINDOW_AXES], uint32_t tap)
{
    const struct window_walk &w = p.window;
    int32_t taps[WINDOW_AXES];
    int64_t offset = 0;

    spread(w.kernel, tap, taps);
#pragma unroll
    for (int i = 0; i < WINDOW_AXES; i++) {
        int32_t at;

        if (p.kind == PRODUCT_CONV) {
            at = place[i] * w.stride[i] - w.pad[i] + taps[i] * w.dilation[i];
        } else {
            at = place[i] + w.pad[i] - taps[i] * w.dilation[i];
            if (at < 0 || at % w.stride[i] != 0)
                return -1;
            at /= w.stride[i];
        }
        if (at < 0 || at >= w.in[i])
            return -1;
        offset += at * w.step[i];
    }
    return offset;
}

/* Where the operands of product z begin. */
struct bases {
    int64_t out, a, b, bias;
};

__device__ static inline struct bases bases_of(const struct product &p, int64_t z)
{
    struct bases bases;

    bases.out = walk_offset(p.batch, p.out_batch, z);
    bases.a = walk_offset(p.batch, p.a_batch, z);
    bases.b = walk_offset(p.batch, p.b_batch, z);
    bases.bias = walk_offset(p.batch, p.bias_batch, z);
    return bases;
}

#endif
