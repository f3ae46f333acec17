/* Resize by weighted sums: linear and cubic. */
#include <string.h>

#include "device/cpu/loops.h"
#include "device/cpu/movement/resize_internal.h"
#include "device/cpu/team.h"

#define SAME(x) (x)

/* For an element type: sum_NAME() adds a source row times a weight to the row being made,
 * stretch_NAME() resizes that row along itself.  Sums are kept in `sum`. */
#define WEIGHTED(name, type, sum, LOAD, STORE)                                                     \
    static void add_row_##name(const void *from, float weight, void *to, int64_t length,           \
                               bool first)                                                         \
    {                                                                                              \
        const type *source = from;                                                                 \
        sum *target = to;                                                                          \
                                                                                                   \
        if (first)                                                                                 \
            for (int64_t i = 0; i < length; i++)                                                   \
                target[i] = (sum)weight * (sum)LOAD(source[i]);                                    \
        else                                                                                       \
            for (int64_t i = 0; i < length; i++)                                                   \
                target[i] += (sum)weight * (sum)LOAD(source[i]);                                   \
    }                                                                                              \
                                                                                                   \
    static void stretch_##name(const struct resize_taps *row, int64_t inner, const void *from,     \
                               void *to)                                                           \
    {                                                                                              \
        const sum *source = from;                                                                  \
        type *target = to;                                                                         \
                                                                                                   \
        for (int64_t i = 0; i < row->out; i++) {                                                   \
            const int32_t *index = row->index + i * row->taps;                                     \
            const float *weight = row->weight + i * row->taps;                                     \
                                                                                                   \
            if (row->taps == 2)                                                                    \
                for (int64_t k = 0; k < inner; k++)                                                \
                    target[i * inner + k] = STORE((sum)weight[0] * source[index[0] * inner + k] +  \
                                                  (sum)weight[1] * source[index[1] * inner + k]);  \
            else if (row->taps == 1)                                                               \
                for (int64_t k = 0; k < inner; k++)                                                \
                    target[i * inner + k] = STORE(source[index[0] * inner + k]);                   \
            else                                                                                   \
                for (int64_t k = 0; k < inner; k++)                                                \
                    target[i * inner + k] = STORE((sum)weight[0] * source[index[0] * inner + k] +  \
                                                  (sum)weight[1] * source[index[1] * inner + k] +  \
                                                  (sum)weight[2] * source[index[2] * inner + k] +  \
                                                  (sum)weight[3] * source[index[3] * inner + k]);  \
        }                                                                                          \
    }

WEIGHTED(double, double, double, SAME, SAME)
WEIGHTED(half, uint16_t, float, float_from_half, half_from_float)
WEIGHTED(bfloat16, uint16_t, float, float_from_bfloat16, bfloat16_from_float)

static void add_row(const struct resize_job *job, const void *from, float weight, void *to,
                    int64_t length, bool first)
{
    switch (job->dtype) {
    case DTYPE_FLOAT:
        job->loops->weigh(from, weight, to, (size_t)length, !first);
        break;
    case DTYPE_DOUBLE:
        add_row_double(from, weight, to, length, first);
        break;
    case DTYPE_FLOAT16:
        add_row_half(from, weight, to, length, first);
        break;
    default:
        add_row_bfloat16(from, weight, to, length, first);
    }
}

static void stretch(const struct resize_job *job, const struct resize_taps *row, int64_t inner,
                    const void *from, void *to)
{
    switch (job->dtype) {
    case DTYPE_FLOAT:
        job->loops->stretch(from, row->index, row->weight, row->taps, (size_t)row->out,
                            (size_t)inner, to);
        break;
    case DTYPE_DOUBLE:
        stretch_double(row, inner, from, to);
        break;
    case DTYPE_FLOAT16:
        stretch_half(row, inner, from, to);
        break;
    default:
        stretch_bfloat16(row, inner, from, to);
    }
}

/* The row's places outside the crop hold tap OUTSIDE; they were stretched from nowhere. */
static void patch_outside(const struct resize_state *state, char *to)
{
    const struct resize_taps *row = &state->axes[state->outer];
    size_t bytes = (size_t)state->inner * state->bytes;

    for (int64_t i = 0; i < row->out; i++)
        if (row->index[i * row->taps] == OUTSIDE)
            resize_fill_outside(state, to + (size_t)i * bytes, state->inner);
}

static void weighted_share(void *arg, unsigned member, unsigned members)
{
    const struct resize_job *job = arg;
    const struct resize_state *state = job->state;
    const struct resize_taps *row = &state->axes[state->outer];
    size_t sum_bytes = job->dtype == DTYPE_DOUBLE ? sizeof(double) : sizeof(float);
    /* one element before the row, zero: what OUTSIDE points at */
    char *sums = job->scratch + member * job->scratch_each + (size_t)state->inner * sum_bytes;
    unsigned combinations = 1;
    bool crops = resize_has_outside(row);
    size_t first, last;

    memset(sums - (size_t)state->inner * sum_bytes, 0, (size_t)state->inner * sum_bytes);
    for (size_t i = 0; i < state->outer; i++)
        combinations *= state->axes[i].taps;
    team_share((size_t)state->rows, member, members, &first, &last);
    for (size_t i = first; i < last; i++) {
        char *to = resize_row_out(state, job->run->out[0], (int64_t)i);
        int64_t offset = 0;

        for (unsigned c = 0; c < combinations && offset != OUTSIDE; c++) {
            float weight = 1;

            offset = resize_source_row(state, (int64_t)i, c, &weight);
            if (offset != OUTSIDE)
                add_row(job, (const char *)job->run->in[0] + (size_t)offset * state->bytes, weight,
                        sums, row->in * state->inner, c == 0);
        }
        if (offset == OUTSIDE) {
            resize_fill_outside(state, to, row->out * state->inner);
            continue;
        }
        stretch(job, row, state->inner, sums, to);
        if (crops)
            patch_outside(state, to);
    }
}

static const char *refuse_weighted(const struct kernel_call *call)
{
    if (resize_mode_of(call) == RESIZE_NEAREST)
        return "linear and cubic only";
    return resize_refuse(call);
}

static size_t scratch_each(const struct resize_state *state, enum dtype dtype)
{
    size_t sum_bytes = dtype == DTYPE_DOUBLE ? sizeof(double) : sizeof(float);
    size_t bytes = (size_t)((state->axes[state->outer].in + 1) * state->inner) * sum_bytes;

    return (bytes + 63) / 64 * 64;
}

static enum status prepare_weighted(struct kernel_prepare *prepare, struct error *err)
{
    struct resize_state *state;

    TRY(resize_prepare(prepare, &state, err));
    prepare->scratch_bytes =
        scratch_each(state, prepare->call.in[0]->dtype) * prepare->call.threads;
    return STATUS_OK;
}

static enum status run_weighted(const void *opaque, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct resize_state *state = opaque;
    struct resize_job job = {.state = state,
                             .run = run,
                             .scratch = run->scratch,
                             .scratch_each = scratch_each(state, call->in[0]->dtype),
                             .dtype = call->in[0]->dtype,
                             .loops = loops_for(call->device)};
    double elements = (double)shape_count(&call->out[0]->shape);

    if (elements > 0)
        team_run(team_size(call->threads, elements * 2), weighted_share, &job);
    return STATUS_OK;
}

const struct kernel kernel_resize_weighted = {
    .name = "cpu:weighted",
    .flags = KERNEL_STRIDED,
    .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED | 1 << LAYOUT_NHWC,
    .refuses = refuse_weighted,
    .prepare = prepare_weighted,
    .enqueue = run_weighted,
    .release = resize_release,
};
