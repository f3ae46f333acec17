#include <inttypes.h>

#include "ops/indexing.h"

/* Outputs: the values, first index of each, index into the values of each element, counts. */
static enum status infer_unique(const struct op_call *call, struct error *err)
{
    const struct unique_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    bool flat = attrs->axis == INT64_MIN;
    struct shape row = {.rank = 1};

    if (!flat && !shape_has_axis(in, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         in->rank);
    row.dims[0] = flat ? shape_count(in) : in->dims[shape_axis(in, attrs->axis)];
    for (size_t i = 0; i < call->outputs; i++) {
        if (call->out[i] == NULL)
            continue;
        call->out[i]->dtype = i == 0 ? call->in[0]->dtype : DTYPE_INT64;
        call->out[i]->shape = i == 0 && !flat ? *in : row;
        call->out_bound[i] = i != 2;
    }
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct unique_attrs, axis, INT64_MIN),
    OP_ATTR_INT(struct unique_attrs, sorted, 1),
    OP_ATTR_END,
};

const struct op_def op_unique = {
    .name = "unique",
    .onnx = {"Unique", .since = 11},
    .inputs = 1,
    .outputs = 4,
    .dtypes = DTYPE_ANY,
    .flags = OP_DATA_DEPENDENT,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct unique_attrs),
    .infer = infer_unique,
};
