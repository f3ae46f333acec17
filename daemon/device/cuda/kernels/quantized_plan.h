/* What the rows of products of bytes share: which input is what, and what becomes of the sums. */
#ifndef DEVICE_CUDA_KERNELS_QUANTIZED_PLAN_H
#define DEVICE_CUDA_KERNELS_QUANTIZED_PLAN_H

#include "device/cuda/kernels/quantized.h"
#include "device/kernel.h"
#include "ops/quantized.h"

/* Input numbers of an operator; QUANTIZED_NONE: it has no such input. */
enum { QUANTIZED_NONE = 99 };
struct quantized_places {
    size_t x, w; /* what is computed, and what it is multiplied by: A and B, or image and weights */
    size_t x_zero, w_zero, x_scale, w_scale, y_scale, y_zero;
    size_t bias, shift; /* of sums and of floats */
    enum quantized_result result;
};

const struct quantized_places *quantized_places_of(const struct op_def *op);

/* The least and the largest of a type of bytes or 16 bits. */
void quantized_range(enum dtype dtype, double *low, double *high);
/* Input `index` as a parameter: the address is that of a run, NULL where it is left out. */
struct quantized_parameter quantized_parameter(const struct kernel_call *call,
                                               const struct kernel_run *run, size_t index);
/* What a plan knows of the end; rows are x's, columns w's. */
void quantized_finish_make(struct quantized_finish *finish, const struct kernel_call *call);
/* The addresses of a run. */
void quantized_finish_run(struct quantized_finish *finish, const struct kernel_call *call,
                          const struct kernel_run *run);
/* How a convolution's or a product's attributes end it. */
const struct epilogue *quantized_epilogue(const struct kernel_call *call);

#endif
