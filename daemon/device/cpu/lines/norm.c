/* Layer, RMS, instance and group normalisation: groups of elements that lie together.
 *
 *     layer, RMS   [groups, size]                     a scale and a bias for each element
 *     instance     [N * C, places]                    one for each channel
 *     group        [N * G, channels a group, places]  one for each channel
 *
 * Mean first, then the squares of the differences: what is summed is small where it should be.
 */
#include "ops/normalize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/team.h"
#include "device/cpu/wide.h"

struct norm_state {
    const struct loops *loops;
    bool doubles;
    bool no_mean; /* RMS */
    double epsilon;
    size_t groups;
    size_t size;     /* elements a group */
    size_t places;   /* elements a channel; 0: scale and bias go by element */
    size_t channels; /* of scale and bias before they repeat: channels of the tensor */
    size_t wide_bytes;
    bool expand[2]; /* scale, bias: smaller than a group, spread into scratch */
};

struct norm_job {
    const struct norm_state *state;
    const void *x, *scale, *bias; /* scale and bias may be NULL */
    void *y;
    float *mean; /* results of each group; NULL: not wanted */
    float *deviation;
};

static void keep_facts(const struct norm_job *job, size_t group, double mean, double factor)
{
    if (job->mean != NULL)
        job->mean[group] = (float)mean;
    if (job->deviation != NULL)
        job->deviation[group] = (float)factor;
}

/* ---- floats ---- */

static void float_group(const struct norm_job *job, size_t group)
{
    const struct norm_state *state = job->state;
    const struct loops *loops = state->loops;
    const float *x = (const float *)job->x + group * state->size, *scale = job->scale;
    const float *bias = job->bias;
    float *y = (float *)job->y + group * state->size;
    double count = (double)state->size;
    double mean = state->no_mean ? 0 : loops->row[REDUCE_sum](x, state->size, 0) / count;
    double variance = loops->row[REDUCE_sum_square_from](x, state->size, (float)mean) / count;
    double factor = 1 / sqrt(variance + state->epsilon);

    keep_facts(job, group, mean, factor);
    if (state->places == 0) {
        loops->normalize_row(x, y, state->size, (float)mean, (float)factor, scale, bias);
        return;
    }
    for (size_t i = 0; i < state->size / state->places; i++) {
        size_t channel = (group * (state->size / state->places) + i) % state->channels;

        loops->affine_row(x + i * state->places, y + i * state->places, state->places, (float)mean,
                          (float)(factor * (double)scale[channel]), bias[channel]);
    }
}

/* ---- doubles ---- */

static void double_group(const struct norm_job *job, size_t group)
{
    const struct norm_state *state = job->state;
    const double *x = (const double *)job->x + group * state->size;
    const double *scale = job->scale, *bias = job->bias;
    double *y = (double *)job->y + group * state->size;
    double mean = 0, variance = 0, factor;

    for (size_t i = 0; i < state->size && !state->no_mean; i++)
        mean += x[i] / (double)state->size;
    for (size_t i = 0; i < state->size; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)state->size;
    factor = 1 / sqrt(variance + state->epsilon);
    keep_facts(job, group, mean, factor);
    for (size_t i = 0; i < state->size; i++) {
        size_t at =
            state->places == 0 ? i : (group * state->size + i) / state->places % state->channels;

        y[i] = (x[i] - mean) * factor * (scale != NULL ? scale[at] : 1) +
               (bias != NULL ? bias[at] : 0);
    }
}

static void norm_groups(void *arg, unsigned member, unsigned members)
{
    const struct norm_job *job = arg;
    size_t from, to;

    team_share(job->state->groups, member, members, &from, &to);
    for (size_t i = from; i < to; i++)
        if (job->state->doubles)
            double_group(job, i);
        else
            float_group(job, i);
}

/* ---- the kernel ---- */

static const char *refuses(const struct kernel_call *call)
{
    bool doubles = call->in[0]->dtype == DTYPE_DOUBLE;

    for (size_t i = 1; i < call->inputs; i++)
        if (call->in[i] != NULL && (call->in[i]->dtype == DTYPE_DOUBLE) != doubles)
            return "doubles and other types together";
    return NULL;
}

static void set_layer(struct norm_state *state, const struct kernel_call *call)
{
    const struct layer_norm_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;
    size_t axis = shape_axis(shape, attrs->axis);

    state->no_mean = call->op == &op_rms_normalization;
    state->epsilon = (double)attrs->epsilon;
    state->groups = (size_t)shape_product(shape, 0, axis);
    state->size = (size_t)shape_product(shape, axis, shape->rank);
    for (size_t i = 0; i < 2; i++)
        state->expand[i] = i + 1 < call->inputs && call->in[i + 1] != NULL &&
                           (size_t)shape_count(&call->in[i + 1]->shape) != state->size;
}

static void set_channels(struct norm_state *state, const struct kernel_call *call)
{
    const struct shape *shape = &call->in[0]->shape;
    size_t batch = (size_t)shape->dims[0];

    state->channels = (size_t)shape->dims[1];
    state->places = (size_t)shape_product(shape, 2, shape->rank);
    if (call->op == &op_group_normalization) {
        const struct group_norm_attrs *attrs = call->attrs;

        state->epsilon = (double)attrs->epsilon;
        state->groups = batch * (size_t)attrs->num_groups;
        state->size = state->channels / (size_t)attrs->num_groups * state->places;
    } else {
        const struct epsilon_attrs *attrs = call->attrs;

        state->epsilon = (double)attrs->epsilon;
        state->groups = batch * state->channels;
        state->size = state->places;
    }
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct norm_state *state = calloc(1, sizeof(*state));

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    state->loops = loops_for(call->device);
    state->doubles = call->in[0]->dtype == DTYPE_DOUBLE;
    if (call->op == &op_layer_normalization || call->op == &op_rms_normalization)
        set_layer(state, call);
    else
        set_channels(state, call);
    state->wide_bytes = wide_scratch_bytes(call);
    prepare->scratch_bytes = state->wide_bytes + (size_t)(state->expand[0] + state->expand[1]) *
                                                     state->size * sizeof(double);
    prepare->constants_used = 7;
    prepare->state = state;
    return STATUS_OK;
}

/* Spreads a scale or bias of fewer dimensions over a group of `whole` shape's last dimensions. */
static const void *spread(const struct operand *operand, const struct shape *whole, size_t size,
                          size_t bytes, const char *from, char *to)
{
    for (size_t i = 0; i < size; i++) {
        size_t rest = i, offset = 0, stride = 1;

        for (size_t k = 0; k < operand->shape.rank; k++) { /* from the last dimension */
            size_t dim = (size_t)operand->shape.dims[operand->shape.rank - 1 - k];
            size_t full = (size_t)whole->dims[whole->rank - 1 - k];

            offset += dim > 1 ? rest % full * stride : 0;
            stride *= dim;
            rest /= full;
        }
        memcpy(to + i * bytes, from + offset * bytes, bytes);
    }
    return to;
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct norm_state *state = arg;
    size_t bytes = state->doubles ? sizeof(double) : sizeof(float);
    char *extra = (char *)run->scratch + state->wide_bytes;
    const void *in[WIDE_OPERANDS] = {NULL};
    void *out[WIDE_OPERANDS] = {NULL};
    struct norm_job job = {.state = state};

    if (shape_count(&call->in[0]->shape) == 0)
        return STATUS_OK;
    wide_open(call, run, in, out);
    for (size_t i = 0; i < 2; i++)
        if (state->expand[i]) {
            in[i + 1] =
                spread(call->in[i + 1], &call->in[0]->shape, state->size, bytes, in[i + 1], extra);
            extra += state->size * sizeof(double);
        }
    job.x = in[0];
    job.scale = in[1];
    job.bias = in[2];
    job.y = out[0];
    job.mean = out[1];
    job.deviation = out[2];
    team_run(team_size(run->lane->threads, (double)state->groups * (double)state->size * 0.5),
             norm_groups, &job);
    wide_close(call, run, out);
    return STATUS_OK;
}

#define NORM(operator)                                                                             \
    const struct kernel kernel_##operator##_rows = {                                               \
        .name = "cpu:rows",                                                                        \
        .flags = KERNEL_IN_PLACE,                                                                  \
        .refuses = refuses,                                                                        \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
        .release = free,                                                                           \
    };
NORM(layer_normalization)
NORM(rms_normalization)
NORM(instance_normalization)
NORM(group_normalization)
