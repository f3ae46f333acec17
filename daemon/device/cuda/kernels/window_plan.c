#include "device/cuda/kernels/window_plan.h"

#include "device/cuda/kernels/axes.h"

struct divisor divisor_of(int64_t by)
{
    struct divisor divisor = {.by = (uint32_t)by};

    while (UINT64_C(1) << divisor.shift < (uint64_t)by)
        divisor.shift++;
    if (by > 0)
        divisor.multiplier =
            (uint32_t)((UINT64_C(1) << 32) * ((UINT64_C(1) << divisor.shift) - (uint64_t)by) /
                           (uint64_t)by +
                       1);
    return divisor;
}

/* Spatial dimensions are the last ones; those that lack come first, with length 1. */
void window_walk_make(struct window_walk *w, const struct window *window, const struct operand *x)
{
    int64_t strides[SHAPE_MAX_RANK];
    size_t missing = WINDOW_AXES - window->spatial;

    operand_strides(x, strides);
    w->channel_step = strides[1];
    for (size_t i = 0; i < WINDOW_AXES; i++) {
        bool is_there = i >= missing;
        size_t k = is_there ? i - missing : 0;

        w->out[i] = divisor_of(is_there ? window->out[k] : 1);
        w->kernel[i] = divisor_of(is_there ? window->kernel[k] : 1);
        w->in[i] = is_there ? (int32_t)window->in[k] : 1;
        w->stride[i] = is_there ? (int32_t)window->stride[k] : 1;
        w->dilation[i] = is_there ? (int32_t)window->dilation[k] : 1;
        w->pad[i] = is_there ? (int32_t)window->pad_begin[k] : 0;
        w->step[i] = is_there ? strides[k + 2] : 0;
    }
}

int64_t window_cells(const int64_t *dims, size_t count)
{
    int64_t product = 1;

    for (size_t i = 0; i < count; i++)
        product *= dims[i];
    return product;
}
