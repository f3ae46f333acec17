/* BatchNormalization that no convolution took: x * scale' + shift', one pair a channel. */
#include <math.h>
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/flat.h"
#include "device/cpu/team.h"
#include "device/cpu/wide.h"
#include "ops/normalize.h"

struct batch_norm_state {
    const struct loops *loops;
    bool doubles;
    double epsilon;
    size_t batch, channels, places;
    size_t block; /* channels that lie side by side: of the blocked layout, or all of a matrix; 0:
                     none */
    size_t wide_bytes;
};

struct batch_norm_job {
    const struct batch_norm_state *state;
    const void *x;
    void *y;
    double *factors; /* padded to whole blocks with zeros, as `shifts` */
    double *shifts;
    float *float_factors;
    float *float_shifts;
};

static size_t padded_channels(const struct batch_norm_state *state)
{
    size_t block = state->block > 0 ? state->block : 1;

    return (state->channels + block - 1) / block * block;
}

static double parameter(const struct batch_norm_state *state, const void *const *in, size_t input,
                        size_t channel)
{
    return state->doubles ? ((const double *)in[input])[channel]
                          : (double)((const float *)in[input])[channel];
}

static void fold_parameters(const struct batch_norm_job *job, const void *const *in)
{
    const struct batch_norm_state *state = job->state;

    for (size_t c = 0; c < padded_channels(state); c++) {
        bool real = c < state->channels;
        double variance = real ? parameter(state, in, 4, c) : 1;
        double factor = real ? parameter(state, in, 1, c) / sqrt(variance + state->epsilon) : 0;

        job->factors[c] = factor;
        job->shifts[c] =
            real ? parameter(state, in, 2, c) - parameter(state, in, 3, c) * factor : 0;
        job->float_factors[c] = (float)factor;
        job->float_shifts[c] = (float)job->shifts[c];
    }
}

/* A unit is the places of one channel, or of one block of channels. */
static void run_unit(const struct batch_norm_job *job, size_t unit)
{
    const struct batch_norm_state *state = job->state;
    size_t width = state->block > 0 ? state->block : 1, length = state->places * width;
    size_t channel = unit % (padded_channels(state) / width) * width;
    const float *x = (const float *)job->x + unit * length;
    float *y = (float *)job->y + unit * length;

    if (state->doubles)
        for (size_t i = 0; i < length; i++)
            ((double *)job->y)[unit * length + i] =
                ((const double *)job->x)[unit * length + i] * job->factors[channel] +
                job->shifts[channel];
    else if (state->block > 0)
        state->loops->affine_columns(x, y, state->places, width, job->float_factors + channel,
                                     job->float_shifts + channel);
    else
        state->loops->affine_row(x, y, length, 0, job->float_factors[channel],
                                 job->float_shifts[channel]);
}

static void run_units(void *arg, unsigned member, unsigned members)
{
    const struct batch_norm_job *job = arg;
    const struct batch_norm_state *state = job->state;
    size_t width = state->block > 0 ? state->block : 1, from, to;

    team_share(state->batch * padded_channels(state) / width, member, members, &from, &to);
    for (size_t i = from; i < to; i++)
        run_unit(job, i);
}

static const char *refuses(const struct kernel_call *call)
{
    bool doubles = call->in[0]->dtype == DTYPE_DOUBLE;

    for (size_t i = 1; i < 5; i++)
        if ((call->in[i]->dtype == DTYPE_DOUBLE) != doubles)
            return "doubles and other types together";
    if (doubles && call->in[0]->layout != LAYOUT_PLAIN)
        return "doubles only in the plain layout";
    return NULL;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct batch_norm_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;
    struct batch_norm_state *state = calloc(1, sizeof(*state));

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    state->loops = loops_for(call->device);
    state->doubles = call->in[0]->dtype == DTYPE_DOUBLE;
    state->epsilon = (double)attrs->epsilon;
    state->batch = shape->rank > 0 ? (size_t)shape->dims[0] : 1;
    state->channels = shape->rank > 1 ? (size_t)shape->dims[1] : 1;
    state->places = shape->rank > 1 ? (size_t)shape_product(shape, 2, shape->rank) : 1;
    if (call->in[0]->layout == LAYOUT_BLOCKED)
        state->block = call->device->channel_block;
    else if (state->places == 1 && !state->doubles)
        state->block = state->channels;
    state->wide_bytes = wide_scratch_bytes(call);
    prepare->scratch_bytes =
        state->wide_bytes + padded_channels(state) * 2 * (sizeof(double) + sizeof(float));
    prepare->constants_used = 31;
    prepare->state = state;
    return STATUS_OK;
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct batch_norm_state *state = arg;
    struct batch_norm_job job = {.state = state};
    size_t channels = padded_channels(state);
    const void *in[WIDE_OPERANDS];
    void *out[WIDE_OPERANDS];

    wide_open(call, run, in, out);
    job.x = in[0];
    job.y = out[0];
    job.factors = (double *)(void *)((char *)run->scratch + state->wide_bytes);
    job.shifts = job.factors + channels;
    job.float_factors = (float *)(job.shifts + channels);
    job.float_shifts = job.float_factors + channels;
    fold_parameters(&job, in);
    team_run(team_size(run->lane->threads, (double)(state->batch * channels * state->places) * 0.2),
             run_units, &job);
    wide_close(call, run, out);
    return STATUS_OK;
}

const struct kernel kernel_batch_normalization_rows = {
    .name = "cpu:rows",
    .flags = KERNEL_IN_PLACE,
    .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED,
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};
