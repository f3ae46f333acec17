/* Operators that move boxes of elements: one box (Transpose, Expand, Tile, Slice, DepthToSpace,
 * SpaceToDepth, Reorder), one box a part (Concat, Split), or none at all (views). */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/move_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/indexing.h"
#include "ops/movement.h"

/* ---- one box ---- */

static enum status keep(struct kernel_prepare *prepare, struct axes *axes, int64_t from,
                        struct error *err)
{
    struct move_plan *plan = prepare_state(prepare, sizeof(*plan), err);

    if (plan == NULL)
        return STATUS_NO_MEMORY;
    move_plan(plan, axes, dtype_bytes(prepare->call.in[0]->dtype), 0, from);
    return STATUS_OK;
}

static enum status run_box(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    (void)call;
    return move_run(state, run->out[0], run->in[0], run);
}

static void add_axis(struct axes *axes, int64_t size, int64_t to, int64_t from)
{
    const int64_t strides[2] = {to, from};

    axes_add(axes, size, strides);
}

#define BOX(operator, accepted, prepare_fn, refuses_fn)                                            \
    const struct kernel kernel_##operator##_strided = {                                            \
        .name = "cuda:strided",                                                                    \
        .flags = KERNEL_STRIDED,                                                                   \
        .layouts = (accepted),                                                                     \
        .refuses = (refuses_fn),                                                                   \
        .prepare = (prepare_fn),                                                                   \
        .enqueue = run_box,                                                                        \
        .release = free,                                                                           \
    }

static enum status prepare_transpose(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    int64_t to[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK];
    struct axes axes = {.operands = 2};
    size_t order[SHAPE_MAX_RANK];

    TRY(transpose_axes(call->attrs, &call->in[0]->shape, order, err));
    operand_strides(call->in[0], from);
    operand_strides(call->out[0], to);
    for (size_t i = 0; i < call->out[0]->shape.rank; i++)
        add_axis(&axes, call->out[0]->shape.dims[i], to[i], from[order[i]]);
    return keep(prepare, &axes, 0, err);
}

const struct kernel kernel_transpose_strided = {
    .name = "cuda:strided",
    .flags = KERNEL_STRIDED,
    .in_layouts = 1 << LAYOUT_NHWC,
    .refuses = refuse_strings,
    .prepare = prepare_transpose,
    .enqueue = run_box,
    .release = free,
};

static enum status prepare_expand(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct axes axes;

    axes_broadcast(&axes, call->out[0], 1, call->in);
    return keep(prepare, &axes, 0, err);
}
BOX(expand, 0, prepare_expand, refuse_strings);

/* Each axis becomes (repeat, axis), the repeat standing still in the source. */
static enum status prepare_tile(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    int64_t to[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK];
    struct axes axes = {.operands = 2};

    operand_strides(call->in[0], from);
    operand_strides(call->out[0], to);
    for (size_t i = 0; i < call->out[0]->shape.rank; i++) {
        int64_t length = call->in[0]->shape.dims[i];

        add_axis(&axes, length > 0 ? call->out[0]->shape.dims[i] / length : 0, to[i] * length, 0);
        add_axis(&axes, length, to[i], from[i]);
    }
    return keep(prepare, &axes, 0, err);
}

static const char *refuse_tile(const struct kernel_call *call)
{
    size_t repeated = 0;

    for (size_t i = 0; i < call->out[0]->shape.rank; i++)
        repeated += call->out[0]->shape.dims[i] != call->in[0]->shape.dims[i];
    if (repeated + call->out[0]->shape.rank > WALK_RANK)
        return "too many repeated axes";
    return refuse_strings(call);
}
BOX(tile, 0, prepare_tile, refuse_tile);

static enum status ranges_of(const struct kernel_call *call,
                             struct slice_range ranges[SHAPE_MAX_RANK], struct error *err)
{
    struct tensor tensors[5];
    const struct tensor *in[5] = {NULL};

    call_tensors(call, tensors, in);
    return slice_ranges(in, ranges, err);
}

static const char *refuse_slice(const struct kernel_call *call)
{
    const char *unknown = refuse_unknown_values(call, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4);

    return unknown != NULL ? unknown : refuse_strings(call);
}

static enum status prepare_slice(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    int64_t to[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK], start = 0;
    struct slice_range ranges[SHAPE_MAX_RANK];
    struct axes axes = {.operands = 2};

    TRY(ranges_of(call, ranges, err));
    operand_strides(call->in[0], from);
    operand_strides(call->out[0], to);
    for (size_t i = 0; i < call->out[0]->shape.rank; i++) {
        add_axis(&axes, call->out[0]->shape.dims[i], to[i], from[i] * ranges[i].step);
        start += ranges[i].start * from[i];
    }
    return keep(prepare, &axes, start, err);
}
BOX(slice, ANY_LAYOUT, prepare_slice, refuse_slice);

/* ---- DepthToSpace, SpaceToDepth: transpositions of six axes ---- */

/* The output is [n, c, h, size, w, size] or [n, size, size, c, h, w] in logical order; each axis
 * with its strides on both sides. */
static enum status prepare_depth_to_space(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct space_depth_attrs *attrs = call->attrs;
    const int64_t *in = call->in[0]->shape.dims;
    int64_t to[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK];
    int64_t size = attrs->blocksize, channels = in[1] / (size * size);
    bool dcr = attrs->mode == DEPTH_DCR;
    struct axes axes = {.operands = 2};

    operand_strides(call->in[0], from);
    operand_strides(call->out[0], to);
    add_axis(&axes, in[0], to[0], from[0]);
    add_axis(&axes, channels, to[1], from[1] * (dcr ? 1 : size * size));
    add_axis(&axes, in[2], to[2] * size, from[2]);
    add_axis(&axes, size, to[2], from[1] * (dcr ? size * channels : size));
    add_axis(&axes, in[3], to[3] * size, from[3]);
    add_axis(&axes, size, to[3], from[1] * (dcr ? channels : 1));
    return keep(prepare, &axes, 0, err);
}
BOX(depth_to_space, ANY_LAYOUT, prepare_depth_to_space, NULL);

static enum status prepare_space_to_depth(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct space_depth_attrs *attrs = call->attrs;
    const int64_t *in = call->in[0]->shape.dims;
    int64_t to[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK];
    int64_t size = attrs->blocksize;
    struct axes axes = {.operands = 2};

    operand_strides(call->in[0], from);
    operand_strides(call->out[0], to);
    add_axis(&axes, in[0], to[0], from[0]);
    add_axis(&axes, size, to[1] * size * in[1], from[2]);
    add_axis(&axes, size, to[1] * in[1], from[3]);
    add_axis(&axes, in[1], to[1], from[1]);
    add_axis(&axes, in[2] / size, to[2], from[2] * size);
    add_axis(&axes, in[3] / size, to[3], from[3] * size);
    return keep(prepare, &axes, 0, err);
}
BOX(space_to_depth, ANY_LAYOUT, prepare_space_to_depth, NULL);

/* ---- Reorder: the same elements in another layout ---- */

static enum status prepare_reorder(struct kernel_prepare *prepare, struct error *err)
{
    struct axes axes;

    axes_broadcast(&axes, prepare->call.out[0], 1, prepare->call.in);
    return keep(prepare, &axes, 0, err);
}

const struct kernel kernel_reorder_strided = {
    .name = "cuda:strided",
    .flags = KERNEL_LAYOUT_CHANGE,
    .layouts = ANY_LAYOUT,
    .refuses = refuse_strings,
    .prepare = prepare_reorder,
    .enqueue = run_box,
    .release = free,
};

/* ---- Concat and Split ---- */

/* The plan of a part that begins `start` indices of `axis` into the whole. */
static void plan_part(struct move_plan *plan, const struct operand *part,
                      const struct operand *whole, size_t axis, int64_t start, bool to_whole)
{
    int64_t small[SHAPE_MAX_RANK], large[SHAPE_MAX_RANK], offset;
    struct axes axes = {.operands = 2};

    operand_strides(part, small);
    operand_strides(whole, large);
    for (size_t i = 0; i < part->shape.rank; i++)
        add_axis(&axes, part->shape.dims[i], to_whole ? large[i] : small[i],
                 to_whole ? small[i] : large[i]);
    offset = start * large[axis];
    move_plan(plan, &axes, dtype_bytes(part->dtype), to_whole ? offset : 0, to_whole ? 0 : offset);
}

static enum status prepare_concat(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct concat_attrs *attrs = call->attrs;
    size_t axis = shape_axis(&call->out[0]->shape, attrs->axis);
    struct move_plan *plans = prepare_state(prepare, call->inputs * sizeof(*plans), err);
    int64_t start = 0;

    if (plans == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < call->inputs; i++) {
        plan_part(&plans[i], call->in[i], call->out[0], axis, start, true);
        start += call->in[i]->shape.dims[axis];
    }
    return STATUS_OK;
}

static enum status run_concat(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    const struct move_plan *plans = state;

    for (size_t i = 0; i < call->inputs; i++)
        TRY(move_run(&plans[i], run->out[0], run->in[i], run));
    return STATUS_OK;
}

static const char *refuse_concat(const struct kernel_call *call)
{
    for (size_t i = 0; i < call->inputs; i++)
        if (call->in[i]->layout != call->out[0]->layout)
            return "a part has another layout than the whole";
    return refuse_strings(call);
}

const struct kernel kernel_concat_strided = {
    .name = "cuda:strided",
    .flags = KERNEL_STRIDED,
    .layouts = ANY_LAYOUT,
    .refuses = refuse_concat,
    .prepare = prepare_concat,
    .enqueue = run_concat,
    .release = free,
};

static const char *refuse_split(const struct kernel_call *call)
{
    const char *unknown = refuse_unknown_values(call, 1 << 1);

    for (size_t i = 0; i < call->outputs; i++)
        if (call->out[i] != NULL && call->out[i]->layout != call->in[0]->layout)
            return "a part has another layout than the whole";
    return unknown != NULL ? unknown : refuse_strings(call);
}

static void plan_parts(struct move_plan *plans, const struct kernel_call *call, size_t axis,
                       const int64_t *lengths)
{
    int64_t start = 0;

    for (size_t i = 0; i < call->outputs; i++) {
        if (call->out[i] != NULL)
            plan_part(&plans[i], call->out[i], call->in[0], axis, start, false);
        start += lengths[i];
    }
}

static enum status prepare_split(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct split_attrs *attrs = call->attrs;
    const struct operand *given = call_input(call, 1);
    struct tensor sizes = given != NULL ? operand_tensor(given) : (struct tensor){0};
    size_t axis = shape_axis(&call->in[0]->shape, attrs->axis);
    int64_t *lengths = calloc(call->outputs, sizeof(*lengths));
    struct move_plan *plans;
    enum status status;

    if (lengths == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the lengths of the parts");
    status = split_lengths(attrs, call->in[0]->shape.dims[axis], given != NULL ? &sizes : NULL,
                           call->outputs, lengths, err);
    if (status == STATUS_OK) {
        plans = prepare_state(prepare, call->outputs * sizeof(*plans), err);
        if (plans != NULL)
            plan_parts(plans, call, axis, lengths);
        else
            status = STATUS_NO_MEMORY;
    }
    free(lengths);
    return status;
}

static enum status run_split(const void *state, const struct kernel_call *call,
                             const struct kernel_run *run)
{
    const struct move_plan *plans = state;

    for (size_t i = 0; i < call->outputs; i++)
        if (call->out[i] != NULL)
            TRY(move_run(&plans[i], run->out[i], run->in[0], run));
    return STATUS_OK;
}

const struct kernel kernel_split_strided = {
    .name = "cuda:strided",
    .flags = KERNEL_STRIDED,
    .layouts = ANY_LAYOUT,
    .refuses = refuse_split,
    .prepare = prepare_split,
    .enqueue = run_split,
    .release = free,
};

/* ---- views: the engine gives both one buffer wherever it can ---- */

static enum status run_view(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    if (run->out[0] != run->in[0])
        TRY(move_run(state, run->out[0], run->in[0], run));
    if (call_output(call, 1) != NULL) /* Dropout's mask: nothing is dropped */
        return cuda_status(cudaMemsetAsync(
            run->out[1], 1, (size_t)shape_count(&call->out[1]->shape), cuda_stream(run)));
    return STATUS_OK;
}

/* Identity keeps the shape, and may be strided. */
static enum status prepare_same(struct kernel_prepare *prepare, struct error *err)
{
    return prepare_reorder(prepare, err);
}

static enum status prepare_flat(struct kernel_prepare *prepare, struct error *err)
{
    struct axes axes = {.operands = 2};

    add_axis(&axes, shape_count(&prepare->call.out[0]->shape), 1, 1);
    return keep(prepare, &axes, 0, err);
}

#define VIEW(operator, more_flags, accepted, prepare_fn)                                           \
    const struct kernel kernel_##operator##_strided = {                                            \
        .name = "cuda:strided",                                                                    \
        .flags = KERNEL_IN_PLACE | KERNEL_PASSES | (more_flags),                                   \
        .layouts = (accepted),                                                                     \
        .refuses = refuse_strings,                                                                 \
        .prepare = (prepare_fn),                                                                   \
        .enqueue = run_view,                                                                       \
        .release = free,                                                                           \
    }
VIEW(reshape, 0, 0, prepare_flat);
VIEW(flatten, 0, 0, prepare_flat);
VIEW(squeeze, 0, 0, prepare_flat);
VIEW(unsqueeze, 0, 0, prepare_flat);
VIEW(identity, KERNEL_STRIDED, ANY_LAYOUT, prepare_same);
VIEW(dropout, KERNEL_STRIDED, ANY_LAYOUT, prepare_same);

/* ---- CenterCropPad: zeros, and the kept part in the middle ---- */

struct center_state {
    struct move_plan plan;
    bool pads;
};

static const char *refuse_center(const struct kernel_call *call)
{
    const char *unknown = refuse_unknown_values(call, 1 << 1);

    return unknown != NULL ? unknown : refuse_strings(call);
}

static enum status prepare_center(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct tensor sizes = operand_tensor(call->in[1]);
    struct center_range ranges[SHAPE_MAX_RANK];
    int64_t to[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK], to_start = 0, from_start = 0;
    struct axes axes = {.operands = 2};
    struct center_state *state;

    TRY(center_ranges(call->attrs, &call->in[0]->shape, &sizes, ranges, err));
    state = prepare_state(prepare, sizeof(*state), err);
    if (state == NULL)
        return STATUS_NO_MEMORY;
    operand_strides(call->in[0], from);
    operand_strides(call->out[0], to);
    for (size_t i = 0; i < call->out[0]->shape.rank; i++) {
        add_axis(&axes, ranges[i].kept, to[i], from[i]);
        from_start += ranges[i].in_start * from[i];
        to_start += ranges[i].out_start * to[i];
        state->pads |= ranges[i].kept < ranges[i].out;
    }
    move_plan(&state->plan, &axes, dtype_bytes(call->in[0]->dtype), to_start, from_start);
    return STATUS_OK;
}

static enum status run_center(const void *arg, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    const struct center_state *state = arg;
    size_t bytes = (size_t)shape_count(&call->out[0]->shape) * dtype_bytes(call->out[0]->dtype);

    if (state->pads && bytes > 0)
        TRY(cuda_status(cudaMemsetAsync(run->out[0], 0, bytes, cuda_stream(run))));
    return move_run(&state->plan, run->out[0], run->in[0], run);
}

const struct kernel kernel_center_crop_pad_strided = {
    .name = "cuda:strided",
    .refuses = refuse_center,
    .prepare = prepare_center,
    .enqueue = run_center,
    .release = free,
};
