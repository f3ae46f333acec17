/* Sliding windows, as kernels walk them: from places and taps to cells of the input. */
#ifndef DEVICE_CUDA_KERNELS_WINDOW_H
#define DEVICE_CUDA_KERNELS_WINDOW_H

#include <stdint.h>

/* Division by a number that is known when the plan is made; of n < 2^31. */
struct divisor {
    uint32_t by, multiplier, shift;
};

enum { WINDOW_AXES = 3 };

/* How places and taps of a convolution or a pool meet the input; leading dimensions are 1 where
 * there are fewer than three. */
struct window_walk {
    struct divisor out[WINDOW_AXES]; /* of places */
    struct divisor kernel[WINDOW_AXES];
    int32_t in[WINDOW_AXES];
    int32_t stride[WINDOW_AXES];
    int32_t dilation[WINDOW_AXES];
    int32_t pad[WINDOW_AXES];
    int64_t step[WINDOW_AXES]; /* elements of the input from cell to cell */
    int64_t channel_step;
};

#endif
