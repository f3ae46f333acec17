/* Resize by the nearest element: bytes are moved. */
#include <string.h>

#include "device/cpu/movement/resize_internal.h"
#include "device/cpu/team.h"

static void double_row(const float *from, float *to, int64_t length)
{
    for (int64_t i = 0; i < length; i++)
        to[2 * i] = to[2 * i + 1] = from[i];
}

static inline __attribute__((always_inline)) void pick_row(const struct resize_taps *row,
                                                           const char *from, char *to, size_t bytes)
{
    for (int64_t i = 0; i < row->out; i++)
        memcpy(to + (size_t)i * bytes, from + (size_t)row->index[i] * bytes, bytes);
}

static void nearest_row(const struct resize_state *state, const char *from, char *to)
{
    const struct resize_taps *row = &state->axes[state->outer];
    size_t bytes = (size_t)state->inner * state->bytes;

    if (row->same)
        memcpy(to, from, (size_t)row->out * bytes);
    else if (state->doubles_row && bytes == 4)
        double_row((const float *)(const void *)from, (float *)(void *)to, row->in);
    else if (bytes == 4)
        pick_row(row, from, to, 4);
    else if (bytes == 32)
        pick_row(row, from, to, 32);
    else if (bytes == 64)
        pick_row(row, from, to, 64);
    else
        pick_row(row, from, to, bytes);
}

static void crop_row(const struct resize_state *state, const char *from, char *to)
{
    const struct resize_taps *row = &state->axes[state->outer];
    size_t bytes = (size_t)state->inner * state->bytes;

    for (int64_t i = 0; i < row->out; i++) {
        if (row->index[i] == OUTSIDE)
            resize_fill_outside(state, to + (size_t)i * bytes, state->inner);
        else
            memcpy(to + (size_t)i * bytes, from + (size_t)row->index[i] * bytes, bytes);
    }
}

static void nearest_share(void *arg, unsigned member, unsigned members)
{
    const struct resize_job *job = arg;
    const struct resize_state *state = job->state;
    const struct resize_taps *row = &state->axes[state->outer];
    size_t row_bytes = (size_t)(row->out * state->inner) * state->bytes;
    bool crops = resize_has_outside(row);
    int64_t before = OUTSIDE;
    size_t first, last;

    team_share((size_t)state->rows, member, members, &first, &last);
    for (size_t i = first; i < last; i++) {
        float weight = 1;
        int64_t offset = resize_source_row(state, (int64_t)i, 0, &weight);
        const char *from = (const char *)job->run->in[0] + offset * (int64_t)state->bytes;
        char *to = resize_row_out(state, job->run->out[0], (int64_t)i);

        if (offset == OUTSIDE)
            resize_fill_outside(state, to, row->out * state->inner);
        else if (offset == before && (int64_t)i % state->image_rows != 0)
            memcpy(to, to - row_bytes, row_bytes);
        else if (crops)
            crop_row(state, from, to);
        else
            nearest_row(state, from, to);
        before = offset;
    }
}

static const char *refuse_nearest(const struct kernel_call *call)
{
    if (resize_mode_of(call) != RESIZE_NEAREST)
        return "nearest only";
    return resize_refuse(call);
}

static enum status prepare_nearest(struct kernel_prepare *prepare, struct error *err)
{
    struct resize_state *state;

    return resize_prepare(prepare, &state, err);
}

static enum status run_nearest(const void *opaque, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    const struct resize_state *state = opaque;
    struct resize_job job = {.state = state, .run = run};
    double elements = (double)shape_count(&call->out[0]->shape);

    if (elements > 0)
        team_run(team_size(call->threads, elements / 2), nearest_share, &job);
    return STATUS_OK;
}

const struct kernel kernel_resize_nearest = {
    .name = "cpu:nearest",
    .flags = KERNEL_STRIDED,
    .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED | 1 << LAYOUT_NHWC,
    .refuses = refuse_nearest,
    .prepare = prepare_nearest,
    .enqueue = run_nearest,
    .release = resize_release,
};
