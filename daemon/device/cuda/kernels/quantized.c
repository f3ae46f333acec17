/* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, and products of bytes. */
#include "device/cuda/kernels/quantized.h"

#include <stdlib.h>

#include "device/cuda/kernels/lines.h"
#include "device/cuda/kernels/lines_plan.h"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/kernels/product_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/quantize.h"
#include "ops/quantized.h"

/* Input `index` as a parameter; addresses are those of a run, NULL where it is left out. */
static struct quantized_parameter parameter(const struct kernel_call *call,
                                            const struct kernel_run *run, size_t index)
{
    const struct operand *operand = call_input(call, index);

    if (operand == NULL)
        return (struct quantized_parameter){.data = NULL};
    return (struct quantized_parameter){.data = run->in[index],
                                        .dtype = operand->dtype,
                                        .step = shape_count(&operand->shape) > 1 ? 1 : 0};
}

static void range_of(enum dtype dtype, double *low, double *high)
{
    bool is_signed = dtype == DTYPE_INT8 || dtype == DTYPE_INT16;
    double values = dtype_bytes(dtype) == 1 ? 256 : 65536;

    *low = is_signed ? -values / 2 : 0;
    *high = *low + values - 1;
}

static enum status prepare_quantize(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct quantize_geometry geometry;
    struct quantize *quantize;

    TRY(quantize_geometry(call->attrs, &call->in[0]->shape, &call->in[1]->shape, &geometry, err));
    quantize = prepare_state(prepare, sizeof(*quantize), err);
    if (quantize == NULL)
        return STATUS_NO_MEMORY;
    quantize->elements = shape_count(&call->in[0]->shape);
    quantize->count = geometry.count;
    quantize->inner = geometry.inner;
    quantize->block = geometry.block;
    quantize->by = (uint32_t)geometry.by;
    quantize->to_integers = call->op == &op_quantize_linear;
    quantize->in_dtype = call->in[0]->dtype;
    quantize->out_dtype = call->out[0]->dtype;
    range_of(call->out[0]->dtype, &quantize->low, &quantize->high);
    return STATUS_OK;
}

static enum status run_quantize(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    struct quantize quantize = *(const struct quantize *)state;

    quantize.in = run->in[0];
    quantize.out = run->out[0];
    quantize.scale = parameter(call, run, 1);
    quantize.zero = parameter(call, run, 2);
    quantize.scale.step = quantize.zero.step = 1; /* by place, see quantize.by */
    return cuda_status(cuda_quantize(&quantize, cuda_stream(run)));
}

#define QUANTIZE(operator)                                                                         \
    const struct kernel kernel_##operator##_integers = {                                           \
        .name = "cuda:integers",                                                                   \
        .prepare = prepare_quantize,                                                               \
        .enqueue = run_quantize,                                                                   \
        .release = free,                                                                           \
    };
QUANTIZE(quantize_linear)
QUANTIZE(dequantize_linear)

/* ---- dynamic: the range is that of the tensor, zero included ---- */

/* In scratch: the least and the largest element, and what of the results nobody wants. */
enum { LEAST_AT = 0, MOST_AT = 64, SCALE_AT = 128, ZERO_AT = 192, SCRATCH_BYTES = 256 };

static enum status prepare_dynamic(struct kernel_prepare *prepare, struct error *err)
{
    const struct operand *in = prepare->call.in[0];
    struct operand one = {.dtype = DTYPE_FLOAT, .shape = {.rank = 0}};
    struct reduce *reduce = prepare_state(prepare, sizeof(*reduce), err);
    bool reduced[SHAPE_MAX_RANK];
    struct axes axes;

    if (reduce == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < in->shape.rank; i++)
        reduced[i] = true;
    lines_axes_of_reduction(&axes, in, &one, reduced);
    lines_make(&reduce->lines, &axes, reduced, NULL);
    reduce->lines.type = PW_FLOAT;
    reduce->lines.in_dtype = reduce->lines.out_dtype = DTYPE_FLOAT;
    prepare->scratch_bytes = SCRATCH_BYTES;
    return STATUS_OK;
}

static enum status find_extreme(const struct reduce *state, enum reduce_way way, const void *in,
                                void *out, const struct kernel_run *run)
{
    struct reduce reduce = *state;

    reduce.way = (uint32_t)way;
    reduce.lines.in = in;
    reduce.lines.out = out;
    return cuda_status(cuda_reduce(&reduce, cuda_stream(run)));
}

static enum status run_dynamic(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    char *scratch = run->scratch;
    void *scale = call_output(call, 1) != NULL ? run->out[1] : scratch + SCALE_AT;
    void *zero = call_output(call, 2) != NULL ? run->out[2] : scratch + ZERO_AT;
    const struct quantize_range range = {.least = (const float *)(void *)(scratch + LEAST_AT),
                                         .most = (const float *)(void *)(scratch + MOST_AT),
                                         .scale = scale,
                                         .zero = zero};
    const struct quantize quantize = {.elements = shape_count(&call->in[0]->shape),
                                      .count = 1,
                                      .inner = 1,
                                      .by = QUANTIZED_BY_TENSOR,
                                      .to_integers = 1,
                                      .in_dtype = DTYPE_FLOAT,
                                      .out_dtype = DTYPE_UINT8,
                                      .high = 255,
                                      .in = run->in[0],
                                      .out = run->out[0],
                                      .scale = {.data = scale, .dtype = DTYPE_FLOAT},
                                      .zero = {.data = zero, .dtype = DTYPE_UINT8}};

    TRY(find_extreme(state, REDUCE_MIN, run->in[0], scratch + LEAST_AT, run));
    TRY(find_extreme(state, REDUCE_MAX, run->in[0], scratch + MOST_AT, run));
    TRY(cuda_status(cuda_quantize_range(&range, cuda_stream(run))));
    return cuda_status(cuda_quantize(&quantize, cuda_stream(run)));
}

const struct kernel kernel_dynamic_quantize_linear_integers = {
    .name = "cuda:integers",
    .flags = KERNEL_BATCH_INEXACT,
    .prepare = prepare_dynamic,
    .enqueue = run_dynamic,
    .release = free,
};

/* ---- products ---- */

/* The forms that passes make for devices with `multiplies_bytes`. */
static const char *refuse_matrices(const struct kernel_call *call)
{
    const struct quantized_matmul_attrs *attrs = call->attrs;

    if (attrs->trans_b || attrs->has_bias)
        return "a transposed matrix or a bias";
    return attrs->epilogue.act == ACT_NONE ? NULL : "a fused activation";
}

static const char *refuse_conv(const struct kernel_call *call)
{
    const struct conv_attrs *attrs = call->attrs;

    return attrs->epilogue.act == ACT_NONE ? NULL : "a fused activation";
}

static enum status prepare_product(struct kernel_prepare *prepare, size_t b, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct shape *a_shape = &call->in[0]->shape, *b_shape = &call->in[b]->shape;
    struct quantized_product *product;
    struct matmul_geometry geometry;
    double low, high;

    TRY(matmul_resolve(a_shape, b_shape, false, false, &geometry, err));
    product = prepare_state(prepare, sizeof(*product), err);
    if (product == NULL)
        return STATUS_NO_MEMORY;
    product_matrices(&product->product, &geometry, a_shape, b_shape, false, false);
    product->product.dtype = call->in[0]->dtype;
    product->product.out_dtype = call->out[0]->dtype;
    product->b_dtype = call->in[b]->dtype;
    range_of(call->out[0]->dtype, &low, &high);
    product->low = (float)low;
    product->high = (float)high;
    return STATUS_OK;
}

static enum status prepare_matmul_integer(struct kernel_prepare *prepare, struct error *err)
{
    return prepare_product(prepare, MATMUL_INTEGER_B, err);
}

static enum status prepare_qlinear_matmul(struct kernel_prepare *prepare, struct error *err)
{
    return prepare_product(prepare, QLINEAR_B, err);
}

/* The weights are the product's a, the input its b. */
static enum status prepare_conv(struct kernel_prepare *prepare, size_t w, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct quantized_product *product;
    struct conv_geometry geometry;
    double low, high;

    TRY(conv_resolve(call->attrs, &call->in[0]->shape, &call->in[w]->shape, &geometry, err));
    product = prepare_state(prepare, sizeof(*product), err);
    if (product == NULL)
        return STATUS_NO_MEMORY;
    product_conv(&product->product, &(struct conv_operands){call->in[0], call->in[w], call->out[0]},
                 &geometry, false);
    product->product.dtype = call->in[w]->dtype;
    product->product.out_dtype = call->out[0]->dtype;
    product->b_dtype = call->in[0]->dtype;
    range_of(call->out[0]->dtype, &low, &high);
    product->low = (float)low;
    product->high = (float)high;
    return STATUS_OK;
}

static enum status prepare_conv_integer(struct kernel_prepare *prepare, struct error *err)
{
    return prepare_conv(prepare, CONV_INTEGER_W, err);
}

static enum status prepare_qlinear_conv(struct kernel_prepare *prepare, struct error *err)
{
    return prepare_conv(prepare, QLINEAR_B, err);
}

static void set_scales(struct quantized_product *product, const struct kernel_call *call,
                       const struct kernel_run *run, size_t a_scale, size_t b_scale)
{
    product->requantizes = 1;
    product->a_scale = parameter(call, run, a_scale);
    product->b_scale = parameter(call, run, b_scale);
    product->y_scale = parameter(call, run, QLINEAR_Y_SCALE);
    product->y_zero = parameter(call, run, QLINEAR_Y_ZERO);
}

static enum status launch(struct quantized_product *product, const struct kernel_run *run, size_t a,
                          size_t b)
{
    product->product.a = run->in[a];
    product->product.b = run->in[b];
    product->product.out = run->out[0];
    return cuda_status(cuda_quantized_product(product, cuda_stream(run)));
}

static enum status run_matmul_integer(const void *state, const struct kernel_call *call,
                                      const struct kernel_run *run)
{
    struct quantized_product product = *(const struct quantized_product *)state;

    product.a_zero = parameter(call, run, MATMUL_INTEGER_A_ZERO);
    product.b_zero = parameter(call, run, MATMUL_INTEGER_B_ZERO);
    return launch(&product, run, MATMUL_INTEGER_A, MATMUL_INTEGER_B);
}

static enum status run_qlinear_matmul(const void *state, const struct kernel_call *call,
                                      const struct kernel_run *run)
{
    struct quantized_product product = *(const struct quantized_product *)state;

    product.a_zero = parameter(call, run, QLINEAR_A_ZERO);
    product.b_zero = parameter(call, run, QLINEAR_B_ZERO);
    set_scales(&product, call, run, QLINEAR_A_SCALE, QLINEAR_B_SCALE);
    return launch(&product, run, QLINEAR_A, QLINEAR_B);
}

static enum status run_conv_integer(const void *state, const struct kernel_call *call,
                                    const struct kernel_run *run)
{
    struct quantized_product product = *(const struct quantized_product *)state;

    product.a_zero = parameter(call, run, CONV_INTEGER_W_ZERO);
    product.b_zero = parameter(call, run, CONV_INTEGER_X_ZERO);
    product.b_zero.step = 0;
    return launch(&product, run, CONV_INTEGER_W, CONV_INTEGER_X);
}

static enum status run_qlinear_conv(const void *state, const struct kernel_call *call,
                                    const struct kernel_run *run)
{
    struct quantized_product product = *(const struct quantized_product *)state;

    product.a_zero = parameter(call, run, QLINEAR_B_ZERO);
    product.b_zero = parameter(call, run, QLINEAR_A_ZERO);
    set_scales(&product, call, run, QLINEAR_B_SCALE, QLINEAR_A_SCALE);
    product.b_zero.step = product.b_scale.step = 0;
    product.bias = run_input(call, run, QLINEAR_BIAS);
    return launch(&product, run, QLINEAR_B, QLINEAR_A);
}

#define PRODUCT(operator, refusal)                                                                 \
    const struct kernel kernel_##operator##_integers = {                                           \
        .name = "cuda:integers",                                                                   \
        .refuses = refusal,                                                                        \
        .prepare = prepare_##operator,                                                             \
        .enqueue = run_##operator,                                                                 \
        .release = free,                                                                           \
    };
PRODUCT(matmul_integer, refuse_matrices)
PRODUCT(qlinear_matmul, refuse_matrices)
PRODUCT(conv_integer, refuse_conv)
PRODUCT(qlinear_conv, refuse_conv)
