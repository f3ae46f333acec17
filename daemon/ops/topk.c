#include <inttypes.h>

#include "ops/indexing.h"

static enum status infer_topk(const struct op_call *call, struct error *err)
{
    const struct topk_attrs *attrs = call->attrs;
    struct shape out = call->in[0]->shape;
    int64_t k;
    size_t count;

    TRY(op_read_ints(call->in[1], "K", 1, &k, &count, err));
    if (!shape_has_axis(&out, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         out.rank);
    if (count != 1 || k < 0 || k > out.dims[shape_axis(&out, attrs->axis)])
        return error_set(err, STATUS_INVALID, "K is %" PRId64 ", the axis has %" PRId64 " elements",
                         count == 1 ? k : -1, out.dims[shape_axis(&out, attrs->axis)]);
    out.dims[shape_axis(&out, attrs->axis)] = k;
    for (size_t i = 0; i < call->outputs; i++)
        if (call->out[i] != NULL) {
            call->out[i]->dtype = i == 0 ? call->in[0]->dtype : DTYPE_INT64;
            call->out[i]->shape = out;
        }
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct topk_attrs, axis, -1),
    OP_ATTR_INT(struct topk_attrs, largest, 1),
    OP_ATTR_INT(struct topk_attrs, sorted, 1),
    OP_ATTR_END,
};

const struct op_def op_topk = {
    .name = "topk",
    .onnx = {"TopK", .since = 11},
    .inputs = 2,
    .outputs = 2,
    .dtypes = DTYPE_NUMBERS,
    .value_inputs = 1 << 1,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct topk_attrs),
    .infer = infer_topk,
};
