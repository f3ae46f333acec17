/* Conv and ConvTranspose in plain layout as matrix products: for grouped convolutions that have no
 * blocked form, for geometries that oneDNN has only reference code for, and for weights that are
 * computed at run time.
 *
 *     y[channels of a group][places] = W [channels][1 + taps] x columns [1 + taps][places]
 *
 * The columns of one panel of places are gathered in the form that the product wants, panel by
 * panel.  Row 0 of the columns is ones and column 0 of W the bias, so every result is the sum in
 * one fixed order, started from its bias.  The columns of a transposed convolution hold zeros where
 * its stride leaves gaps. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/constant.h"
#include "device/cpu/conv/taps.h"
#include "device/cpu/product/gemm_internal.h"
#include "device/cpu/team.h"
#include "ops/conv.h"

struct state {
    struct conv_geometry geometry;
    struct epilogue epilogue;
    const struct gemm_ops *ops;
    bool transposed;
    const float *weights; /* packed, [M][1 + taps]; NULL: made in the scratch of each run */
    int64_t rows, taps, places, cells;  /* of a group; 1 + taps of the product; of an image */
    size_t block_floats, column_floats; /* of a member */
};

static size_t lines(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

static size_t weight_floats(const struct state *s)
{
    return (size_t)(s->geometry.out_channels * s->taps);
}

/* ---- weights ---- */

/* One row of [C, M/group, cells]: a channel in after the other. */
static void copy_transposed(const struct state *s, const char *w, int64_t o, float *row)
{
    const struct conv_geometry *g = &s->geometry;
    const int64_t in = g->in_channels / g->groups, group = o / s->rows;
    const int64_t cells = (s->taps - 1) / in;

    for (int64_t c = 0; c < in; c++) {
        int64_t from = ((group * in + c) * s->rows + o % s->rows) * cells;

        memcpy(row + c * cells, w + (size_t)from * sizeof(float), (size_t)cells * sizeof(float));
    }
}

static void pack_weights(const struct state *s, const void *w, const void *bias, float *packed)
{
    const size_t taps = (size_t)s->taps - 1;

    for (size_t o = 0; o < (size_t)s->geometry.out_channels; o++, packed += s->taps) {
        packed[0] = 0;
        if (bias != NULL)
            memcpy(packed, (const char *)bias + o * sizeof(float), sizeof(float));
        if (s->transposed)
            copy_transposed(s, w, (int64_t)o, packed + 1);
        else
            memcpy(packed + 1, (const char *)w + o * taps * sizeof(float), taps * sizeof(float));
    }
}

static enum status share_weights(struct kernel_prepare *prepare, struct state *s)
{
    const struct operand *w = prepare->call.in[CONV_W];
    const struct operand *bias = kernel_input(&prepare->call, CONV_BIAS);
    char format[64];
    void *packed;
    bool is_new;

    if (w->constant == NULL || (bias != NULL && bias->constant == NULL)) {
        prepare->constants_used = 1u << CONV_W | 1u << CONV_BIAS;
        return STATUS_OK;
    }
    snprintf(format, sizeof(format), "%s with bias %p", s->transposed ? "transposed rows" : "rows",
             bias != NULL ? bias->constant_key : NULL);
    TRY(weights_share(prepare->weights, w->constant_key, format, weight_floats(s) * sizeof(float),
                      &packed, &is_new));
    if (is_new)
        pack_weights(s, w->constant, bias != NULL ? bias->constant : NULL, packed);
    s->weights = packed;
    return STATUS_OK;
}

/* ---- columns ---- */

/* Places next to each other in the last dimension: a part of a panel. */
struct segment {
    /* cell under the first tap of the first place; of a transposed one the place, from the padding
     */
    int64_t start[WINDOW_MAX_RANK];
    int64_t column, count;
};

struct panel {
    struct segment *segments; /* room for one a column */
    int64_t count;
    int64_t columns, width;
};

static void cut_segments(const struct window *w, bool transposed, int64_t place,
                         struct panel *panel)
{
    const size_t last = w->spatial - 1;

    panel->count = 0;
    for (int64_t column = 0; column < panel->columns;) {
        struct segment *segment = &panel->segments[panel->count++];
        int64_t rest = place + column, left = w->out[last] - rest % w->out[last];

        for (size_t i = w->spatial; i-- > 0; rest /= w->out[i])
            segment->start[i] = transposed ? rest % w->out[i] + w->pad_begin[i]
                                           : rest % w->out[i] * w->stride[i] - w->pad_begin[i];
        segment->column = column;
        segment->count = left < panel->columns - column ? left : panel->columns - column;
        column += segment->count;
    }
}

enum { MAX_PANEL = 64, PIECE = 16 };

/* Cells that all exist.  Pieces of a known size need no call. */
static void copy_inside(const float *x, int64_t count, int64_t stride, float *to)
{
    int64_t i = 0;

    switch (stride) {
    case 1:
        for (; i + PIECE <= count; i += PIECE)
            memcpy(to + i, x + i, PIECE * sizeof(float));
        for (; i < count; i++)
            to[i] = x[i];
        break;
    case 2:
        for (; i < count; i++)
            to[i] = x[2 * i];
        break;
    default:
        for (; i < count; i++)
            to[i] = x[i * stride];
        break;
    }
}

/* One row of the columns for one segment: tap k of the channel whose cells are at x. */
static void gather(const struct window *w, const struct segment *segment, const int64_t *k,
                   const float *x, float *to)
{
    const size_t last = w->spatial - 1;
    const int64_t stride = w->stride[last], in = w->in[last];
    int64_t row = 0, first = segment->start[last] + k[last] * w->dilation[last];
    bool inside = true;

    for (size_t i = 0; i < last; i++) {
        int64_t at = segment->start[i] + k[i] * w->dilation[i];

        inside = inside && at >= 0 && at < w->in[i];
        row = row * w->in[i] + at;
    }
    if (!inside) {
        memset(to, 0, (size_t)segment->count * sizeof(float));
        return;
    }
    x += row * in;
    if (first >= 0 && first + (segment->count - 1) * stride < in) {
        copy_inside(x + first, segment->count, stride, to);
        return;
    }
    for (int64_t i = 0; i < segment->count; i++) {
        int64_t at = first + i * stride;

        to[i] = at >= 0 && at < in ? x[at] : 0;
    }
}

/* The cell that a tap carries to a place `at` behind it; -1: none. */
static int64_t carried_cell(const struct window *w, size_t i, int64_t at)
{
    return at >= 0 && at % w->stride[i] == 0 && at / w->stride[i] < w->in[i] ? at / w->stride[i]
                                                                             : -1;
}

/* The same for a transposed convolution. */
static void gather_transposed(const struct window *w, const struct segment *segment,
                              const int64_t *k, const float *x, float *to)
{
    const size_t last = w->spatial - 1;
    const int64_t first = segment->start[last] - k[last] * w->dilation[last];
    int64_t row = 0;

    memset(to, 0, (size_t)segment->count * sizeof(float));
    for (size_t i = 0; i < last; i++) {
        int64_t at = carried_cell(w, i, segment->start[i] - k[i] * w->dilation[i]);

        if (at < 0)
            return;
        row = row * w->in[i] + at;
    }
    x += row * w->in[last];
    for (int64_t i = 0; i < segment->count; i++) {
        int64_t at = carried_cell(w, last, first + i);

        if (at >= 0)
            to[i] = x[at];
    }
}

static void fill_columns(const struct state *s, const float *x, const struct panel *panel,
                         float *columns)
{
    const struct window *w = &s->geometry.window;
    const int64_t channels = s->geometry.in_channels / s->geometry.groups;
    void (*const fill)(const struct window *, const struct segment *, const int64_t *,
                       const float *, float *) = s->transposed ? gather_transposed : gather;
    struct taps taps;

    for (int64_t j = 0; j < panel->width; j++)
        columns[j] = 1;
    for (int64_t c = 0; c < channels; c++, x += s->cells) {
        taps_begin(&taps, w, 0);
        do {
            columns += panel->width;
            for (int64_t i = 0; i < panel->count; i++) {
                const struct segment *segment = &panel->segments[i];

                fill(w, segment, taps.k, x, columns + segment->column);
            }
            for (int64_t j = panel->columns; j < panel->width; j++)
                columns[j] = 0;
        } while (taps_next(&taps));
    }
}

/* ---- the product ---- */

struct job {
    const struct state *state;
    const float *x, *weights, *residual;
    float *y, *scratch; /* of all members */
    int64_t panels;     /* of one image and group */
};

static void run_panel(const struct job *job, int64_t index, struct panel *panel, float *scratch)
{
    const struct state *s = job->state;
    const struct conv_geometry *g = &s->geometry;
    const int64_t place = index % job->panels * s->ops->panel;
    const int64_t image_group = index / job->panels, group = image_group % g->groups;
    const int64_t at = image_group * s->rows * s->places + place;
    const int64_t vector = s->ops->vector;
    float *columns = scratch + s->block_floats;
    struct gemm gemm = {.m = s->rows,
                        .k = s->taps,
                        .a = {job->weights + group * s->rows * s->taps, s->taps, 1},
                        .packed = columns,
                        .residual = job->residual != NULL ? job->residual + at : NULL,
                        .ldr = s->places,
                        .c = job->y + at,
                        .ldc = s->places,
                        .epilogue = s->epilogue};

    panel->columns = s->places - place < s->ops->panel ? s->places - place : s->ops->panel;
    panel->width = (panel->columns + vector - 1) / vector * vector;
    gemm.n = panel->columns;
    cut_segments(&g->window, s->transposed, place, panel);
    fill_columns(s, job->x + image_group * (g->in_channels / g->groups) * s->cells, panel, columns);
    for (int64_t row = 0; row < s->rows; row += s->ops->block_rows) {
        int64_t rows = s->rows - row < s->ops->block_rows ? s->rows - row : s->ops->block_rows;

        s->ops->run(&gemm, row, rows, 0, 1, scratch);
    }
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct state *s = job->state;
    struct segment segments[MAX_PANEL];
    struct panel panel = {.segments = segments};
    float *scratch = job->scratch + member * (s->block_floats + s->column_floats);
    size_t from, to;

    team_share((size_t)(s->geometry.batch * s->geometry.groups * job->panels), member, members,
               &from, &to);
    for (size_t i = from; i < to; i++)
        run_panel(job, (int64_t)i, &panel, scratch);
}

/* ---- the kernel ---- */

static const char *refuses(const struct kernel_call *call)
{
    if (call->in[CONV_X]->dtype != DTYPE_FLOAT)
        return "only float";
    if (conv_has_more(call->op, call->attrs))
        return "a prelude or a shuffle";
    if (shape_count(&call->out[0]->shape) == 0)
        return "no elements";
    return NULL;
}

static enum status resolve(const struct kernel_call *call, struct state *s, struct error *err)
{
    const struct shape *x = &call->in[CONV_X]->shape, *w = &call->in[CONV_W]->shape;

    if (s->transposed) {
        s->epilogue = ((const struct conv_transpose_attrs *)call->attrs)->epilogue;
        TRY(conv_transpose_resolve(call->attrs, x, w, &s->geometry, err));
    } else {
        s->epilogue = ((const struct conv_attrs *)call->attrs)->epilogue;
        TRY(conv_resolve(call->attrs, x, w, &s->geometry, err));
    }
    window_turn_narrow(&s->geometry.window);
    return STATUS_OK;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct state *s = calloc(1, sizeof(*s));
    enum status status = STATUS_NO_MEMORY;

    if (s != NULL) {
        s->transposed = call->op == &op_conv_transpose;
        status = resolve(call, s, err);
    }
    if (status == STATUS_OK) {
        const struct conv_geometry *g = &s->geometry;

        s->ops = gemm_ops_for(cpu_isa_of(call->device));
        s->rows = g->out_channels / g->groups;
        s->taps = 1 + g->in_channels / g->groups * window_cells(&g->window, g->window.kernel);
        s->places = window_cells(&g->window, g->window.out);
        s->cells = window_cells(&g->window, g->window.in);
        s->block_floats = (size_t)(s->rows < s->ops->block_rows ? s->rows : s->ops->block_rows) *
                          s->ops->row_floats;
        s->column_floats = lines((size_t)(s->taps * s->ops->panel));
        status = share_weights(prepare, s);
    }
    if (status != STATUS_OK) {
        free(s);
        return error_set(err, status, "no memory for packed weights");
    }
    prepare->state = s;
    prepare->scratch_bytes = ((s->block_floats + s->column_floats) * call->threads +
                              (s->weights == NULL ? lines(weight_floats(s)) : 0)) *
                             sizeof(float);
    snprintf(prepare->note, sizeof(prepare->note), "columns, %s",
             cpu_isa_name(cpu_isa_of(call->device)));
    return STATUS_OK;
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *s = arg;
    struct job job = {.state = s,
                      .x = run->in[CONV_X],
                      .weights = s->weights,
                      .residual = s->epilogue.has_residual ? run->in[CONV_RESIDUAL] : NULL,
                      .y = run->out[0],
                      .scratch = run->scratch};
    double products = (double)shape_count(&call->out[0]->shape) * (double)s->taps;

    if (job.weights == NULL) {
        bool has_bias = kernel_input(call, CONV_BIAS) != NULL;

        job.scratch += lines(weight_floats(s));
        pack_weights(s, run->in[CONV_W], has_bias ? run->in[CONV_BIAS] : NULL, run->scratch);
        job.weights = run->scratch;
    }
    job.panels = (s->places + s->ops->panel - 1) / s->ops->panel;
    team_run(team_size(call->threads, products / 30), run_job, &job);
    return STATUS_OK;
}

#define COLUMNS                                                                                    \
    {                                                                                              \
        .name = "cpu:gemm", .refuses = refuses, .prepare = prepare, .enqueue = enqueue,            \
        .release = free                                                                            \
    }

const struct kernel kernel_conv_gemm = COLUMNS;
const struct kernel kernel_conv_transpose_gemm = COLUMNS;
