/* Reductions along axes: Reduce*, ArgMax, ArgMin, CumSum. */
#include "ops/reduce.h"

#include <inttypes.h>
#include <string.h>

enum status reduce_axes(const struct reduce_attrs *attrs, const struct tensor *axes, size_t rank,
                        bool out_reduced[SHAPE_MAX_RANK], struct error *err)
{
    struct shape shape = {.rank = rank};
    bool reduced[SHAPE_MAX_RANK] = {false};
    int64_t values[SHAPE_MAX_RANK];
    size_t count = 0;

    if (axes != NULL)
        TRY(op_read_ints(axes, "axes", SHAPE_MAX_RANK, values, &count, err));
    for (size_t i = 0; i < count; i++) {
        if (!shape_has_axis(&shape, values[i]))
            return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", values[i],
                             rank);
        if (reduced[shape_axis(&shape, values[i])])
            return error_set(err, STATUS_INVALID, "axis %" PRId64 " is named twice", values[i]);
        reduced[shape_axis(&shape, values[i])] = true;
    }
    if (count == 0 && attrs->noop_with_empty_axes == 0)
        for (size_t i = 0; i < rank; i++)
            reduced[i] = true;
    memcpy(out_reduced, reduced, sizeof(reduced));
    return STATUS_OK;
}

static struct shape reduced_shape(const struct shape *in, const bool *reduced, bool keepdims)
{
    struct shape out = {.rank = 0};

    for (size_t i = 0; i < in->rank; i++)
        if (!reduced[i])
            out.dims[out.rank++] = in->dims[i];
        else if (keepdims)
            out.dims[out.rank++] = 1;
    return out;
}

static enum status infer_reduce(const struct op_call *call, struct error *err)
{
    const struct reduce_attrs *attrs = call->attrs;
    const struct tensor *axes = call->inputs > 1 ? call->in[1] : NULL;
    bool reduced[SHAPE_MAX_RANK];

    TRY(reduce_axes(attrs, axes, call->in[0]->shape.rank, reduced, err));
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = reduced_shape(&call->in[0]->shape, reduced, attrs->keepdims != 0);
    return STATUS_OK;
}

static const struct attr_def reduce_rows[] = {
    OP_ATTR_INT(struct reduce_attrs, keepdims, 1),
    OP_ATTR_INT(struct reduce_attrs, noop_with_empty_axes, 0), OP_ATTR_END};

enum {
    WIDE_NUMBERS =
        DTYPE_FLOATS | DTYPE_BIT(INT32) | DTYPE_BIT(INT64) | DTYPE_BIT(UINT32) | DTYPE_BIT(UINT64),
    ORDERED = WIDE_NUMBERS | DTYPE_BIT(INT8) | DTYPE_BIT(UINT8) | DTYPE_BIT(BOOL)
};

#define REDUCE(stem, onnx_name, opset, types)                                                      \
    const struct op_def op_##stem = {                                                              \
        .name = #stem,                                                                             \
        .onnx = {onnx_name, opset},                                                                \
        .inputs = 2,                                                                               \
        .min_inputs = 1,                                                                           \
        .outputs = 1,                                                                              \
        .dtypes = (types),                                                                         \
        .value_inputs = 1 << 1,                                                                    \
        .attrs = reduce_rows,                                                                      \
        .attrs_size = sizeof(struct reduce_attrs),                                                 \
        .infer = infer_reduce,                                                                     \
        .flops = op_flops_each_input,                                                              \
    };

REDUCE(reduce_l1, "ReduceL1", 18, WIDE_NUMBERS)
REDUCE(reduce_l2, "ReduceL2", 18, WIDE_NUMBERS)
REDUCE(reduce_log_sum, "ReduceLogSum", 18, WIDE_NUMBERS)
REDUCE(reduce_log_sum_exp, "ReduceLogSumExp", 18, WIDE_NUMBERS)
REDUCE(reduce_max, "ReduceMax", 18, ORDERED)
REDUCE(reduce_mean, "ReduceMean", 18, WIDE_NUMBERS)
REDUCE(reduce_min, "ReduceMin", 18, ORDERED)
REDUCE(reduce_prod, "ReduceProd", 18, WIDE_NUMBERS)
REDUCE(reduce_sum, "ReduceSum", 13, WIDE_NUMBERS)
REDUCE(reduce_sum_square, "ReduceSumSquare", 18, WIDE_NUMBERS)

static enum status infer_arg(const struct op_call *call, struct error *err)
{
    const struct arg_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;
    bool reduced[SHAPE_MAX_RANK] = {false};

    if (!shape_has_axis(shape, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         shape->rank);
    if (shape->dims[shape_axis(shape, attrs->axis)] == 0)
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " has no elements", attrs->axis);
    reduced[shape_axis(shape, attrs->axis)] = true;
    call->out[0]->dtype = DTYPE_INT64;
    call->out[0]->shape = reduced_shape(shape, reduced, attrs->keepdims != 0);
    return STATUS_OK;
}

static const struct attr_def arg_rows[] = {
    OP_ATTR_INT(struct arg_attrs, axis, 0), OP_ATTR_INT(struct arg_attrs, keepdims, 1),
    OP_ATTR_INT(struct arg_attrs, select_last_index, 0), OP_ATTR_END};

#define ARG(stem, onnx_name)                                                                       \
    const struct op_def op_##stem = {                                                              \
        .name = #stem,                                                                             \
        .onnx = {onnx_name, 1},                                                                    \
        .inputs = 1,                                                                               \
        .outputs = 1,                                                                              \
        .dtypes = DTYPE_NUMBERS,                                                                   \
        .attrs = arg_rows,                                                                         \
        .attrs_size = sizeof(struct arg_attrs),                                                    \
        .infer = infer_arg,                                                                        \
        .flops = op_flops_each_input,                                                              \
    };
ARG(arg_max, "ArgMax")
ARG(arg_min, "ArgMin")

/* The axis is an input, read when it runs: no shape depends on it. */
static enum status infer_cumsum(const struct op_call *call, struct error *err)
{
    const struct tensor *axis = call->in[1];

    if ((axis->dtype != DTYPE_INT32 && axis->dtype != DTYPE_INT64) || axis->shape.rank > 1 ||
        shape_count(&axis->shape) != 1)
        return error_set(err, STATUS_INVALID, "axis is no integer scalar");
    return op_infer_same(call, err);
}

static const struct attr_def cumsum_rows[] = {OP_ATTR_INT(struct cumsum_attrs, exclusive, 0),
                                              OP_ATTR_INT(struct cumsum_attrs, reverse, 0),
                                              OP_ATTR_END};

const struct op_def op_cumsum = {
    .name = "cumsum",
    .onnx = {"CumSum", 11},
    .inputs = 2,
    .outputs = 1,
    .dtypes = WIDE_NUMBERS,
    .attrs = cumsum_rows,
    .attrs_size = sizeof(struct cumsum_attrs),
    .infer = infer_cumsum,
    .flops = op_flops_each_input,
};
