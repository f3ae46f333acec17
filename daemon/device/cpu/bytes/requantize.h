/* From sums of products of bytes to bytes again. */
#ifndef DEVICE_CPU_REQUANTIZE_H
#define DEVICE_CPU_REQUANTIZE_H

#include <math.h>

#include "device/cpu/bytes/int_gemm.h"
#include "device/cpu/constant.h"
#include "ops/quantized.h"
#include "tensor/element.h"

/* Element i of a parameter that may be one for all; 0 when it is left out. */
static inline double quantized_parameter(const struct kernel_call *call,
                                         const struct kernel_run *run, size_t index, int64_t i)
{
    const struct operand *operand = kernel_input(call, index);

    if (operand == NULL)
        return 0;
    return element_read(operand->dtype, run->in[index],
                        shape_count(&operand->shape) > 1 ? (size_t)i : 0);
}

/* x * w[i] / y for the scales of all channels. */
static inline void quantized_scales(const struct kernel_call *call, const struct kernel_run *run,
                                    int64_t count, float *out_scales)
{
    const struct operand *w = call->in[QLINEAR_B_SCALE];
    const float x = (float)quantized_parameter(call, run, QLINEAR_A_SCALE, 0);
    const float y = (float)quantized_parameter(call, run, QLINEAR_Y_SCALE, 0);
    const bool many = shape_count(&w->shape) > 1;
    const float *scales = run->in[QLINEAR_B_SCALE];

    for (int64_t i = 0; i < count; i++) {
        /* aligned or not, float or half */
        float scale = w->dtype == DTYPE_FLOAT && (uintptr_t)scales % sizeof(float) == 0
                          ? scales[many ? i : 0]
                          : (float)quantized_parameter(call, run, QLINEAR_B_SCALE, i);

        out_scales[i] = x * scale / y;
    }
}

/* The bytes of a result of type `dtype` with this scale and zero point.  ReLU and Clip may stand in
 * front of the rounding: it is monotone, so cutting off can as well be done behind it. */
static inline struct byte_range quantized_range(const struct epilogue *epilogue, enum dtype dtype,
                                                float scale, float zero)
{
    struct byte_range range = {zero, dtype == DTYPE_INT8 ? -128 : 0,
                               dtype == DTYPE_INT8 ? 127 : 255};
    const float least = range.low, most = range.high;

    if (epilogue->act == ACT_RELU)
        range.low = fminf(most, fmaxf(least, zero));
    if (epilogue->act == ACT_CLIP) {
        range.low = fminf(most, fmaxf(least, nearbyintf(epilogue->a / scale) + zero));
        range.high = fminf(most, fmaxf(least, nearbyintf(epilogue->b / scale) + zero));
    }
    return range;
}

/* What convolutions do to their sums, for all groups, each in whole panels. */
struct conv_columns {
    int32_t *starts;
    float *scales; /* QLinearConv: the same */
    struct byte_range range;
    int64_t group; /* columns of one, padding included */
};

/* Weights of a convolution, packed group by group. */
struct conv_weights {
    const struct int_gemm_ops *ops;
    struct int_shape shape; /* of a group's product */
    int64_t groups;
    size_t group_bytes;
    const char *packed;
};

size_t conv_columns_bytes(const struct conv_weights *weights);
/* Fills them in `memory`.  x_zero: an input number. */
void conv_columns_fill(const struct conv_weights *weights, const struct kernel_call *call,
                       const struct kernel_run *run, size_t x_zero, bool is_qlinear, void *memory,
                       struct conv_columns *out_columns);

#endif
