/* QLinearAdd, QLinearMul, ByteTable, QLinearGlobalAveragePool. */
#include "device/cuda/kernels/bytes.h"

#include <stdlib.h>

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/quantized_plan.h"
#include "device/cuda/kernels/rows.h"

/* The end of these: bytes, cut off perhaps. */
static void make_finish(struct quantized_finish *finish, const struct kernel_call *call,
                        const struct epilogue *epilogue)
{
    double low, high;

    quantized_range(call->out[0]->dtype, &low, &high);
    *finish = (struct quantized_finish){.result = QUANTIZED_BYTES,
                                        .out_dtype = (uint32_t)call->out[0]->dtype,
                                        .act = (uint32_t)epilogue->act,
                                        .act_a = epilogue->a,
                                        .act_b = epilogue->b,
                                        .low = (float)low,
                                        .high = (float)high};
}

static const char *refuse_pair(const struct kernel_call *call)
{
    const struct operand *a = call->in[QLINEAR_PAIR_A], *b = call->in[QLINEAR_PAIR_B];

    if (call->out[0]->shape.rank > WALK_RANK)
        return "too many dimensions";
    if (call->out[0]->layout != LAYOUT_PLAIN &&
        (!shape_is_equal(&a->shape, &b->shape) || a->constant != NULL || b->constant != NULL))
        return "channels last of different shapes";
    return NULL;
}

static enum status prepare_pair(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct qlinear_pair_attrs *attrs = call->attrs;
    const struct operand *in[] = {call->in[QLINEAR_PAIR_A], call->in[QLINEAR_PAIR_B]};
    struct walk_strides strides[3];
    struct byte_pair *pair = prepare_state(prepare, sizeof(*pair), err);
    struct axes axes;

    if (pair == NULL)
        return STATUS_NO_MEMORY;
    axes_broadcast(&axes, call->out[0], 2, in);
    axes_simplify(&axes, 0);
    (void)axes_finish(&axes, &pair->walk, strides);
    pair->out_strides = strides[0];
    pair->a_strides = strides[1];
    pair->b_strides = strides[2];
    pair->multiplies = call->op == &op_qlinear_mul;
    pair->a_dtype = (uint32_t)in[0]->dtype;
    pair->b_dtype = (uint32_t)in[1]->dtype;
    make_finish(&pair->finish, call, &attrs->epilogue);
    return STATUS_OK;
}

static enum status run_pair(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    struct byte_pair pair = *(const struct byte_pair *)state;

    pair.a_scale = quantized_parameter(call, run, QLINEAR_PAIR_A_SCALE);
    pair.a_zero = quantized_parameter(call, run, QLINEAR_PAIR_A_ZERO);
    pair.b_scale = quantized_parameter(call, run, QLINEAR_PAIR_B_SCALE);
    pair.b_zero = quantized_parameter(call, run, QLINEAR_PAIR_B_ZERO);
    pair.finish.y_scale = quantized_parameter(call, run, QLINEAR_PAIR_Y_SCALE);
    pair.finish.y_zero = quantized_parameter(call, run, QLINEAR_PAIR_Y_ZERO);
    pair.a = run->in[QLINEAR_PAIR_A];
    pair.b = run->in[QLINEAR_PAIR_B];
    pair.out = run->out[0];
    return cuda_status(cuda_byte_pair(&pair, cuda_stream(run)));
}

#define PAIR(operator)                                                                             \
    const struct kernel kernel_##operator##_bytes = {                                              \
        .name = "cuda:bytes",                                                                      \
        .flags = KERNEL_IN_PLACE | KERNEL_STRIDED,                                                 \
        .layouts = ANY_LAYOUT,                                                                     \
        .refuses = refuse_pair,                                                                    \
        .prepare = prepare_pair,                                                                   \
        .enqueue = run_pair,                                                                       \
        .release = free,                                                                           \
    };
PAIR(qlinear_add)
PAIR(qlinear_mul)

/* ---- ByteTable ---- */

static enum status run_table(const void *state, const struct kernel_call *call,
                             const struct kernel_run *run)
{
    const struct byte_table table = {.count = shape_count(&call->in[BYTE_TABLE_X]->shape),
                                     .in = run->in[BYTE_TABLE_X],
                                     .table = run->in[BYTE_TABLE_TABLE],
                                     .out = run->out[0]};

    (void)state;
    return cuda_status(cuda_byte_table(&table, cuda_stream(run)));
}

const struct kernel kernel_byte_table_bytes = {
    .name = "cuda:bytes",
    .flags = KERNEL_IN_PLACE,
    .layouts = ANY_LAYOUT,
    .prepare = prepare_stateless,
    .enqueue = run_table,
};

/* ---- QLinearGlobalAveragePool ---- */

static enum status run_average(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    static const struct epilogue none = {.act = ACT_NONE};
    const struct operand *x = call->in[QLINEAR_POOL_X];
    struct byte_average average = {.images = x->shape.dims[0],
                                   .channels = x->shape.dims[1],
                                   .cells = shape_product(&x->shape, 2, x->shape.rank),
                                   .channels_last = x->layout == LAYOUT_NHWC,
                                   .in_dtype = (uint32_t)x->dtype,
                                   .x_scale = quantized_parameter(call, run, QLINEAR_POOL_X_SCALE),
                                   .x_zero = quantized_parameter(call, run, QLINEAR_POOL_X_ZERO),
                                   .in = run->in[QLINEAR_POOL_X],
                                   .out = run->out[0]};

    (void)state;
    make_finish(&average.finish, call, &none);
    average.finish.y_scale = quantized_parameter(call, run, QLINEAR_POOL_Y_SCALE);
    average.finish.y_zero = quantized_parameter(call, run, QLINEAR_POOL_Y_ZERO);
    return cuda_status(cuda_byte_average(&average, cuda_stream(run)));
}

const struct kernel kernel_qlinear_global_average_pool_bytes = {
    .name = "cuda:bytes",
    .layouts = ANY_LAYOUT,
    .out_layouts = ANY_LAYOUT, /* one cell an image: the same bytes in both */
    .prepare = prepare_stateless,
    .enqueue = run_average,
};
