/* Resize, one element a thread.  Places in the input are computed in floats with each operation
 * rounded on its own (no fused multiply-add), so that they are the CPU's to the last bit: where a
 * place falls between two elements decides which one is the nearest. */
#include <math.h>
#include <string.h>

#include "device/cuda/kernels/element.cuh"
#include "device/cuda/kernels/launch.cuh"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/kernels/resize.h"
#include "device/cuda/kernels/walk.cuh"

enum { TAPS = 4 };

/* (place + 0.5) / scale - 0.5 */
__device__ static inline float half_pixel(const struct resize_line &axis, float place)
{
    return __fsub_rn(__fdiv_rn(__fadd_rn(place, 0.5f), axis.scale), 0.5f);
}

/* The place in the input, in elements, that element `x` of the output stands for. */
__device__ static inline float source_of(const struct resize_line &axis, uint32_t rule, int64_t x)
{
    const float in = (float)axis.in, out = (float)axis.out, place = (float)x;

    switch (rule) {
    case RULE_HALF_PIXEL:
        return half_pixel(axis, place);
    case RULE_HALF_PIXEL_SYMMETRIC: {
        const float adjustment = __fdiv_rn(out, __fmul_rn(axis.scale, in));
        const float shift = __fmul_rn(in / 2, __fsub_rn(1, adjustment));

        return __fsub_rn(__fadd_rn(shift, __fdiv_rn(__fadd_rn(place, 0.5f), axis.scale)), 0.5f);
    }
    case RULE_PYTORCH_HALF_PIXEL:
        return axis.out > 1 ? half_pixel(axis, place) : 0;
    case RULE_ALIGN_CORNERS:
        return axis.out == 1 ? 0 : __fdiv_rn(__fmul_rn(place, __fsub_rn(in, 1)), __fsub_rn(out, 1));
    case RULE_ASYMMETRIC:
        return __fdiv_rn(place, axis.scale);
    default:
        break;
    }
    if (axis.out <= 1)
        return __fmul_rn(__fmul_rn(0.5f, __fadd_rn(axis.roi_start, axis.roi_end)),
                         __fsub_rn(in, 1));
    return __fadd_rn(__fmul_rn(axis.roi_start, __fsub_rn(in, 1)),
                     __fdiv_rn(__fmul_rn(__fmul_rn(place, __fsub_rn(axis.roi_end, axis.roi_start)),
                                         __fsub_rn(in, 1)),
                               __fsub_rn(out, 1)));
}

__device__ static inline int64_t round_source(float x, uint32_t rounding)
{
    const bool is_between = x == floorf(x) + 0.5f;

    switch (rounding) {
    case ROUND_TO_FLOOR:
        return (int64_t)(is_between ? floorf(x) : roundf(x));
    case ROUND_TO_CEIL:
        return (int64_t)(is_between ? ceilf(x) : roundf(x));
    case ROUND_DOWN:
        return (int64_t)floorf(x);
    default:
        return (int64_t)ceilf(x);
    }
}

__device__ static inline int64_t clamp_index(int64_t i, int64_t length)
{
    return i < 0 ? 0 : i >= length ? length - 1 : i;
}

/* Which elements of an axis an output element takes, and by what weights. */
struct taps {
    int count;
    bool outside;
    int64_t offset[TAPS]; /* elements */
    float weight[TAPS];
};

__device__ static inline void set_cubic(const struct resize &r, const struct resize_line &axis,
                                        int64_t step, float x, struct taps *taps)
{
    const int64_t first = (int64_t)floorf(x) - 1;
    const float s = x - floorf(x), a = r.cubic_a;
    float sum = 0;

    taps->weight[0] = ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a;
    taps->weight[1] = ((a + 2) * s - (a + 3)) * s * s + 1;
    taps->weight[2] = ((a + 2) * (1 - s) - (a + 3)) * (1 - s) * (1 - s) + 1;
    taps->weight[3] = ((a * (2 - s) - 5 * a) * (2 - s) + 8 * a) * (2 - s) - 4 * a;
    taps->count = TAPS;
    for (int t = 0; t < TAPS; t++) {
        if (r.exclude_outside && (first + t < 0 || first + t >= axis.in))
            taps->weight[t] = 0;
        sum += taps->weight[t];
        taps->offset[t] = clamp_index(first + t, axis.in) * step;
    }
    for (int t = 0; t < TAPS && r.exclude_outside; t++)
        taps->weight[t] /= sum;
}

__device__ static inline void set_taps(const struct resize &r, uint32_t number, int64_t place,
                                       struct taps *taps)
{
    const struct resize_line &axis = r.axes[number];
    const int64_t step = r.from.of[number];
    float x;

    taps->count = 1;
    taps->outside = false;
    taps->weight[0] = 1;
    taps->offset[0] = place * step;
    if (axis.same)
        return;
    x = source_of(axis, r.rule, place);
    if (r.rule == RULE_CROP && !(x >= 0 && x <= (float)(axis.in - 1))) {
        taps->outside = true;
    } else if (r.by == RESIZE_BY_NEAREST) {
        taps->offset[0] = clamp_index(round_source(x, r.rounding), axis.in) * step;
    } else if (r.by == RESIZE_BY_LINES) {
        int64_t first;

        x = x < 0 ? 0 : x > (float)(axis.in - 1) ? (float)(axis.in - 1) : x;
        first = (int64_t)x;
        taps->count = 2;
        taps->offset[0] = first * step;
        taps->offset[1] = clamp_index(first + 1, axis.in) * step;
        taps->weight[1] = x - (float)first;
        taps->weight[0] = 1 - taps->weight[1];
    } else {
        set_cubic(r, axis, step, x, taps);
    }
}

/* ---- nearest: elements are moved ---- */

template <class E>
__global__ void __launch_bounds__(BLOCK_THREADS)
    nearest_kernel(const __grid_constant__ struct resize r, const E outside)
{
    for (GRID_STRIDE(i, r.walk.count)) {
        int64_t index = i, to = 0, from = 0, place;
        bool is_outside = false;
        struct taps taps;

        for (uint32_t axis = r.walk.rank; axis-- > 0;) {
            index = walk_divide(r.walk, axis, index, &place);
            set_taps(r, axis, place, &taps);
            is_outside = is_outside || taps.outside;
            from += taps.offset[0];
            to += place * r.to.of[axis];
        }
        ((E *)r.to_data)[to] = is_outside ? outside : ((const E *)r.from_data)[from];
    }
}

/* ---- sums ---- */

enum { SUMMED_AXES = 4 };

template <class T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    weighted_kernel(const __grid_constant__ struct resize r)
{
    for (GRID_STRIDE(i, r.walk.count)) {
        int64_t index = i, to = 0, from = 0, place;
        struct taps taps[SUMMED_AXES];
        int axes = 0, combinations = 1;
        bool outside = false;
        T sum = 0;

        for (uint32_t axis = r.walk.rank; axis-- > 0;) {
            index = walk_divide(r.walk, axis, index, &place);
            to += place * r.to.of[axis];
            if (r.axes[axis].same) {
                from += place * r.from.of[axis];
                continue;
            }
            set_taps(r, axis, place, &taps[axes]);
            outside = outside || taps[axes].outside;
            combinations *= taps[axes++].count;
        }
        for (int c = 0; c < combinations && !outside; c++) {
            int64_t at = from;
            T weight = 1;
            int rest = c;

            for (int k = 0; k < axes; k++) {
                at += taps[k].offset[rest % taps[k].count];
                weight *= taps[k].weight[rest % taps[k].count];
                rest /= taps[k].count;
            }
            sum += weight * element_load<T>(r.dtype, r.from_data, at);
        }
        element_store<T>(r.dtype, r.to_data, to, outside ? (T)r.outside : sum);
    }
}

/* The value outside in the type's own bits. */
static uint64_t outside_bits(const struct resize *resize)
{
    const double wide = (double)resize->outside;
    uint64_t bits = 0;

    switch (resize->dtype) {
    case DTYPE_FLOAT:
        memcpy(&bits, &resize->outside, sizeof(resize->outside));
        break;
    case DTYPE_DOUBLE:
        memcpy(&bits, &wide, sizeof(wide));
        break;
    case DTYPE_FLOAT16:
        bits = __half_as_ushort(__float2half_rn(resize->outside));
        break;
    case DTYPE_BFLOAT16:
        bits = __bfloat16_as_ushort(__float2bfloat16_rn(resize->outside));
        break;
    default:
        break;
    }
    return bits;
}

extern "C" cudaError_t cuda_resize(const struct resize *resize, cudaStream_t stream)
{
    const unsigned blocks = grid_for(resize->walk.count);
    const uint64_t bits = outside_bits(resize);

    if (resize->walk.count == 0)
        return cudaSuccess;
    if (resize->by != RESIZE_BY_NEAREST && resize->type == PW_DOUBLE)
        weighted_kernel<double><<<blocks, BLOCK_THREADS, 0, stream>>>(*resize);
    else if (resize->by != RESIZE_BY_NEAREST)
        weighted_kernel<float><<<blocks, BLOCK_THREADS, 0, stream>>>(*resize);
    else if (resize->bytes == 1)
        nearest_kernel<uint8_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*resize, (uint8_t)bits);
    else if (resize->bytes == 2)
        nearest_kernel<uint16_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*resize, (uint16_t)bits);
    else if (resize->bytes == 4)
        nearest_kernel<uint32_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*resize, (uint32_t)bits);
    else
        nearest_kernel<uint64_t><<<blocks, BLOCK_THREADS, 0, stream>>>(*resize, bits);
    return cudaGetLastError();
}
