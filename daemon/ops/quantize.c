/* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear. */
#include "ops/quantize.h"

#include <inttypes.h>

enum {
    QUANTISED = DTYPE_BIT(INT8) | DTYPE_BIT(UINT8) | DTYPE_BIT(INT16) | DTYPE_BIT(UINT16),
    SCALES = DTYPE_BIT(FLOAT) | DTYPE_BIT(FLOAT16) | DTYPE_BIT(BFLOAT16)
};

static bool is_block_scale(const struct quantize_attrs *attrs, const struct shape *x,
                           const struct shape *scale, size_t axis)
{
    if (attrs->block_size <= 0 || scale->rank != x->rank)
        return false;
    for (size_t i = 0; i < x->rank; i++) {
        int64_t blocks = (x->dims[i] + attrs->block_size - 1) / attrs->block_size;

        if (scale->dims[i] != (i == axis ? blocks : x->dims[i]))
            return false;
    }
    return true;
}

enum status quantize_geometry(const struct quantize_attrs *attrs, const struct shape *x,
                              const struct shape *scale, struct quantize_geometry *out_geometry,
                              struct error *err)
{
    struct quantize_geometry geometry = {.outer = 1, .count = 1, .inner = shape_count(x)};
    char a[SHAPE_TEXT_BYTES], b[SHAPE_TEXT_BYTES];
    size_t axis;

    geometry.block = 1;
    if (scale->rank == 0 || (scale->rank == 1 && scale->dims[0] == 1 && attrs->block_size == 0)) {
        *out_geometry = geometry;
        return STATUS_OK;
    }
    if (!shape_has_axis(x, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         x->rank);
    axis = shape_axis(x, attrs->axis);
    geometry.outer = shape_product(x, 0, axis);
    geometry.count = x->dims[axis];
    geometry.inner = shape_product(x, axis + 1, x->rank);
    if (attrs->block_size == 0 && scale->rank == 1 && scale->dims[0] == x->dims[axis]) {
        geometry.by = QUANTIZE_AXIS;
    } else if (is_block_scale(attrs, x, scale, axis)) {
        geometry.by = QUANTIZE_BLOCK;
        geometry.block = attrs->block_size;
    } else {
        return error_set(
            err, STATUS_INVALID,
            "scale of shape %s does not go with %s along axis %" PRId64 " (block_size %" PRId64 ")",
            shape_format(scale, a), shape_format(x, b), attrs->axis, attrs->block_size);
    }
    *out_geometry = geometry;
    return STATUS_OK;
}

/* Scale and zero point fit the input and each other. */
static enum status check(const struct op_call *call, struct error *err)
{
    const struct tensor *zero = call->inputs > 2 ? call->in[2] : NULL;
    const struct tensor *scale = call->in[1];
    struct quantize_geometry geometry;
    char a[SHAPE_TEXT_BYTES], b[SHAPE_TEXT_BYTES];

    if ((SCALES >> scale->dtype & 1) == 0)
        return error_set(err, STATUS_UNSUPPORTED, "scale of type %s is not supported",
                         dtype_name(scale->dtype));
    if (zero != NULL && !shape_is_equal(&zero->shape, &scale->shape) &&
        shape_count(&zero->shape) != shape_count(&scale->shape))
        return error_set(err, STATUS_INVALID, "zero point of shape %s and scale of shape %s",
                         shape_format(&zero->shape, a), shape_format(&scale->shape, b));
    return quantize_geometry(call->attrs, &call->in[0]->shape, &scale->shape, &geometry, err);
}

static enum status infer_quantize(const struct op_call *call, struct error *err)
{
    const struct quantize_attrs *attrs = call->attrs;
    const struct tensor *zero = call->inputs > 2 ? call->in[2] : NULL;
    int64_t dtype = attrs->output_dtype;

    TRY(check(call, err));
    if (zero != NULL)
        dtype = (int64_t)zero->dtype;
    if (dtype == DTYPE_NONE)
        dtype = DTYPE_UINT8;
    if (dtype < 0 || dtype >= DTYPE_COUNT || (QUANTISED >> dtype & 1) == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the quantised type %" PRId64
                         " is not supported; int8, uint8, int16 and uint16 are",
                         dtype);
    call->out[0]->dtype = (enum dtype)dtype;
    call->out[0]->shape = call->in[0]->shape;
    return STATUS_OK;
}

static enum status infer_dequantize(const struct op_call *call, struct error *err)
{
    const struct quantize_attrs *attrs = call->attrs;
    const struct tensor *zero = call->inputs > 2 ? call->in[2] : NULL;
    int64_t dtype = attrs->output_dtype != 0 ? attrs->output_dtype : (int64_t)call->in[1]->dtype;

    TRY(check(call, err));
    if (zero != NULL && zero->dtype != call->in[0]->dtype)
        return error_set(err, STATUS_INVALID, "zero point of type %s for an input of type %s",
                         dtype_name(zero->dtype), dtype_name(call->in[0]->dtype));
    if (dtype < 0 || dtype >= DTYPE_COUNT || (SCALES >> dtype & 1) == 0)
        return error_set(err, STATUS_UNSUPPORTED, "output_dtype %" PRId64 " is not supported",
                         dtype);
    call->out[0]->dtype = (enum dtype)dtype;
    call->out[0]->shape = call->in[0]->shape;
    return STATUS_OK;
}

static const struct attr_def quantize_rows[] = {OP_ATTR_INT(struct quantize_attrs, axis, 1),
                                                OP_ATTR_INT(struct quantize_attrs, saturate, 1),
                                                OP_ATTR_INT(struct quantize_attrs, block_size, 0),
                                                OP_ATTR_INT(struct quantize_attrs, output_dtype, 0),
                                                OP_ATTR_INT(struct quantize_attrs, precision, 0),
                                                OP_ATTR_END};

const struct op_def op_quantize_linear = {
    .name = "quantize_linear",
    .onnx = {"QuantizeLinear", 10},
    .inputs = 3,
    .min_inputs = 2,
    .outputs = 1,
    .dtypes = SCALES | DTYPE_BIT(INT32),
    .attrs = quantize_rows,
    .attrs_size = sizeof(struct quantize_attrs),
    .infer = infer_quantize,
    .flops = op_flops_each_output,
};

static const struct attr_def dequantize_rows[] = {
    OP_ATTR_INT(struct quantize_attrs, axis, 1), OP_ATTR_INT(struct quantize_attrs, block_size, 0),
    OP_ATTR_INT(struct quantize_attrs, output_dtype, 0), OP_ATTR_END};

const struct op_def op_dequantize_linear = {
    .name = "dequantize_linear",
    .onnx = {"DequantizeLinear", 10},
    .inputs = 3,
    .min_inputs = 2,
    .outputs = 1,
    .dtypes = QUANTISED | DTYPE_BIT(INT32),
    .attrs = dequantize_rows,
    .attrs_size = sizeof(struct quantize_attrs),
    .infer = infer_dequantize,
    .flops = op_flops_each_output,
};

static enum status infer_dynamic(const struct op_call *call, struct error *err)
{
    (void)err;
    for (size_t i = 0; i < call->outputs; i++)
        if (call->out[i] != NULL) {
            call->out[i]->dtype = i == 1 ? DTYPE_FLOAT : DTYPE_UINT8;
            call->out[i]->shape = (struct shape){.rank = 0};
        }
    call->out[0]->shape = call->in[0]->shape;
    return STATUS_OK;
}

const struct op_def op_dynamic_quantize_linear = {
    .name = "dynamic_quantize_linear",
    .onnx = {"DynamicQuantizeLinear", 11},
    .inputs = 1,
    .outputs = 3,
    .dtypes = DTYPE_BIT(FLOAT),
    .infer = infer_dynamic,
    .flops = op_flops_each_input,
};
