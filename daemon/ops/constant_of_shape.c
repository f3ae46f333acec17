#include <inttypes.h>

#include "ops/movement.h"

static enum status infer_constant_of_shape(const struct op_call *call, struct error *err)
{
    const struct constant_of_shape_attrs *attrs = call->attrs;
    struct shape shape = {0};

    TRY(op_read_ints(call->in[0], "input", SHAPE_MAX_RANK, shape.dims, &shape.rank, err));
    for (size_t i = 0; i < shape.rank; i++)
        if (shape.dims[i] < 0)
            return error_set(err, STATUS_INVALID, "dimension %zu of the shape is %" PRId64, i,
                             shape.dims[i]);
    if (attrs->value.dtype != DTYPE_NONE && shape_count(&attrs->value.shape) != 1)
        return error_set(err, STATUS_INVALID, "value has %" PRId64 " elements, must have one",
                         shape_count(&attrs->value.shape));
    call->out[0]->dtype = attrs->value.dtype != DTYPE_NONE ? attrs->value.dtype : DTYPE_FLOAT;
    call->out[0]->shape = shape;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_TENSOR(struct constant_of_shape_attrs, value),
    OP_ATTR_END,
};

const struct op_def op_constant_of_shape = {
    .name = "constant_of_shape",
    .onnx = {"ConstantOfShape", .since = 9},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_BIT(INT64),
    .value_inputs = 1 << 0,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct constant_of_shape_attrs),
    .infer = infer_constant_of_shape,
};
