#include <inttypes.h>

#include "ops/indexing.h"

/* The size is the one that a pool of this shape came from, or the one given. */
static enum status infer_max_unpool(const struct op_call *call, struct error *err)
{
    const struct max_unpool_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    size_t axes = in->rank - 2, count;
    struct shape out = *in;

    if (in->rank < 3 || !shape_is_equal(in, &call->in[1]->shape) ||
        call->in[1]->dtype != DTYPE_INT64)
        return error_set(err, STATUS_INVALID, "X and its int64 indices must have one shape");
    if (attrs->kernel_shape.count != axes ||
        (attrs->strides.values != NULL && attrs->strides.count != axes) ||
        (attrs->pads.values != NULL && attrs->pads.count != 2 * axes))
        return error_set(err, STATUS_INVALID, "kernel_shape, strides or pads do not suit %zu axes",
                         axes);
    for (size_t i = 0; i < axes; i++) {
        int64_t stride = attrs->strides.values != NULL ? attrs->strides.values[i] : 1;
        int64_t pads =
            attrs->pads.values != NULL ? attrs->pads.values[i] + attrs->pads.values[i + axes] : 0;

        if (__builtin_mul_overflow(in->dims[i + 2] - 1, stride, &out.dims[i + 2]) ||
            __builtin_add_overflow(out.dims[i + 2], attrs->kernel_shape.values[i] - pads,
                                   &out.dims[i + 2]) ||
            out.dims[i + 2] < 0)
            return error_set(err, STATUS_INVALID, "axis %zu has no sensible length", i);
    }
    if (call->inputs > 2 && call->in[2] != NULL) {
        TRY(op_read_ints(call->in[2], "output_shape", SHAPE_MAX_RANK, out.dims, &count, err));
        if (count != in->rank || out.dims[0] != in->dims[0] || out.dims[1] != in->dims[1])
            return error_set(err, STATUS_INVALID, "output_shape does not suit the input");
    }
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    {ATTR_INTS, "kernel_shape", offsetof(struct max_unpool_attrs, kernel_shape), .required = true},
    OP_ATTR_INTS(struct max_unpool_attrs, pads),
    OP_ATTR_INTS(struct max_unpool_attrs, strides),
    OP_ATTR_END,
};

const struct op_def op_max_unpool = {
    .name = "max_unpool",
    .onnx = {"MaxUnpool", .since = 11},
    .inputs = 3,
    .min_inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .value_inputs = 1 << 2,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct max_unpool_attrs),
    .infer = infer_max_unpool,
};
