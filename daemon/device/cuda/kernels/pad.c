/* Pad in all modes: each element from its place in the input, or the value. */
#include <stdlib.h>

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/move.h"
#include "device/cuda/kernels/rows.h"
#include "ops/movement.h"

static enum status amounts_of(const struct kernel_call *call, int64_t before[SHAPE_MAX_RANK],
                              int64_t after[SHAPE_MAX_RANK], struct error *err)
{
    struct tensor tensors[4];
    const struct tensor *in[4] = {NULL};

    call_tensors(call, tensors, in);
    return pad_amounts(in, before, after, err);
}

static const char *refuse_pad(const struct kernel_call *call)
{
    const char *unknown = refuse_unknown_values(call, 1 << 1 | 1 << 3);

    return unknown != NULL ? unknown : refuse_strings(call);
}

struct pad_state {
    struct pad pad;
    int64_t from_bytes;
};

static enum status prepare_pad(struct kernel_prepare *prepare, struct error *err)
{
    static const enum pad_how ways[] = {[PAD_CONSTANT] = PAD_BY_VALUE,
                                        [PAD_REFLECT] = PAD_BY_REFLECTION,
                                        [PAD_EDGE] = PAD_BY_EDGE,
                                        [PAD_WRAP] = PAD_BY_WRAPPING};
    const struct kernel_call *call = &prepare->call;
    const struct operand *in = call->in[0], *out = call->out[0];
    int64_t before[SHAPE_MAX_RANK], after[SHAPE_MAX_RANK];
    int64_t to[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK], start = 0;
    struct axes axes = {.operands = 2};
    struct walk_strides strides[2];
    struct pad_state *state;

    TRY(amounts_of(call, before, after, err));
    state = prepare_state(prepare, sizeof(*state), err);
    if (state == NULL)
        return STATUS_NO_MEMORY;
    operand_strides(in, from);
    operand_strides(out, to);
    for (size_t i = 0; i < out->shape.rank; i++) {
        size_t axis = operand_walked_axis(out, i);
        int64_t cut = before[axis] < 0 ? -before[axis] : 0;
        int64_t cut_after = after[axis] < 0 ? -after[axis] : 0;

        axes_add(&axes, out->shape.dims[axis], (const int64_t[]){to[axis], from[axis]});
        state->pad.before[i] = before[axis] > 0 ? before[axis] : 0;
        state->pad.kept[i] = in->shape.dims[axis] - cut - cut_after;
        start += cut * from[axis];
    }
    if (axes.rank == 0) {
        axes_add(&axes, 1, (const int64_t[]){0, 0});
        state->pad.kept[0] = 1;
    }
    (void)axes_finish(&axes, &state->pad.walk, strides);
    state->pad.to = strides[0];
    state->pad.from = strides[1];
    state->pad.how = ways[((const struct pad_attrs *)call->attrs)->mode];
    state->pad.bytes = (uint32_t)dtype_bytes(in->dtype);
    state->from_bytes = start * (int64_t)state->pad.bytes;
    return STATUS_OK;
}

static enum status run_pad(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct pad_state *state = arg;
    struct pad pad = state->pad;

    pad.to_data = run->out[0];
    pad.from_data = (const char *)run->in[0] + state->from_bytes;
    pad.value = run_input(call, run, 2);
    return cuda_status(cuda_pad(&pad, cuda_stream(run)));
}

const struct kernel kernel_pad_strided = {
    .name = "cuda:strided",
    .flags = KERNEL_STRIDED,
    .layouts = ANY_LAYOUT,
    .refuses = refuse_pad,
    .prepare = prepare_pad,
    .enqueue = run_pad,
    .release = free,
};
