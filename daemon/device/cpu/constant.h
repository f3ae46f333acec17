/* Constants of a step in the form in which its kernel reads them. */
#ifndef DEVICE_CPU_CONSTANT_H
#define DEVICE_CPU_CONSTANT_H

#include "device/cpu/cpu.h"

/* Input `index`, NULL when left out or beyond the inputs given. */
static inline const struct operand *kernel_input(const struct kernel_call *call, size_t index)
{
    return index < call->inputs ? call->in[index] : NULL;
}

/* The float vector of constant input `index`, times `scale`, with zeros up to `count` (or, with
 * `repeat`, a single element all over): shared by the model's plans.  *out_values is NULL when the
 * input is no constant. */
MUST_CHECK enum status constant_share(struct kernel_prepare *prepare, size_t index, size_t count,
                                      bool repeat, float scale, const float **out_values);

/* A convolution's bias with zeros up to `count`; zeros alone when it has none. */
MUST_CHECK enum status constant_share_bias(struct kernel_prepare *prepare, size_t count,
                                           const float **out_values);

/* The elements of a constant float operand at an address aligned for floats: its own or a copy, to
 * be given to free() as *out_copy.  NULL: no memory. */
const float *constant_floats(const struct operand *operand, void **out_copy);

#endif
