#include <inttypes.h>

#include "ops/indexing.h"

/* X [n, c, h, w], rois [r, 4], batch indices [r]: out [r, c, output_height, output_width] */
static enum status infer_roi_align(const struct op_call *call, struct error *err)
{
    const struct roi_align_attrs *attrs = call->attrs;
    const struct shape *x = &call->in[0]->shape, *rois = &call->in[1]->shape;
    const struct tensor *batch = call->in[2];

    if (x->rank != 4 || rois->rank != 2 || rois->dims[1] != 4 || batch->shape.rank != 1 ||
        batch->shape.dims[0] != rois->dims[0])
        return error_set(err, STATUS_INVALID, "X must be [n,c,h,w], rois [r,4], batch_indices [r]");
    if (call->in[1]->dtype != call->in[0]->dtype || batch->dtype != DTYPE_INT64)
        return error_set(err, STATUS_INVALID, "rois are %s and batch_indices %s",
                         dtype_name(call->in[1]->dtype), dtype_name(batch->dtype));
    if (attrs->output_height < 1 || attrs->output_width < 1 || attrs->output_height > INT32_MAX ||
        attrs->output_width > INT32_MAX || attrs->sampling_ratio < 0)
        return error_set(err, STATUS_INVALID,
                         "output is %" PRId64 " x %" PRId64 ", sampling_ratio %" PRId64,
                         attrs->output_height, attrs->output_width, attrs->sampling_ratio);
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = (struct shape){
        .rank = 4, .dims = {rois->dims[0], x->dims[1], attrs->output_height, attrs->output_width}};
    return STATUS_OK;
}

static const char *const coordinates[] = {"half_pixel", "output_half_pixel", NULL};
static const char *const modes[] = {"avg", "max", NULL};

static const struct attr_def attrs_of[] = {
    OP_ATTR_ENUM(struct roi_align_attrs, coordinate_transformation_mode, coordinates,
                 ROI_HALF_PIXEL),
    OP_ATTR_ENUM(struct roi_align_attrs, mode, modes, ROI_AVG),
    OP_ATTR_INT(struct roi_align_attrs, output_height, 1),
    OP_ATTR_INT(struct roi_align_attrs, output_width, 1),
    OP_ATTR_INT(struct roi_align_attrs, sampling_ratio, 0),
    OP_ATTR_FLOAT(struct roi_align_attrs, spatial_scale, 1),
    OP_ATTR_END,
};

const struct op_def op_roi_align = {
    .name = "roi_align",
    .onnx = {"RoiAlign", .since = 16},
    .inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct roi_align_attrs),
    .infer = infer_roi_align,
};
