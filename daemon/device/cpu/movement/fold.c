/* CenterCropPad, Col2Im, MaxUnpool: zeros with elements put in their places. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "ops/indexing.h"

static void clear(const struct kernel_call *call, const struct kernel_run *run)
{
    size_t bytes = (size_t)shape_count(&call->out[0]->shape) * dtype_bytes(call->out[0]->dtype);

    if (bytes > 0)
        memset(run->out[0], 0, bytes);
}

/* ---- CenterCropPad ---- */

struct center_state {
    struct move move;
    int64_t from_bytes, to_bytes;
    bool pads;
};

static const char *refuse_center(const struct kernel_call *call)
{
    return refuse_unknown_values(call, 1 << 1);
}

static enum status prepare_center(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct tensor sizes = operand_tensor(call->in[1]);
    struct center_range ranges[SHAPE_MAX_RANK];
    struct geometry in, out;
    struct move_box box = {.bytes = dtype_bytes(call->in[0]->dtype)};
    struct center_state *state;

    TRY(center_ranges(call->attrs, &call->in[0]->shape, &sizes, ranges, err));
    state = calloc(1, sizeof(*state));
    if (state == NULL)
        return STATUS_NO_MEMORY;
    geometry_of(call->in[0], call->device, &in);
    geometry_of(call->out[0], call->device, &out);
    box.rank = out.rank;
    for (size_t i = 0; i < out.rank; i++) {
        box.dims[i] = ranges[i].kept;
        box.from[i] = in.strides[i];
        box.to[i] = out.strides[i];
        state->from_bytes += ranges[i].in_start * in.strides[i] * (int64_t)box.bytes;
        state->to_bytes += ranges[i].out_start * out.strides[i] * (int64_t)box.bytes;
        state->pads |= ranges[i].kept < ranges[i].out;
    }
    move_plan(&state->move, &box);
    prepare->state = state;
    prepare->constants_used = 1 << 0;
    return STATUS_OK;
}

static enum status run_center(const void *opaque, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    const struct center_state *state = opaque;

    if (state->pads)
        clear(call, run);
    if (state->move.total_bytes > 0)
        move_run(&state->move, (const char *)run->in[0] + state->from_bytes,
                 (char *)run->out[0] + state->to_bytes, call->threads);
    return STATUS_OK;
}

const struct kernel kernel_center_crop_pad_move = {
    .name = "cpu:move",
    .refuses = refuse_center,
    .prepare = prepare_center,
    .enqueue = run_center,
    .release = free,
};

/* ---- Col2Im ---- */

static int64_t or_default(const struct ints *list, size_t i, int64_t standard)
{
    return list->values != NULL ? list->values[i] : standard;
}

/* How places and block elements of one axis meet the image. */
struct fold_axis {
    int64_t image, block, places, stride, dilation, pad;
};

static size_t read_axes(const struct kernel_call *call, struct fold_axis axes[SHAPE_MAX_RANK])
{
    const struct col2im_attrs *attrs = call->attrs;
    size_t count = call->out[0]->shape.rank - 2;

    for (size_t i = 0; i < count; i++) {
        struct fold_axis *axis = &axes[i];
        int64_t pad_after = or_default(&attrs->pads, i + count, 0);

        axis->image = call->out[0]->shape.dims[i + 2];
        axis->block = read_index(call->in[2]->dtype, call->in[2]->constant, (int64_t)i);
        axis->stride = or_default(&attrs->strides, i, 1);
        axis->dilation = or_default(&attrs->dilations, i, 1);
        axis->pad = or_default(&attrs->pads, i, 0);
        axis->places =
            (axis->image + axis->pad + pad_after - (axis->dilation * (axis->block - 1) + 1)) /
                axis->stride +
            1;
    }
    return count;
}

struct fold_state {
    size_t count;
    struct fold_axis axes[SHAPE_MAX_RANK];
};

static const char *refuse_col2im(const struct kernel_call *call)
{
    if (call->in[0]->dtype != DTYPE_FLOAT)
        return "float only";
    return refuse_unknown_values(call, 1 << 1 | 1 << 2);
}

static enum status prepare_col2im(struct kernel_prepare *prepare, struct error *err)
{
    struct fold_state *state = calloc(1, sizeof(*state));

    (void)err;
    if (state == NULL)
        return STATUS_NO_MEMORY;
    state->count = read_axes(&prepare->call, state->axes);
    prepare->state = state;
    prepare->constants_used = 1 << 0;
    return STATUS_OK;
}

/* Where block element `element` at place `place` falls in the image; -1: into the padding. */
static int64_t image_index(const struct fold_state *state, int64_t element, int64_t place)
{
    int64_t index = 0, stride = 1;

    for (size_t i = state->count; i-- > 0;) {
        const struct fold_axis *axis = &state->axes[i];
        int64_t at = place % axis->places * axis->stride + element % axis->block * axis->dilation -
                     axis->pad;

        if (at < 0 || at >= axis->image)
            return -1;
        index += at * stride;
        stride *= axis->image;
        place /= axis->places;
        element /= axis->block;
    }
    return index;
}

static enum status run_col2im(const void *opaque, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    const struct fold_state *state = opaque;
    const struct shape *in = &call->in[0]->shape, *out = &call->out[0]->shape;
    int64_t planes = out->dims[0] * out->dims[1], image = shape_product(out, 2, out->rank);
    int64_t places = in->dims[2], elements = in->dims[1] / (out->dims[1] > 0 ? out->dims[1] : 1);
    const float *from = run->in[0];
    float *to = run->out[0];

    clear(call, run);
    for (int64_t plane = 0; plane < planes; plane++)
        for (int64_t element = 0; element < elements; element++)
            for (int64_t place = 0; place < places; place++) {
                int64_t index = image_index(state, element, place);

                if (index >= 0)
                    to[plane * image + index] +=
                        from[(plane * elements + element) * places + place];
            }
    return STATUS_OK;
}

const struct kernel kernel_col2im_loop = {
    .name = "cpu:loop",
    .refuses = refuse_col2im,
    .prepare = prepare_col2im,
    .enqueue = run_col2im,
    .release = free,
};

/* ---- MaxUnpool: the indices count through the whole result ---- */

static const char *refuse_unpool(const struct kernel_call *call)
{
    if (call->inputs > 2 && call->in[2] != NULL)
        return "an output_shape: what the indices count through is told differently";
    return NULL;
}

static enum status run_unpool(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    int64_t count = shape_count(&call->in[0]->shape), room = shape_count(&call->out[0]->shape);
    size_t bytes = dtype_bytes(call->in[0]->dtype);

    (void)state;
    clear(call, run);
    for (int64_t i = 0; i < count; i++) {
        int64_t index = read_index(DTYPE_INT64, run->in[1], i);

        if (index < 0 || index >= room)
            return STATUS_INVALID;
        memcpy((char *)run->out[0] + (size_t)index * bytes,
               (const char *)run->in[0] + (size_t)i * bytes, bytes);
    }
    return STATUS_OK;
}

const struct kernel kernel_max_unpool_loop = {
    .name = "cpu:loop", .refuses = refuse_unpool, .enqueue = run_unpool};
