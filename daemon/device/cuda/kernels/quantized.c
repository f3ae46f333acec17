/* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, and products of bytes. */
#include <stdlib.h>

#include "device/cuda/kernels/lines.h"
#include "device/cuda/kernels/lines_plan.h"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/kernels/product_plan.h"
#include "device/cuda/kernels/quantized_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/quantize.h"

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
    quantized_range(call->out[0]->dtype, &quantize->low, &quantize->high);
    return STATUS_OK;
}

static enum status run_quantize(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    struct quantize quantize = *(const struct quantize *)state;

    quantize.in = run->in[0];
    quantize.out = run->out[0];
    quantize.scale = quantized_parameter(call, run, 1);
    quantize.zero = quantized_parameter(call, run, 2);
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

static const char *refuse_product(const struct kernel_call *call)
{
    const struct epilogue *epilogue = quantized_epilogue(call);
    bool cuts = epilogue->act == ACT_RELU || epilogue->act == ACT_CLIP;

    if (call->in[quantized_places_of(call->op)->w]->layout != LAYOUT_PLAIN)
        return "computed weights with channels last";
    return epilogue->has_residual || (epilogue->act != ACT_NONE && !cuts)
               ? "an epilogue that does more than to cut off"
               : NULL;
}

static enum status prepare_matrices(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct quantized_matmul_attrs *attrs = call->attrs;
    size_t b = quantized_places_of(call->op)->w;
    const struct shape *a_shape = &call->in[0]->shape, *b_shape = &call->in[b]->shape;
    struct quantized_product *product;
    struct matmul_geometry geometry;

    TRY(matmul_resolve(a_shape, b_shape, false, attrs->trans_b, &geometry, err));
    product = prepare_state(prepare, sizeof(*product), err);
    if (product == NULL)
        return STATUS_NO_MEMORY;
    product_matrices(&product->product, &geometry, a_shape, b_shape, false, attrs->trans_b);
    product->together = 1;
    product->product.dtype = call->in[0]->dtype;
    product->b_dtype = call->in[b]->dtype;
    quantized_finish_make(&product->finish, call);
    return STATUS_OK;
}

/* The weights are the product's a, the input its b. */
static enum status prepare_conv(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    size_t w = quantized_places_of(call->op)->w;
    struct quantized_product *product;
    struct conv_geometry geometry;

    TRY(conv_resolve(call->attrs, &call->in[0]->shape, &call->in[w]->shape, &geometry, err));
    product = prepare_state(prepare, sizeof(*product), err);
    if (product == NULL)
        return STATUS_NO_MEMORY;
    product_conv(&product->product, &(struct conv_operands){call->in[0], call->in[w], call->out[0]},
                 &geometry, false);
    product->together = call->in[0]->layout == LAYOUT_NHWC ? geometry.groups : 1;
    product->product.dtype = call->in[w]->dtype;
    product->b_dtype = call->in[0]->dtype;
    quantized_finish_make(&product->finish, call);
    return STATUS_OK;
}

static enum status launch(struct quantized_product *product, const struct kernel_run *run, size_t a,
                          size_t b)
{
    product->product.a = run->in[a];
    product->product.b = run->in[b];
    product->product.out = run->out[0];
    return cuda_status(cuda_quantized_product(product, cuda_stream(run)));
}

static enum status run_matrices(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct quantized_places *places = quantized_places_of(call->op);
    struct quantized_product product = *(const struct quantized_product *)state;

    product.a_zero = quantized_parameter(call, run, places->x_zero);
    product.b_zero = quantized_parameter(call, run, places->w_zero);
    quantized_finish_run(&product.finish, call, run);
    return launch(&product, run, places->x, places->w);
}

static enum status run_conv(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    const struct quantized_places *places = quantized_places_of(call->op);
    struct quantized_product product = *(const struct quantized_product *)state;
    struct quantized_finish *finish = &product.finish;

    product.a_zero = quantized_parameter(call, run, places->w_zero);
    product.b_zero = quantized_parameter(call, run, places->x_zero);
    quantized_finish_run(finish, call, run);
    finish->column_scale = finish->row_scale; /* the image has one */
    finish->row_scale = quantized_parameter(call, run, places->w_scale);
    product.b_zero.step = finish->column_scale.step = 0;
    return launch(&product, run, places->w, places->x);
}

#define PRODUCT(operator, kind, taken)                                                             \
    const struct kernel kernel_##operator##_integers = {                                           \
        .name = "cuda:integers",                                                                   \
        .layouts = (taken),                                                                        \
        .refuses = refuse_product,                                                                 \
        .prepare = prepare_##kind,                                                                 \
        .enqueue = run_##kind,                                                                     \
        .release = free,                                                                           \
    };
PRODUCT(matmul_integer, matrices, 0)
PRODUCT(qlinear_matmul, matrices, 0)
PRODUCT(matmul_integer_to_float, matrices, 0)
PRODUCT(conv_integer, conv, 0)
PRODUCT(qlinear_conv, conv, ANY_LAYOUT)
