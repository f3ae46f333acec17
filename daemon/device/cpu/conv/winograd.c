/* Conv by Winograd: which layers, how the weights are transformed, how the work is cut.
 *
 * What the bits of a result depend on is the tile size, chosen by the geometry of one image. Orders
 * and blocks only say what is computed when. */
#include "device/cpu/conv/winograd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/constant.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/team.h"
#include "ops/conv.h"

extern const struct winograd_ops winograd_ops_avx2, winograd_ops_avx512;

enum {
    LARGE_MAP = 20,            /* F(4x4) tiles an image, from which on F(4x4) is quicker */
    SMALL_MAP = 20,            /* F(2x2) tiles an image, below which little is gained */
    LARGE_WEIGHTS = 512 << 10, /* weights of a layer that are not worth 1.8 times the bytes then */
    MANY_CHANNELS = 64,        /* from which on the weights do not fit L2 anyway */
    MAX_BLOCK_TILES = 96,
    POINTS_BYTES = 3 << 20, /* of transformed input: stays in L3 */
    TILES_BYTES = 256 << 10 /* … in L2 */
};

/* NULL at the baseline. */
static const struct winograd_ops *winograd_ops_for(enum cpu_isa isa)
{
    static const struct winograd_ops *const table[CPU_ISA_COUNT] = {
        [CPU_AVX2] = &winograd_ops_avx2, [CPU_AVX512] = &winograd_ops_avx512};

    return table[isa];
}

struct state {
    struct winograd plan;
    const struct winograd_ops *ops;
    struct conv_step step;
    double time_ns; /* about, on one thread */
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static bool resolve(const struct kernel_call *call, struct conv_geometry *out_geometry)
{
    return conv_resolve(call->attrs, &call->in[CONV_X]->shape, &call->in[CONV_W]->shape,
                        out_geometry, NULL) == STATUS_OK;
}

static const char *refuses_geometry(const struct conv_geometry *g)
{
    const struct window *w = &g->window;

    if (w->spatial != 2 || w->kernel[0] != 3 || w->kernel[1] != 3)
        return "not 3x3";
    if (w->stride[0] != 1 || w->stride[1] != 1 || w->dilation[0] != 1 || w->dilation[1] != 1)
        return "stride or dilation";
    if (g->groups != 1)
        return "groups";
    if (w->pad_begin[0] > 2 || w->pad_begin[1] > 2)
        return "more padding than taps";
    return NULL;
}

static bool is_small(const struct conv_geometry *g)
{
    return ceil_div(g->window.out[0], 2) * ceil_div(g->window.out[1], 2) < SMALL_MAP &&
           g->in_channels * g->out_channels * 9 > LARGE_WEIGHTS;
}

static const char *refuses(const struct kernel_call *call)
{
    const struct operand *bias = kernel_input(call, CONV_BIAS);
    const struct winograd_ops *ops = winograd_ops_for(cpu_isa_of(call->device));
    struct conv_geometry geometry;
    const char *refusal;

    if (ops == NULL)
        return "needs AVX2";
    if (call->in[CONV_X]->dtype != DTYPE_FLOAT)
        return "only float";
    if (conv_has_more(call->op, call->attrs))
        return "a prelude or a shuffle";
    if (call->in[CONV_X]->layout != LAYOUT_BLOCKED)
        return "only blocked";
    if (call->in[CONV_W]->constant == NULL || (bias != NULL && bias->constant == NULL))
        return "weights are computed at run time";
    if (shape_count(&call->out[0]->shape) == 0 || !resolve(call, &geometry))
        return "no elements";
    refusal = refuses_geometry(&geometry);
    if (refusal == NULL && is_small(&geometry))
        refusal = "a small map under large weights";
    if (refusal == NULL && geometry.in_channels < ops->vector)
        refusal = "too few channels";
    return refusal;
}

/* ---- cutting the work ---- */

static int64_t odd_lines(int64_t floats) /* neighbouring blocks fall into different cache sets */
{
    return ((floats + 15) / 16 | 1) * 16;
}

static void choose_blocks(struct winograd *p, const struct winograd_ops *ops)
{
    const int64_t tile_bytes = 4 * p->points * ops->vector * p->in_blocks;
    const int64_t budget = p->order == WINOGRAD_POINTS ? POINTS_BYTES : TILES_BYTES;
    int64_t tiles = budget / tile_bytes / ops->rows * ops->rows;

    if (tiles < 2 * ops->rows)
        tiles = 2 * ops->rows;
    if (tiles > MAX_BLOCK_TILES)
        tiles = MAX_BLOCK_TILES;
    p->blocks = ceil_div(p->tiles, tiles);
    if (p->order == WINOGRAD_TILES)
        p->blocks = ceil_div(p->blocks, p->members) * p->members;
    p->block_tiles = ceil_div(p->tiles, p->blocks);
    p->blocks = ceil_div(p->tiles, p->block_tiles);
    p->stride = odd_lines(p->points * p->block_tiles * ops->vector);
}

static void make_plan(const struct kernel_call *call, const struct conv_geometry *g,
                      struct state *state)
{
    const struct winograd_ops *ops = winograd_ops_for(cpu_isa_of(call->device));
    const int64_t out_h = g->window.out[0], out_w = g->window.out[1];
    const bool large = ceil_div(out_h, 4) * ceil_div(out_w, 4) >= LARGE_MAP;
    struct winograd *p = &state->plan;
    const int64_t y_floats = ceil_div(g->out_channels, ops->vector) * out_h * out_w * ops->vector;

    state->ops = ops;
    p->m = large && !cpu_is_strict(call->device) ? 4 : 2;
    p->points = (p->m + 2) * (p->m + 2);
    p->order = g->in_channels >= MANY_CHANNELS && g->out_channels >= MANY_CHANNELS ? WINOGRAD_POINTS
                                                                                   : WINOGRAD_TILES;
    p->images = g->batch;
    p->in_channels = g->in_channels;
    p->out_channels = g->out_channels;
    p->h = g->window.in[0];
    p->w = g->window.in[1];
    p->out_h = out_h;
    p->out_w = out_w;
    p->pad_top = g->window.pad_begin[0];
    p->pad_left = g->window.pad_begin[1];
    p->in_blocks = ceil_div(g->in_channels, ops->vector);
    p->out_blocks = ceil_div(g->out_channels, ops->vector);
    p->panels = ceil_div(p->out_blocks, 2);
    p->tiles_down = ceil_div(out_h, p->m);
    p->tiles_across = ceil_div(out_w, p->m);
    p->tiles = g->batch * p->tiles_down * p->tiles_across;
    p->epilogue = ((const struct conv_attrs *)call->attrs)->epilogue;
    p->x_image = operand_stride(call->in[CONV_X], p->in_blocks * p->h * p->w * ops->vector);
    p->y_image = operand_stride(call->out[0], y_floats);
    p->residual_image =
        p->epilogue.has_residual ? operand_stride(call->in[CONV_RESIDUAL], y_floats) : p->y_image;
    state->time_ns =
        (double)(p->tiles * p->points) * (double)(g->in_channels * g->out_channels) / 40;
    p->members = team_most(call->threads, state->time_ns);
    choose_blocks(p, ops);
}

static size_t scratch_bytes(const struct winograd *p)
{
    int64_t strides =
        p->order == WINOGRAD_TILES ? p->members * (p->in_blocks + 2) : p->in_blocks + 2 * p->panels;

    return (size_t)(strides * p->stride) * sizeof(float);
}

/* ---- weights ---- */

static void make_matrix(int m, double g[WINOGRAD_EDGE][3])
{
    static const double points2[] = {0, 1, -1}, points4[] = {0, 0.75, -0.75, 1.5, -1.5};
    const double *x = m == 2 ? points2 : points4;

    for (int i = 0; i <= m; i++) {
        double scale = 1;

        for (int j = 0; j <= m; j++)
            scale /= j != i ? x[i] - x[j] : 1;
        g[i][0] = scale;
        g[i][1] = scale * x[i];
        g[i][2] = scale * x[i] * x[i];
    }
    g[m + 1][0] = g[m + 1][1] = 0;
    g[m + 1][2] = 1;
}

static size_t packed_bytes(const struct winograd *p, int64_t vector)
{
    return (size_t)(p->points * p->in_blocks * vector * p->panels * 2 * vector) * sizeof(float);
}

static enum status pack(const void *arg, const float *kernels, float *packed)
{
    const struct state *state = arg;
    const struct winograd *p = &state->plan;
    const int64_t vector = state->ops->vector;
    const int64_t panel = 2 * vector, usize = p->in_blocks * vector * panel;
    const bool by_points = p->order == WINOGRAD_POINTS;
    struct winograd_weights job = {.edge = p->m + 2,
                                   .step = p->in_channels * 9,
                                   .stride = by_points ? p->panels * usize : usize};

    make_matrix(p->m, job.g);
    if (p->in_channels % vector != 0 || p->out_channels % panel != 0)
        memset(packed, 0, packed_bytes(p, vector));
    for (int64_t o = 0; o < p->out_channels; o += vector) {
        const int64_t left = p->out_channels - o, q = o / panel;
        float *to = packed + (by_points ? q : q * p->points) * usize + o % panel;

        job.count = left < vector ? left : vector;
        for (int64_t c = 0; c < p->in_channels; c++) {
            job.kernels = kernels + (o * p->in_channels + c) * 9;
            job.to = to + c * panel;
            state->ops->transform(&job);
        }
    }
    return STATUS_OK;
}

static enum status share(struct kernel_prepare *prepare, struct state *state)
{
    const struct winograd *p = &state->plan;
    const int64_t vector = state->ops->vector;
    char format[64];

    state->step = (struct conv_step){
        .epilogue = &p->epilogue, .plan = p, .run = state->ops->run, .members = p->members};
    snprintf(format, sizeof(format), "winograd %d %d by %" PRId64, p->m, (int)p->order, vector);
    return conv_step_share(prepare, format, packed_bytes(p, vector), pack, state,
                           (size_t)(p->panels * 2 * vector), &state->step);
}

/* ---- the kernel ---- */

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    struct state *state = calloc(1, sizeof(*state));
    struct conv_geometry geometry;
    enum status status = STATUS_NO_MEMORY;

    (void)resolve(&prepare->call, &geometry); /* refuses() saw that it can be */
    if (state != NULL) {
        make_plan(&prepare->call, &geometry, state);
        status = share(prepare, state);
    }
    if (status != STATUS_OK) {
        free(state);
        return error_set(err, status, "no memory for packed weights");
    }
    prepare->state = state;
    prepare->scratch_bytes = scratch_bytes(&state->plan);
    snprintf(prepare->note, sizeof(prepare->note), "winograd f%dx%d, %s, %s", state->plan.m,
             state->plan.m, state->plan.order == WINOGRAD_POINTS ? "points" : "tiles",
             cpu_isa_name(cpu_isa_of(prepare->call.device)));
    return STATUS_OK;
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *state = arg;

    return conv_step_run(&state->step, call, run);
}

const struct kernel kernel_conv_winograd = {
    .name = "cpu:winograd",
    .flags = KERNEL_IN_PLACE_LAST | KERNEL_STRIDED,
    .layouts = 1u << LAYOUT_BLOCKED,
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};
