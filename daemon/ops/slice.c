#include <inttypes.h>
#include <stdbool.h>

#include "ops/movement.h"

/* The lists of starts, ends, axes and steps, made equally long. */
struct lists {
    size_t count;
    int64_t starts[SHAPE_MAX_RANK];
    int64_t ends[SHAPE_MAX_RANK];
    int64_t axes[SHAPE_MAX_RANK];
    int64_t steps[SHAPE_MAX_RANK];
};

static enum status read_lists(const struct tensor *const in[5], struct lists *lists,
                              struct error *err)
{
    size_t ends, axes, steps;

    TRY(op_read_ints(in[1], "starts", SHAPE_MAX_RANK, lists->starts, &lists->count, err));
    TRY(op_read_ints(in[2], "ends", SHAPE_MAX_RANK, lists->ends, &ends, err));
    axes = steps = lists->count;
    for (size_t i = 0; i < lists->count; i++) {
        lists->axes[i] = (int64_t)i;
        lists->steps[i] = 1;
    }
    if (in[3] != NULL)
        TRY(op_read_ints(in[3], "axes", SHAPE_MAX_RANK, lists->axes, &axes, err));
    if (in[4] != NULL)
        TRY(op_read_ints(in[4], "steps", SHAPE_MAX_RANK, lists->steps, &steps, err));
    if (ends != lists->count || axes != lists->count || steps != lists->count)
        return error_set(err, STATUS_INVALID,
                         "starts, ends, axes, steps have %zu, %zu, %zu, %zu elements", lists->count,
                         ends, axes, steps);
    return STATUS_OK;
}

/* Python's rule: negatives count from the end, then the border is cut to where a walk may stand. */
static int64_t clamp(int64_t index, int64_t length, int64_t low, int64_t high)
{
    if (index < 0)
        index = index < -length ? low : index + length;
    return index < low ? low : index > high ? high : index;
}

static struct slice_range resolve(int64_t length, int64_t start, int64_t end, int64_t step)
{
    struct slice_range range = {.step = step};
    int64_t span;

    if (step > 0) {
        range.start = clamp(start, length, 0, length);
        span = clamp(end, length, 0, length) - range.start;
    } else {
        range.start = clamp(start, length, 0, length - 1);
        span = range.start - (end < -length ? -1 : clamp(end, length, -1, length - 1));
    }
    if (span <= 0 || length == 0)
        return (struct slice_range){.step = 1};
    /* |step| may be the smallest integer, whose negation does not exist; it takes one element. */
    if (step > span || step < -span)
        range.count = 1;
    else
        range.count = (span - 1) / (step > 0 ? step : -step) + 1;
    if (range.count == 1)
        range.step = 1; /* a walk of at most one step: keep products of stride and step small */
    return range;
}

enum status slice_ranges(const struct tensor *const in[5],
                         struct slice_range out_ranges[SHAPE_MAX_RANK], struct error *err)
{
    const struct shape *shape = &in[0]->shape;
    bool named[SHAPE_MAX_RANK] = {false};
    struct lists lists;

    TRY(read_lists(in, &lists, err));
    for (size_t i = 0; i < shape->rank; i++)
        out_ranges[i] = (struct slice_range){.start = 0, .step = 1, .count = shape->dims[i]};
    for (size_t i = 0; i < lists.count; i++) {
        size_t axis;

        if (!shape_has_axis(shape, lists.axes[i]))
            return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu",
                             lists.axes[i], shape->rank);
        axis = shape_axis(shape, lists.axes[i]);
        if (named[axis] || lists.steps[i] == 0)
            return error_set(err, STATUS_INVALID, "axis %zu is named twice or has a step of zero",
                             axis);
        named[axis] = true;
        out_ranges[axis] =
            resolve(shape->dims[axis], lists.starts[i], lists.ends[i], lists.steps[i]);
    }
    return STATUS_OK;
}

static enum status infer_slice(const struct op_call *call, struct error *err)
{
    const struct tensor *in[5] = {NULL};
    struct slice_range ranges[SHAPE_MAX_RANK];

    for (size_t i = 0; i < call->inputs; i++)
        in[i] = call->in[i];
    TRY(slice_ranges(in, ranges, err));
    call->out[0]->dtype = in[0]->dtype;
    call->out[0]->shape = in[0]->shape;
    for (size_t i = 0; i < in[0]->shape.rank; i++)
        call->out[0]->shape.dims[i] = ranges[i].count;
    return STATUS_OK;
}

const struct op_def op_slice = {
    .name = "slice",
    .onnx = {"Slice", .since = 13},
    .inputs = 5,
    .min_inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .value_inputs = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4,
    .flags = OP_PICKS,
    .infer = infer_slice,
};
