/* Making a `move` of a box of elements.  Operand 0 of the axes is the destination, 1 the source. */
#ifndef DEVICE_CUDA_KERNELS_MOVE_PLAN_H
#define DEVICE_CUDA_KERNELS_MOVE_PLAN_H

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/move.h"
#include "device/kernel.h"

struct move_plan {
    struct move wide;   /* units as large as strides, sizes and offsets allow */
    struct move narrow; /* units of one element, for addresses that are less aligned */
    int64_t to_bytes, from_bytes;
};

/* `to` and `from`: where the box begins on either side, in elements. */
void move_plan(struct move_plan *plan, struct axes *axes, size_t element_bytes, int64_t to,
               int64_t from);
enum status move_run(const struct move_plan *plan, void *to, const void *from,
                     const struct kernel_run *run);

#endif
