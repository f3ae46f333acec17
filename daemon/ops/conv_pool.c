#include "ops/conv_pool.h"

enum status conv_pool_resolve(const struct conv_pool_attrs *attrs, const struct shape *x,
                              const struct shape *w, struct conv_geometry *out_conv,
                              struct window *out_pool, struct error *err)
{
    struct conv_geometry conv;
    struct shape between;

    TRY(conv_resolve(&attrs->conv, x, w, &conv, err));
    between = conv_output_shape(&conv);
    TRY(pool_resolve(&attrs->pool, &between, out_pool, err));
    *out_conv = conv;
    return STATUS_OK;
}

static enum status infer_conv_pool(const struct op_call *call, struct error *err)
{
    const struct conv_pool_attrs *attrs = call->attrs;
    struct op_call conv = *call;
    struct tensor between = {0}, *out = &between;
    struct window pool;

    if (attrs->conv.epilogue.has_residual || conv_has_more(&op_conv, &attrs->conv))
        return error_set(err, STATUS_INVALID, "a convolution with more than an activation");
    conv.outputs = 1;
    conv.out = &out;
    TRY(op_conv.infer(&conv, err));
    TRY(pool_resolve(&attrs->pool, &between.shape, &pool, err));
    for (size_t i = 0; i < pool.spatial; i++)
        between.shape.dims[2 + i] = pool.out[i];
    call->out[0]->dtype = between.dtype;
    call->out[0]->shape = between.shape;
    return STATUS_OK;
}

/* Products of each result of the convolution; the pool's comparisons are next to nothing. */
static uint64_t flops_conv_pool(const struct op_call *call)
{
    struct conv_geometry conv;
    struct window pool;
    struct shape between;

    if (conv_pool_resolve(call->attrs, &call->in[CONV_X]->shape, &call->in[CONV_W]->shape, &conv,
                          &pool, &(struct error){0}) != STATUS_OK)
        return 0;
    between = conv_output_shape(&conv);
    return conv_flops(&call->in[CONV_W]->shape, &between);
}

const struct op_def op_conv_pool = {
    .name = "conv_pool",
    .onnx = {"ConvPool", .since = 1, .domain = "sluice"},
    .inputs = CONV_RESIDUAL,
    .min_inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs_size = sizeof(struct conv_pool_attrs),
    .flags = OP_INTERNAL,
    .infer = infer_conv_pool,
    .flops = flops_conv_pool,
};
