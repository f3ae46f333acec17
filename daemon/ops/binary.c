/* Operators of two or more tensors, element by element with broadcasting. */
#include "ops/elementwise.h"

#define BROADCASTING(stem, onnx_name, opset, count, least, types, rule)                            \
    const struct op_def op_##stem = {                                                              \
        .name = #stem,                                                                             \
        .onnx = {onnx_name, opset},                                                                \
        .inputs = (count),                                                                         \
        .min_inputs = (least),                                                                     \
        .outputs = 1,                                                                              \
        .dtypes = (types),                                                                         \
        .flags = OP_ELEMENTWISE,                                                                   \
        .infer = (rule),                                                                           \
    };
#define ARITHMETIC(stem, onnx_name, opset)                                                         \
    BROADCASTING(stem, onnx_name, opset, 2, 2, DTYPE_NUMBERS, op_infer_broadcast)
#define VARIADIC(stem, onnx_name, opset, types)                                                    \
    BROADCASTING(stem, onnx_name, opset, -1, 1, types, op_infer_broadcast)
#define BITS(stem, onnx_name, opset, types)                                                        \
    BROADCASTING(stem, onnx_name, opset, 2, 2, types, op_infer_broadcast)
#define COMPARISON(stem, onnx_name, opset, types)                                                  \
    BROADCASTING(stem, onnx_name, opset, 2, 2, types, op_infer_compare)

ARITHMETIC(add, "Add", 7)
ARITHMETIC(sub, "Sub", 7)
ARITHMETIC(mul, "Mul", 7)
ARITHMETIC(div, "Div", 7)
VARIADIC(max, "Max", 8, DTYPE_NUMBERS)
VARIADIC(min, "Min", 8, DTYPE_NUMBERS)
VARIADIC(sum, "Sum", 8, DTYPE_FLOATS)
VARIADIC(mean, "Mean", 8, DTYPE_FLOATS)
BITS(and, "And", 7, DTYPE_BIT(BOOL))
BITS(or, "Or", 7, DTYPE_BIT(BOOL))
BITS(xor, "Xor", 7, DTYPE_BIT(BOOL))
BITS(bitwise_and, "BitwiseAnd", 18, DTYPE_INTS)
BITS(bitwise_or, "BitwiseOr", 18, DTYPE_INTS)
BITS(bitwise_xor, "BitwiseXor", 18, DTYPE_INTS)
COMPARISON(equal, "Equal", 7, DTYPE_ANY)
COMPARISON(greater, "Greater", 7, DTYPE_NUMBERS)
COMPARISON(greater_or_equal, "GreaterOrEqual", 12, DTYPE_NUMBERS)
COMPARISON(less, "Less", 7, DTYPE_NUMBERS)
COMPARISON(less_or_equal, "LessOrEqual", 12, DTYPE_NUMBERS)

static const char *const shift_words[] = {"LEFT", "RIGHT", NULL};
static const struct attr_def bit_shift_rows[] = {{ATTR_ENUM, "direction",
                                                  offsetof(struct bit_shift_attrs, direction),
                                                  .required = true, .words = shift_words},
                                                 OP_ATTR_END};

const struct op_def op_bit_shift = {
    .name = "bit_shift",
    .onnx = {"BitShift", 11},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_UNSIGNED,
    .flags = OP_ELEMENTWISE,
    .attrs = bit_shift_rows,
    .attrs_size = sizeof(struct bit_shift_attrs),
    .infer = op_infer_broadcast,
};

static enum status infer_mod(const struct op_call *call, struct error *err)
{
    const struct mod_attrs *attrs = call->attrs;

    if (dtype_is_float(call->in[0]->dtype) && attrs->fmod == 0)
        return error_set(err, STATUS_INVALID, "fmod must be 1 for type %s",
                         dtype_name(call->in[0]->dtype));
    return op_infer_broadcast(call, err);
}

static const struct attr_def mod_rows[] = {OP_ATTR_INT(struct mod_attrs, fmod, 0), OP_ATTR_END};

const struct op_def op_mod = {
    .name = "mod",
    .onnx = {"Mod", 10},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_NUMBERS,
    .flags = OP_ELEMENTWISE,
    .attrs = mod_rows,
    .attrs_size = sizeof(struct mod_attrs),
    .infer = infer_mod,
};

/* The exponent may be of another type than the base. */
static enum status infer_pow(const struct op_call *call, struct error *err)
{
    if ((DTYPE_NUMBERS >> call->in[1]->dtype & 1) == 0)
        return error_set(err, STATUS_INVALID, "the exponent is of type %s",
                         dtype_name(call->in[1]->dtype));
    TRY(op_broadcast_shapes(call, &call->out[0]->shape, err));
    call->out[0]->dtype = call->in[0]->dtype;
    return STATUS_OK;
}

const struct op_def op_pow = {
    .name = "pow",
    .onnx = {"Pow", 7},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS | DTYPE_BIT(INT32) | DTYPE_BIT(INT64),
    .flags = OP_ELEMENTWISE,
    .infer = infer_pow,
};

/* The slope broadcasts to the input, never the other way round. */
static enum status infer_prelu(const struct op_call *call, struct error *err)
{
    char slope[SHAPE_TEXT_BYTES], input[SHAPE_TEXT_BYTES];

    TRY(op_infer_broadcast(call, err));
    if (!shape_is_equal(&call->out[0]->shape, &call->in[0]->shape))
        return error_set(err, STATUS_INVALID, "slope of shape %s does not broadcast to %s",
                         shape_format(&call->in[1]->shape, slope),
                         shape_format(&call->in[0]->shape, input));
    return STATUS_OK;
}

const struct op_def op_prelu = {
    .name = "prelu",
    .onnx = {"PRelu", 7},
    .inputs = 2,
    .outputs = 1,
    .dtypes =
        DTYPE_FLOATS | DTYPE_BIT(INT32) | DTYPE_BIT(INT64) | DTYPE_BIT(UINT32) | DTYPE_BIT(UINT64),
    .flags = OP_ELEMENTWISE,
    .infer = infer_prelu,
};

static enum status infer_where(const struct op_call *call, struct error *err)
{
    if (call->in[2]->dtype != call->in[1]->dtype)
        return error_set(err, STATUS_INVALID, "X is of type %s and Y of type %s",
                         dtype_name(call->in[1]->dtype), dtype_name(call->in[2]->dtype));
    TRY(op_broadcast_shapes(call, &call->out[0]->shape, err));
    call->out[0]->dtype = call->in[1]->dtype;
    return STATUS_OK;
}

const struct op_def op_where = {
    .name = "where",
    .onnx = {"Where", 9},
    .inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_BIT(BOOL),
    .flags = OP_ELEMENTWISE,
    .infer = infer_where,
};
