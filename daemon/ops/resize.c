#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "ops/indexing.h"

/* Floats of roi or scales, whichever float type they have. */
static enum status read_floats(const struct tensor *tensor, const char *what, size_t expected,
                               float *out, struct error *err)
{
    if ((size_t)shape_count(&tensor->shape) != expected || tensor->data == NULL)
        return error_set(err, STATUS_INVALID, "%s has %" PRId64 " known elements, must have %zu",
                         what, tensor->data != NULL ? shape_count(&tensor->shape) : 0, expected);
    for (size_t i = 0; i < expected; i++) {
        double wide;
        uint16_t half;

        switch (tensor->dtype) {
        case DTYPE_FLOAT:
            memcpy(&out[i], (const char *)tensor->data + i * 4, 4);
            break;
        case DTYPE_DOUBLE:
            memcpy(&wide, (const char *)tensor->data + i * 8, 8);
            out[i] = (float)wide;
            break;
        case DTYPE_FLOAT16:
            memcpy(&half, (const char *)tensor->data + i * 2, 2);
            out[i] = float_from_half(half);
            break;
        default:
            return error_set(err, STATUS_UNSUPPORTED, "%s is %s", what, dtype_name(tensor->dtype));
        }
    }
    return STATUS_OK;
}

static enum status read_axes(const struct resize_attrs *attrs, const struct shape *shape,
                             size_t *out_count, size_t axes[SHAPE_MAX_RANK], struct error *err)
{
    bool named[SHAPE_MAX_RANK] = {false};

    *out_count = attrs->axes.values != NULL ? attrs->axes.count : shape->rank;
    for (size_t i = 0; i < *out_count; i++) {
        int64_t axis = attrs->axes.values != NULL ? attrs->axes.values[i] : (int64_t)i;

        if (!shape_has_axis(shape, axis) || named[shape_axis(shape, axis)])
            return error_set(err, STATUS_INVALID,
                             "axis %" PRId64 " is outside rank %zu or named twice", axis,
                             shape->rank);
        axes[i] = shape_axis(shape, axis);
        named[axes[i]] = true;
    }
    return STATUS_OK;
}

static bool has_elements(const struct tensor *tensor)
{
    return tensor != NULL && shape_count(&tensor->shape) > 0;
}

static enum status apply_scales(const struct tensor *scales, size_t count, const size_t *axes,
                                bool crops, struct resize_axis *out, struct error *err)
{
    float values[SHAPE_MAX_RANK];

    TRY(read_floats(scales, "scales", count, values, err));
    for (size_t i = 0; i < count; i++) {
        struct resize_axis *axis = &out[axes[i]];
        float length = (float)axis->in * (crops ? axis->roi_end - axis->roi_start : 1);

        axis->scale = values[i];
        if (!(values[i] > 0) || !(length * values[i] < 0x1p31f) || length < 0)
            return error_set(err, STATUS_INVALID, "scale %g of axis %zu is not possible",
                             (double)values[i], axes[i]);
        axis->out = (int64_t)floorf(length * values[i]);
    }
    return STATUS_OK;
}

static enum status apply_sizes(const struct resize_attrs *attrs, const struct tensor *sizes,
                               size_t count, const size_t *axes, struct resize_axis *out,
                               struct error *err)
{
    int64_t values[SHAPE_MAX_RANK];
    float common = 0;
    size_t given;

    TRY(op_read_ints(sizes, "sizes", SHAPE_MAX_RANK, values, &given, err));
    if (given != count)
        return error_set(err, STATUS_INVALID, "sizes has %zu elements for %zu axes", given, count);
    for (size_t i = 0; i < count; i++) {
        struct resize_axis *axis = &out[axes[i]];

        if (values[i] < 0 || values[i] > INT32_MAX || (axis->in == 0 && values[i] != 0))
            return error_set(err, STATUS_INVALID,
                             "axis %zu of length %" PRId64 " cannot become %" PRId64, axes[i],
                             axis->in, values[i]);
        axis->out = values[i];
        axis->scale = axis->in > 0 ? (float)values[i] / (float)axis->in : 1;
        if (i == 0 || (attrs->keep_aspect_ratio_policy == RESIZE_NOT_LARGER ? axis->scale < common
                                                                            : axis->scale > common))
            common = axis->scale;
    }
    if (attrs->keep_aspect_ratio_policy == RESIZE_STRETCH)
        return STATUS_OK;
    for (size_t i = 0; i < count; i++) {
        struct resize_axis *axis = &out[axes[i]];

        axis->scale = common;
        axis->out = (int64_t)floorf(common * (float)axis->in + 0.5f);
    }
    return STATUS_OK;
}

/* Where lengths are compared end to end, what a scale means that gives no whole length is told
 * differently by the standard's text, its tests and the runtimes. */
static enum status check_whole(const struct resize_attrs *attrs, size_t rank,
                               const struct resize_axis *axes, struct error *err)
{
    if (attrs->coordinate_transformation_mode != RESIZE_ALIGN_CORNERS &&
        attrs->coordinate_transformation_mode != RESIZE_TF_CROP_AND_RESIZE)
        return STATUS_OK;
    for (size_t i = 0; i < rank; i++)
        if (fabsf(axes[i].scale * (float)axes[i].in - (float)axes[i].out) > 1e-3f)
            return error_set(err, STATUS_UNSUPPORTED,
                             "scale %g makes no whole length of axis %zu of length %" PRId64,
                             (double)axes[i].scale, i, axes[i].in);
    return STATUS_OK;
}

enum status resize_axes(const struct resize_attrs *attrs, const struct tensor *const in[4],
                        struct resize_axis out_axes[SHAPE_MAX_RANK], struct error *err)
{
    const struct shape *shape = &in[0]->shape;
    bool crops = attrs->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE;
    size_t axes[SHAPE_MAX_RANK], count;

    for (size_t i = 0; i < shape->rank; i++)
        out_axes[i] = (struct resize_axis){shape->dims[i], shape->dims[i], 1, 0, 1};
    TRY(read_axes(attrs, shape, &count, axes, err));
    if (crops) {
        float roi[2 * SHAPE_MAX_RANK];

        if (in[1] == NULL)
            return error_set(err, STATUS_INVALID, "tf_crop_and_resize needs roi");
        TRY(read_floats(in[1], "roi", 2 * count, roi, err));
        for (size_t i = 0; i < count; i++) {
            out_axes[axes[i]].roi_start = roi[i];
            out_axes[axes[i]].roi_end = roi[i + count];
        }
    }
    if (has_elements(in[2]) == has_elements(in[3]))
        return error_set(err, STATUS_INVALID, "one of scales and sizes must be given");
    if (has_elements(in[2]))
        TRY(apply_scales(in[2], count, axes, crops, out_axes, err));
    else
        TRY(apply_sizes(attrs, in[3], count, axes, out_axes, err));
    return check_whole(attrs, shape->rank, out_axes, err);
}

float resize_source(const struct resize_axis *axis, enum resize_coordinates coordinates, int64_t x)
{
    float in = (float)axis->in, out = (float)axis->out;
    float place = (float)x;

    switch (coordinates) {
    case RESIZE_HALF_PIXEL:
        return (place + 0.5f) / axis->scale - 0.5f;
    case RESIZE_HALF_PIXEL_SYMMETRIC: {
        float adjustment = out / (axis->scale * in);

        return in / 2 * (1 - adjustment) + (place + 0.5f) / axis->scale - 0.5f;
    }
    case RESIZE_PYTORCH_HALF_PIXEL:
        return axis->out > 1 ? (place + 0.5f) / axis->scale - 0.5f : 0;
    case RESIZE_ALIGN_CORNERS:
        return axis->out == 1 ? 0 : place * (in - 1) / (out - 1);
    case RESIZE_ASYMMETRIC:
        return place / axis->scale;
    case RESIZE_TF_CROP_AND_RESIZE:
        break;
    }
    if (axis->out <= 1)
        return 0.5f * (axis->roi_start + axis->roi_end) * (in - 1);
    return axis->roi_start * (in - 1) +
           place * (axis->roi_end - axis->roi_start) * (in - 1) / (out - 1);
}

static enum status infer_resize(const struct op_call *call, struct error *err)
{
    const struct resize_attrs *attrs = call->attrs;
    const struct tensor *in[4] = {NULL};
    struct resize_axis axes[SHAPE_MAX_RANK];

    if (attrs->antialias)
        return error_set(err, STATUS_UNSUPPORTED, "antialias is 1, only 0 is known");
    if (attrs->mode != RESIZE_NEAREST && !dtype_is_float(call->in[0]->dtype))
        return error_set(err, STATUS_UNSUPPORTED, "mode '%s' of %s",
                         attrs->mode == RESIZE_LINEAR ? "linear" : "cubic",
                         dtype_name(call->in[0]->dtype));
    for (size_t i = 0; i < call->inputs; i++)
        in[i] = call->in[i];
    TRY(resize_axes(attrs, in, axes, err));
    call->out[0]->dtype = in[0]->dtype;
    call->out[0]->shape = in[0]->shape;
    for (size_t i = 0; i < in[0]->shape.rank; i++)
        call->out[0]->shape.dims[i] = axes[i].out;
    return STATUS_OK;
}

static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
static const char *const coordinate_modes[] = {"half_pixel",
                                               "half_pixel_symmetric",
                                               "pytorch_half_pixel",
                                               "align_corners",
                                               "asymmetric",
                                               "tf_crop_and_resize",
                                               NULL};
static const char *const nearest_modes[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil", NULL};
static const char *const policies[] = {"stretch", "not_larger", "not_smaller", NULL};

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct resize_attrs, antialias, 0),
    OP_ATTR_INTS(struct resize_attrs, axes),
    OP_ATTR_ENUM(struct resize_attrs, coordinate_transformation_mode, coordinate_modes,
                 RESIZE_HALF_PIXEL),
    OP_ATTR_FLOAT(struct resize_attrs, cubic_coeff_a, -0.75f),
    OP_ATTR_INT(struct resize_attrs, exclude_outside, 0),
    OP_ATTR_FLOAT(struct resize_attrs, extrapolation_value, 0),
    OP_ATTR_ENUM(struct resize_attrs, keep_aspect_ratio_policy, policies, RESIZE_STRETCH),
    OP_ATTR_ENUM(struct resize_attrs, mode, modes, RESIZE_NEAREST),
    OP_ATTR_ENUM(struct resize_attrs, nearest_mode, nearest_modes, RESIZE_ROUND_PREFER_FLOOR),
    OP_ATTR_END,
};

const struct op_def op_resize = {
    .name = "resize",
    .onnx = {"Resize", .since = 19},
    .inputs = 4,
    .min_inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .value_inputs = 1 << 1 | 1 << 2 | 1 << 3,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct resize_attrs),
    .infer = infer_resize,
};
