/* From sums of products of bytes to results: the CPU device's bytes (device/cpu/bytes/requantize.h). */
#ifndef DEVICE_CUDA_KERNELS_QUANTIZED_CUH
#define DEVICE_CUDA_KERNELS_QUANTIZED_CUH

#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/quantized.h"
#include "ops/epilogue.h"

__device__ static inline float scale_at(const struct quantized_parameter &p, int64_t i)
{
    return (float)element_load<double>(p.dtype, p.data, i * p.step);
}

__device__ static inline int32_t zero_at(const struct quantized_parameter &p, int64_t i)
{
    return p.data == nullptr ? 0 : (int32_t)element_load<int64_t>(p.dtype, p.data, i * p.step);
}

/* The byte of x / scale, which is `whole` when rounded, as a number: an activation may cut it off
 * in front of the rounding, which is monotone. */
__device__ static inline int64_t byte_of(const struct quantized_finish &f, float whole, float scale)
{
    const float zero = (float)zero_at(f.y_zero, 0);
    float low = f.low, high = f.high;

    if (f.act == ACT_RELU)
        low = fminf(high, fmaxf(low, zero));
    if (f.act == ACT_CLIP) {
        const float from = rintf(__fdiv_rn(f.act_a, scale)) + zero;
        const float to = rintf(__fdiv_rn(f.act_b, scale)) + zero;

        low = fminf(f.high, fmaxf(f.low, from));
        high = fminf(f.high, fmaxf(f.low, to));
    }
    return (int64_t)fminf(high, fmaxf(low, whole + zero));
}

/* Puts what becomes of `sum`, wrapped at 32 bits, to element `at` of out.  `bias_at`: which bias or
 * shift it has. */
__device__ static inline void finish_sum(const struct quantized_finish &f, uint32_t sum,
                                         int64_t row, int64_t column, int64_t bias_at, void *out,
                                         int64_t at)
{
    float scale, y_scale;

    if (f.result == QUANTIZED_SUMS) {
        ((uint32_t *)out)[at] = sum;
        return;
    }
    if (f.bias != nullptr)
        sum += (uint32_t)f.bias[bias_at];
    scale = __fmul_rn(scale_at(f.row_scale, row), scale_at(f.column_scale, column));
    if (f.result == QUANTIZED_FLOATS) {
        const float value = __fmul_rn((float)(int32_t)sum, scale);

        ((float *)out)[at] = f.shift != nullptr ? __fadd_rn(value, f.shift[bias_at]) : value;
        return;
    }
    y_scale = scale_at(f.y_scale, 0);
    scale = __fdiv_rn(scale, y_scale);
    element_store<int64_t>(f.out_dtype, out, at,
                           byte_of(f, rintf(__fmul_rn((float)(int32_t)sum, scale)), y_scale));
}

#endif
