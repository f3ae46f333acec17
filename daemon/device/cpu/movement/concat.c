/* Concat and Split: one box a part.  In BLOCKED, parts along the channels must be whole blocks, all
 * but the last, whose padding serves both. */
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "ops/movement.h"

struct part {
    struct move move;
    int64_t whole_bytes; /* where in the whole the part begins */
};

struct parts_state {
    size_t count;
    struct part parts[];
};

/* Why `parts` operands cannot be parts along `axis` in their layout; NULL when they can. */
static const char *refuse_parts(const struct kernel_call *call, const struct operand *const *parts,
                                size_t count, size_t axis)
{
    bool ragged = false;

    if (axis != 1)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (parts[i] == NULL || parts[i]->layout != LAYOUT_BLOCKED)
            continue;
        if (ragged)
            return "channels of a part are no multiple of the block";
        ragged = parts[i]->shape.dims[1] % call->device->channel_block != 0;
    }
    return NULL;
}

/* The box of a part.  `to_whole`: into the whole (Concat), else out of it (Split). */
static void plan_part(struct part *part, const struct geometry *small, const struct geometry *whole,
                      size_t bytes, int64_t whole_start, bool to_whole)
{
    struct move_box box = {.rank = small->rank, .bytes = bytes};

    for (size_t i = 0; i < small->rank; i++) {
        box.dims[i] = small->dims[i];
        box.from[i] = to_whole ? small->strides[i] : whole->strides[i];
        box.to[i] = to_whole ? whole->strides[i] : small->strides[i];
    }
    part->whole_bytes = whole_start * (int64_t)bytes;
    move_plan(&part->move, &box);
}

static enum status make_state(struct kernel_prepare *prepare, size_t count,
                              struct parts_state **out_state)
{
    struct parts_state *state = calloc(1, sizeof(*state) + count * sizeof(state->parts[0]));

    if (state == NULL)
        return STATUS_NO_MEMORY;
    state->count = count;
    prepare->state = state;
    prepare->constants_used = UINT32_MAX; /* any part may be a constant */
    *out_state = state;
    return STATUS_OK;
}

/* ---- Concat ---- */

static const char *refuse_concat(const struct kernel_call *call)
{
    const struct concat_attrs *attrs = call->attrs;

    for (size_t i = 0; i < call->inputs; i++)
        if (call->in[i]->layout != call->out[0]->layout)
            return "a part has another layout than the whole";
    return refuse_parts(call, call->in, call->inputs,
                        shape_axis(&call->out[0]->shape, attrs->axis));
}

static enum status prepare_concat(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct concat_attrs *attrs = call->attrs;
    size_t axis = shape_axis(&call->out[0]->shape, attrs->axis);
    struct geometry whole, small;
    struct parts_state *state;
    int64_t start = 0;

    (void)err;
    TRY(make_state(prepare, call->inputs, &state));
    geometry_of(call->out[0], call->device, &whole);
    for (size_t i = 0; i < call->inputs; i++) {
        geometry_of(call->in[i], call->device, &small);
        plan_part(&state->parts[i], &small, &whole, dtype_bytes(call->out[0]->dtype),
                  start * whole.strides[axis], true);
        start += small.dims[axis];
    }
    return STATUS_OK;
}

static enum status run_concat(const void *opaque, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    const struct parts_state *state = opaque;

    for (size_t i = 0; i < state->count; i++)
        move_run(&state->parts[i].move, run->in[i],
                 (char *)run->out[0] + state->parts[i].whole_bytes, call->threads);
    return STATUS_OK;
}

const struct kernel kernel_concat_move = {
    .name = "cpu:move",
    .flags = KERNEL_STRIDED,
    .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED | 1 << LAYOUT_NHWC,
    .refuses = refuse_concat,
    .prepare = prepare_concat,
    .enqueue = run_concat,
    .release = free,
};

/* ---- Split ---- */

static const char *refuse_split(const struct kernel_call *call)
{
    const struct split_attrs *attrs = call->attrs;
    const struct operand *in = call->in[0];
    const char *unknown = refuse_unknown_values(call, 1 << 1);
    size_t axis = shape_axis(&in->shape, attrs->axis);

    if (unknown != NULL)
        return unknown;
    for (size_t i = 0; i < call->outputs; i++) {
        if (call->out[i] == NULL && axis == 1 && in->layout == LAYOUT_BLOCKED)
            return "an unwanted part hides where the next begins";
        if (call->out[i] != NULL && call->out[i]->layout != in->layout)
            return "a part has another layout than the whole";
    }
    return refuse_parts(call, call->out, call->outputs, axis);
}

static void plan_parts(struct parts_state *state, const struct kernel_call *call, size_t axis,
                       const int64_t *lengths)
{
    const struct operand *in = call->in[0];
    struct geometry whole, small;
    int64_t start = 0;

    geometry_of(in, call->device, &whole);
    for (size_t i = 0; i < call->outputs; i++) {
        if (call->out[i] == NULL) {
            start += lengths[i];
            continue;
        }
        geometry_of(call->out[i], call->device, &small);
        plan_part(&state->parts[i], &small, &whole, dtype_bytes(in->dtype),
                  start * whole.strides[axis], false);
        start += small.dims[axis]; /* whole blocks, in BLOCKED */
    }
}

static enum status prepare_split(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct split_attrs *attrs = call->attrs;
    const struct operand *in = call->in[0];
    bool given = call->inputs > 1 && call->in[1] != NULL;
    struct tensor sizes = given ? operand_tensor(call->in[1]) : (struct tensor){0};
    size_t axis = shape_axis(&in->shape, attrs->axis);
    struct parts_state *state;
    enum status status;
    int64_t *lengths = calloc(call->outputs, sizeof(*lengths));

    if (lengths == NULL)
        return STATUS_NO_MEMORY;
    status = split_lengths(attrs, in->shape.dims[axis], given ? &sizes : NULL, call->outputs,
                           lengths, err);
    if (status == STATUS_OK)
        status = make_state(prepare, call->outputs, &state);
    if (status == STATUS_OK)
        plan_parts(state, call, axis, lengths);
    free(lengths);
    return status;
}

static enum status run_split(const void *opaque, const struct kernel_call *call,
                             const struct kernel_run *run)
{
    const struct parts_state *state = opaque;

    for (size_t i = 0; i < state->count; i++)
        if (call->out[i] != NULL)
            move_run(&state->parts[i].move, (const char *)run->in[0] + state->parts[i].whole_bytes,
                     run->out[i], call->threads);
    return STATUS_OK;
}

const struct kernel kernel_split_move = {
    .name = "cpu:move",
    .flags = KERNEL_STRIDED,
    .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED | 1 << LAYOUT_NHWC,
    .refuses = refuse_split,
    .prepare = prepare_split,
    .enqueue = run_split,
    .release = free,
};
