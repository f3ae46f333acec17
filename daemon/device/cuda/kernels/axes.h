/* Making walks out of operands: their axes with the strides that each operand has in them. */
#ifndef DEVICE_CUDA_KERNELS_AXES_H
#define DEVICE_CUDA_KERNELS_AXES_H

#include "device/cuda/kernels/walk.h"
#include "device/kernel.h"

/* Axes gathered, outermost first.  Operand 0 says in which order they are walked. */
enum { AXES_RANK = 2 * SHAPE_MAX_RANK + 2 };
struct axes {
    size_t rank;
    size_t operands; /* ≤ WALK_OPERANDS */
    int64_t sizes[AXES_RANK];
    int64_t strides[WALK_OPERANDS][AXES_RANK]; /* elements */
};

/* Strides in elements of an operand's logical axes, as its layout and outer_stride have them. */
void operand_strides(const struct operand *operand, int64_t strides[SHAPE_MAX_RANK]);

/* The logical axis that comes `place`-th in memory: with channels last, axis 1 does. */
size_t operand_walked_axis(const struct operand *operand, size_t place);

/* Adds an axis inside those there are; `strides` has one entry an operand. */
void axes_add(struct axes *axes, int64_t size, const int64_t *strides);
/* Axes of `out` (operand 0) with `count` operands broadcast to it (operands 1 …). */
void axes_broadcast(struct axes *axes, const struct operand *out, size_t count,
                    const struct operand *const *in);
/* Sorts the axes by the strides of operand `by`, largest first, drops those of size one, merges
 * neighbours.  One axis is left at least.  Sorting is left out where `by` is negative: the walk's
 * linear index then keeps its meaning. */
void axes_simplify(struct axes *axes, int by);
/* Merged axes as the kernels take them.  False: more than WALK_RANK are left. */
bool axes_finish(const struct axes *axes, struct walk *walk, struct walk_strides *strides);

#endif
