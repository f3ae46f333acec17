#include "ops/conv.h"

#include <inttypes.h>

static enum status resolve_channels(const struct shape *x, const struct shape *w, int64_t groups,
                                    bool transposed, struct conv_geometry *geometry,
                                    struct error *err)
{
    char x_text[SHAPE_TEXT_BYTES], w_text[SHAPE_TEXT_BYTES];
    int64_t per_group;

    if (x->rank < 3 || x->rank != w->rank)
        return error_set(err, STATUS_INVALID, "input shape %s does not go with weight shape %s",
                         shape_format(x, x_text), shape_format(w, w_text));
    if (groups < 1 || groups > x->dims[1])
        return error_set(err, STATUS_INVALID,
                         "attribute group is %" PRId64 " for %" PRId64 " channels", groups,
                         x->dims[1]);
    geometry->batch = x->dims[0];
    geometry->in_channels = x->dims[1];
    geometry->groups = groups;
    geometry->out_channels = transposed ? w->dims[1] * groups : w->dims[0];
    per_group = transposed ? w->dims[0] : w->dims[1] * groups;
    if (per_group != x->dims[1] || geometry->out_channels % groups != 0 ||
        x->dims[1] % groups != 0 || geometry->out_channels < 1)
        return error_set(err, STATUS_INVALID,
                         "weight shape %s does not go with %" PRId64 " channels in %" PRId64
                         " groups",
                         shape_format(w, w_text), x->dims[1], groups);
    return STATUS_OK;
}

enum status conv_resolve(const struct conv_attrs *attrs, const struct shape *x,
                         const struct shape *w, struct conv_geometry *out_geometry,
                         struct error *err)
{
    struct conv_geometry geometry;

    TRY(resolve_channels(x, w, attrs->group, false, &geometry, err));
    TRY(window_resolve(&attrs->window, x, w->dims + 2, false, &geometry.window, err));
    *out_geometry = geometry;
    return STATUS_OK;
}

enum status conv_transpose_resolve(const struct conv_transpose_attrs *attrs, const struct shape *x,
                                   const struct shape *w, struct conv_geometry *out_geometry,
                                   struct error *err)
{
    struct conv_geometry geometry;

    TRY(resolve_channels(x, w, attrs->group, true, &geometry, err));
    TRY(window_resolve_transposed(&attrs->window, x, w->dims + 2, &attrs->output_padding,
                                  &attrs->output_shape, &geometry.window, err));
    *out_geometry = geometry;
    return STATUS_OK;
}

struct shape conv_output_shape(const struct conv_geometry *geometry)
{
    struct shape shape = {.rank = 2 + geometry->window.spatial};

    shape.dims[0] = geometry->batch;
    shape.dims[1] = geometry->out_channels;
    for (size_t i = 0; i < geometry->window.spatial; i++)
        shape.dims[2 + i] = geometry->window.out[i];
    return shape;
}

enum status epilogue_check(const struct op_call *call, bool has_residual, size_t index,
                           struct error *err)
{
    const struct tensor *residual = call->inputs > index ? call->in[index] : NULL;

    if (!has_residual && call->inputs > index)
        return error_set(err, STATUS_INVALID, "it has %zu inputs; %zu are allowed", call->inputs,
                         index);
    if (!has_residual)
        return STATUS_OK;
    if (residual == NULL || residual->dtype != call->out[0]->dtype ||
        !shape_is_equal(&residual->shape, &call->out[0]->shape))
        return error_set(err, STATUS_INVALID,
                         "the fused residual does not have the output's shape");
    return STATUS_OK;
}

static enum status check_operands(const struct op_call *call, int64_t out_channels,
                                  struct error *err)
{
    const struct tensor *bias = call->inputs > CONV_BIAS ? call->in[CONV_BIAS] : NULL;

    if (call->in[CONV_W]->dtype != call->in[CONV_X]->dtype ||
        (bias != NULL && bias->dtype != call->in[CONV_X]->dtype))
        return error_set(err, STATUS_INVALID, "weight or bias is not of the input's type %s",
                         dtype_name(call->in[CONV_X]->dtype));
    if (bias != NULL && (bias->shape.rank != 1 || bias->shape.dims[0] != out_channels))
        return error_set(err, STATUS_INVALID, "the bias does not have %" PRId64 " elements",
                         out_channels);
    return STATUS_OK;
}

static enum status finish(const struct op_call *call, const struct conv_geometry *geometry,
                          bool has_residual, struct error *err)
{
    TRY(check_operands(call, geometry->out_channels, err));
    call->out[0]->dtype = call->in[CONV_X]->dtype;
    call->out[0]->shape = conv_output_shape(geometry);
    return epilogue_check(call, has_residual, CONV_RESIDUAL, err);
}

/* Those that fuse_prelude took from a BatchNormalization. */
static enum status check_prelude(const struct op_call *call, int64_t channels, struct error *err)
{
    if (call->inputs != CONV_PRELUDE + CONV_PRELUDE_INPUTS)
        return error_set(err, STATUS_INVALID, "a prelude without its constants");
    for (size_t i = CONV_PRELUDE; i < call->inputs; i++)
        if (call->in[i] == NULL || call->in[i]->dtype != call->in[CONV_X]->dtype ||
            shape_count(&call->in[i]->shape) != channels)
            return error_set(err, STATUS_INVALID, "a prelude's constants are not one a channel");
    return STATUS_OK;
}

static enum status infer_conv(const struct op_call *call, struct error *err)
{
    const struct conv_attrs *attrs = call->attrs;
    struct conv_geometry geometry;
    struct op_call plain = *call; /* without the prelude */

    TRY(conv_resolve(attrs, &call->in[CONV_X]->shape, &call->in[CONV_W]->shape, &geometry, err));
    if (attrs->has_prelude) {
        TRY(check_prelude(call, geometry.in_channels, err));
        plain.inputs = attrs->epilogue.has_residual ? CONV_PRELUDE : CONV_RESIDUAL;
    }
    return finish(&plain, &geometry, attrs->epilogue.has_residual, err);
}

uint64_t conv_flops(const struct shape *w, const struct shape *elements)
{
    int64_t filter = w->dims[0] > 0 ? shape_count(w) / w->dims[0] : 0;

    return 2 * (uint64_t)shape_count(elements) * (uint64_t)filter;
}

static uint64_t flops_conv(const struct op_call *call)
{
    return conv_flops(&call->in[CONV_W]->shape, &call->out[0]->shape);
}

static const struct attr_def conv_attr_defs[] = {
    WINDOW_ATTRS(struct conv_attrs), OP_ATTR_INT(struct conv_attrs, group, 1), OP_ATTR_END};

const struct op_def op_conv = {
    .name = "conv",
    .onnx = {"Conv", .since = 22},
    .inputs = CONV_PRELUDE + CONV_PRELUDE_INPUTS,
    .min_inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = conv_attr_defs,
    .attrs_size = sizeof(struct conv_attrs),
    .infer = infer_conv,
    .flops = flops_conv,
};

static enum status infer_conv_transpose(const struct op_call *call, struct error *err)
{
    const struct conv_transpose_attrs *attrs = call->attrs;
    struct conv_geometry geometry;

    TRY(conv_transpose_resolve(attrs, &call->in[CONV_X]->shape, &call->in[CONV_W]->shape, &geometry,
                               err));
    return finish(call, &geometry, attrs->epilogue.has_residual, err);
}

/* Each input goes into the products of one filter. */
static uint64_t flops_conv_transpose(const struct op_call *call)
{
    return conv_flops(&call->in[CONV_W]->shape, &call->in[CONV_X]->shape);
}

static const struct attr_def conv_transpose_attr_defs[] = {
    WINDOW_ATTRS(struct conv_transpose_attrs), OP_ATTR_INT(struct conv_transpose_attrs, group, 1),
    OP_ATTR_INTS(struct conv_transpose_attrs, output_padding),
    OP_ATTR_INTS(struct conv_transpose_attrs, output_shape), OP_ATTR_END};

const struct op_def op_conv_transpose = {
    .name = "conv_transpose",
    .onnx = {"ConvTranspose", .since = 22},
    .inputs = 4,
    .min_inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = conv_transpose_attr_defs,
    .attrs_size = sizeof(struct conv_transpose_attrs),
    .infer = infer_conv_transpose,
    .flops = flops_conv_transpose,
};
