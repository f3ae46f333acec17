#include <inttypes.h>
#include <stdbool.h>

#include "ops/indexing.h"

enum status center_ranges(const struct center_crop_pad_attrs *attrs, const struct shape *in,
                          const struct tensor *sizes,
                          struct center_range out_ranges[SHAPE_MAX_RANK], struct error *err)
{
    int64_t values[SHAPE_MAX_RANK];
    bool named[SHAPE_MAX_RANK] = {false};
    size_t count, axes = attrs->axes.values != NULL ? attrs->axes.count : in->rank;

    TRY(op_read_ints(sizes, "shape", SHAPE_MAX_RANK, values, &count, err));
    if (count != axes)
        return error_set(err, STATUS_INVALID, "shape has %zu elements for %zu axes", count, axes);
    for (size_t i = 0; i < in->rank; i++)
        out_ranges[i] = (struct center_range){0, 0, in->dims[i], in->dims[i]};
    for (size_t i = 0; i < count; i++) {
        int64_t given = attrs->axes.values != NULL ? attrs->axes.values[i] : (int64_t)i;
        struct center_range *range;
        int64_t length;

        if (!shape_has_axis(in, given) || named[shape_axis(in, given)] || values[i] < 0)
            return error_set(err, STATUS_INVALID, "axis %" PRId64 " cannot become %" PRId64 " long",
                             given, values[i]);
        named[shape_axis(in, given)] = true;
        range = &out_ranges[shape_axis(in, given)];
        length = range->out;
        range->out = values[i];
        range->kept = length < values[i] ? length : values[i];
        range->in_start = length > values[i] ? (length - values[i]) / 2 : 0;
        range->out_start = values[i] > length ? (values[i] - length) / 2 : 0;
    }
    return STATUS_OK;
}

static enum status infer_center_crop_pad(const struct op_call *call, struct error *err)
{
    struct center_range ranges[SHAPE_MAX_RANK];

    TRY(center_ranges(call->attrs, &call->in[0]->shape, call->in[1], ranges, err));
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = call->in[0]->shape;
    for (size_t i = 0; i < call->in[0]->shape.rank; i++)
        call->out[0]->shape.dims[i] = ranges[i].out;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INTS(struct center_crop_pad_attrs, axes),
    OP_ATTR_END,
};

const struct op_def op_center_crop_pad = {
    .name = "center_crop_pad",
    .onnx = {"CenterCropPad", .since = 18},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .value_inputs = 1 << 1,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct center_crop_pad_attrs),
    .infer = infer_center_crop_pad,
};
