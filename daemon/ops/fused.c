/* com.microsoft: operators that optimisers write for transformers. */
#include "ops/fused.h"

#include "ops/normalize.h"

#include <inttypes.h>

static enum status check_last(const struct op_call *call, size_t index, const char *what,
                              struct error *err)
{
    const struct shape *whole = &call->in[0]->shape;
    const struct tensor *tensor = index < call->inputs ? call->in[index] : NULL;
    char text[SHAPE_TEXT_BYTES];

    if (tensor == NULL)
        return STATUS_OK;
    if (tensor->dtype != call->in[0]->dtype)
        return error_set(err, STATUS_INVALID, "%s is of type %s where the input is of type %s",
                         what, dtype_name(tensor->dtype), dtype_name(call->in[0]->dtype));
    if (whole->rank == 0 || tensor->shape.rank != 1 ||
        tensor->shape.dims[0] != whole->dims[whole->rank - 1])
        return error_set(err, STATUS_INVALID, "%s has shape %s; one for each of the last dimension",
                         what, shape_format(&tensor->shape, text));
    return STATUS_OK;
}

static enum status infer_bias_gelu(const struct op_call *call, struct error *err)
{
    TRY(check_last(call, 1, "bias", err));
    return op_infer_same(call, err);
}

#define BIAS_GELU(stem, onnx_name, least)                                                          \
    const struct op_def op_##stem = {                                                              \
        .name = #stem,                                                                             \
        .onnx = {onnx_name, 1, "com.microsoft"},                                                   \
        .inputs = 2,                                                                               \
        .min_inputs = (least),                                                                     \
        .outputs = 1,                                                                              \
        .dtypes = DTYPE_FLOATS,                                                                    \
        .infer = infer_bias_gelu,                                                                  \
        .flops = op_flops_each_output,                                                             \
    };
BIAS_GELU(bias_gelu, "BiasGelu", 2) /* by erf */
BIAS_GELU(fast_gelu, "FastGelu", 1) /* by tanh */

/* The same as ai.onnx' Gelu without approximation. */
const struct op_def op_ms_gelu = {
    .name = "ms_gelu",
    .onnx = {"Gelu", 1, "com.microsoft"},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .flags = OP_ELEMENTWISE,
    .infer = op_infer_same,
};

/* Normalises input + skip (+ bias); outputs: the result, mean and inverse deviation (float, a group
 * each), and the sum. */
static enum status infer_skip_norm(const struct op_call *call, struct error *err)
{
    const struct shape *shape = &call->in[0]->shape;
    char a[SHAPE_TEXT_BYTES], b[SHAPE_TEXT_BYTES];

    if (call->in[1]->dtype != call->in[0]->dtype || !shape_is_equal(&call->in[1]->shape, shape))
        return error_set(err, STATUS_UNSUPPORTED,
                         "skip of shape %s must be like the input of shape %s",
                         shape_format(&call->in[1]->shape, a), shape_format(shape, b));
    TRY(check_last(call, 2, "gamma", err));
    TRY(check_last(call, 3, "beta", err));
    TRY(check_last(call, 4, "bias", err));
    for (size_t i = 0; i < call->outputs; i++) {
        if (call->out[i] == NULL)
            continue;
        call->out[i]->dtype = i == 1 || i == 2 ? DTYPE_FLOAT : call->in[0]->dtype;
        call->out[i]->shape = *shape;
        if (i == 1 || i == 2)
            call->out[i]->shape.dims[shape->rank - 1] = 1;
    }
    return STATUS_OK;
}

static const struct attr_def skip_norm_rows[] = {
    OP_ATTR_FLOAT(struct skip_norm_attrs, epsilon, 1e-12f), OP_ATTR_END};

const struct op_def op_skip_layer_normalization = {
    .name = "skip_layer_normalization",
    .onnx = {"SkipLayerNormalization", 1, "com.microsoft"},
    .inputs = 5,
    .min_inputs = 3,
    .outputs = 4,
    .dtypes = DTYPE_FLOATS,
    .attrs = skip_norm_rows,
    .attrs_size = sizeof(struct skip_norm_attrs),
    .infer = infer_skip_norm,
    .flops = normalize_flops,
};
