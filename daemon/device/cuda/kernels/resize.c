/* Resize. */
#include "device/cuda/kernels/resize.h"

#include <stdlib.h>

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/pointwise_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/indexing.h"

enum { SUMMED_AXES = 4 }; /* axes that one sum may go along */

static enum status axes_of(const struct kernel_call *call, struct resize_axis axes[SHAPE_MAX_RANK],
                           struct error *err)
{
    struct tensor tensors[4];
    const struct tensor *in[4] = {NULL};

    call_tensors(call, tensors, in);
    return resize_axes(call->attrs, in, axes, err);
}

static bool keeps_all(const struct resize_attrs *attrs, const struct resize_axis *axis)
{
    if (axis->in != axis->out)
        return false;
    for (int64_t i = 0; i < axis->out; i++)
        if (resize_source(axis, (enum resize_coordinates)attrs->coordinate_transformation_mode,
                          i) != (float)i)
            return false;
    return true;
}

static const char *refuse_resize(const struct kernel_call *call)
{
    const struct resize_attrs *attrs = call->attrs;
    bool crops = attrs->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE;
    const char *unknown = refuse_unknown_values(call, (crops ? 1 << 1 : 0) | 1 << 2 | 1 << 3);
    struct resize_axis axes[SHAPE_MAX_RANK];
    int changed = 0;

    if (unknown != NULL || refuse_strings(call) != NULL)
        return unknown != NULL ? unknown : refuse_strings(call);
    if (call->in[0]->shape.rank == 0)
        return "a scalar";
    if (!dtype_is_float(call->in[0]->dtype) && (crops || attrs->mode != RESIZE_NEAREST))
        return "integers, but for the nearest";
    if (axes_of(call, axes, NULL) != STATUS_OK)
        return "its sizes are not valid";
    for (size_t i = 0; i < call->in[0]->shape.rank; i++)
        changed += !keeps_all(attrs, &axes[i]);
    return changed > SUMMED_AXES ? "more than four axes change" : NULL;
}

static void set_attrs(struct resize *resize, const struct kernel_call *call)
{
    const struct resize_attrs *attrs = call->attrs;

    resize->by = (uint32_t)attrs->mode;
    resize->rule = (uint32_t)attrs->coordinate_transformation_mode;
    resize->rounding = (uint32_t)attrs->nearest_mode;
    resize->exclude_outside = attrs->exclude_outside != 0;
    resize->cubic_a = attrs->cubic_coeff_a;
    resize->outside = attrs->extrapolation_value;
    resize->type = pointwise_type_of(call->in[0]->dtype);
    resize->dtype = call->in[0]->dtype;
    resize->bytes = (uint32_t)dtype_bytes(call->in[0]->dtype);
}

static enum status prepare_resize(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    int64_t to[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK];
    struct resize_axis found[SHAPE_MAX_RANK];
    struct axes axes = {.operands = 2};
    struct walk_strides strides[2];
    struct resize *resize;

    TRY(axes_of(call, found, err));
    resize = prepare_state(prepare, sizeof(*resize), err);
    if (resize == NULL)
        return STATUS_NO_MEMORY;
    operand_strides(call->in[0], from);
    operand_strides(call->out[0], to);
    for (size_t i = 0; i < call->in[0]->shape.rank; i++) {
        size_t axis = operand_walked_axis(call->in[0], i);
        const struct resize_axis *a = &found[axis];

        axes_add(&axes, a->out, (const int64_t[]){to[axis], from[axis]});
        resize->axes[i] = (struct resize_line){.in = a->in,
                                               .out = a->out,
                                               .scale = a->scale,
                                               .roi_start = a->roi_start,
                                               .roi_end = a->roi_end,
                                               .same = keeps_all(call->attrs, a)};
    }
    (void)axes_finish(&axes, &resize->walk, strides);
    resize->to = strides[0];
    resize->from = strides[1];
    set_attrs(resize, call);
    return STATUS_OK;
}

static enum status run_resize(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    struct resize resize = *(const struct resize *)state;

    (void)call;
    resize.to_data = run->out[0];
    resize.from_data = run->in[0];
    return cuda_status(cuda_resize(&resize, cuda_stream(run)));
}

const struct kernel kernel_resize_places = {
    .name = "cuda:places",
    .layouts = ANY_LAYOUT,
    .refuses = refuse_resize,
    .prepare = prepare_resize,
    .enqueue = run_resize,
    .release = free,
};
