/* ConvInteger and QLinearConv: products of bytes.
 *
 *     sums [places][channels of a group] = columns [places][channels in x taps] x W'
 *
 * A tile of places at a time: the bytes under their windows are gathered (where the window hangs
 * over the edge the zero point, which counts nothing), multiplied, and stored by channel. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cpu/bytes/int_gemm.h"
#include "device/cpu/bytes/requantize.h"
#include "device/cpu/conv/taps.h"
#include "device/cpu/team.h"

enum { TILE = 24 }; /* places */

struct state {
    struct conv_geometry geometry;
    struct conv_weights weights; /* packed is NULL: in each run */
    size_t w, x_zero, w_zero;    /* input numbers */
    bool is_qlinear, has_zeros;
    int64_t in, out; /* channels of a group */
    int64_t in_cells, out_cells, taps;
    size_t row_bytes, member_bytes;
    size_t column_bytes; /* of what conv_columns_fill() makes */
};

static int64_t steps(const struct state *s) /* of a product */
{
    return s->in * s->taps;
}

static void pack_weights(const struct state *s, const struct kernel_call *call, const void *w,
                         const void *zero, char *packed)
{
    const struct operand *zeros = kernel_input(call, s->w_zero);
    const bool per_channel = zeros != NULL && shape_count(&zeros->shape) > 1;
    struct int_matrix matrix = {.dtype = call->in[s->w]->dtype,
                                .row_stride = 1,
                                .column_stride = steps(s),
                                .zero_per_column = per_channel};

    for (int64_t group = 0; group < s->geometry.groups; group++) {
        matrix.data = (const char *)w + group * s->out * steps(s);
        matrix.zero = zero != NULL ? (const char *)zero + (per_channel ? group * s->out : 0) : NULL;
        int_pack(s->weights.ops, &s->weights.shape, &matrix,
                 packed + (size_t)group * s->weights.group_bytes);
    }
}

static size_t packed_bytes(const struct state *s)
{
    return (size_t)s->geometry.groups * s->weights.group_bytes;
}

static bool any_zeros(const struct state *s, const char *packed)
{
    for (int64_t group = 0; group < s->geometry.groups; group++)
        if (int_has_zeros(s->weights.ops, &s->weights.shape,
                          packed + (size_t)group * s->weights.group_bytes))
            return true;
    return false;
}

static enum status share_weights(struct kernel_prepare *prepare, struct state *s)
{
    const struct kernel_call *call = &prepare->call;
    const struct operand *w = call->in[s->w], *zero = kernel_input(call, s->w_zero);
    char format[96];
    void *packed;
    bool is_new;

    if (w->constant == NULL || (zero != NULL && zero->constant == NULL))
        return STATUS_OK;
    snprintf(format, sizeof(format), "conv %s in %lld groups minus %p", s->weights.ops->form,
             (long long)s->geometry.groups, zero != NULL ? zero->constant_key : NULL);
    TRY(weights_share(prepare->weights, w->constant_key, format, packed_bytes(s), &packed,
                      &is_new));
    if (is_new)
        pack_weights(s, call, w->constant, zero != NULL ? zero->constant : NULL, packed);
    s->weights.packed = packed;
    s->has_zeros = any_zeros(s, packed);
    prepare->constants_used &= ~(1u << s->w);
    return STATUS_OK;
}

/* ---- a run ---- */

struct job {
    const struct state *state;
    const struct kernel_call *call;
    const struct kernel_run *run;
    struct conv_weights weights;
    bool has_zeros;
    char *scratch; /* of the members */
    int32_t x_zero;
    int64_t tiles; /* of an image and group */
    struct conv_columns columns;
};

/* Neighbouring places and where their windows begin (padding counts negative). */
struct places {
    int64_t places;
    int64_t start[WINDOW_MAX_RANK][TILE];
};

static void lay_tile(const struct window *w, int64_t place, struct places *tile)
{
    for (int64_t p = 0; p < tile->places; p++) {
        int64_t rest = place + p;

        for (size_t i = w->spatial; i-- > 0; rest /= w->out[i])
            tile->start[i][p] = rest % w->out[i] * w->stride[i] - w->pad_begin[i];
    }
}

/* The cell under tap k of each place; -1: padding. */
static void locate(const struct window *w, const struct places *tile, const int64_t *k,
                   int64_t cells[TILE])
{
    for (int64_t p = 0; p < tile->places; p++)
        cells[p] = 0;
    for (size_t i = 0; i < w->spatial; i++)
        for (int64_t p = 0; p < tile->places; p++) {
            int64_t at = tile->start[i][p] + k[i] * w->dilation[i];

            cells[p] = cells[p] < 0 || at < 0 || at >= w->in[i] ? -1 : cells[p] * w->in[i] + at;
        }
}

/* The bytes under the windows of a tile, [places][channels][taps]. */
static void gather(const struct job *job, const uint8_t *x, const struct places *tile, uint8_t *to)
{
    const struct state *s = job->state;
    const int64_t k = steps(s);
    int64_t cells[TILE];
    struct taps taps;

    taps_begin(&taps, &s->geometry.window, 0);
    do {
        locate(&s->geometry.window, tile, taps.k, cells);
        for (int64_t c = 0; c < s->in; c++) {
            const uint8_t *plane = x + c * s->in_cells;
            uint8_t *at = to + c * s->taps + taps.tap;

            for (int64_t p = 0; p < tile->places; p++, at += k)
                *at = cells[p] < 0 ? (uint8_t)job->x_zero : plane[cells[p]];
        }
    } while (taps_next(&taps));
}

/* From [places][channels] to [channels][places], `stride` apart. */
#define TURN(name, type)                                                                           \
    static void name(const type *from, int64_t places, int64_t channels, type *to, int64_t stride) \
    {                                                                                              \
        for (int64_t o = 0; o < channels; o++)                                                     \
            for (int64_t p = 0; p < places; p++)                                                   \
                to[o * stride + p] = from[p * channels + o];                                       \
    }

TURN(turn_bytes, uint8_t)
TURN(turn_sums, int32_t)

static void multiply(const struct job *job, int64_t group, int64_t places, const uint8_t *bytes,
                     char *rows, void *results)
{
    static const int64_t no_offset = 0;
    const struct state *s = job->state;
    const struct int_gemm_ops *ops = job->weights.ops;
    const enum dtype dtype = job->call->in[0]->dtype;
    const char *addresses[TILE];
    int32_t sums[TILE];
    const struct int_product product = {.shape = job->weights.shape,
                                        .packed = job->weights.packed +
                                                  (size_t)group * job->weights.group_bytes,
                                        .rows = places,
                                        .row = addresses,
                                        .offsets = &no_offset,
                                        .to = s->out,
                                        .start = job->columns.starts + group * job->columns.group,
                                        .row_sums = job->has_zeros ? sums : NULL,
                                        .result = s->is_qlinear ? INT_BYTES : INT_SUMS,
                                        .out = results,
                                        .ldo = s->out,
                                        .scale = job->columns.scales + group * job->columns.group,
                                        .range = job->columns.range};

    for (int64_t p = 0; p < places; p++) {
        char *row = rows + (size_t)p * s->row_bytes;

        int_lay(ops, dtype, bytes + p * steps(s), steps(s), job->x_zero, row);
        addresses[p] = row;
        if (job->has_zeros)
            sums[p] = int_row_sum(ops, &job->weights.shape, row, &no_offset);
    }
    ops->run(&product);
}

static void run_tile(const struct job *job, int64_t index, char *scratch)
{
    const struct state *s = job->state;
    const int64_t image_group = index / job->tiles, place = index % job->tiles * TILE;
    const uint8_t *x = (const uint8_t *)job->run->in[0] + image_group * s->in * s->in_cells;
    struct places tile = {.places = s->out_cells - place < TILE ? s->out_cells - place : TILE};
    char *rows = scratch + (size_t)(TILE * s->out) * sizeof(int32_t);
    uint8_t *bytes = (uint8_t *)rows + TILE * s->row_bytes;
    const size_t at = (size_t)(image_group * s->out * s->out_cells + place);

    lay_tile(&s->geometry.window, place, &tile);
    gather(job, x, &tile, bytes);
    multiply(job, image_group % s->geometry.groups, tile.places, bytes, rows, scratch);
    if (s->is_qlinear)
        turn_bytes((const uint8_t *)scratch, tile.places, s->out, (uint8_t *)job->run->out[0] + at,
                   s->out_cells);
    else
        turn_sums((const int32_t *)(void *)scratch, tile.places, s->out,
                  (int32_t *)job->run->out[0] + at, s->out_cells);
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct conv_geometry *g = &job->state->geometry;
    char *scratch = job->scratch + member * job->state->member_bytes;
    size_t from, to;

    team_share((size_t)(g->batch * g->groups * job->tiles), member, members, &from, &to);
    for (size_t i = from; i < to; i++)
        run_tile(job, (int64_t)i, scratch);
}

/* ---- the kernels ---- */

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static enum status fill(struct kernel_prepare *prepare, struct state *s, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct conv_geometry *g = &s->geometry;

    TRY(conv_resolve(call->attrs, &call->in[0]->shape, &call->in[s->w]->shape, g, err));
    s->in = g->in_channels / g->groups;
    s->out = g->out_channels / g->groups;
    s->in_cells = window_cells(&g->window, g->window.in);
    s->out_cells = window_cells(&g->window, g->window.out);
    s->taps = window_cells(&g->window, g->window.kernel);
    s->weights = (struct conv_weights){
        .ops = int_gemm_ops_for(cpu_isa_of(call->device)),
        .shape = {.segments = 1, .length = steps(s), .n = s->out},
        .groups = g->groups,
    };
    s->weights.group_bytes = lines(int_packed_bytes(s->weights.ops, &s->weights.shape));
    s->row_bytes = lines(int_segment_bytes(s->weights.ops, steps(s)));
    /* sums, rows, and the bytes before the product */
    s->member_bytes =
        lines(TILE * (s->row_bytes + (size_t)s->out * sizeof(int32_t) + (size_t)steps(s)));
    s->column_bytes = lines(conv_columns_bytes(&s->weights));
    return share_weights(prepare, s);
}

static enum status prepare(struct kernel_prepare *prepare, const struct state *places,
                           struct error *err)
{
    struct state *s = malloc(sizeof(*s));
    enum status status = STATUS_NO_MEMORY;

    prepare->constants_used = UINT32_MAX;
    if (s != NULL) {
        *s = *places;
        status = fill(prepare, s, err);
    }
    if (status != STATUS_OK) {
        free(s);
        return error_set(err, status, "no memory for packed weights");
    }
    prepare->state = s;
    prepare->scratch_bytes = s->column_bytes + s->member_bytes * prepare->call.threads +
                             (s->weights.packed == NULL ? packed_bytes(s) : 0);
    snprintf(prepare->note, sizeof(prepare->note), "%s", s->weights.ops->form);
    return STATUS_OK;
}

static enum status prepare_integer(struct kernel_prepare *arg, struct error *err)
{
    static const struct state places = {
        .w = CONV_INTEGER_W, .x_zero = CONV_INTEGER_X_ZERO, .w_zero = CONV_INTEGER_W_ZERO};

    return prepare(arg, &places, err);
}

static enum status prepare_qlinear(struct kernel_prepare *arg, struct error *err)
{
    static const struct state places = {
        .w = QLINEAR_B, .x_zero = QLINEAR_A_ZERO, .w_zero = QLINEAR_B_ZERO, .is_qlinear = true};

    return prepare(arg, &places, err);
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *s = arg;
    const bool has_zero = kernel_input(call, s->w_zero) != NULL;
    struct job job = {.state = s,
                      .call = call,
                      .run = run,
                      .weights = s->weights,
                      .has_zeros = s->has_zeros,
                      .scratch = run->scratch};
    double products = (double)shape_count(&call->out[0]->shape) * (double)(steps(s) + 1);

    if (s->weights.packed == NULL) {
        pack_weights(s, call, run->in[s->w], has_zero ? run->in[s->w_zero] : NULL, run->scratch);
        job.weights.packed = run->scratch;
        job.has_zeros = any_zeros(s, run->scratch);
        job.scratch += packed_bytes(s);
    }
    conv_columns_fill(&job.weights, call, run, s->x_zero, s->is_qlinear, job.scratch, &job.columns);
    job.scratch += s->column_bytes;
    job.x_zero = (int32_t)quantized_parameter(call, run, s->x_zero, 0);
    job.tiles = (s->out_cells + TILE - 1) / TILE;
    team_run(team_size(call->threads, products / 30), run_job, &job);
    return STATUS_OK;
}

const struct kernel kernel_conv_integer_bytes = {
    .name = "cpu:bytes",
    .prepare = prepare_integer,
    .enqueue = enqueue,
    .release = free,
};

const struct kernel kernel_qlinear_conv_bytes = {
    .name = "cpu:bytes",
    .prepare = prepare_qlinear,
    .enqueue = enqueue,
    .release = free,
};
