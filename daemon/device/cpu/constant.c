#include "device/cpu/constant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/conv.h"

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

enum status constant_share_bias(struct kernel_prepare *prepare, size_t count,
                                const float **out_values)
{
    char format[32];
    bool is_new;
    void *zeros;

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
