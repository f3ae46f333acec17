#include "ops/quantized.h"

#include <inttypes.h>

static bool is_byte(enum dtype dtype)
{
    return dtype == DTYPE_UINT8 || dtype == DTYPE_INT8;
}

static const struct tensor *input(const struct op_call *call, size_t index)
{
    return index < call->inputs ? call->in[index] : NULL;
}

/* A scale or zero point: one number, or one for each of `many` rows, columns or channels. */
static enum status check_parameter(const struct op_call *call, size_t index, enum dtype dtype,
                                   int64_t many, struct error *err)
{
    const struct tensor *tensor = input(call, index);
    char text[SHAPE_TEXT_BYTES];
    int64_t count;

    if (tensor == NULL)
        return STATUS_OK;
    count = shape_count(&tensor->shape);
    if (tensor->dtype != dtype)
        return error_set(err, STATUS_INVALID, "input %zu is of type %s; %s is needed", index,
                         dtype_name(tensor->dtype), dtype_name(dtype));
    if (count != 1 && (count != many || tensor->shape.rank != 1))
        return error_set(err, STATUS_UNSUPPORTED,
                         "input %zu has shape %s; 1 or %" PRId64 " elements are supported", index,
                         shape_format(&tensor->shape, text), many);
    return STATUS_OK;
}

enum status quantized_check_bytes(const struct op_call *call, size_t index, struct error *err)
{
    if (!is_byte(call->in[index]->dtype))
        return error_set(err, STATUS_INVALID, "input %zu is of type %s; int8 and uint8 are allowed",
                         index, dtype_name(call->in[index]->dtype));
    return STATUS_OK;
}

/* Shapes and parameters of a product; a_zero etc. are input numbers. */
static enum status infer_product(const struct op_call *call, size_t b, struct shape *out_shape,
                                 struct matmul_geometry *geometry, struct error *err)
{
    const struct quantized_matmul_attrs *attrs = call->attrs;

    TRY(quantized_check_bytes(call, 0, err));
    TRY(quantized_check_bytes(call, b, err));
    TRY(matmul_resolve(&call->in[0]->shape, &call->in[b]->shape, false, attrs->trans_b, geometry,
                       err));
    *out_shape = matmul_output_shape(geometry);
    return STATUS_OK;
}

static uint64_t flops_product(const struct op_call *call)
{
    const struct shape *a = &call->in[0]->shape;

    return matmul_flops(&call->out[0]->shape, a->dims[a->rank - 1]);
}

static enum status infer_matmul_integer(const struct op_call *call, struct error *err)
{
    struct matmul_geometry g;

    TRY(infer_product(call, MATMUL_INTEGER_B, &call->out[0]->shape, &g, err));
    TRY(check_parameter(call, MATMUL_INTEGER_A_ZERO, call->in[MATMUL_INTEGER_A]->dtype, g.m, err));
    TRY(check_parameter(call, MATMUL_INTEGER_B_ZERO, call->in[MATMUL_INTEGER_B]->dtype, g.n, err));
    call->out[0]->dtype = DTYPE_INT32;
    return STATUS_OK;
}

const struct op_def op_matmul_integer = {
    .name = "matmul_integer",
    .onnx = {"MatMulInteger", .since = 10},
    .inputs = 4,
    .min_inputs = 2,
    .outputs = 1,
    .attrs_size = sizeof(struct quantized_matmul_attrs),
    .infer = infer_matmul_integer,
    .flops = flops_product,
};

static enum status check_scale(const struct op_call *call, size_t index, int64_t many,
                               struct error *err)
{
    if (!dtype_is_float(call->in[index]->dtype))
        return error_set(err, STATUS_INVALID, "input %zu is of type %s; a float type is needed",
                         index, dtype_name(call->in[index]->dtype));
    return check_parameter(call, index, call->in[index]->dtype, many, err);
}

/* Scales and zero points of a QLinear operator and the type of its output. */
static enum status check_qlinear(const struct op_call *call, int64_t rows, int64_t columns,
                                 struct error *err)
{
    TRY(check_scale(call, QLINEAR_A_SCALE, rows, err));
    TRY(check_parameter(call, QLINEAR_A_ZERO, call->in[QLINEAR_A]->dtype, rows, err));
    TRY(check_scale(call, QLINEAR_B_SCALE, columns, err));
    TRY(check_parameter(call, QLINEAR_B_ZERO, call->in[QLINEAR_B]->dtype, columns, err));
    TRY(quantized_check_bytes(call, QLINEAR_Y_ZERO, err));
    TRY(check_scale(call, QLINEAR_Y_SCALE, 1, err));
    TRY(check_parameter(call, QLINEAR_Y_ZERO, call->in[QLINEAR_Y_ZERO]->dtype, 1, err));
    call->out[0]->dtype = call->in[QLINEAR_Y_ZERO]->dtype;
    return STATUS_OK;
}

static enum status check_bias(const struct op_call *call, int64_t channels, struct error *err)
{
    const struct tensor *bias = input(call, QLINEAR_BIAS);

    if (bias != NULL &&
        (bias->dtype != DTYPE_INT32 || bias->shape.rank != 1 || bias->shape.dims[0] != channels))
        return error_set(err, STATUS_INVALID, "the bias does not have %" PRId64 " int32 elements",
                         channels);
    return STATUS_OK;
}

static enum status infer_qlinear_matmul(const struct op_call *call, struct error *err)
{
    const struct quantized_matmul_attrs *attrs = call->attrs;
    struct matmul_geometry g;

    TRY(infer_product(call, QLINEAR_B, &call->out[0]->shape, &g, err));
    if ((input(call, QLINEAR_BIAS) != NULL) != attrs->has_bias)
        return error_set(err, STATUS_INVALID, "there are %zu inputs; 8 are wanted", call->inputs);
    TRY(check_bias(call, g.n, err));
    return check_qlinear(call, g.m, g.n, err);
}

const struct op_def op_qlinear_matmul = {
    .name = "qlinear_matmul",
    .onnx = {"QLinearMatMul", .since = 21},
    .inputs = 9,
    .min_inputs = 8,
    .outputs = 1,
    .attrs_size = sizeof(struct quantized_matmul_attrs),
    .infer = infer_qlinear_matmul,
    .flops = flops_product,
};

/* float(products) * (a_scale * b_scale) + bias: what a MatMulInteger, a Cast, a Mul and an Add say
 * in four steps, rounded as they are. */
static enum status infer_matmul_integer_to_float(const struct op_call *call, struct error *err)
{
    const struct tensor *bias = input(call, MATMUL_FLOAT_BIAS);
    struct matmul_geometry g;

    TRY(infer_product(call, MATMUL_FLOAT_B, &call->out[0]->shape, &g, err));
    if (call->in[MATMUL_FLOAT_A_SCALE]->dtype != DTYPE_FLOAT ||
        call->in[MATMUL_FLOAT_B_SCALE]->dtype != DTYPE_FLOAT ||
        (bias != NULL && bias->dtype != DTYPE_FLOAT))
        return error_set(err, STATUS_UNSUPPORTED, "scales and bias must be float32");
    TRY(check_parameter(call, MATMUL_FLOAT_A_SCALE, DTYPE_FLOAT, 1, err));
    TRY(check_parameter(call, MATMUL_FLOAT_B_SCALE, DTYPE_FLOAT, g.n, err));
    TRY(check_parameter(call, MATMUL_FLOAT_A_ZERO, call->in[MATMUL_FLOAT_A]->dtype, 1, err));
    TRY(check_parameter(call, MATMUL_FLOAT_B_ZERO, call->in[MATMUL_FLOAT_B]->dtype, g.n, err));
    if (bias != NULL && (bias->shape.rank != 1 || bias->shape.dims[0] != g.n))
        return error_set(err, STATUS_INVALID, "the bias does not have %" PRId64 " elements", g.n);
    call->out[0]->dtype = DTYPE_FLOAT;
    return STATUS_OK;
}

const struct op_def op_matmul_integer_to_float = {
    .name = "matmul_integer_to_float",
    .onnx = {"MatMulIntegerToFloat", 1, "com.microsoft"},
    .inputs = 7,
    .min_inputs = 4,
    .outputs = 1,
    .attrs_size = sizeof(struct quantized_matmul_attrs),
    .infer = infer_matmul_integer_to_float,
};

static const struct attr_def conv_attr_defs[] = {
    WINDOW_ATTRS(struct conv_attrs), OP_ATTR_INT(struct conv_attrs, group, 1), OP_ATTR_END};

static enum status infer_conv(const struct op_call *call, size_t w, struct conv_geometry *geometry,
                              struct error *err)
{
    TRY(quantized_check_bytes(call, 0, err));
    TRY(quantized_check_bytes(call, w, err));
    TRY(conv_resolve(call->attrs, &call->in[0]->shape, &call->in[w]->shape, geometry, err));
    call->out[0]->shape = conv_output_shape(geometry);
    return STATUS_OK;
}

static uint64_t flops_conv_integer(const struct op_call *call)
{
    return conv_flops(&call->in[CONV_INTEGER_W]->shape, &call->out[0]->shape);
}

static uint64_t flops_qlinear_conv(const struct op_call *call)
{
    return conv_flops(&call->in[QLINEAR_B]->shape, &call->out[0]->shape);
}

static enum status infer_conv_integer(const struct op_call *call, struct error *err)
{
    struct conv_geometry g;

    TRY(infer_conv(call, CONV_INTEGER_W, &g, err));
    TRY(check_parameter(call, CONV_INTEGER_X_ZERO, call->in[CONV_INTEGER_X]->dtype, 1, err));
    TRY(check_parameter(call, CONV_INTEGER_W_ZERO, call->in[CONV_INTEGER_W]->dtype, g.out_channels,
                        err));
    call->out[0]->dtype = DTYPE_INT32;
    return STATUS_OK;
}

const struct op_def op_conv_integer = {
    .name = "conv_integer",
    .onnx = {"ConvInteger", .since = 10},
    .inputs = 4,
    .min_inputs = 2,
    .outputs = 1,
    .attrs = conv_attr_defs,
    .attrs_size = sizeof(struct conv_attrs),
    .infer = infer_conv_integer,
    .flops = flops_conv_integer,
};

static enum status infer_qlinear_conv(const struct op_call *call, struct error *err)
{
    struct conv_geometry g;

    TRY(infer_conv(call, QLINEAR_B, &g, err));
    TRY(check_bias(call, g.out_channels, err));
    return check_qlinear(call, 1, g.out_channels, err);
}

const struct op_def op_qlinear_conv = {
    .name = "qlinear_conv",
    .onnx = {"QLinearConv", .since = 10},
    .inputs = 9,
    .min_inputs = 8,
    .outputs = 1,
    .attrs = conv_attr_defs,
    .attrs_size = sizeof(struct conv_attrs),
    .infer = infer_qlinear_conv,
    .flops = flops_qlinear_conv,
};
