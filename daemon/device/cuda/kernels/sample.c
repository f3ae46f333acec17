/* GridSample and RoiAlign. */
#include "device/cuda/kernels/sample.h"

#include "device/cuda/kernels/rows.h"
#include "ops/indexing.h"

static const char *refuse_types(const struct kernel_call *call)
{
    if (call->in[0]->dtype != DTYPE_FLOAT || call->in[1]->dtype != DTYPE_FLOAT)
        return "float only";
    return NULL;
}

static const char *refuse_grid(const struct kernel_call *call)
{
    const struct shape *x = &call->in[0]->shape;

    if (x->rank > SAMPLE_AXES + 2)
        return "more than three axes of space";
    if (shape_product(x, 2, x->rank) == 0 && shape_count(&call->out[0]->shape) > 0)
        return "nothing to sample";
    if (shape_count(x) > INT32_MAX)
        return "2^31 elements or more";
    return refuse_types(call);
}

static enum status run_grid(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    static const enum sample_by modes[] = {[GRID_LINEAR] = SAMPLE_BY_LINES,
                                           [GRID_NEAREST] = SAMPLE_NEAREST,
                                           [GRID_CUBIC] = SAMPLE_BY_CUBES};
    static const enum sample_padding paddings[] = {[GRID_ZEROS] = SAMPLE_ZEROS,
                                                   [GRID_BORDER] = SAMPLE_BORDER,
                                                   [GRID_REFLECTION] = SAMPLE_REFLECTION};
    const struct grid_sample_attrs *attrs = call->attrs;
    const struct shape *x = &call->in[0]->shape, *out = &call->out[0]->shape;
    struct grid_sample sample = {.batch = x->dims[0],
                                 .channels = x->dims[1],
                                 .points = shape_product(out, 2, out->rank),
                                 .places = shape_product(x, 2, x->rank),
                                 .axes = (int32_t)x->rank - 2,
                                 .by = modes[attrs->mode % GRID_MODES],
                                 .padding = paddings[attrs->padding_mode],
                                 .align_corners = attrs->align_corners != 0,
                                 .in = run->in[0],
                                 .grid = run->in[1],
                                 .out = run->out[0]};

    (void)state;
    for (int32_t i = 0; i < sample.axes; i++)
        sample.lengths[i] = (int32_t)x->dims[i + 2];
    return cuda_status(cuda_grid_sample(&sample, cuda_stream(run)));
}

const struct kernel kernel_grid_sample_places = {
    .name = "cuda:places",
    .refuses = refuse_grid,
    .prepare = prepare_stateless,
    .enqueue = run_grid,
};

static const char *refuse_roi(const struct kernel_call *call)
{
    const struct shape *x = &call->in[0]->shape;

    if (x->dims[2] == 0 || x->dims[3] == 0)
        return "an empty image";
    return refuse_types(call);
}

static enum status run_roi(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct roi_align_attrs *attrs = call->attrs;
    const int64_t *x = call->in[0]->shape.dims;
    const bool half = attrs->coordinate_transformation_mode == ROI_HALF_PIXEL;
    const struct roi_align align = {.rois = call->out[0]->shape.dims[0],
                                    .images = x[0],
                                    .channels = x[1],
                                    .height = x[2],
                                    .width = x[3],
                                    .out_height = attrs->output_height,
                                    .out_width = attrs->output_width,
                                    .samples = attrs->sampling_ratio,
                                    .half_pixel = half,
                                    .at_least_one = !half,
                                    .takes_largest = attrs->mode == ROI_MAX,
                                    .scale = attrs->spatial_scale,
                                    .in = run->in[0],
                                    .regions = run->in[1],
                                    .image = run->in[2],
                                    .out = run->out[0],
                                    .fault = run_fault(run)};

    (void)state;
    return cuda_status(cuda_roi_align(&align, cuda_stream(run)));
}

const struct kernel kernel_roi_align_places = {
    .name = "cuda:places",
    .refuses = refuse_roi,
    .prepare = prepare_stateless,
    .enqueue = run_roi,
};
