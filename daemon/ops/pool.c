/* MaxPool, AveragePool, LpPool and their global forms. */
#include "ops/pool.h"

#include <inttypes.h>

enum status pool_resolve(const struct pool_attrs *attrs, const struct shape *x,
                         struct window *out_window, struct error *err)
{
    struct window window;

    TRY(window_resolve(&attrs->window, x, NULL, attrs->ceil_mode != 0, &window, err));
    for (size_t i = 0; i < window.spatial; i++)
        if (window.pad_begin[i] >= (window.kernel[i] - 1) * window.dilation[i] + 1)
            return error_set(err, STATUS_UNSUPPORTED,
                             "padding %" PRId64 " is not smaller than the window",
                             window.pad_begin[i]);
    *out_window = window;
    return STATUS_OK;
}

static enum status infer_pool(const struct op_call *call, struct error *err)
{
    const struct tensor *x = call->in[0];
    struct window window;
    struct shape out = x->shape;

    TRY(pool_resolve(call->attrs, &x->shape, &window, err));
    for (size_t i = 0; i < window.spatial; i++)
        out.dims[2 + i] = window.out[i];
    call->out[0]->dtype = x->dtype;
    call->out[0]->shape = out;
    if (call->outputs > 1 && call->out[1] != NULL) {
        call->out[1]->dtype = DTYPE_INT64;
        call->out[1]->shape = out;
    }
    return STATUS_OK;
}

/* A window for each output, its edges as if they were inside. */
static uint64_t flops_pool(const struct op_call *call)
{
    uint64_t flops = op_flops_each_output(call);
    struct window window;

    if (pool_resolve(call->attrs, &call->in[0]->shape, &window, &(struct error){0}) != STATUS_OK)
        return 0;
    for (size_t i = 0; i < window.spatial; i++)
        flops *= (uint64_t)window.kernel[i];
    return flops;
}

static enum status infer_global(const struct op_call *call, struct error *err)
{
    const struct tensor *x = call->in[0];
    char text[SHAPE_TEXT_BYTES];

    if (x->shape.rank < 3)
        return error_set(err, STATUS_INVALID,
                         "input 0 has shape %s; at least 3 dimensions are needed",
                         shape_format(&x->shape, text));
    call->out[0]->dtype = x->dtype;
    call->out[0]->shape = x->shape;
    for (size_t i = 2; i < x->shape.rank; i++) {
        if (x->shape.dims[i] < 1)
            return error_set(err, STATUS_INVALID, "input 0 has shape %s; there is nothing to pool",
                             shape_format(&x->shape, text));
        call->out[0]->shape.dims[i] = 1;
    }
    return STATUS_OK;
}

static const struct attr_def max_attrs[] = {
    WINDOW_ATTRS(struct pool_attrs), OP_ATTR_INT(struct pool_attrs, ceil_mode, 0),
    OP_ATTR_INT(struct pool_attrs, storage_order, 0), OP_ATTR_END};
static const struct attr_def average_attrs[] = {
    WINDOW_ATTRS(struct pool_attrs), OP_ATTR_INT(struct pool_attrs, ceil_mode, 0),
    OP_ATTR_INT(struct pool_attrs, count_include_pad, 0), OP_ATTR_END};
static const struct attr_def lp_attrs[] = {WINDOW_ATTRS(struct pool_attrs),
                                           OP_ATTR_INT(struct pool_attrs, ceil_mode, 0),
                                           OP_ATTR_INT(struct pool_attrs, p, 2), OP_ATTR_END};
static const struct attr_def global_lp_attrs[] = {OP_ATTR_INT(struct pool_attrs, p, 2),
                                                  OP_ATTR_END};

const struct op_def op_max_pool = {
    .name = "max_pool",
    .onnx = {"MaxPool", .since = 22},
    .inputs = 1,
    .outputs = 2,
    .dtypes = DTYPE_FLOATS | DTYPE_BIT(INT8) | DTYPE_BIT(UINT8),
    .attrs = max_attrs,
    .attrs_size = sizeof(struct pool_attrs),
    .infer = infer_pool,
    .flops = flops_pool,
};

const struct op_def op_average_pool = {
    .name = "average_pool",
    .onnx = {"AveragePool", .since = 22},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = average_attrs,
    .attrs_size = sizeof(struct pool_attrs),
    .infer = infer_pool,
    .flops = flops_pool,
};

const struct op_def op_lp_pool = {
    .name = "lp_pool",
    .onnx = {"LpPool", .since = 22},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = lp_attrs,
    .attrs_size = sizeof(struct pool_attrs),
    .infer = infer_pool,
    .flops = flops_pool,
};

const struct op_def op_global_average_pool = {
    .name = "global_average_pool",
    .onnx = {"GlobalAveragePool", .since = 22},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs_size = sizeof(struct pool_attrs),
    .infer = infer_global,
    .flops = op_flops_each_input,
};

const struct op_def op_global_max_pool = {
    .name = "global_max_pool",
    .onnx = {"GlobalMaxPool", .since = 22},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs_size = sizeof(struct pool_attrs),
    .infer = infer_global,
    .flops = op_flops_each_input,
};

const struct op_def op_global_lp_pool = {
    .name = "global_lp_pool",
    .onnx = {"GlobalLpPool", .since = 22},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = global_lp_attrs,
    .attrs_size = sizeof(struct pool_attrs),
    .infer = infer_global,
    .flops = op_flops_each_input,
};
