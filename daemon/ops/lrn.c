#include "ops/lrn.h"

#include <inttypes.h>

static enum status infer_lrn(const struct op_call *call, struct error *err)
{
    const struct lrn_attrs *attrs = call->attrs;

    if (attrs->size < 1 || attrs->size > INT32_MAX)
        return error_set(err, STATUS_INVALID, "attribute size is %" PRId64 "; 1 or more is allowed",
                         attrs->size);
    if (call->in[0]->shape.rank < 3)
        return error_set(err, STATUS_INVALID, "input 0 has %zu dimensions; 3 or more are needed",
                         call->in[0]->shape.rank);
    return op_infer_same(call, err);
}

/* A sum of squares over the window, then a power of it. */
static uint64_t flops(const struct op_call *call)
{
    const struct lrn_attrs *attrs = call->attrs;

    return (2 * (uint64_t)attrs->size + 3) * op_flops_each_input(call);
}

static const struct attr_def attrs[] = {
    OP_ATTR_FLOAT(struct lrn_attrs, alpha, 0.0001f),
    OP_ATTR_FLOAT(struct lrn_attrs, beta, 0.75f),
    OP_ATTR_FLOAT(struct lrn_attrs, bias, 1.0f),
    {ATTR_INT, "size", offsetof(struct lrn_attrs, size), .required = true},
    OP_ATTR_END};

const struct op_def op_lrn = {
    .name = "lrn",
    .onnx = {"LRN", .since = 13},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = attrs,
    .attrs_size = sizeof(struct lrn_attrs),
    .infer = infer_lrn,
    .flops = flops,
};
