#include <inttypes.h>

#include "ops/movement.h"

static enum status infer_flatten(const struct op_call *call, struct error *err)
{
    const struct flatten_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    int64_t rank = (int64_t)in->rank;
    int64_t axis = attrs->axis < 0 ? attrs->axis + rank : attrs->axis;

    if (axis < 0 || axis > rank)
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         in->rank);
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = (struct shape){
        .rank = 2,
        .dims = {shape_product(in, 0, (size_t)axis), shape_product(in, (size_t)axis, in->rank)}};
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct flatten_attrs, axis, 1),
    OP_ATTR_END,
};

const struct op_def op_flatten = {
    .name = "flatten",
    .onnx = {"Flatten", .since = 13},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .flags = OP_VIEW,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct flatten_attrs),
    .infer = infer_flatten,
};
