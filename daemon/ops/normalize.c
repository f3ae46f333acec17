/* Normalisations: batch, instance, group, layer, RMS, mean and variance. */
#include "ops/normalize.h"

#include <inttypes.h>

/* An input of one element a channel; `what` names it. */
static enum status check_channels(const struct op_call *call, size_t index, int64_t channels,
                                  const char *what, struct error *err)
{
    const struct tensor *tensor = call->in[index];
    char text[SHAPE_TEXT_BYTES];

    if (tensor->shape.rank != 1 || tensor->shape.dims[0] != channels)
        return error_set(err, STATUS_INVALID, "%s has shape %s; [%" PRId64 "] is needed", what,
                         shape_format(&tensor->shape, text), channels);
    if (!dtype_is_float(tensor->dtype))
        return error_set(err, STATUS_INVALID, "%s is of type %s", what, dtype_name(tensor->dtype));
    return STATUS_OK;
}

static enum status check_rank(const struct op_call *call, size_t least, struct error *err)
{
    if (call->in[0]->shape.rank < least)
        return error_set(err, STATUS_INVALID, "input of rank %zu; at least %zu is needed",
                         call->in[0]->shape.rank, least);
    return STATUS_OK;
}

/* ---- batch ---- */

static enum status infer_batch_norm(const struct op_call *call, struct error *err)
{
    static const char *const names[] = {"X", "scale", "B", "mean", "var"};
    const struct batch_norm_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;

    if (attrs->training_mode != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "training_mode is %" PRId64 "; only inference is done",
                         attrs->training_mode);
    for (size_t i = 1; i < call->outputs; i++)
        if (call->out[i] != NULL)
            return error_set(err, STATUS_UNSUPPORTED, "output %zu is for training only", i);
    for (size_t i = 1; i < 5; i++)
        TRY(check_channels(call, i, shape->rank > 1 ? shape->dims[1] : 1, names[i], err));
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = *shape;
    return STATUS_OK;
}

static const struct attr_def batch_norm_rows[] = {
    OP_ATTR_FLOAT(struct batch_norm_attrs, epsilon, 1e-5f),
    OP_ATTR_FLOAT(struct batch_norm_attrs, momentum, 0.9f),
    OP_ATTR_INT(struct batch_norm_attrs, training_mode, 0), OP_ATTR_END};

/* A factor and a bias, known beforehand. */
static uint64_t flops_batch_norm(const struct op_call *call)
{
    return 2 * op_flops_each_input(call);
}

const struct op_def op_batch_normalization = {
    .name = "batch_normalization",
    .onnx = {"BatchNormalization", 14},
    .inputs = 5,
    .outputs = 3,
    .dtypes = DTYPE_FLOATS,
    .attrs = batch_norm_rows,
    .attrs_size = sizeof(struct batch_norm_attrs),
    .infer = infer_batch_norm,
    .flops = flops_batch_norm,
};

uint64_t normalize_flops(const struct op_call *call)
{
    return 8 * op_flops_each_input(call);
}

/* ---- instance, group ---- */

static enum status infer_instance_norm(const struct op_call *call, struct error *err)
{
    TRY(check_rank(call, 3, err));
    TRY(check_channels(call, 1, call->in[0]->shape.dims[1], "scale", err));
    TRY(check_channels(call, 2, call->in[0]->shape.dims[1], "B", err));
    return op_infer_same(call, err);
}

static const struct attr_def epsilon_rows[] = {OP_ATTR_FLOAT(struct epsilon_attrs, epsilon, 1e-5f),
                                               OP_ATTR_END};

const struct op_def op_instance_normalization = {
    .name = "instance_normalization",
    .onnx = {"InstanceNormalization", 6},
    .inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = epsilon_rows,
    .attrs_size = sizeof(struct epsilon_attrs),
    .infer = infer_instance_norm,
    .flops = normalize_flops,
};

static enum status infer_group_norm(const struct op_call *call, struct error *err)
{
    const struct group_norm_attrs *attrs = call->attrs;
    int64_t channels;

    TRY(check_rank(call, 2, err));
    channels = call->in[0]->shape.dims[1];
    if (attrs->num_groups <= 0 || channels % attrs->num_groups != 0)
        return error_set(err, STATUS_INVALID,
                         "num_groups is %" PRId64 ", no divisor of %" PRId64 " channels",
                         attrs->num_groups, channels);
    TRY(check_channels(call, 1, channels, "scale", err));
    TRY(check_channels(call, 2, channels, "bias", err));
    return op_infer_same(call, err);
}

static const struct attr_def group_norm_rows[] = {
    OP_ATTR_FLOAT(struct group_norm_attrs, epsilon, 1e-5f),
    {ATTR_INT, "num_groups", offsetof(struct group_norm_attrs, num_groups), .required = true},
    OP_ATTR_INT(struct group_norm_attrs, stash_type, DTYPE_FLOAT),
    OP_ATTR_END};

const struct op_def op_group_normalization = {
    .name = "group_normalization",
    .onnx = {"GroupNormalization", 21},
    .inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = group_norm_rows,
    .attrs_size = sizeof(struct group_norm_attrs),
    .infer = infer_group_norm,
    .flops = normalize_flops,
};

/* ---- layer, RMS ---- */

/* Scale and bias broadcast to the normalised dimensions: their elements, checked to be all of them
 * or a shape that broadcasts. */
static enum status check_affine(const struct op_call *call, size_t index, size_t axis,
                                const char *what, struct error *err)
{
    const struct tensor *tensor = index < call->inputs ? call->in[index] : NULL;
    const struct shape *whole = &call->in[0]->shape;
    char a[SHAPE_TEXT_BYTES], b[SHAPE_TEXT_BYTES];
    struct shape inner = {.rank = whole->rank - axis}, met;

    if (tensor == NULL)
        return STATUS_OK;
    for (size_t i = 0; i < inner.rank; i++)
        inner.dims[i] = whole->dims[axis + i];
    if (!dtype_is_float(tensor->dtype))
        return error_set(err, STATUS_INVALID, "%s is of type %s", what, dtype_name(tensor->dtype));
    if (shape_broadcast(&inner, &tensor->shape, &met) != STATUS_OK ||
        shape_count(&met) != shape_count(&inner))
        return error_set(err, STATUS_INVALID, "%s of shape %s does not broadcast to %s", what,
                         shape_format(&tensor->shape, a), shape_format(&inner, b));
    return STATUS_OK;
}

static enum status infer_layer_norm(const struct op_call *call, struct error *err)
{
    const struct layer_norm_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;
    size_t axis;

    if (!shape_has_axis(shape, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         shape->rank);
    axis = shape_axis(shape, attrs->axis);
    TRY(check_affine(call, 1, axis, "scale", err));
    TRY(check_affine(call, 2, axis, "bias", err));
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = *shape;
    for (size_t i = 1; i < call->outputs; i++) { /* mean, inverse deviation */
        if (call->out[i] == NULL)
            continue;
        call->out[i]->dtype = DTYPE_FLOAT;
        call->out[i]->shape = *shape;
        for (size_t k = axis; k < shape->rank; k++)
            call->out[i]->shape.dims[k] = 1;
    }
    return STATUS_OK;
}

static const struct attr_def layer_norm_rows[] = {
    OP_ATTR_INT(struct layer_norm_attrs, axis, -1),
    OP_ATTR_FLOAT(struct layer_norm_attrs, epsilon, 1e-5f),
    OP_ATTR_INT(struct layer_norm_attrs, stash_type, DTYPE_FLOAT), OP_ATTR_END};

const struct op_def op_layer_normalization = {
    .name = "layer_normalization",
    .onnx = {"LayerNormalization", 17},
    .inputs = 3,
    .min_inputs = 2,
    .outputs = 3,
    .dtypes = DTYPE_FLOATS,
    .attrs = layer_norm_rows,
    .attrs_size = sizeof(struct layer_norm_attrs),
    .infer = infer_layer_norm,
    .flops = normalize_flops,
};

const struct op_def op_rms_normalization = {
    .name = "rms_normalization",
    .onnx = {"RMSNormalization", 23},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = layer_norm_rows,
    .attrs_size = sizeof(struct layer_norm_attrs),
    .infer = infer_layer_norm,
    .flops = normalize_flops,
};

/* ---- mean and variance ---- */

static enum status infer_mvn(const struct op_call *call, struct error *err)
{
    const struct mvn_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;

    if (attrs->axes.values == NULL)
        TRY(check_rank(call, 4, err));
    for (size_t i = 0; i < attrs->axes.count; i++)
        if (!shape_has_axis(shape, attrs->axes.values[i]))
            return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu",
                             attrs->axes.values[i], shape->rank);
    return op_infer_same(call, err);
}

static const struct attr_def mvn_rows[] = {OP_ATTR_INTS(struct mvn_attrs, axes), OP_ATTR_END};

const struct op_def op_mean_variance_normalization = {
    .name = "mean_variance_normalization",
    .onnx = {"MeanVarianceNormalization", 9},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = mvn_rows,
    .attrs_size = sizeof(struct mvn_attrs),
    .infer = infer_mvn,
    .flops = normalize_flops,
};
