/* Conv and ConvTranspose by oneDNN: any rank, stride, dilation; weights packed at load.
 *
 * Only with blocked results: for plain ones the library multiplies matrices and divides the sums
 * among the threads, so that their number shows in the last bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/constant.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/onednn/onednn.h"

struct state {
    struct onednn_conv *conv;
    const void *packed;
    struct epilogue epilogue;
    const float *bias; /* NULL: read from the input when there is one */
};

static bool resolve(const struct kernel_call *call, bool transposed,
                    struct conv_geometry *out_geometry)
{
    const struct shape *x = &call->in[CONV_X]->shape, *w = &call->in[CONV_W]->shape;

    if ((transposed ? conv_transpose_resolve(call->attrs, x, w, out_geometry, NULL)
                    : conv_resolve(call->attrs, x, w, out_geometry, NULL)) != STATUS_OK)
        return false;
    window_turn_narrow(&out_geometry->window);
    return true;
}

static const char *refuses_layout(const struct kernel_call *call, const struct conv_geometry *g)
{
    const enum layout x = call->in[CONV_X]->layout;
    const int64_t block = call->device->channel_block;
    const int64_t in = g->in_channels / g->groups, out = g->out_channels / g->groups;

    if (x == LAYOUT_PLAIN && (g->groups > 1 || in > 3))
        return "plain in, blocked out is for at most 3 channels";
    if (g->groups > 1 && !(in == 1 && out == 1) && (in % block != 0 || out % block != 0))
        return "channels of a group are no multiple of the block";
    return NULL;
}

static const struct epilogue *epilogue_of(const struct kernel_call *call, bool transposed)
{
    return transposed ? &((const struct conv_transpose_attrs *)call->attrs)->epilogue
                      : &((const struct conv_attrs *)call->attrs)->epilogue;
}

static struct onednn_conv_spec make_spec(const struct kernel_call *call, bool transposed,
                                         const struct conv_geometry *geometry)
{
    return (struct onednn_conv_spec){.geometry = *geometry,
                                     .transposed = transposed,
                                     .x_layout = call->in[CONV_X]->layout,
                                     .y_layout = call->out[0]->layout,
                                     .block = call->device->channel_block,
                                     .isa = cpu_isa_of(call->device),
                                     .has_bias = kernel_input(call, CONV_BIAS) != NULL,
                                     .epilogue = *epilogue_of(call, transposed),
                                     .lanes = call->device->lanes,
                                     .threads = call->threads};
}

static const char *refuses(const struct kernel_call *call, bool transposed)
{
    const struct operand *bias = kernel_input(call, CONV_BIAS);
    struct onednn_conv_spec spec;
    struct conv_geometry geometry;
    const char *refusal;

    if (call->in[CONV_X]->dtype != DTYPE_FLOAT)
        return "only float";
    if (shape_count(&call->out[0]->shape) == 0)
        return "no elements";
    if (call->in[CONV_W]->constant == NULL)
        return "weights are computed at run time";
    if (!resolve(call, transposed, &geometry))
        return "geometry";
    if (bias != NULL && bias->constant == NULL)
        return "the bias is computed at run time";
    if (conv_has_more(call->op, call->attrs))
        return "a prelude or a shuffle";
    refusal = refuses_layout(call, &geometry);
    if (refusal != NULL)
        return refusal;
    spec = make_spec(call, transposed, &geometry);
    return onednn_conv_is_possible(&spec) ? NULL : "oneDNN has only reference code for it";
}

static const char *refuses_conv(const struct kernel_call *call)
{
    return refuses(call, false);
}

static const char *refuses_transpose(const struct kernel_call *call)
{
    return refuses(call, true);
}

static void release(void *arg)
{
    struct state *state = arg;

    if (state != NULL)
        onednn_conv_destroy(state->conv);
    free(state);
}

static enum status share_weights(struct kernel_prepare *prepare, struct state *state)
{
    const struct operand *w = prepare->call.in[CONV_W];
    const char *format = onednn_conv_format(state->conv);
    enum status status = STATUS_OK;
    bool is_new;
    void *packed;

    TRY(weights_share(prepare->weights, w->constant_key, format,
                      onednn_conv_packed_bytes(state->conv), &packed, &is_new));
    if (is_new)
        status = onednn_conv_pack(state->conv, w->constant, packed);
    if (status != STATUS_OK)
        weights_drop(prepare->weights, w->constant_key, format);
    state->packed = packed;
    return status;
}

static enum status prepare(struct kernel_prepare *prepare, bool transposed, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct onednn_conv_spec spec;
    struct conv_geometry geometry;
    struct state *state = calloc(1, sizeof(*state));
    enum status status;

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a convolution");
    (void)resolve(call, transposed, &geometry); /* refuses() saw that it can be */
    spec = make_spec(call, transposed, &geometry);
    state->epilogue = spec.epilogue;
    status = onednn_conv_create(&spec, &state->conv, err);
    if (status == STATUS_OK) {
        status = share_weights(prepare, state);
        if (status == STATUS_OK)
            status = constant_share(prepare, CONV_BIAS, onednn_conv_bias_count(state->conv), false,
                                    1, &state->bias);
        if (status != STATUS_OK)
            (void)error_set(err, status, "no memory for packed weights");
    }
    if (status != STATUS_OK) {
        release(state);
        return status;
    }
    prepare->state = state;
    prepare->scratch_bytes = onednn_conv_scratch_bytes(state->conv);
    prepare->host_bytes = onednn_conv_host_bytes();
    snprintf(prepare->note, sizeof(prepare->note), "%s", onednn_conv_name(state->conv));
    return STATUS_OK;
}

static enum status prepare_conv(struct kernel_prepare *arg, struct error *err)
{
    return prepare(arg, false, err);
}

static enum status prepare_transpose(struct kernel_prepare *arg, struct error *err)
{
    return prepare(arg, true, err);
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *state = arg;
    const bool has_bias = kernel_input(call, CONV_BIAS) != NULL;
    const struct onednn_conv_run conv = {
        .lane = run->lane->index,
        .x = run->in[CONV_X],
        .packed = state->packed,
        .bias = !has_bias             ? NULL
                : state->bias != NULL ? state->bias
                                      : run->in[CONV_BIAS],
        .residual = call->inputs > CONV_RESIDUAL ? run->in[CONV_RESIDUAL] : NULL,
        .y = run->out[0],
        .scratch = run->scratch,
    };

    TRY(onednn_conv_run(state->conv, &conv));
    epilogue_clear_padding(&state->epilogue, run->out[0], call->out[0],
                           call->device->channel_block);
    return STATUS_OK;
}

const struct kernel kernel_conv_dnnl = {
    .name = "cpu:dnnl",
    .flags = KERNEL_IN_PLACE_LAST,
    .layouts = 1u << LAYOUT_BLOCKED,
    .in_layouts = 1u << LAYOUT_PLAIN,
    .refuses = refuses_conv,
    .prepare = prepare_conv,
    .enqueue = enqueue,
    .release = release,
};

const struct kernel kernel_conv_transpose_dnnl = {
    .name = "cpu:dnnl",
    .layouts = 1u << LAYOUT_BLOCKED,
    .refuses = refuses_transpose,
    .prepare = prepare_transpose,
    .enqueue = enqueue,
    .release = release,
};
