/* Making window walks. */
#ifndef DEVICE_CUDA_KERNELS_WINDOW_PLAN_H
#define DEVICE_CUDA_KERNELS_WINDOW_PLAN_H

#include "device/cuda/kernels/window.h"
#include "device/kernel.h"
#include "ops/window.h"

/* by ≥ 1 */
struct divisor divisor_of(int64_t by);
/* Windows over `x`, which is [N, C, spatial…] in any layout. */
void window_walk_make(struct window_walk *walk, const struct window *window,
                      const struct operand *x);
/* The product of `count` dimensions. */
int64_t window_cells(const int64_t *dims, size_t count);

#endif
