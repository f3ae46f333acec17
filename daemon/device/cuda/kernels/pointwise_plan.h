/* Making pointwise programs. */
#ifndef DEVICE_CUDA_KERNELS_POINTWISE_PLAN_H
#define DEVICE_CUDA_KERNELS_POINTWISE_PLAN_H

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/pointwise.h"
#include "device/kernel.h"

/* What elements of a type are computed in. */
enum pointwise_type pointwise_type_of(enum dtype dtype);
static inline bool pointwise_is_whole(enum pointwise_type type)
{
    return type == PW_SIGNED || type == PW_UNSIGNED;
}
/* Types, shapes and strides of `count` inputs broadcast to `out`. */
bool pointwise_operands(struct pointwise *program, const struct operand *out, size_t count,
                        const struct operand *const *in);
/* The walk and the strides from axes whose operand 0 is the output; true as above. */
bool pointwise_axes(struct pointwise *program, struct axes *axes);
void pointwise_step(struct pointwise *program, uint8_t op, uint8_t from, double a, double b);
enum status pointwise_run(const struct pointwise *program, const struct kernel_run *run,
                          const void *const *in, void *out);

#endif
