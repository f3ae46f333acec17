/* The device's side of window.h. */
#ifndef DEVICE_CUDA_KERNELS_WINDOW_CUH
#define DEVICE_CUDA_KERNELS_WINDOW_CUH

#include <cuda_runtime.h>

#include "device/cuda/kernels/window.h"

__device__ static inline uint32_t divide(const struct divisor &divisor, uint32_t n, uint32_t *rest)
{
    const uint32_t quotient = (__umulhi(n, divisor.multiplier) + n) >> divisor.shift;

    *rest = n - quotient * divisor.by;
    return quotient;
}

/* Place (or tap) `index` as one number a dimension. */
__device__ static inline void spread(const struct divisor (&dims)[WINDOW_AXES], uint32_t index,
                                     int32_t (&at)[WINDOW_AXES])
{
    uint32_t rest;

#pragma unroll
    for (int i = WINDOW_AXES - 1; i > 0; i--) {
        index = divide(dims[i], index, &rest);
        at[i] = (int32_t)rest;
    }
    at[0] = (int32_t)index;
}

#endif
