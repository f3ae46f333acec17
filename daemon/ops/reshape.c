#include <inttypes.h>

#include "ops/movement.h"

/* Sets the one open dimension so that the element counts agree. */
static enum status solve(struct shape *shape, size_t open, int64_t count, struct error *err)
{
    int64_t known = shape_product(shape, 0, open) * shape_product(shape, open + 1, shape->rank);

    if (known == 0 || count % known != 0)
        return error_set(err, STATUS_INVALID,
                         "%" PRId64 " elements cannot be divided by the %" PRId64
                         " of the given dimensions",
                         count, known);
    shape->dims[open] = count / known;
    return STATUS_OK;
}

static enum status infer_reshape(const struct op_call *call, struct error *err)
{
    const struct reshape_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    struct shape shape = {0};
    struct shape given;
    size_t open = SHAPE_MAX_RANK;
    int64_t count, product;
    char text[SHAPE_TEXT_BYTES], in_text[SHAPE_TEXT_BYTES];

    TRY(op_read_ints(call->in[1], "shape", SHAPE_MAX_RANK, shape.dims, &shape.rank, err));
    given = shape;
    for (size_t i = 0; i < shape.rank; i++) {
        if (shape.dims[i] == 0 && !attrs->allowzero) {
            if (i >= in->rank)
                return error_set(err, STATUS_INVALID,
                                 "dimension %zu of shape %s copies one that the input lacks", i,
                                 shape_format(&given, text));
            shape.dims[i] = in->dims[i];
        } else if (shape.dims[i] == -1) {
            if (open < SHAPE_MAX_RANK)
                return error_set(err, STATUS_INVALID, "shape %s leaves two dimensions open",
                                 shape_format(&given, text));
            open = i;
            shape.dims[i] = 1;
        }
    }
    if (shape_elements(in, &count) != STATUS_OK || shape_elements(&shape, &product) != STATUS_OK)
        return error_set(err, STATUS_INVALID, "%s is no shape to give an input of shape %s",
                         shape_format(&given, text), shape_format(in, in_text));
    if (open < SHAPE_MAX_RANK)
        TRY(solve(&shape, open, count, err));
    else if (product != count)
        return error_set(err, STATUS_INVALID, "an input of shape %s cannot take shape %s",
                         shape_format(in, in_text), shape_format(&given, text));
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = shape;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct reshape_attrs, allowzero, 0),
    OP_ATTR_END,
};

const struct op_def op_reshape = {
    .name = "reshape",
    .onnx = {"Reshape", .since = 14},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .flags = OP_VIEW,
    .value_inputs = 1 << 1,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct reshape_attrs),
    .infer = infer_reshape,
};
