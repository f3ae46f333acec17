/* Conv and ConvTranspose through cuDNN.
 *
 * A convolution takes residual and bias along, and ReLU where the engine keeps NaN (nan_trial.h);
 * what else is fused to it (another activation, a residual behind it), and everything behind a
 * transposed one, is a pointwise program over the result.  Channels last it may be part of the
 * convolution all the same, in an engine that was compiled for it (compiled.h).  In channels-last
 * the weights are packed to channels last, too.  A second plan stands ready for addresses that are
 * aligned to elements only (views into other tensors).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/dnn/compiled.h"
#include "device/cuda/dnn/operands.h"
#include "device/cuda/kernels/epilogue_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/conv.h"

struct conv_state {
    struct dnn_plan plan[2]; /* [1]: for addresses out of line */
    bool relu;               /* both plans do it */
    bool fused;              /* plan[0] does what `after` does, too */
    void *weights;           /* packed, the model's; NULL: as they come */
    void *zeros;             /* for a convolution without a bias; the model's */
    struct epilogue_program after;
};

static const struct epilogue *epilogue_of(const struct kernel_call *call)
{
    const struct conv_attrs *conv = call->attrs;
    const struct conv_transpose_attrs *turned = call->attrs;

    return call->op == &op_conv_transpose ? &turned->epilogue : &conv->epilogue;
}

/* Whether the residual comes behind an activation: it is added by the program then. */
static bool is_behind(const struct epilogue *epilogue)
{
    return epilogue->has_residual && epilogue->residual_after && epilogue->act != ACT_NONE;
}

/* ---- from the operator to the graph ---- */

/* NULL, and the graph, or why not. */
static const char *describe(const struct kernel_call *call, struct dnn_graph *graph)
{
    const struct operand *x = call->in[CONV_X], *w = call->in[CONV_W];
    const struct epilogue *epilogue = epilogue_of(call);
    bool transposed = call->op == &op_conv_transpose;
    struct conv_geometry g;
    enum status status = transposed
                             ? conv_transpose_resolve(call->attrs, &x->shape, &w->shape, &g, NULL)
                             : conv_resolve(call->attrs, &x->shape, &w->shape, &g, NULL);
    const char *why;

    if (status != STATUS_OK)
        return "shapes do not fit";
    if (conv_has_more(call->op, call->attrs))
        return "a prelude or a shuffle";
    *graph = (struct dnn_graph){.kind = transposed ? DNN_TRANSPOSED : DNN_CONV};
    dnn_graph_window(graph, &g.window);
    why = dnn_graph_tensors(graph, call);
    if (why != NULL)
        return why;
    dnn_graph_sizes(&w->shape, graph->w);
    if (shape_count(&w->shape) == 0 || !dnn_graph_fits(graph))
        return "sizes that cuDNN counts in another way";
    if (w->constant == NULL && w->layout != x->layout)
        return "computed weights in another layout";
    graph->has_z = !transposed && epilogue->has_residual && !is_behind(epilogue);
    graph->relu = !transposed && epilogue->act == ACT_RELU;
    return NULL;
}

/* ---- what is kept on the device ---- */

static void to_channels_last(const struct dnn_graph *graph, const char *from, char *to)
{
    size_t bytes = dtype_bytes(graph->dtype);
    int64_t taps = graph->w[2] * graph->w[3] * graph->w[4], channels = graph->w[1];

    for (int64_t m = 0; m < graph->w[0]; m++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t t = 0; t < taps; t++)
                memcpy(to + (size_t)((m * taps + t) * channels + c) * bytes,
                       from + (size_t)((m * channels + c) * taps + t) * bytes, bytes);
}

static enum status write_packed(struct weights_cache *cache, const struct dnn_graph *graph,
                                const void *from, void *packed, size_t bytes)
{
    char *turned = malloc(bytes);
    enum status status;

    if (turned == NULL)
        return STATUS_NO_MEMORY;
    to_channels_last(graph, from, turned);
    status = weights_write(cache, packed, turned, bytes);
    free(turned);
    return status;
}

/* Where weights lie in another order than they come in, in the order of the graph. */
static enum status pack_weights(struct kernel_prepare *prepare, const struct dnn_graph *graph,
                                void **out_weights)
{
    static const char format[] = "cudnn channels last";
    const struct operand *w = prepare->call.in[CONV_W];
    size_t bytes = (size_t)shape_count(&w->shape) * dtype_bytes(w->dtype);
    enum status status;
    bool is_new;

    if (w->constant == NULL || !graph->channels_last ||
        graph->w[2] * graph->w[3] * graph->w[4] == 1 || graph->w[1] == 1)
        return STATUS_OK;
    TRY(weights_share(prepare->weights, w->constant_key, format, bytes, out_weights, &is_new));
    if (is_new) {
        status = write_packed(prepare->weights, graph, w->constant, *out_weights, bytes);
        if (status != STATUS_OK) {
            weights_drop(prepare->weights, w->constant_key, format);
            return status;
        }
    }
    prepare->constants_used &= ~(1u << CONV_W);
    return STATUS_OK;
}

/* A bias for convolutions that have none, shared by all of the model with as many channels. */
static enum status share_zeros(struct kernel_prepare *prepare, const struct dnn_graph *graph,
                               void **out_zeros)
{
    static const _Alignas(64) char key[64];
    size_t bytes = (size_t)graph->y[1] * dtype_bytes(graph->dtype);
    char format[32];
    enum status status;
    void *zeros;
    bool is_new;

    (void)snprintf(format, sizeof(format), "zeros %zu", bytes);
    TRY(weights_share(prepare->weights, key, format, bytes, out_zeros, &is_new));
    if (!is_new)
        return STATUS_OK;
    zeros = calloc(1, bytes);
    status = zeros == NULL ? STATUS_NO_MEMORY
                           : weights_write(prepare->weights, *out_zeros, zeros, bytes);
    free(zeros);
    if (status != STATUS_OK)
        weights_drop(prepare->weights, key, format);
    return status;
}

/* ---- the row ---- */

static bool fill_after(struct conv_state *state, const struct kernel_call *call)
{
    struct epilogue epilogue = *epilogue_of(call);
    const struct operand *out = call->out[0], *bias = call_input(call, CONV_BIAS);
    bool transposed = call->op == &op_conv_transpose;
    bool adds = epilogue.has_residual && (transposed || is_behind(&epilogue));
    struct operand row = {.dtype = out->dtype, .shape = out->shape};

    for (size_t i = 0; i < row.shape.rank; i++)
        row.shape.dims[i] = i == 1 ? out->shape.dims[1] : 1;
    if (state->relu)
        epilogue.act = ACT_NONE;
    if (!epilogue_program_make(&state->after, &epilogue, out,
                               transposed && bias != NULL ? &row : NULL,
                               adds ? call->in[CONV_RESIDUAL] : NULL))
        return false;
    if (!state->fused)
        epilogue_program_fuse(&state->after, call->device);
    return true;
}

static void release(void *prepared)
{
    struct conv_state *state = prepared;

    dnn_row_drop(&state->plan[0]);
    dnn_row_drop(&state->plan[1]);
    epilogue_program_free(&state->after);
    free(state);
}

/* Whether the whole epilogue can be part of an engine that is compiled: cuDNN has such for images
 * channels last, on tensor cores. */
static bool find_fusion(const struct kernel_call *call, const struct dnn_graph *graph,
                        struct dnn_graph *fusion)
{
    const struct epilogue *epilogue = epilogue_of(call);

    if (graph->kind != DNN_CONV || !graph->channels_last || !dtype_is_narrow(graph->dtype) ||
        epilogue->act == ACT_NONE || (epilogue->act == ACT_RELU && !is_behind(epilogue)) ||
        !dnn_knows_activation(epilogue->act, epilogue->a))
        return false;
    *fusion = *graph;
    fusion->compiled = true;
    fusion->has_z = epilogue->has_residual;
    fusion->z_behind = is_behind(epilogue);
    fusion->act = graph->relu ? ACT_NONE : epilogue->act;
    return true;
}

/* What was compiled for the whole epilogue; `why`: what became of it.  STATUS_UNSUPPORTED: another
 * plan will have to do. */
static enum status make_fusion(struct kernel_prepare *prepare, struct conv_state *state,
                               const struct dnn_graph *fusion, const struct dnn *dnn,
                               struct error *why)
{
    TRY(dnn_compiled_make(cuda_device_of(prepare->call.device), dnn, fusion, &state->plan[0], why));
    if (!dnn_plan_keeps_nan(&state->plan[0], fusion, prepare->weights)) {
        dnn_plan_free(&state->plan[0]);
        return error_set(why, STATUS_UNSUPPORTED, "compiled, but it loses NaN");
    }
    (void)snprintf(why->text, sizeof(why->text), "compiled");
    state->fused = true;
    return STATUS_OK;
}

/* A plan in state->plan[index], without the ReLU where it would lose NaN. */
static enum status make_plan(struct kernel_prepare *prepare, struct conv_state *state, size_t index,
                             struct dnn_graph *graph, const struct dnn *dnn, struct error *err)
{
    TRY(dnn_plan_make(dnn, graph, &state->plan[index], err));
    if (dnn_plan_keeps_nan(&state->plan[index], graph, prepare->weights))
        return STATUS_OK;
    dnn_plan_free(&state->plan[index]);
    graph->relu = false;
    return dnn_plan_make(dnn, graph, &state->plan[index], err);
}

/* The plans for addresses in line and out of line, which do the same; `why`: what became of a
 * fusion, or empty. */
static enum status make_plans(struct kernel_prepare *prepare, struct conv_state *state,
                              struct dnn_graph *graph, const struct dnn *dnn, struct error *why,
                              struct error *err)
{
    struct dnn_graph fusion, unaligned;
    enum status status = STATUS_UNSUPPORTED;

    why->text[0] = '\0';
    if (find_fusion(&prepare->call, graph, &fusion))
        status = make_fusion(prepare, state, &fusion, dnn, why);
    if (status == STATUS_UNSUPPORTED)
        TRY(make_plan(prepare, state, 0, graph, dnn, err));
    else if (status != STATUS_OK)
        return error_set(err, status, "%s", why->text);
    unaligned = *graph;
    unaligned.alignment = (int64_t)dtype_bytes(graph->dtype);
    TRY(make_plan(prepare, state, 1, &unaligned, dnn, err));
    state->relu = unaligned.relu;
    if (state->fused || unaligned.relu == graph->relu)
        return STATUS_OK;
    graph->relu = false;
    dnn_plan_free(&state->plan[0]);
    return dnn_plan_make(dnn, graph, &state->plan[0], err);
}

static enum status fill(struct kernel_prepare *prepare, void *prepared, struct dnn_graph *graph,
                        const struct dnn *dnn, struct error *err)
{
    struct conv_state *state = prepared;
    struct error fusion;
    int64_t workspace;

    TRY(make_plans(prepare, state, graph, dnn, &fusion, err));
    TRY(pack_weights(prepare, graph, &state->weights));
    if (graph->kind == DNN_CONV && call_input(&prepare->call, CONV_BIAS) == NULL)
        TRY(share_zeros(prepare, graph, &state->zeros));
    if (!fill_after(state, &prepare->call))
        return error_set(err, STATUS_UNSUPPORTED, "an activation over too many dimensions");
    workspace = state->plan[0].workspace_bytes > state->plan[1].workspace_bytes
                    ? state->plan[0].workspace_bytes
                    : state->plan[1].workspace_bytes;
    prepare->scratch_bytes = (size_t)workspace;
    prepare->batch_inexact = state->plan[0].inexact || state->plan[1].inexact;
    (void)snprintf(prepare->note, sizeof(prepare->note), "%s engine %lld%s%s%.48s",
                   graph->dtype == DTYPE_FLOAT && graph->precision == CUDA_TF32
                       ? "tf32"
                       : dtype_name(graph->dtype),
                   (long long)state->plan[0].engine, graph->channels_last ? " nhwc" : "",
                   fusion.text[0] != '\0' ? ", fusion: " : "", fusion.text);
    return STATUS_OK;
}

static const struct dnn_row row = {.describe = describe,
                                   .state_bytes = sizeof(struct conv_state),
                                   .fill = fill,
                                   .release = release};

static const char *refuses(const struct kernel_call *call)
{
    return dnn_row_refuses(&row, call);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    return dnn_row_prepare(&row, prepare, err);
}

static void describe_after(const void *prepared, char *text, size_t room)
{
    const struct conv_state *state = prepared;

    if (state->fused)
        text[0] = '\0';
    else
        epilogue_program_describe(&state->after, text, room);
}

static bool in_line(const struct dnn_operands *operands, const void *residual)
{
    uintptr_t all = (uintptr_t)residual | (uintptr_t)operands->x | (uintptr_t)operands->w |
                    (uintptr_t)operands->z | (uintptr_t)operands->bias | (uintptr_t)operands->y;

    return all % DNN_ALIGNMENT == 0;
}

static enum status run(const void *prepared, const struct kernel_call *call,
                       const struct kernel_run *run)
{
    const struct conv_state *state = prepared;
    const void *bias = run_input(call, run, CONV_BIAS);
    const struct epilogue *epilogue = epilogue_of(call);
    const void *residual = epilogue->has_residual ? run_input(call, run, CONV_RESIDUAL) : NULL;
    bool transposed = call->op == &op_conv_transpose;
    bool adds = transposed || is_behind(epilogue);
    bool fused;
    struct dnn_operands operands = {.x = run->in[CONV_X],
                                    .w = state->weights != NULL ? state->weights : run->in[CONV_W],
                                    .z = adds ? NULL : residual,
                                    .bias = transposed             ? NULL
                                            : state->zeros != NULL ? state->zeros
                                                                   : bias,
                                    .y = run->out[0]};

    fused = state->fused && in_line(&operands, residual);
    if (fused)
        operands.z = residual;
    TRY(dnn_plan_run(&state->plan[in_line(&operands, residual) ? 0 : 1], &operands, run->scratch,
                     run->lane->index, cuda_stream(run)));
    if (fused)
        return STATUS_OK;
    return epilogue_program_run(&state->after, run, run->out[0], transposed ? bias : NULL,
                                adds ? residual : NULL);
}

static const char *refuses_last(const struct kernel_call *call)
{
    return dtype_is_narrow(call->in[CONV_X]->dtype) ? refuses(call)
                                                    : "float32 is as well off in plain images";
}

/* Nothing says that engines read the residual before they write the result: never in place.
 * Channels last is the better row in 16 bits, where cuDNN's engines turn plain images in a
 * workspace. */
#define CONV(operator, variant, layouts_taken, refusal)                                            \
    const struct kernel kernel_##operator##_##variant = {                                          \
        .name = "cuda:cudnn",                                                                      \
        .layouts = (layouts_taken),                                                                \
        .refuses = (refusal),                                                                      \
        .prepare = prepare,                                                                        \
        .enqueue = run,                                                                            \
        .release = release,                                                                        \
        .describe = describe_after,                                                                \
    };
CONV(conv, dnn, ANY_LAYOUT, refuses)
CONV(conv, dnn_last, 1 << LAYOUT_NHWC, refuses_last)
CONV(conv_transpose, dnn, ANY_LAYOUT, refuses)
CONV(conv_transpose, dnn_last, 1 << LAYOUT_NHWC, refuses_last)
