/* Operators that map each element of one tensor on its own. */
#include "ops/elementwise.h"

enum {
    DTYPES_ABS = DTYPE_NUMBERS,
    DTYPES_SIGNED = DTYPE_FLOATS | DTYPE_SIGNED,
};

/* One row an operator without attributes: floats (or `types`) in, the same out. */
#define UNARY(stem, onnx_name, opset, types)                                                       \
    const struct op_def op_##stem = {                                                              \
        .name = #stem,                                                                             \
        .onnx = {onnx_name, opset},                                                                \
        .inputs = 1,                                                                               \
        .outputs = 1,                                                                              \
        .dtypes = (types),                                                                         \
        .flags = OP_ELEMENTWISE,                                                                   \
        .infer = op_infer_same,                                                                    \
    };
/* The same with attributes `stem_rows` of `struct type`. */
#define UNARY_WITH(stem, onnx_name, opset, types, rows, type)                                      \
    const struct op_def op_##stem = {                                                              \
        .name = #stem,                                                                             \
        .onnx = {onnx_name, opset},                                                                \
        .inputs = 1,                                                                               \
        .outputs = 1,                                                                              \
        .dtypes = (types),                                                                         \
        .flags = OP_ELEMENTWISE,                                                                   \
        .attrs = (rows),                                                                           \
        .attrs_size = sizeof(struct type),                                                         \
        .infer = op_infer_same,                                                                    \
    };

UNARY(abs, "Abs", 6, DTYPES_ABS)
UNARY(acos, "Acos", 7, DTYPE_FLOATS)
UNARY(acosh, "Acosh", 9, DTYPE_FLOATS)
UNARY(asin, "Asin", 7, DTYPE_FLOATS)
UNARY(asinh, "Asinh", 9, DTYPE_FLOATS)
UNARY(atan, "Atan", 7, DTYPE_FLOATS)
UNARY(atanh, "Atanh", 9, DTYPE_FLOATS)
UNARY(bitwise_not, "BitwiseNot", 18, DTYPE_INTS)
UNARY(ceil, "Ceil", 6, DTYPE_FLOATS)
UNARY(cos, "Cos", 7, DTYPE_FLOATS)
UNARY(cosh, "Cosh", 9, DTYPE_FLOATS)
UNARY(erf, "Erf", 9, DTYPE_FLOATS)
UNARY(exp, "Exp", 6, DTYPE_FLOATS)
UNARY(floor, "Floor", 6, DTYPE_FLOATS)
UNARY(hard_swish, "HardSwish", 14, DTYPE_FLOATS)
UNARY(log, "Log", 6, DTYPE_FLOATS)
UNARY(mish, "Mish", 18, DTYPE_FLOATS)
UNARY(neg, "Neg", 6, DTYPES_SIGNED)
UNARY(not, "Not", 1, DTYPE_BIT(BOOL))
UNARY(reciprocal, "Reciprocal", 6, DTYPE_FLOATS)
UNARY(relu, "Relu", 6, DTYPES_SIGNED)
UNARY(round, "Round", 11, DTYPE_FLOATS)
UNARY(sigmoid, "Sigmoid", 6, DTYPE_FLOATS)
UNARY(sign, "Sign", 9, DTYPE_NUMBERS)
UNARY(sin, "Sin", 7, DTYPE_FLOATS)
UNARY(sinh, "Sinh", 9, DTYPE_FLOATS)
UNARY(softplus, "Softplus", 1, DTYPE_FLOATS)
UNARY(softsign, "Softsign", 1, DTYPE_FLOATS)
UNARY(sqrt, "Sqrt", 6, DTYPE_FLOATS)
UNARY(tan, "Tan", 7, DTYPE_FLOATS)
UNARY(tanh, "Tanh", 6, DTYPE_FLOATS)

#define ALPHA_ROWS(name, standard)                                                                 \
    static const struct attr_def name[] = {OP_ATTR_FLOAT(struct alpha_attrs, alpha, standard),     \
                                           OP_ATTR_END};

ALPHA_ROWS(one_rows, 1.0f)
ALPHA_ROWS(leaky_rows, 0.01f)
ALPHA_ROWS(quick_gelu_rows, 1.702f)

UNARY_WITH(elu, "Elu", 6, DTYPE_FLOATS, one_rows, alpha_attrs)
UNARY_WITH(leaky_relu, "LeakyRelu", 6, DTYPE_FLOATS, leaky_rows, alpha_attrs)
UNARY_WITH(swish, "Swish", 24, DTYPE_FLOATS, one_rows, alpha_attrs)
UNARY_WITH(thresholded_relu, "ThresholdedRelu", 10, DTYPE_FLOATS, one_rows, alpha_attrs)

static enum status infer_celu(const struct op_call *call, struct error *err)
{
    const struct alpha_attrs *attrs = call->attrs;

    if (!(attrs->alpha > 0))
        return error_set(err, STATUS_UNSUPPORTED, "alpha is %g; only positive values are supported",
                         (double)attrs->alpha);
    return op_infer_same(call, err);
}

const struct op_def op_celu = {
    .name = "celu",
    .onnx = {"Celu", 12},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .flags = OP_ELEMENTWISE,
    .attrs = one_rows,
    .attrs_size = sizeof(struct alpha_attrs),
    .infer = infer_celu,
};

const struct op_def op_quick_gelu = {
    .name = "quick_gelu", /* x sigmoid(alpha x) */
    .onnx = {"QuickGelu", 1, "com.microsoft"},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .flags = OP_ELEMENTWISE,
    .attrs = quick_gelu_rows,
    .attrs_size = sizeof(struct alpha_attrs),
    .infer = op_infer_same,
};

static const struct attr_def hard_sigmoid_rows[] = {
    OP_ATTR_FLOAT(struct hard_sigmoid_attrs, alpha, 0.2f),
    OP_ATTR_FLOAT(struct hard_sigmoid_attrs, beta, 0.5f), OP_ATTR_END};
UNARY_WITH(hard_sigmoid, "HardSigmoid", 6, DTYPE_FLOATS, hard_sigmoid_rows, hard_sigmoid_attrs)

static const struct attr_def selu_rows[] = {
    OP_ATTR_FLOAT(struct selu_attrs, alpha, 1.67326319217681884765625f),
    OP_ATTR_FLOAT(struct selu_attrs, gamma, 1.05070102214813232421875f), OP_ATTR_END};
UNARY_WITH(selu, "Selu", 6, DTYPE_FLOATS, selu_rows, selu_attrs)

static const struct attr_def shrink_rows[] = {OP_ATTR_FLOAT(struct shrink_attrs, bias, 0.0f),
                                              OP_ATTR_FLOAT(struct shrink_attrs, lambd, 0.5f),
                                              OP_ATTR_END};
UNARY_WITH(shrink, "Shrink", 9, DTYPE_NUMBERS, shrink_rows, shrink_attrs)

static const char *const gelu_words[] = {"none", "tanh", NULL};
static const struct attr_def gelu_rows[] = {
    OP_ATTR_ENUM(struct gelu_attrs, approximate, gelu_words, GELU_NONE), OP_ATTR_END};
UNARY_WITH(gelu, "Gelu", 20, DTYPE_FLOATS, gelu_rows, gelu_attrs)

static enum status infer_predicate(const struct op_call *call, struct error *err)
{
    (void)err;
    call->out[0]->dtype = DTYPE_BOOL;
    call->out[0]->shape = call->in[0]->shape;
    return STATUS_OK;
}

const struct op_def op_is_nan = {
    .name = "is_nan",
    .onnx = {"IsNaN", 9},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .flags = OP_ELEMENTWISE,
    .infer = infer_predicate,
};

static const struct attr_def is_inf_rows[] = {OP_ATTR_INT(struct is_inf_attrs, detect_negative, 1),
                                              OP_ATTR_INT(struct is_inf_attrs, detect_positive, 1),
                                              OP_ATTR_END};

const struct op_def op_is_inf = {
    .name = "is_inf",
    .onnx = {"IsInf", 10},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .flags = OP_ELEMENTWISE,
    .attrs = is_inf_rows,
    .attrs_size = sizeof(struct is_inf_attrs),
    .infer = infer_predicate,
};

const struct op_def op_identity = {
    .name = "identity",
    .onnx = {"Identity", 1},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .flags = OP_ELEMENTWISE | OP_VIEW,
    .infer = op_infer_same,
};

/* Bounds are inputs: scalars, either may be left out. */
static enum status infer_clip(const struct op_call *call, struct error *err)
{
    static const char *const names[] = {"input", "min", "max"};

    for (size_t i = 1; i < call->inputs; i++) {
        if (call->in[i] == NULL)
            continue;
        if (call->in[i]->dtype != call->in[0]->dtype)
            return error_set(err, STATUS_INVALID, "%s is of type %s where the input is of type %s",
                             names[i], dtype_name(call->in[i]->dtype),
                             dtype_name(call->in[0]->dtype));
        if (call->in[i]->shape.rank > 1 || shape_count(&call->in[i]->shape) != 1)
            return error_set(err, STATUS_INVALID, "%s is no scalar", names[i]);
    }
    return op_infer_same(call, err);
}

const struct op_def op_clip = {
    .name = "clip",
    .onnx = {"Clip", 11},
    .inputs = 3,
    .min_inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_NUMBERS,
    .infer = infer_clip,
    .flops = op_flops_each_output,
};

/* Inference only: the data pass, the mask is all true. */
static enum status infer_dropout(const struct op_call *call, struct error *err)
{
    const struct tensor *training = call->inputs > 2 ? call->in[2] : NULL;

    if (training != NULL && training->data == NULL)
        return error_set(err, STATUS_UNSUPPORTED, "training_mode is not a constant");
    if (training != NULL && training->dtype == DTYPE_BOOL && shape_count(&training->shape) == 1 &&
        *(const uint8_t *)training->data != 0)
        return error_set(err, STATUS_UNSUPPORTED, "training_mode is true; only inference is done");
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = call->in[0]->shape;
    if (call->outputs > 1 && call->out[1] != NULL) {
        call->out[1]->dtype = DTYPE_BOOL;
        call->out[1]->shape = call->in[0]->shape;
    }
    return STATUS_OK;
}

static const struct attr_def dropout_rows[] = {OP_ATTR_INT(struct dropout_attrs, seed, 0),
                                               OP_ATTR_END};

const struct op_def op_dropout = {
    .name = "dropout",
    .onnx = {"Dropout", 12},
    .inputs = 3,
    .min_inputs = 1,
    .outputs = 2,
    .dtypes = DTYPE_FLOATS,
    .attrs = dropout_rows,
    .attrs_size = sizeof(struct dropout_attrs),
    .infer = infer_dropout,
};

static enum status infer_cast(const struct op_call *call, struct error *err)
{
    const struct cast_attrs *attrs = call->attrs;
    const uint32_t allowed = DTYPE_ANY;

    if (attrs->to <= 0 || attrs->to >= DTYPE_COUNT || (allowed >> attrs->to & 1) == 0)
        return error_set(err, STATUS_UNSUPPORTED, "to=%lld names no supported type",
                         (long long)attrs->to);
    call->out[0]->dtype = (enum dtype)attrs->to;
    call->out[0]->shape = call->in[0]->shape;
    return STATUS_OK;
}

static const struct attr_def cast_rows[] = {
    {ATTR_INT, "to", offsetof(struct cast_attrs, to), .required = true},
    OP_ATTR_INT(struct cast_attrs, saturate, 1),
    OP_ATTR_STRING(struct cast_attrs, round_mode, "up"),
    OP_ATTR_END};

const struct op_def op_cast = {
    .name = "cast",
    .onnx = {"Cast", 6},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = cast_rows,
    .attrs_size = sizeof(struct cast_attrs),
    .infer = infer_cast,
    .flops = op_flops_each_output,
};

static enum status infer_cast_like(const struct op_call *call, struct error *err)
{
    (void)err;
    call->out[0]->dtype = call->in[1]->dtype;
    call->out[0]->shape = call->in[0]->shape;
    return STATUS_OK;
}

static const struct attr_def cast_like_rows[] = {
    OP_ATTR_INT(struct cast_attrs, saturate, 1),
    OP_ATTR_STRING(struct cast_attrs, round_mode, "up"), OP_ATTR_END};

const struct op_def op_cast_like = {
    .name = "cast_like",
    .onnx = {"CastLike", 15},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = cast_like_rows,
    .attrs_size = sizeof(struct cast_attrs),
    .infer = infer_cast_like,
    .flops = op_flops_each_output,
};
