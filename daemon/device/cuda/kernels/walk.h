/* Walking several operands of different strides together, one element of the output at a time.
 *
 * A `walk` turns a linear index into one index an axis, `walk_strides` those into an offset.  Axes
 * are outermost first; neighbours that all operands walk alike are merged before, so that most
 * walks have one to three axes.  Divisions by a size are multiplications below 2^31 elements.
 *
 * This header is read by C (the rows) and by CUDA (the kernels): plain structs, passed by value.
 */
#ifndef DEVICE_CUDA_KERNELS_WALK_H
#define DEVICE_CUDA_KERNELS_WALK_H

#include <stdint.h>

enum { WALK_RANK = 12, WALK_OPERANDS = 10 };

struct walk {
    int64_t count; /* elements: the product of the sizes */
    uint32_t rank; /* ≥ 1 */
    uint32_t wide; /* 1: count ≥ 2^31, divisions in 64 bits */
    int64_t sizes[WALK_RANK];
    /* of division by sizes[i]: (umulhi(n, multiplier) + n) >> shift */
    uint32_t multipliers[WALK_RANK];
    uint32_t shifts[WALK_RANK];
};

struct walk_strides {
    int64_t of[WALK_RANK]; /* elements; 0: the axis is repeated; may be negative */
};

#endif
