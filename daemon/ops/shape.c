#include "ops/movement.h"

/* One end of the range, as Python slices: negatives count from the end, then cut to [0, rank]. */
static int64_t clamp(int64_t index, int64_t rank)
{
    if (index < 0)
        index = index < -rank ? 0 : index + rank;
    return index > rank ? rank : index;
}

static enum status infer_shape(const struct op_call *call, struct error *err)
{
    const struct shape_attrs *attrs = call->attrs;
    int64_t rank = (int64_t)call->in[0]->shape.rank;
    int64_t count = clamp(attrs->end, rank) - clamp(attrs->start, rank);

    (void)err;
    call->out[0]->dtype = DTYPE_INT64;
    call->out[0]->shape = (struct shape){.rank = 1, .dims = {count > 0 ? count : 0}};
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct shape_attrs, start, 0),
    OP_ATTR_INT(struct shape_attrs, end, INT64_MAX),
    OP_ATTR_END,
};

const struct op_def op_shape = {
    .name = "shape",
    .onnx = {"Shape", .since = 15},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .flags = OP_SHAPE_ONLY,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct shape_attrs),
    .infer = infer_shape,
};
