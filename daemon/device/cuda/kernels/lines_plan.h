/* Making `lines` out of operands and the axes that are reduced. */
#ifndef DEVICE_CUDA_KERNELS_LINES_PLAN_H
#define DEVICE_CUDA_KERNELS_LINES_PLAN_H

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/lines.h"
#include "device/kernel.h"

enum { LINES_OPERANDS = 4 };

/* Strides of further operands (scale, bias) in the kept and in the reduced axes. */
struct lines_strides {
    struct walk_strides kept[LINES_OPERANDS];
    struct walk_strides reduced[LINES_OPERANDS];
};

/* `axes`: all axes of the input; operand 0 is the input, 1 the output.  Axis i is reduced where
 * reduced[i] says so.  `out_strides` may be NULL.  Types and addresses are left to the caller. */
void lines_make(struct lines *lines, const struct axes *axes, const bool *reduced,
                struct lines_strides *out_strides);
/* Axes of `in` for an output of its shape. */
void lines_axes_of_map(struct axes *axes, const struct operand *in, const struct operand *out);
/* Axes of `in` for an output that lacks the reduced axes, or has them with length 1. */
void lines_axes_of_reduction(struct axes *axes, const struct operand *in, const struct operand *out,
                             const bool *reduced);

#endif
