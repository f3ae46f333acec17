#include "device/cuda/kernels/quantized_plan.h"

#include "device/cuda/kernels/rows.h"

/* MatMulInteger and ConvInteger have theirs at the same places. */
static const struct quantized_places integer = {.x = MATMUL_INTEGER_A,
                                                .w = MATMUL_INTEGER_B,
                                                .x_zero = MATMUL_INTEGER_A_ZERO,
                                                .w_zero = MATMUL_INTEGER_B_ZERO,
                                                .x_scale = QUANTIZED_NONE,
                                                .w_scale = QUANTIZED_NONE,
                                                .y_scale = QUANTIZED_NONE,
                                                .y_zero = QUANTIZED_NONE,
                                                .bias = QUANTIZED_NONE,
                                                .shift = QUANTIZED_NONE,
                                                .result = QUANTIZED_SUMS};
_Static_assert((int)MATMUL_INTEGER_B == (int)CONV_INTEGER_W &&
                   (int)MATMUL_INTEGER_A_ZERO == (int)CONV_INTEGER_X_ZERO &&
                   (int)MATMUL_INTEGER_B_ZERO == (int)CONV_INTEGER_W_ZERO,
               "as it says");

static const struct quantized_places qlinear = {.x = QLINEAR_A,
                                                .w = QLINEAR_B,
                                                .x_zero = QLINEAR_A_ZERO,
                                                .w_zero = QLINEAR_B_ZERO,
                                                .x_scale = QLINEAR_A_SCALE,
                                                .w_scale = QLINEAR_B_SCALE,
                                                .y_scale = QLINEAR_Y_SCALE,
                                                .y_zero = QLINEAR_Y_ZERO,
                                                .bias = QLINEAR_BIAS,
                                                .shift = QUANTIZED_NONE,
                                                .result = QUANTIZED_BYTES};
static const struct quantized_places to_float = {.x = MATMUL_FLOAT_A,
                                                 .w = MATMUL_FLOAT_B,
                                                 .x_zero = MATMUL_FLOAT_A_ZERO,
                                                 .w_zero = MATMUL_FLOAT_B_ZERO,
                                                 .x_scale = MATMUL_FLOAT_A_SCALE,
                                                 .w_scale = MATMUL_FLOAT_B_SCALE,
                                                 .y_scale = QUANTIZED_NONE,
                                                 .y_zero = QUANTIZED_NONE,
                                                 .bias = QUANTIZED_NONE,
                                                 .shift = MATMUL_FLOAT_BIAS,
                                                 .result = QUANTIZED_FLOATS};

const struct quantized_places *quantized_places_of(const struct op_def *op)
{
    if (op == &op_matmul_integer_to_float)
        return &to_float;
    return op == &op_matmul_integer || op == &op_conv_integer ? &integer : &qlinear;
}

void quantized_range(enum dtype dtype, double *low, double *high)
{
    bool is_signed = dtype == DTYPE_INT8 || dtype == DTYPE_INT16;
    double values = dtype_bytes(dtype) == 1 ? 256 : 65536;

    *low = is_signed ? -values / 2 : 0;
    *high = *low + values - 1;
}

struct quantized_parameter quantized_parameter(const struct kernel_call *call,
                                               const struct kernel_run *run, size_t index)
{
    const struct operand *operand = call_input(call, index);

    if (operand == NULL)
        return (struct quantized_parameter){.data = NULL};
    return (struct quantized_parameter){.data = run->in[index],
                                        .dtype = operand->dtype,
                                        .step = shape_count(&operand->shape) > 1 ? 1 : 0};
}

const struct epilogue *quantized_epilogue(const struct kernel_call *call)
{
    const struct quantized_matmul_attrs *matmul = call->attrs;
    const struct conv_attrs *conv = call->attrs;

    return call->op == &op_qlinear_conv || call->op == &op_conv_integer ? &conv->epilogue
                                                                        : &matmul->epilogue;
}

void quantized_finish_make(struct quantized_finish *finish, const struct kernel_call *call)
{
    const struct epilogue *epilogue = quantized_epilogue(call);
    double low, high;

    finish->result = (uint32_t)quantized_places_of(call->op)->result;
    finish->out_dtype = (uint32_t)call->out[0]->dtype;
    finish->act = (uint32_t)epilogue->act;
    finish->act_a = epilogue->a;
    finish->act_b = epilogue->b;
    quantized_range(call->out[0]->dtype, &low, &high);
    finish->low = (float)low;
    finish->high = (float)high;
}

void quantized_finish_run(struct quantized_finish *finish, const struct kernel_call *call,
                          const struct kernel_run *run)
{
    const struct quantized_places *places = quantized_places_of(call->op);

    finish->row_scale = quantized_parameter(call, run, places->x_scale);
    finish->column_scale = quantized_parameter(call, run, places->w_scale);
    finish->y_scale = quantized_parameter(call, run, places->y_scale);
    finish->y_zero = quantized_parameter(call, run, places->y_zero);
    finish->bias = run_input(call, run, places->bias);
    finish->shift = run_input(call, run, places->shift);
}
