#include "device/cpu/constant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/conv.h"
#include "ops/mix_channels.h"

static void fill(const struct operand *operand, size_t count, bool repeat, float scale,
                 float *values)
{
    const size_t given = (size_t)shape_count(&operand->shape);

    memset(values, 0, count * sizeof(float));
    memcpy(values, operand->constant, given * sizeof(float));
    for (size_t i = 1; i < count && repeat && given == 1; i++)
        values[i] = values[0];
    for (size_t i = 0; i < count; i++)
        values[i] *= scale;
}

enum status constant_share(struct kernel_prepare *prepare, size_t index, size_t count, bool repeat,
                           float scale, const float **out_values)
{
    const struct operand *operand = kernel_input(&prepare->call, index);
    char format[64];
    void *values;
    bool is_new;

    *out_values = NULL;
    if (operand == NULL || operand->constant == NULL)
        return STATUS_OK;
    snprintf(format, sizeof(format), "floats %zu%s * %a", count, repeat ? " repeated" : "",
             (double)scale);
    TRY(weights_share(prepare->weights, operand->constant_key, format, count * sizeof(float),
                      &values, &is_new));
    if (is_new)
        fill(operand, count, repeat, scale, values);
    *out_values = values;
    return STATUS_OK;
}

/* The bias of a convolution whose filters are taken in a shuffle, in their order. */
static enum status share_shuffled(struct kernel_prepare *prepare, size_t count, int64_t groups,
                                  const float **out_values)
{
    const struct operand *bias = prepare->call.in[CONV_BIAS];
    const int64_t channels = bias->shape.dims[0];
    char format[64];
    void *values;
    bool is_new;

    snprintf(format, sizeof(format), "floats %zu shuffled %" PRId64, count, groups);
    TRY(weights_share(prepare->weights, bias->constant_key, format, count * sizeof(float), &values,
                      &is_new));
    *out_values = values;
    if (!is_new)
        return STATUS_OK;
    memset(values, 0, count * sizeof(float));
    for (int64_t c = 0; c < channels; c++)
        memcpy((float *)values + c,
               (const char *)bias->constant +
                   (size_t)shuffled_channel(c, channels, groups) * sizeof(float),
               sizeof(float));
    return STATUS_OK;
}

enum status constant_share_bias(struct kernel_prepare *prepare, size_t count,
                                const float **out_values)
{
    const struct kernel_call *call = &prepare->call;
    const int64_t groups =
        call->op == &op_conv ? ((const struct conv_attrs *)call->attrs)->filter_shuffle : 0;
    char format[32];
    bool is_new;
    void *zeros;

    if (groups != 0 && kernel_input(call, CONV_BIAS) != NULL)
        return share_shuffled(prepare, count, groups, out_values);
    TRY(constant_share(prepare, CONV_BIAS, count, false, 1, out_values));
    if (*out_values != NULL)
        return STATUS_OK;
    snprintf(format, sizeof(format), "zero bias %zu", count);
    TRY(weights_share(prepare->weights, prepare->call.in[CONV_W]->constant_key, format,
                      count * sizeof(float), &zeros, &is_new));
    if (is_new)
        memset(zeros, 0, count * sizeof(float));
    *out_values = zeros;
    return STATUS_OK;
}

const float *constant_floats(const struct operand *operand, void **out_copy)
{
    const size_t bytes = (size_t)shape_count(&operand->shape) * sizeof(float);

    *out_copy = NULL;
    if ((uintptr_t)operand->constant % sizeof(float) == 0)
        return operand->constant;
    *out_copy = malloc(bytes > 0 ? bytes : 1);
    if (*out_copy != NULL)
        memcpy(*out_copy, operand->constant, bytes);
    return *out_copy;
}
