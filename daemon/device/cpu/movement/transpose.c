/* Operators that are one box: Transpose, Expand, Tile, Slice, DepthToSpace, SpaceToDepth. */
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "ops/movement.h"

struct box_state {
    struct move move;
    int64_t from_bytes; /* where in the source the box begins */
};

static enum status keep(struct kernel_prepare *prepare, const struct move_box *box,
                        int64_t from_elements)
{
    struct box_state *state = calloc(1, sizeof(*state));

    if (state == NULL)
        return STATUS_NO_MEMORY;
    move_plan(&state->move, box);
    state->from_bytes = from_elements * (int64_t)box->bytes;
    prepare->state = state;
    prepare->constants_used = 1 << 0;
    return STATUS_OK;
}

static enum status run_box(const void *opaque, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct box_state *state = opaque;

    if (state->move.total_bytes > 0)
        move_run(&state->move, (const char *)run->in[0] + state->from_bytes, run->out[0],
                 call->threads);
    return STATUS_OK;
}

static void add_axis(struct move_box *box, int64_t dim, int64_t from, int64_t to)
{
    box->dims[box->rank] = dim;
    box->from[box->rank] = from;
    box->to[box->rank++] = to;
}

/* ---- Transpose ---- */

static const char *refuse_transpose(const struct kernel_call *call)
{
    const struct operand *both[] = {call->in[0], call->out[0]};

    for (size_t i = 0; i < 2; i++)
        if (both[i]->layout == LAYOUT_BLOCKED &&
            both[i]->shape.dims[1] % call->device->channel_block != 0)
            return "channels are no multiple of the block";
    return NULL;
}

/* A blocked source has two axes for the channels, which both go where axis 1 goes; a blocked result
 * has two as well, which both come from where its axis 1 comes from. */
static enum status prepare_transpose(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct geometry in, out;
    struct move_box box = {.bytes = dtype_bytes(call->in[0]->dtype)};
    size_t axes[SHAPE_MAX_RANK];
    int64_t block = call->device->channel_block;

    TRY(transpose_axes(call->attrs, &call->in[0]->shape, axes, err));
    geometry_of(call->in[0], call->device, &in);
    geometry_of(call->out[0], call->device, &out);
    for (size_t i = 0; i < call->out[0]->shape.rank; i++) {
        bool from_blocks = call->in[0]->layout == LAYOUT_BLOCKED && axes[i] == 1;
        bool to_blocks = call->out[0]->layout == LAYOUT_BLOCKED && i == 1;
        int64_t dim = from_blocks || !to_blocks ? in.dims[axes[i]] : out.dims[i];

        add_axis(&box, dim, in.strides[axes[i]] * (to_blocks && !from_blocks ? block : 1),
                 out.strides[i] * (from_blocks && !to_blocks ? block : 1));
        if (from_blocks || to_blocks)
            add_axis(&box, block, from_blocks ? 1 : in.strides[axes[i]],
                     to_blocks ? 1 : out.strides[i]);
    }
    return keep(prepare, &box, 0);
}

const struct kernel kernel_transpose_move = {
    .name = "cpu:move",
    .flags = KERNEL_STRIDED,
    .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED,
    .in_layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED | 1 << LAYOUT_NHWC,
    .refuses = refuse_transpose,
    .prepare = prepare_transpose,
    .enqueue = run_box,
    .release = free,
};

/* ---- Expand ---- */

static enum status prepare_expand(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct geometry in, out;
    struct move_box box = {.bytes = dtype_bytes(call->in[0]->dtype)};

    (void)err;
    geometry_of(call->in[0], call->device, &in);
    geometry_of(call->out[0], call->device, &out);
    for (size_t i = 0; i < out.rank; i++) {
        size_t missing = out.rank - in.rank;
        bool repeated = i < missing || in.dims[i - missing] == 1;

        add_axis(&box, out.dims[i], repeated ? 0 : in.strides[i - missing], out.strides[i]);
    }
    return keep(prepare, &box, 0);
}

const struct kernel kernel_expand_move = {
    .name = "cpu:move",
    .flags = KERNEL_STRIDED,
    .prepare = prepare_expand,
    .enqueue = run_box,
    .release = free,
};

/* ---- Tile: each axis becomes (repeat, axis), the repeat standing still in the source ---- */

static enum status prepare_tile(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct geometry in, out;
    struct move_box box = {.bytes = dtype_bytes(call->in[0]->dtype)};

    (void)err;
    geometry_of(call->in[0], call->device, &in);
    geometry_of(call->out[0], call->device, &out);
    for (size_t i = 0; i < out.rank; i++) {
        int64_t repeats = in.dims[i] > 0 ? out.dims[i] / in.dims[i] : 0;

        add_axis(&box, repeats, 0, out.strides[i] * in.dims[i]);
        add_axis(&box, in.dims[i], in.strides[i], out.strides[i]);
    }
    return keep(prepare, &box, 0);
}

const struct kernel kernel_tile_move = {
    .name = "cpu:move",
    .flags = KERNEL_STRIDED,
    .prepare = prepare_tile,
    .enqueue = run_box,
    .release = free,
};

/* ---- Slice ---- */

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
    const struct operand *in = call->in[0];
    int64_t block = call->device->channel_block;
    struct slice_range ranges[SHAPE_MAX_RANK];
    const char *unknown = refuse_unknown_values(call, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4);

    if (unknown != NULL || in->layout != LAYOUT_BLOCKED)
        return unknown;
    if (ranges_of(call, ranges, NULL) != STATUS_OK)
        return "its ranges are not valid";
    if (ranges[1].step != 1 || ranges[1].start % block != 0 ||
        (ranges[1].count % block != 0 && ranges[1].start + ranges[1].count != in->shape.dims[1]))
        return "the slice cuts through blocks of channels";
    return NULL;
}

static enum status prepare_slice(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    int64_t block = call->device->channel_block;
    struct slice_range ranges[SHAPE_MAX_RANK];
    struct geometry in, out;
    struct move_box box = {.bytes = dtype_bytes(call->in[0]->dtype)};
    int64_t start = 0;

    TRY(ranges_of(call, ranges, err));
    geometry_of(call->in[0], call->device, &in);
    geometry_of(call->out[0], call->device, &out);
    for (size_t i = 0; i < out.rank; i++) {
        bool inside = i >= call->in[0]->shape.rank; /* the axis within a block is taken whole */
        bool channels = call->in[0]->layout == LAYOUT_BLOCKED && i == 1;

        add_axis(&box, out.dims[i], in.strides[i] * (inside ? 1 : ranges[i].step), out.strides[i]);
        if (!inside)
            start += ranges[i].start / (channels ? block : 1) * in.strides[i];
    }
    return keep(prepare, &box, start);
}

const struct kernel kernel_slice_move = {
    .name = "cpu:move",
    .flags = KERNEL_STRIDED,
    .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED | 1 << LAYOUT_NHWC,
    .refuses = refuse_slice,
    .prepare = prepare_slice,
    .enqueue = run_box,
    .release = free,
};

/* ---- DepthToSpace, SpaceToDepth: transpositions of six axes ---- */

/* Strides of a dense tensor of these dims, from the last to the first. */
static void dense(const int64_t dims[6], int64_t strides[6])
{
    int64_t stride = 1;

    for (size_t i = 6; i-- > 0; stride *= dims[i])
        strides[i] = stride;
}

static enum status keep_turned(struct kernel_prepare *prepare, const int64_t dims[6],
                               const size_t order[6])
{
    struct move_box box = {.rank = 6, .bytes = dtype_bytes(prepare->call.in[0]->dtype)};
    int64_t from[6];

    dense(dims, from);
    for (size_t i = 0; i < 6; i++) {
        box.dims[i] = dims[order[i]];
        box.from[i] = from[order[i]];
    }
    dense(box.dims, box.to);
    return keep(prepare, &box, 0);
}

static enum status prepare_depth_to_space(struct kernel_prepare *prepare, struct error *err)
{
    const struct space_depth_attrs *attrs = prepare->call.attrs;
    const int64_t *in = prepare->call.in[0]->shape.dims;
    int64_t size = attrs->blocksize, channels = in[1] / (size * size);

    (void)err;
    if (attrs->mode == DEPTH_DCR)
        return keep_turned(prepare, (const int64_t[]){in[0], size, size, channels, in[2], in[3]},
                           (const size_t[]){0, 3, 4, 1, 5, 2});
    return keep_turned(prepare, (const int64_t[]){in[0], channels, size, size, in[2], in[3]},
                       (const size_t[]){0, 1, 4, 2, 5, 3});
}

static enum status prepare_space_to_depth(struct kernel_prepare *prepare, struct error *err)
{
    const struct space_depth_attrs *attrs = prepare->call.attrs;
    const int64_t *in = prepare->call.in[0]->shape.dims;
    int64_t size = attrs->blocksize;

    (void)err;
    return keep_turned(prepare,
                       (const int64_t[]){in[0], in[1], in[2] / size, size, in[3] / size, size},
                       (const size_t[]){0, 3, 5, 1, 2, 4});
}

const struct kernel kernel_depth_to_space_move = {
    .name = "cpu:move",
    .prepare = prepare_depth_to_space,
    .enqueue = run_box,
    .release = free,
};

const struct kernel kernel_space_to_depth_move = {
    .name = "cpu:move",
    .prepare = prepare_space_to_depth,
    .enqueue = run_box,
    .release = free,
};
