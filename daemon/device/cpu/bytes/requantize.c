#include "device/cpu/bytes/requantize.h"

static int64_t group_columns(const struct conv_weights *weights)
{
    return int_round_up(weights->shape.n, weights->ops->panel);
}

size_t conv_columns_bytes(const struct conv_weights *weights)
{
    return (size_t)(weights->groups * group_columns(weights)) * (sizeof(int32_t) + sizeof(float));
}

static void fill_scales(const struct conv_weights *weights, const struct kernel_call *call,
                        const struct kernel_run *run, struct conv_columns *columns)
{
    const struct conv_attrs *attrs = call->attrs;
    const float y = (float)quantized_parameter(call, run, QLINEAR_Y_SCALE, 0);
    const int64_t n = weights->shape.n;

    quantized_scales(call, run, weights->groups * n, columns->scales);
    for (int64_t o = weights->groups * n; o-- > 0;) /* spread to whole panels, from behind */
        columns->scales[o / n * columns->group + o % n] = columns->scales[o];
    columns->range = quantized_range(&attrs->epilogue, call->out[0]->dtype, y,
                                     (float)quantized_parameter(call, run, QLINEAR_Y_ZERO, 0));
}

void conv_columns_fill(const struct conv_weights *weights, const struct kernel_call *call,
                       const struct kernel_run *run, size_t x_zero, bool is_qlinear, void *memory,
                       struct conv_columns *out_columns)
{
    const struct operand *bias = is_qlinear ? kernel_input(call, QLINEAR_BIAS) : NULL;
    struct conv_columns columns = {.starts = memory, .group = group_columns(weights)};

    columns.scales = (float *)(columns.starts + weights->groups * columns.group);
    for (int64_t g = 0; g < weights->groups; g++)
        int_begin(weights->ops, &weights->shape, weights->packed + (size_t)g * weights->group_bytes,
                  call->in[0]->dtype, (int32_t)quantized_parameter(call, run, x_zero, 0),
                  bias != NULL ? (const int32_t *)run->in[QLINEAR_BIAS] + g * weights->shape.n
                               : NULL,
                  columns.starts + g * columns.group);
    if (is_qlinear)
        fill_scales(weights, call, run, &columns);
    *out_columns = columns;
}
