#include <inttypes.h>

#include "ops/movement.h"

/* Whether two shapes agree but for one axis. */
static bool fits(const struct shape *a, const struct shape *b, size_t axis)
{
    if (a->rank != b->rank)
        return false;
    for (size_t i = 0; i < a->rank; i++)
        if (i != axis && a->dims[i] != b->dims[i])
            return false;
    return true;
}

static enum status infer_concat(const struct op_call *call, struct error *err)
{
    const struct concat_attrs *attrs = call->attrs;
    struct shape out = call->in[0]->shape;
    char text[SHAPE_TEXT_BYTES], first[SHAPE_TEXT_BYTES];
    size_t axis;

    if (!shape_has_axis(&out, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         out.rank);
    axis = shape_axis(&out, attrs->axis);
    for (size_t i = 1; i < call->inputs; i++) {
        const struct tensor *in = call->in[i];

        if (in->dtype != call->in[0]->dtype)
            return error_set(err, STATUS_INVALID, "input %zu is %s, input 0 is %s", i,
                             dtype_name(in->dtype), dtype_name(call->in[0]->dtype));
        if (!fits(&in->shape, &call->in[0]->shape, axis))
            return error_set(err, STATUS_INVALID, "input %zu has shape %s, input 0 %s, axis %zu", i,
                             shape_format(&in->shape, text),
                             shape_format(&call->in[0]->shape, first), axis);
        out.dims[axis] += in->shape.dims[axis];
    }
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    {ATTR_INT, "axis", offsetof(struct concat_attrs, axis), .required = true},
    OP_ATTR_END,
};

const struct op_def op_concat = {
    .name = "concat",
    .onnx = {"Concat", .since = 13},
    .inputs = -1,
    .min_inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct concat_attrs),
    .infer = infer_concat,
};
