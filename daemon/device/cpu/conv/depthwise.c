/* Depthwise Conv on the blocked layout: which ones, and how the weights are packed. */
#include "device/cpu/conv/depthwise.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/constant.h"
#include "device/cpu/conv/phases.h"
#include "device/cpu/team.h"
#include "ops/mix_channels.h"

extern const struct depthwise_ops depthwise_ops_base, depthwise_ops_avx2, depthwise_ops_avx512;

enum {
    SMALL_PLANE_BYTES = 6 << 10, /* with the zeros around it: stays in L1 */
    ROWS_EACH = 3,               /* of a member, at least */
    ROWS_ALIKE = 16              /* rows that are walked together, some columns at a time */
};

const struct depthwise_ops *depthwise_ops_for(enum cpu_isa isa)
{
    static const struct depthwise_ops *const table[CPU_ISA_COUNT] = {
        &depthwise_ops_base, &depthwise_ops_avx2, &depthwise_ops_avx512};

    return table[isa];
}

struct state {
    struct depthwise plan;
    struct conv_step step;
};

const char *depthwise_refuses(const struct kernel_call *call)
{
    const struct operand *bias = kernel_input(call, CONV_BIAS);
    struct phases_form form;
    const struct conv_geometry *g = &form.geometry;

    if (call->in[CONV_X]->dtype != DTYPE_FLOAT)
        return "only float";
    if (call->in[CONV_W]->constant == NULL || (bias != NULL && bias->constant == NULL))
        return "weights are computed at run time";
    if (call->in[CONV_X]->layout != LAYOUT_BLOCKED)
        return "plain in";
    if (conv_has_prelude(call->op, call->attrs))
        return "a prelude";
    if (((const struct conv_attrs *)call->attrs)->x_shuffle != 0)
        return "shuffled channels";
    if (shape_count(&call->out[0]->shape) == 0)
        return "no elements";
    if (!phases_resolve(call, &form))
        return "more than two dimensions";
    if (g->groups == 1 || g->groups != g->in_channels || g->groups != g->out_channels)
        return "not depthwise";
    return NULL;
}

/* Whether a window hangs over an edge. */
static bool is_padded(const struct depthwise *p)
{
    for (size_t i = 0; i < 2; i++)
        if (p->pad[i] > 0 ||
            (p->out[i] - 1) * p->stride[i] + (p->kernel[i] - 1) * p->dilation[i] >= p->in[i])
            return true;
    return false;
}

/* Places of a row whose windows hang over no edge. */
static void find_insides(struct depthwise *p)
{
    const int64_t stride = p->stride[1], reach = (p->kernel[1] - 1) * p->dilation[1];
    const int64_t last = p->in[1] - 1 - reach + p->pad[1]; /* leftmost cell, at most */
    const int64_t end = last < 0 ? 0 : last / stride + 1;

    p->inside = (p->pad[1] + stride - 1) / stride;
    p->insides = (end < p->out[1] ? end : p->out[1]) - p->inside;
    if (p->insides <= 0)
        p->inside = p->out[1], p->insides = 0;
}

void depthwise_make_plan(const struct kernel_call *call, struct depthwise *p)
{
    const int64_t block = depthwise_ops_for(cpu_isa_of(call->device))->block;
    struct phases_form form;
    const struct conv_geometry *g = &form.geometry;
    const struct window *w = &g->window;
    int64_t padded[2];

    (void)phases_resolve(call, &form); /* depthwise_refuses() saw that it can be */
    *p = (struct depthwise){.epilogue = form.epilogue, .channels = g->groups};
    p->filter_shuffle = ((const struct conv_attrs *)call->attrs)->filter_shuffle;
    p->blocks = (g->groups + block - 1) / block;
    p->planes = g->batch * p->blocks;
    for (size_t i = 0; i < 2; i++) {
        p->in[i] = w->in[i], p->out[i] = w->out[i], p->kernel[i] = w->kernel[i];
        p->stride[i] = w->stride[i], p->dilation[i] = w->dilation[i], p->pad[i] = w->pad_begin[i];
        padded[i] = (w->out[i] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1;
    }
    find_insides(p);
    p->alike = ROWS_ALIKE;
    if (is_padded(p) &&
        padded[0] * padded[1] * block * (int64_t)sizeof(float) <= SMALL_PLANE_BYTES) {
        p->padded[0] = padded[0];
        p->padded[1] = padded[1];
    }
    p->members = team_most(call->threads, (double)(p->planes * p->out[0] * p->out[1] * block *
                                                   (p->kernel[0] * p->kernel[1] + 8)) /
                                              40);
    p->by_planes = g->batch * p->out[0] < ROWS_EACH * (int64_t)p->members;
}

struct packing {
    const struct depthwise *plan;
    int64_t block;
};

/* [block][tap][channel] */
static enum status pack(const void *arg, const float *weights, float *packed)
{
    const struct packing *packing = arg;
    const struct depthwise *p = packing->plan;
    const int64_t block = packing->block, taps = p->kernel[0] * p->kernel[1];

    memset(packed, 0, (size_t)(p->blocks * taps * block) * sizeof(float));
    for (int64_t c = 0; c < p->channels; c++) {
        const int64_t filter =
            p->filter_shuffle != 0 ? shuffled_channel(c, p->channels, p->filter_shuffle) : c;

        for (int64_t i = 0; i < taps; i++)
            packed[(c / block * taps + i) * block + c % block] = weights[filter * taps + i];
    }
    return STATUS_OK;
}

enum status depthwise_share(struct kernel_prepare *prepare, const struct depthwise *p,
                            struct conv_step *step)
{
    const struct depthwise_ops *ops = depthwise_ops_for(cpu_isa_of(prepare->call.device));
    const struct packing packing = {p, ops->block};
    const int64_t channels = p->blocks * ops->block;
    char format[64];

    *step = (struct conv_step){
        .epilogue = &p->epilogue, .plan = p, .run = ops->run, .members = p->members};
    snprintf(format, sizeof(format), "depthwise by %" PRId64 " %" PRId64, ops->block,
             p->filter_shuffle);
    return conv_step_share(prepare, format,
                           (size_t)(channels * p->kernel[0] * p->kernel[1]) * sizeof(float), pack,
                           &packing, (size_t)channels, step);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    struct state *state = calloc(1, sizeof(*state));
    enum status status = STATUS_NO_MEMORY;
    const enum cpu_isa isa = cpu_isa_of(prepare->call.device);

    if (state != NULL) {
        depthwise_make_plan(&prepare->call, &state->plan);
        status = depthwise_share(prepare, &state->plan, &state->step);
    }
    if (status != STATUS_OK) {
        free(state);
        return error_set(err, status, "no memory for packed weights");
    }
    prepare->state = state;
    prepare->host_bytes = sizeof(*state);
    prepare->scratch_bytes = (size_t)(state->plan.members * state->plan.padded[0] *
                                      state->plan.padded[1] * depthwise_ops_for(isa)->block) *
                             sizeof(float);
    snprintf(prepare->note, sizeof(prepare->note), "depthwise%s, %s",
             state->plan.padded[0] > 0 ? ", padded" : "", cpu_isa_name(isa));
    return STATUS_OK;
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *state = arg;

    return conv_step_run(&state->step, call, run);
}

const struct kernel kernel_conv_depthwise = {
    .name = "cpu:depthwise",
    .flags = KERNEL_IN_PLACE_LAST,
    .layouts = 1u << LAYOUT_BLOCKED,
    .refuses = depthwise_refuses,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};
