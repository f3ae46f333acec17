/* Pools over windows, and LRN. */
#include "device/cuda/kernels/pool.h"

#include <stdlib.h>

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/pointwise_plan.h"
#include "device/cuda/kernels/rows.h"
#include "device/cuda/kernels/window_plan.h"
#include "ops/lrn.h"
#include "ops/pool.h"

static const char *refuse_pool(const struct kernel_call *call)
{
    const struct pool_attrs *attrs = call->attrs;
    bool is_max = call->op == &op_max_pool;

    if (!dtype_is_float(call->in[0]->dtype) && (!is_max || call->in[0]->dtype == DTYPE_UINT64))
        return "no loop for this type";
    if (shape_count(&call->in[0]->shape) > INT32_MAX ||
        shape_count(&call->out[0]->shape) > INT32_MAX)
        return "2^31 elements or more";
    if (call->op == &op_lp_pool && attrs->p < 1)
        return "p is less than 1";
    return NULL;
}

static void set_strides(struct pool *pool, const struct kernel_call *call, size_t spatial)
{
    int64_t in[SHAPE_MAX_RANK], out[SHAPE_MAX_RANK];

    operand_strides(call->in[0], in);
    operand_strides(call->out[0], out);
    pool->in_image = in[0];
    pool->out_image = out[0];
    pool->out_channel = out[1];
    pool->out_place = out[spatial + 1]; /* places follow each other */
    pool->channels_last = call->out[0]->layout == LAYOUT_NHWC;
}

static enum pool_way way_of(const struct op_def *op)
{
    if (op == &op_max_pool)
        return POOL_OF_MAX;
    return op == &op_average_pool ? POOL_OF_AVERAGE : POOL_OF_LP;
}

static enum status prepare_pool(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct pool_attrs *attrs = call->attrs;
    const struct shape *x = &call->in[0]->shape;
    unsigned bits = (unsigned)dtype_bytes(call->in[0]->dtype) * 8;
    struct window window;
    struct pool *pool;

    TRY(pool_resolve(attrs, x, &window, err));
    pool = prepare_state(prepare, sizeof(*pool), err);
    if (pool == NULL)
        return STATUS_NO_MEMORY;
    window_walk_make(&pool->window, &window, call->in[0]);
    for (size_t i = 0; i < window.spatial; i++)
        pool->pad_end[WINDOW_AXES - window.spatial + i] = (int32_t)window.pad_end[i];
    set_strides(pool, call, window.spatial);
    pool->images = x->dims[0];
    pool->channels = x->dims[1];
    pool->places = window_cells(window.out, window.spatial);
    pool->taps = window_cells(window.kernel, window.spatial);
    pool->way = way_of(call->op);
    pool->count_padding = attrs->count_include_pad != 0;
    pool->p = pool->way == POOL_OF_LP ? (uint32_t)attrs->p : 0;
    pool->column_major = pool->way == POOL_OF_MAX && attrs->storage_order != 0;
    pool->type = pointwise_type_of(call->in[0]->dtype);
    pool->dtype = call->in[0]->dtype;
    if (((DTYPE_SIGNED >> call->in[0]->dtype) & 1) != 0)
        pool->least = -(INT64_C(1) << (bits - 2)) * 2;
    return STATUS_OK;
}

static enum status run_pool(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    struct pool pool = *(const struct pool *)state;

    pool.in = run->in[0];
    pool.out = run->out[0];
    pool.indices = call_output(call, 1) != NULL ? run->out[1] : NULL;
    return cuda_status(cuda_pool(&pool, cuda_stream(run)));
}

static const char *refuse_last(const struct kernel_call *call)
{
    return dtype_is_narrow(call->in[0]->dtype) ? refuse_pool(call)
                                               : "the library is asked for float32 first";
}

/* The same kernel stands before cuDNN's average for 16-bit floats channels last, which that has
 * none for: between convolutions that lie so it is worth no turning.  Of maxima there is this one
 * alone: cuDNN does not say what a window of nothing but NaN gives. */
#define POOL(operator, variant, layouts_taken, refusal)                                            \
    const struct kernel kernel_##operator##_##variant = {                                          \
        .name = "cuda:windows",                                                                    \
        .layouts = (layouts_taken),                                                                \
        .refuses = (refusal),                                                                      \
        .prepare = prepare_pool,                                                                   \
        .enqueue = run_pool,                                                                       \
        .release = free,                                                                           \
    };
POOL(max_pool, windows, ANY_LAYOUT, refuse_pool)
POOL(average_pool, windows, ANY_LAYOUT, refuse_pool)
POOL(average_pool, last, 1 << LAYOUT_NHWC, refuse_last)
POOL(lp_pool, windows, ANY_LAYOUT, refuse_pool)

/* ---- LRN ---- */

static enum status run_lrn(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct lrn_attrs *attrs = call->attrs;
    const struct shape *x = &call->in[0]->shape;
    const struct response response = {.images = x->dims[0],
                                      .channels = x->dims[1],
                                      .places = shape_product(x, 2, x->rank),
                                      .channels_last = call->in[0]->layout == LAYOUT_NHWC,
                                      .size = attrs->size,
                                      .alpha = (double)attrs->alpha / (double)attrs->size,
                                      .beta = (double)attrs->beta,
                                      .bias = (double)attrs->bias,
                                      .type = pointwise_type_of(call->in[0]->dtype),
                                      .dtype = call->in[0]->dtype,
                                      .in = run->in[0],
                                      .out = run->out[0]};

    (void)state;
    return cuda_status(cuda_response(&response, cuda_stream(run)));
}

const struct kernel kernel_lrn_windows = {
    .name = "cuda:windows",
    .layouts = ANY_LAYOUT,
    .prepare = prepare_stateless,
    .enqueue = run_lrn,
};
