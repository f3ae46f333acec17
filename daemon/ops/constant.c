#include "ops/movement.h"

static enum status one_row(const struct op_call *call, enum dtype dtype, size_t count)
{
    call->out[0]->dtype = dtype;
    call->out[0]->shape = (struct shape){.rank = 1, .dims = {(int64_t)count}};
    return STATUS_OK;
}

static enum status scalar(const struct op_call *call, enum dtype dtype)
{
    call->out[0]->dtype = dtype;
    call->out[0]->shape = (struct shape){.rank = 0};
    return STATUS_OK;
}

/* A single number that was left out cannot be told from its default by its value, so the lists and
 * the tensor are asked first and the defaults are values nobody writes. */
static enum status infer_constant(const struct op_call *call, struct error *err)
{
    const struct constant_attrs *attrs = call->attrs;

    if (attrs->value.dtype != DTYPE_NONE) {
        call->out[0]->dtype = attrs->value.dtype;
        call->out[0]->shape = attrs->value.shape;
        return STATUS_OK;
    }
    if (attrs->value_floats.values != NULL)
        return one_row(call, DTYPE_FLOAT, attrs->value_floats.count);
    if (attrs->value_ints.values != NULL)
        return one_row(call, DTYPE_INT64, attrs->value_ints.count);
    if (attrs->value_strings.values != NULL)
        return one_row(call, DTYPE_STRING, attrs->value_strings.count);
    if (attrs->value_string != NULL)
        return scalar(call, DTYPE_STRING);
    if (attrs->value_int != INT64_MIN)
        return scalar(call, DTYPE_INT64);
    if (attrs->value_float == attrs->value_float)
        return scalar(call, DTYPE_FLOAT);
    return error_set(err, STATUS_INVALID, "no value is given");
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_TENSOR(struct constant_attrs, value),
    OP_ATTR_FLOAT(struct constant_attrs, value_float, __builtin_nanf("")),
    OP_ATTR_FLOATS(struct constant_attrs, value_floats),
    OP_ATTR_INT(struct constant_attrs, value_int, INT64_MIN),
    OP_ATTR_INTS(struct constant_attrs, value_ints),
    OP_ATTR_STRING(struct constant_attrs, value_string, NULL),
    OP_ATTR_STRINGS(struct constant_attrs, value_strings),
    OP_ATTR_END,
};

const struct op_def op_constant = {
    .name = "constant",
    .onnx = {"Constant", .since = 13},
    .inputs = 0,
    .outputs = 1,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct constant_attrs),
    .infer = infer_constant,
};
