/* MixChannels: of blocked values vector by vector, of plain ones plane by plane; and Concat of
 * blocked values whose channels do not fill their blocks. */
#include "device/cpu/conv/mix_channels.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/team.h"
#include "ops/mix_channels.h"
#include "ops/movement.h"

extern const struct mix_ops mix_ops_avx2, mix_ops_avx512;

/* NULL at the baseline. */
static const struct mix_ops *mix_ops_for(enum cpu_isa isa)
{
    static const struct mix_ops *const table[CPU_ISA_COUNT] = {
        [CPU_AVX2] = &mix_ops_avx2, [CPU_AVX512] = &mix_ops_avx512};

    return table[isa];
}

static size_t cells_of(const struct operand *operand)
{
    return (size_t)shape_product(&operand->shape, 2, operand->shape.rank);
}

/* Which input holds channel `from` of all, and which of its own that is. */
static size_t find_input(const struct kernel_call *call, int64_t from, size_t *out_channel)
{
    size_t input = 0;

    for (; from >= call->in[input]->shape.dims[1]; input++)
        from -= call->in[input]->shape.dims[1];
    *out_channel = (size_t)from;
    return input;
}

static const struct ints *order_of(const struct kernel_call *call)
{
    return &((const struct mix_channels_attrs *)call->attrs)->from;
}

/* ---- blocked ---- */

struct state {
    const struct mix_ops *ops;
    size_t blocks;               /* of an image of the result */
    size_t *first;               /* source of each block; one more for the end */
    struct mix_source sources[]; /* at most one a channel */
};

static const char *refuses_blocks(const struct kernel_call *call)
{
    if (mix_ops_for(cpu_isa_of(call->device)) == NULL)
        return "needs AVX2";
    if (call->in[0]->dtype != DTYPE_FLOAT)
        return "only float";
    return call->out[0]->layout != LAYOUT_BLOCKED ? "plain" : NULL;
}

/* Notes that lane `lane` of the block whose sources begin at `first` is a channel of an input. */
static size_t add_lane(struct state *state, size_t first, size_t end, size_t input, size_t channel,
                       size_t lane)
{
    const size_t vector = state->ops->vector;
    struct mix_source *source = &state->sources[first];

    while (source < &state->sources[end] &&
           (source->input != input || source->block != channel / vector))
        source++;
    source->input = input;
    source->block = channel / vector;
    source->lane[lane] = (int32_t)(channel % vector);
    source->taken[lane] = -1;
    return source == &state->sources[end] ? end + 1 : end;
}

/* Channel c of the result is channel order[c] of the inputs; NULL: c. */
static enum status make_state(struct kernel_prepare *prepare, const int64_t *order,
                              struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const size_t channels = (size_t)call->out[0]->shape.dims[1];
    const struct mix_ops *ops = mix_ops_for(cpu_isa_of(call->device));
    const size_t blocks = (channels + ops->vector - 1) / ops->vector;
    const size_t sources = channels * sizeof(struct mix_source);
    struct state *state = calloc(1, sizeof(*state) + sources + (blocks + 1) * sizeof(size_t));
    size_t end = 0;

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan it");
    state->ops = ops;
    state->blocks = blocks;
    state->first = (size_t *)(void *)((char *)state->sources + sources);
    for (size_t c = 0; c < channels; c++) {
        const int64_t from = order != NULL ? order[c] : (int64_t)c;
        size_t channel, input = find_input(call, from, &channel);

        if (c % ops->vector == 0)
            state->first[c / ops->vector] = end;
        end = add_lane(state, state->first[c / ops->vector], end, input, channel, c % ops->vector);
    }
    state->first[blocks] = end;
    prepare->state = state;
    prepare->host_bytes = sizeof(*state) + sources + (blocks + 1) * sizeof(size_t);
    return STATUS_OK;
}

static enum status prepare_mix(struct kernel_prepare *prepare, struct error *err)
{
    return make_state(prepare, order_of(&prepare->call)->values, err);
}

struct job {
    const struct state *state;
    const struct kernel_call *call;
    const struct kernel_run *run;
};

static void mix_plane(const struct job *job, size_t plane)
{
    const struct state *state = job->state;
    const size_t vector = state->ops->vector, cells = cells_of(job->call->out[0]);
    const size_t image = plane / state->blocks, block = plane % state->blocks;
    const struct mix_source *sources = &state->sources[state->first[block]];
    const size_t count = state->first[block + 1] - state->first[block];
    const float *x[MIX_LANES];

    for (size_t s = 0; s < count; s++) {
        const size_t channels = (size_t)job->call->in[sources[s].input]->shape.dims[1];
        const size_t blocks = (channels + vector - 1) / vector;

        x[s] = (const float *)job->run->in[sources[s].input] +
               (image * blocks + sources[s].block) * cells * vector;
    }
    state->ops->mix(sources, count, x, cells, (float *)job->run->out[0] + plane * cells * vector);
}

static void run_blocks(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const size_t images = (size_t)job->call->out[0]->shape.dims[0];
    size_t from, to;

    team_share(images * job->state->blocks, member, members, &from, &to);
    for (size_t plane = from; plane < to; plane++)
        mix_plane(job, plane);
}

/* Bytes read and written by one thread in a nanosecond, about. */
enum { BYTES_A_NS = 16 };

static enum status enqueue_blocks(const void *state, const struct kernel_call *call,
                                  const struct kernel_run *run)
{
    const struct operand *out = call->out[0];
    const double bytes = 2.0 * (double)shape_count(&out->shape) * sizeof(float);
    struct job job = {.state = state, .call = call, .run = run};

    team_run(team_size(call->threads, bytes / BYTES_A_NS), run_blocks, &job);
    return STATUS_OK;
}

const struct kernel kernel_mix_channels_blocks = {
    .name = "cpu:blocks",
    .layouts = 1u << LAYOUT_BLOCKED,
    .refuses = refuses_blocks,
    .prepare = prepare_mix,
    .enqueue = enqueue_blocks,
    .release = free,
};

/* ---- Concat ---- */

static const char *refuses_concat(const struct kernel_call *call)
{
    const struct concat_attrs *attrs = call->attrs;
    const char *refusal = refuses_blocks(call);
    bool ragged = false;

    if (refusal != NULL)
        return refusal;
    if (shape_axis(&call->out[0]->shape, attrs->axis) != 1)
        return "not of channels";
    for (size_t i = 0; i < call->inputs; i++) {
        if (call->in[i]->layout != LAYOUT_BLOCKED)
            return "a part is plain";
        ragged = ragged || (i + 1 < call->inputs &&
                            call->in[i]->shape.dims[1] % call->device->channel_block != 0);
    }
    return ragged ? NULL : "whole blocks are copied";
}

static enum status prepare_concat(struct kernel_prepare *prepare, struct error *err)
{
    return make_state(prepare, NULL, err);
}

const struct kernel kernel_concat_blocks = {
    .name = "cpu:blocks",
    .layouts = 1u << LAYOUT_BLOCKED,
    .refuses = refuses_concat,
    .prepare = prepare_concat,
    .enqueue = enqueue_blocks,
    .release = free,
};

/* ---- plain ---- */

static void run_planes(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct kernel_call *call = job->call;
    const size_t bytes = cells_of(call->out[0]) * dtype_bytes(call->out[0]->dtype);
    const size_t channels = order_of(call)->count;
    size_t from, to;

    team_share((size_t)call->out[0]->shape.dims[0] * channels, member, members, &from, &to);
    for (size_t plane = from; plane < to; plane++) {
        size_t channel;
        const size_t input = find_input(call, order_of(call)->values[plane % channels], &channel);
        const size_t of_image = (size_t)call->in[input]->shape.dims[1];

        memcpy((char *)job->run->out[0] + plane * bytes,
               (const char *)job->run->in[input] + (plane / channels * of_image + channel) * bytes,
               bytes);
    }
}

static const char *refuses_planes(const struct kernel_call *call)
{
    return call->out[0]->layout != LAYOUT_PLAIN ? "blocked" : NULL;
}

static enum status enqueue_planes(const void *state, const struct kernel_call *call,
                                  const struct kernel_run *run)
{
    const struct operand *out = call->out[0];
    const double bytes = 2.0 * (double)shape_count(&out->shape) * (double)dtype_bytes(out->dtype);
    struct job job = {.state = state, .call = call, .run = run};

    team_run(team_size(call->threads, bytes / BYTES_A_NS), run_planes, &job);
    return STATUS_OK;
}

const struct kernel kernel_mix_channels_planes = {
    .name = "cpu:planes",
    .layouts = 1u << LAYOUT_PLAIN,
    .refuses = refuses_planes,
    .enqueue = enqueue_planes,
};
