#include "ops/separable_conv.h"

static const struct tensor *input(const struct op_call *call, size_t index)
{
    return index < call->inputs ? call->in[index] : NULL;
}

/* One convolution of the step: of x, by the weight and bias from input `first` on. */
static enum status infer_part(const struct op_call *call, const struct conv_attrs *attrs,
                              const struct tensor *x, size_t first, struct tensor *out,
                              struct error *err)
{
    const bool has_residual = attrs->epilogue.has_residual;
    const struct tensor *in[] = {x, input(call, first), input(call, first + 1),
                                 input(call, SEPARABLE_RESIDUAL)};
    const struct op_call part = {.attrs = attrs,
                                 .inputs = has_residual ? CONV_RESIDUAL + 1 : CONV_RESIDUAL,
                                 .in = in,
                                 .outputs = 1,
                                 .out = &out,
                                 .out_bound = call->out_bound};

    if (in[CONV_W] == NULL)
        return error_set(err, STATUS_INVALID, "a convolution without weights");
    return op_conv.infer(&part, err);
}

static enum status infer_separable_conv(const struct op_call *call, struct error *err)
{
    const struct separable_conv_attrs *attrs = call->attrs;
    struct tensor expanded = {.dtype = DTYPE_NONE}, filtered = {.dtype = DTYPE_NONE};
    const struct tensor *x = call->in[SEPARABLE_X];

    if (attrs->expand.epilogue.has_residual || attrs->depthwise.epilogue.has_residual)
        return error_set(err, STATUS_INVALID, "a residual inside of the step");
    if (input(call, SEPARABLE_EXPAND) != NULL) {
        TRY(infer_part(call, &attrs->expand, x, SEPARABLE_EXPAND, &expanded, err));
        x = &expanded;
    }
    TRY(infer_part(call, &attrs->depthwise, x, SEPARABLE_DEPTHWISE, &filtered, err));
    return infer_part(call, &attrs->project, &filtered, SEPARABLE_PROJECT, call->out[0], err);
}

static uint64_t flops_separable_conv(const struct op_call *call)
{
    const struct separable_conv_attrs *attrs = call->attrs;
    const struct tensor *expand = input(call, SEPARABLE_EXPAND), *x = call->in[SEPARABLE_X];
    const struct shape *w = &call->in[SEPARABLE_DEPTHWISE]->shape;
    struct shape shape = x->shape;
    struct conv_geometry geometry;
    uint64_t flops = conv_flops(&call->in[SEPARABLE_PROJECT]->shape, &call->out[0]->shape);

    if (expand != NULL) {
        shape.dims[1] = expand->shape.dims[0];
        flops += conv_flops(&expand->shape, &shape);
    }
    if (conv_resolve(&attrs->depthwise, &shape, w, &geometry, NULL) == STATUS_OK) {
        shape = conv_output_shape(&geometry);
        flops += conv_flops(w, &shape);
    }
    return flops;
}

const struct op_def op_separable_conv = {
    .name = "separable_conv",
    .onnx = {"SeparableConv", .since = 1, .domain = "sluice"},
    .inputs = SEPARABLE_RESIDUAL + 1,
    .min_inputs = 1, /* infer looks at the weights: those of expand may be left out */
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs_size = sizeof(struct separable_conv_attrs),
    .flags = OP_INTERNAL,
    .infer = infer_separable_conv,
    .flops = flops_separable_conv,
};
