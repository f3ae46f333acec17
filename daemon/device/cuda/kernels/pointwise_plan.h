/* Making pointwise programs. */
#ifndef DEVICE_CUDA_KERNELS_POINTWISE_PLAN_H
#define DEVICE_CUDA_KERNELS_POINTWISE_PLAN_H

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/rtc/fused.h"
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

/* Who runs a program: the interpreter, or a kernel made for it meanwhile (rtc/fused.h). */
struct pointwise_runner {
    struct fused *fused; /* owned; NULL: none is made */
    uint32_t vectors;    /* what it counts for: bit 0 the output, bit i + 1 input i */
    const char *why_not; /* borrowed */
};
/* For a program that is whole; worth it for those of several steps. */
void pointwise_runner_init(struct pointwise_runner *runner, struct device *device,
                           const struct pointwise *program);
void pointwise_runner_deinit(struct pointwise_runner *runner); /* zeroed is fine */
void pointwise_runner_describe(const struct pointwise_runner *runner, char *text, size_t room);
/* Runs it.  `runner` NULL: the interpreter. */
enum status pointwise_run(const struct pointwise *program, const struct pointwise_runner *runner,
                          const struct kernel_run *run, const void *const *in, void *out);

#endif
