/* Softmax and its kin along one axis. */
#include "ops/softmax.h"

#include <inttypes.h>

static enum status infer_axis(const struct op_call *call, struct error *err)
{
    const struct softmax_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;

    if (!shape_has_axis(shape, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         shape->rank);
    return op_infer_same(call, err);
}

/* The largest, a difference, its power, their sum, a quotient. */
static uint64_t flops(const struct op_call *call)
{
    return 5 * op_flops_each_input(call);
}

static const struct attr_def softmax_rows[] = {OP_ATTR_INT(struct softmax_attrs, axis, -1),
                                               OP_ATTR_END};

#define SOFTMAX(stem, onnx_name)                                                                   \
    const struct op_def op_##stem = {                                                              \
        .name = #stem,                                                                             \
        .onnx = {onnx_name, 13},                                                                   \
        .inputs = 1,                                                                               \
        .outputs = 1,                                                                              \
        .dtypes = DTYPE_FLOATS,                                                                    \
        .attrs = softmax_rows,                                                                     \
        .attrs_size = sizeof(struct softmax_attrs),                                                \
        .infer = infer_axis,                                                                       \
        .flops = flops,                                                                            \
    };
SOFTMAX(softmax, "Softmax")
SOFTMAX(log_softmax, "LogSoftmax")
SOFTMAX(hardmax, "Hardmax")

static enum status infer_lp(const struct op_call *call, struct error *err)
{
    const struct lp_attrs *attrs = call->attrs;

    if (attrs->p != 1 && attrs->p != 2)
        return error_set(err, STATUS_INVALID, "p is %" PRId64 "; 1 and 2 are allowed", attrs->p);
    return infer_axis(call, err);
}

static const struct attr_def lp_rows[] = {OP_ATTR_INT(struct lp_attrs, axis, -1),
                                          OP_ATTR_INT(struct lp_attrs, p, 2), OP_ATTR_END};

const struct op_def op_lp_normalization = {
    .name = "lp_normalization",
    .onnx = {"LpNormalization", 1},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = lp_rows,
    .attrs_size = sizeof(struct lp_attrs),
    .infer = infer_lp,
    .flops = op_flops_each_input,
};
