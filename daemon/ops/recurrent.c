/* LSTM, GRU and RNN: one rule, three numbers of gates.  DynamicQuantizeLSTM (of ONNX Runtime's
 * com.microsoft) has W and R as bytes, turned: [directions, input or hidden, 4 * hidden]. */
#include "ops/recurrent.h"

#include <inttypes.h>
#include <strings.h>

static const struct function_name {
    const char *name;
    enum recurrent_activation activation;
    bool has_alpha, has_beta;
    float alpha, beta; /* where none is given */
} names[] = {
    {"Sigmoid", RECURRENT_SIGMOID, false, false, 0, 0},
    {"Tanh", RECURRENT_TANH, false, false, 0, 0},
    {"Relu", RECURRENT_RELU, false, false, 0, 0},
    {"Affine", RECURRENT_AFFINE, true, true, 1, 0},
    {"LeakyRelu", RECURRENT_LEAKY_RELU, true, false, 0.01f, 0},
    {"ThresholdedRelu", RECURRENT_THRESHOLDED_RELU, true, false, 1, 0},
    {"ScaledTanh", RECURRENT_SCALED_TANH, true, true, 1, 1},
    {"HardSigmoid", RECURRENT_HARD_SIGMOID, true, true, 0.2f, 0.5f},
    {"Elu", RECURRENT_ELU, true, false, 1, 0},
    {"Softsign", RECURRENT_SOFTSIGN, false, false, 0, 0},
    {"Softplus", RECURRENT_SOFTPLUS, false, false, 0, 0},
};

/* Models write "tanh" as well as "Tanh". */
static const struct function_name *find_name(const struct bytes *text)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (text->size == __builtin_strlen(names[i].name) &&
            strncasecmp(names[i].name, text->data, text->size) == 0)
            return &names[i];
    return NULL;
}

size_t recurrent_directions(const struct recurrent_attrs *attrs)
{
    return attrs->direction == RECURRENT_BIDIRECTIONAL ? 2 : 1;
}

enum status recurrent_functions(const struct recurrent_attrs *attrs, size_t each,
                                const enum recurrent_activation *standard,
                                struct recurrent_function *out_functions, struct error *err)
{
    size_t count = each * recurrent_directions(attrs);
    size_t alphas = 0, betas = 0;

    if (attrs->activations.values == NULL) {
        for (size_t i = 0; i < count; i++)
            out_functions[i] = (struct recurrent_function){standard[i % each], 0, 0};
        return STATUS_OK;
    }
    if (attrs->activations.count != count)
        return error_set(err, STATUS_INVALID, "activations has %zu names, must have %zu",
                         attrs->activations.count, count);
    for (size_t i = 0; i < count; i++) {
        const struct bytes *text = &attrs->activations.values[i];
        const struct function_name *name = find_name(text);
        struct recurrent_function *function = &out_functions[i];

        if (name == NULL)
            return error_set(err, STATUS_UNSUPPORTED, "activation '%.*s' is not known",
                             (int)(text->size < 64 ? text->size : 64), text->data);
        *function = (struct recurrent_function){name->activation, name->alpha, name->beta};
        if (name->has_alpha && alphas < attrs->activation_alpha.count)
            function->alpha = attrs->activation_alpha.values[alphas++];
        if (name->has_beta && betas < attrs->activation_beta.count)
            function->beta = attrs->activation_beta.values[betas++];
    }
    return STATUS_OK;
}

/* ---- the rule ---- */

static const struct tensor *input_at(const struct op_call *call, size_t index)
{
    return index < call->inputs ? call->in[index] : NULL;
}

/* An optional input must have this shape and the type of X. */
static enum status check_input(const struct op_call *call, size_t index, const char *what,
                               const struct shape *expected, struct error *err)
{
    const struct tensor *in = input_at(call, index);
    char text[SHAPE_TEXT_BYTES], expected_text[SHAPE_TEXT_BYTES];

    if (in == NULL)
        return STATUS_OK;
    if (in->dtype != call->in[0]->dtype || !shape_is_equal(&in->shape, expected))
        return error_set(err, STATUS_INVALID, "%s is %s %s, must be %s %s", what,
                         dtype_name(in->dtype), shape_format(&in->shape, text),
                         dtype_name(call->in[0]->dtype), shape_format(expected, expected_text));
    return STATUS_OK;
}

#define SHAPE3(a, b, c) (&(struct shape){.rank = 3, .dims = {a, b, c}})
#define SHAPE2(a, b)    (&(struct shape){.rank = 2, .dims = {a, b}})

static enum status check_lengths(const struct op_call *call, int64_t batch, struct error *err)
{
    const struct tensor *lengths = input_at(call, RECURRENT_LENGTHS);

    if (lengths != NULL && (lengths->dtype != DTYPE_INT32 || lengths->shape.rank != 1 ||
                            lengths->shape.dims[0] != batch))
        return error_set(err, STATUS_INVALID, "sequence_lens must be int32 [%" PRId64 "]", batch);
    return STATUS_OK;
}

/* Inputs that every one of the operators may have. */
static enum status check_optional(const struct op_call *call, int64_t gates, int64_t batch,
                                  int64_t hidden, struct error *err)
{
    const struct recurrent_attrs *attrs = call->attrs;
    int64_t directions = (int64_t)recurrent_directions(attrs);
    const struct shape *state =
        attrs->layout ? SHAPE3(batch, directions, hidden) : SHAPE3(directions, batch, hidden);

    TRY(check_input(call, RECURRENT_BIAS, "B", SHAPE2(directions, 2 * gates * hidden), err));
    TRY(check_lengths(call, batch, err));
    TRY(check_input(call, RECURRENT_H, "initial_h", state, err));
    TRY(check_input(call, RECURRENT_C, "initial_c", state, err));
    return check_input(call, RECURRENT_P, "P", SHAPE2(directions, 3 * hidden), err);
}

static enum status check_operands(const struct op_call *call, int64_t gates, int64_t batch,
                                  int64_t hidden, struct error *err)
{
    int64_t directions = (int64_t)recurrent_directions(call->attrs);
    int64_t input = call->in[0]->shape.dims[2];

    TRY(check_input(call, RECURRENT_W, "W", SHAPE3(directions, gates * hidden, input), err));
    TRY(check_input(call, RECURRENT_R, "R", SHAPE3(directions, gates * hidden, hidden), err));
    return check_optional(call, gates, batch, hidden, err);
}

static void give_outputs(const struct op_call *call, int64_t times, int64_t batch, int64_t hidden)
{
    const struct recurrent_attrs *attrs = call->attrs;
    int64_t directions = (int64_t)recurrent_directions(attrs);

    for (size_t i = 0; i < call->outputs; i++) {
        if (call->out[i] == NULL)
            continue;
        call->out[i]->dtype = call->in[0]->dtype;
        if (i == 0)
            call->out[i]->shape =
                attrs->layout
                    ? (struct shape){.rank = 4, .dims = {batch, times, directions, hidden}}
                    : (struct shape){.rank = 4, .dims = {times, directions, batch, hidden}};
        else
            call->out[i]->shape = attrs->layout ? *SHAPE3(batch, directions, hidden)
                                                : *SHAPE3(directions, batch, hidden);
    }
}

static enum status check_ranks(const struct op_call *call, struct error *err)
{
    const struct shape *x = &call->in[0]->shape, *r = &call->in[RECURRENT_R]->shape;

    if (x->rank != 3 || r->rank != 3)
        return error_set(err, STATUS_INVALID, "X and R have ranks %zu and %zu, must have 3",
                         x->rank, r->rank);
    return STATUS_OK;
}

/* hidden_size; where it is left out, what R says. */
static enum status find_hidden(const struct recurrent_attrs *attrs, int64_t of_r,
                               int64_t *out_hidden, struct error *err)
{
    *out_hidden = attrs->hidden_size > 0 ? attrs->hidden_size : of_r;
    if (*out_hidden < 1 || *out_hidden > INT64_C(1) << 24)
        return error_set(err, STATUS_INVALID, "hidden_size is %" PRId64, *out_hidden);
    return STATUS_OK;
}

static enum status infer_recurrent(const struct op_call *call, int64_t gates, struct error *err)
{
    const struct recurrent_attrs *attrs = call->attrs;
    const int64_t *x = call->in[0]->shape.dims;
    int64_t times, batch, hidden;

    TRY(check_ranks(call, err));
    if (attrs->layout != 0 && attrs->layout != 1)
        return error_set(err, STATUS_INVALID, "layout is %" PRId64 ", must be 0 or 1",
                         attrs->layout);
    times = x[attrs->layout ? 1 : 0];
    batch = x[attrs->layout ? 0 : 1];
    TRY(find_hidden(attrs, call->in[RECURRENT_R]->shape.dims[2], &hidden, err));
    TRY(check_operands(call, gates, batch, hidden, err));
    give_outputs(call, times, batch, hidden);
    return STATUS_OK;
}

/* Every step of every row multiplies by both matrices. */
static uint64_t flops(const struct op_call *call)
{
    const struct shape *x = &call->in[0]->shape;
    int64_t weights =
        shape_count(&call->in[RECURRENT_W]->shape) + shape_count(&call->in[RECURRENT_R]->shape);

    return 2 * (uint64_t)(x->dims[0] * x->dims[1]) * (uint64_t)weights;
}

static enum status infer_lstm(const struct op_call *call, struct error *err)
{
    struct recurrent_function functions[2 * 3];

    TRY(recurrent_functions(call->attrs, 3, recurrent_lstm_functions, functions, err));
    return infer_recurrent(call, 4, err);
}

static enum status infer_gru(const struct op_call *call, struct error *err)
{
    struct recurrent_function functions[2 * 2];

    TRY(recurrent_functions(call->attrs, 2, recurrent_gru_functions, functions, err));
    return infer_recurrent(call, 3, err);
}

static enum status infer_rnn(const struct op_call *call, struct error *err)
{
    struct recurrent_function functions[2];

    TRY(recurrent_functions(call->attrs, 1, recurrent_rnn_functions, functions, err));
    return infer_recurrent(call, 1, err);
}

/* A matrix of bytes, and its scale and zero point: one a direction or one a column of it. */
static enum status check_bytes(const struct op_call *call, size_t matrix, size_t scale,
                               const char *what, const struct shape *expected, struct error *err)
{
    const struct tensor *bytes = call->in[matrix], *scales = input_at(call, scale);
    const struct tensor *zeros = input_at(call, scale + 1);
    const struct shape *per_column = SHAPE2(expected->dims[0], expected->dims[2]);
    const struct shape per_direction = {.rank = 1, .dims = {expected->dims[0]}};
    char text[SHAPE_TEXT_BYTES], expected_text[SHAPE_TEXT_BYTES];

    if ((bytes->dtype != DTYPE_INT8 && bytes->dtype != DTYPE_UINT8) ||
        !shape_is_equal(&bytes->shape, expected))
        return error_set(err, STATUS_INVALID, "%s is %s %s, must be int8 or uint8 %s", what,
                         dtype_name(bytes->dtype), shape_format(&bytes->shape, text),
                         shape_format(expected, expected_text));
    if (scales == NULL || zeros == NULL)
        return error_set(err, STATUS_INVALID, "%s has no scale or no zero point", what);
    if (scales->dtype != DTYPE_FLOAT || zeros->dtype != bytes->dtype)
        return error_set(err, STATUS_INVALID, "scale and zero point of %s are %s and %s", what,
                         dtype_name(scales->dtype), dtype_name(zeros->dtype));
    if (!shape_is_equal(&scales->shape, &zeros->shape) ||
        (!shape_is_equal(&scales->shape, &per_direction) &&
         !shape_is_equal(&scales->shape, per_column)))
        return error_set(
            err, STATUS_INVALID, "scale of %s is %s, must be %s, its zero point like it", what,
            shape_format(&scales->shape, text), shape_format(per_column, expected_text));
    return STATUS_OK;
}

static enum status infer_dynamic_lstm(const struct op_call *call, struct error *err)
{
    struct recurrent_function functions[2 * 3];
    const int64_t *x = call->in[0]->shape.dims;
    int64_t directions = (int64_t)recurrent_directions(call->attrs), hidden;

    TRY(recurrent_functions(call->attrs, 3, recurrent_lstm_functions, functions, err));
    TRY(check_ranks(call, err));
    TRY(find_hidden(call->attrs, call->in[RECURRENT_R]->shape.dims[1], &hidden, err));
    TRY(check_bytes(call, RECURRENT_W, RECURRENT_W_SCALE, "W", SHAPE3(directions, x[2], 4 * hidden),
                    err));
    TRY(check_bytes(call, RECURRENT_R, RECURRENT_R_SCALE, "R",
                    SHAPE3(directions, hidden, 4 * hidden), err));
    TRY(check_optional(call, 4, x[1], hidden, err));
    give_outputs(call, x[0], x[1], hidden);
    return STATUS_OK;
}

const enum recurrent_activation recurrent_lstm_functions[3] = {RECURRENT_SIGMOID, RECURRENT_TANH,
                                                               RECURRENT_TANH};
const enum recurrent_activation recurrent_gru_functions[2] = {RECURRENT_SIGMOID, RECURRENT_TANH};
const enum recurrent_activation recurrent_rnn_functions[1] = {RECURRENT_TANH};

static const char *const directions[] = {"forward", "reverse", "bidirectional", NULL};

#define COMMON_ATTRS                                                                               \
    OP_ATTR_FLOATS(struct recurrent_attrs, activation_alpha),                                      \
        OP_ATTR_FLOATS(struct recurrent_attrs, activation_beta),                                   \
        OP_ATTR_STRINGS(struct recurrent_attrs, activations),                                      \
        OP_ATTR_FLOAT(struct recurrent_attrs, clip, 0),                                            \
        OP_ATTR_ENUM(struct recurrent_attrs, direction, directions, RECURRENT_FORWARD),            \
        OP_ATTR_INT(struct recurrent_attrs, hidden_size, 0),                                       \
        OP_ATTR_INT(struct recurrent_attrs, layout, 0)

static const struct attr_def lstm_attrs[] = {
    COMMON_ATTRS,
    OP_ATTR_INT(struct recurrent_attrs, input_forget, 0),
    OP_ATTR_END,
};

static const struct attr_def gru_attrs[] = {
    COMMON_ATTRS,
    OP_ATTR_INT(struct recurrent_attrs, linear_before_reset, 0),
    OP_ATTR_END,
};

static const struct attr_def rnn_attrs[] = {COMMON_ATTRS, OP_ATTR_END};

const struct op_def op_lstm = {
    .name = "lstm",
    .onnx = {"LSTM", .since = 14},
    .inputs = 8,
    .min_inputs = 3,
    .outputs = 3,
    .dtypes = DTYPE_FLOATS,
    .attrs = lstm_attrs,
    .attrs_size = sizeof(struct recurrent_attrs),
    .infer = infer_lstm,
    .flops = flops,
};

static const struct attr_def dynamic_lstm_attrs[] = {
    OP_ATTR_FLOATS(struct recurrent_attrs, activation_alpha),
    OP_ATTR_FLOATS(struct recurrent_attrs, activation_beta),
    OP_ATTR_STRINGS(struct recurrent_attrs, activations),
    OP_ATTR_FLOAT(struct recurrent_attrs, clip, 0),
    OP_ATTR_ENUM(struct recurrent_attrs, direction, directions, RECURRENT_FORWARD),
    OP_ATTR_INT(struct recurrent_attrs, hidden_size, 0),
    OP_ATTR_INT(struct recurrent_attrs, input_forget, 0),
    OP_ATTR_END,
};

const struct op_def op_dynamic_quantize_lstm = {
    .name = "dynamic_quantize_lstm",
    .onnx = {"DynamicQuantizeLSTM", 1, "com.microsoft"},
    .inputs = RECURRENT_INPUTS,
    .min_inputs = 3,
    .outputs = 3,
    .dtypes = DTYPE_BIT(FLOAT),
    .attrs = dynamic_lstm_attrs,
    .attrs_size = sizeof(struct recurrent_attrs),
    .infer = infer_dynamic_lstm,
    .flops = flops,
};

const struct op_def op_gru = {
    .name = "gru",
    .onnx = {"GRU", .since = 14},
    .inputs = 6,
    .min_inputs = 3,
    .outputs = 2,
    .dtypes = DTYPE_FLOATS,
    .attrs = gru_attrs,
    .attrs_size = sizeof(struct recurrent_attrs),
    .infer = infer_gru,
    .flops = flops,
};

const struct op_def op_rnn = {
    .name = "rnn",
    .onnx = {"RNN", .since = 14},
    .inputs = 6,
    .min_inputs = 3,
    .outputs = 2,
    .dtypes = DTYPE_FLOATS,
    .attrs = rnn_attrs,
    .attrs_size = sizeof(struct recurrent_attrs),
    .infer = infer_rnn,
    .flops = flops,
};
