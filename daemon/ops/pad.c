#include <inttypes.h>
#include <stdbool.h>

#include "ops/movement.h"

enum { PAD_LIMIT_BITS = 48 };

static enum status read_axes(const struct tensor *axes, const struct shape *shape,
                             size_t *out_count, size_t out_axes[SHAPE_MAX_RANK], struct error *err)
{
    int64_t values[SHAPE_MAX_RANK];
    bool named[SHAPE_MAX_RANK] = {false};

    *out_count = shape->rank;
    for (size_t i = 0; i < shape->rank; i++)
        out_axes[i] = i;
    if (axes == NULL)
        return STATUS_OK;
    TRY(op_read_ints(axes, "axes", SHAPE_MAX_RANK, values, out_count, err));
    for (size_t i = 0; i < *out_count; i++) {
        if (!shape_has_axis(shape, values[i]) || named[shape_axis(shape, values[i])])
            return error_set(err, STATUS_INVALID,
                             "axis %" PRId64 " is outside rank %zu or named twice", values[i],
                             shape->rank);
        out_axes[i] = shape_axis(shape, values[i]);
        named[out_axes[i]] = true;
    }
    return STATUS_OK;
}

enum status pad_amounts(const struct tensor *const in[4], int64_t out_before[SHAPE_MAX_RANK],
                        int64_t out_after[SHAPE_MAX_RANK], struct error *err)
{
    const int64_t limit = INT64_C(1) << PAD_LIMIT_BITS;
    const struct shape *shape = &in[0]->shape;
    int64_t pads[2 * SHAPE_MAX_RANK];
    size_t axes[SHAPE_MAX_RANK];
    size_t count, pad_count;

    TRY(read_axes(in[3], shape, &count, axes, err));
    TRY(op_read_ints(in[1], "pads", 2 * SHAPE_MAX_RANK, pads, &pad_count, err));
    if (pad_count != 2 * count)
        return error_set(err, STATUS_INVALID, "pads has %zu elements for %zu axes", pad_count,
                         count);
    for (size_t i = 0; i < SHAPE_MAX_RANK; i++)
        out_before[i] = out_after[i] = 0;
    for (size_t i = 0; i < count; i++) {
        out_before[axes[i]] = pads[i];
        out_after[axes[i]] = pads[i + count];
    }
    for (size_t i = 0; i < shape->rank; i++)
        if (out_before[i] > limit || out_after[i] > limit || out_before[i] < -shape->dims[i] ||
            out_after[i] < -shape->dims[i] || shape->dims[i] + out_before[i] + out_after[i] < 0)
            return error_set(err, STATUS_INVALID,
                             "axis %zu of length %" PRId64 " cannot be padded by %" PRId64
                             " and %" PRId64,
                             i, shape->dims[i], out_before[i], out_after[i]);
    return STATUS_OK;
}

/* The modes that repeat the input need an input to repeat. */
static enum status check_source(enum pad_mode mode, int64_t length, int64_t before, int64_t after,
                                struct error *err)
{
    int64_t kept = length + (before < 0 ? before : 0) + (after < 0 ? after : 0);
    int64_t most = before > after ? before : after;

    if (mode == PAD_CONSTANT || most <= 0)
        return STATUS_OK;
    if (kept <= 0)
        return error_set(err, STATUS_INVALID, "an empty axis has nothing to pad with");
    return STATUS_OK;
}

static enum status infer_pad(const struct op_call *call, struct error *err)
{
    const struct pad_attrs *attrs = call->attrs;
    const struct tensor *in[4] = {NULL};
    int64_t before[SHAPE_MAX_RANK], after[SHAPE_MAX_RANK];
    struct shape out = call->in[0]->shape;

    for (size_t i = 0; i < call->inputs; i++)
        in[i] = call->in[i];
    if (in[2] != NULL && (in[2]->dtype != in[0]->dtype || shape_count(&in[2]->shape) != 1))
        return error_set(err, STATUS_INVALID, "constant_value must be one %s",
                         dtype_name(in[0]->dtype));
    TRY(pad_amounts(in, before, after, err));
    for (size_t i = 0; i < out.rank; i++) {
        TRY(check_source((enum pad_mode)attrs->mode, out.dims[i], before[i], after[i], err));
        out.dims[i] += before[i] + after[i];
    }
    call->out[0]->dtype = in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

static const char *const modes[] = {"constant", "reflect", "edge", "wrap", NULL};

static const struct attr_def attrs_of[] = {
    OP_ATTR_ENUM(struct pad_attrs, mode, modes, PAD_CONSTANT),
    OP_ATTR_END,
};

const struct op_def op_pad = {
    .name = "pad",
    .onnx = {"Pad", .since = 19},
    .inputs = 4,
    .min_inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .value_inputs = 1 << 1 | 1 << 3,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct pad_attrs),
    .infer = infer_pad,
};
