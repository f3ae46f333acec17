/* Conv by direct sums on the blocked layout: which layers, how the weights are packed, how the work
 * is cut.  The cut only says what is computed when: bits do not depend on it. */
#include "device/cpu/conv/direct.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/constant.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/team.h"
#include "ops/conv_pool.h"
#include "ops/mix_channels.h"

extern const struct direct_ops direct_ops_avx2, direct_ops_avx512;

enum {
    FEW_CHANNELS = 8,       /* of a plain input, at most */
    CHUNK_BYTES = 24 << 10, /* of the weights of a chunk of steps: stay in L1 */
    TILE_BYTES_PACKED = 256 << 10,
    TILE_BYTES = 512 << 10,   /* of a tile's input: stays in L2 */
    POOLED_BYTES = 512 << 10, /* of a panel's sums that are pooled: likewise */
    MANY_WEIGHTS = 1 << 20,   /* bytes that come from beyond L2 for each tile: … */
    TOO_MUCH_WASTE = 8,       /* times the products that there are */
    FEWEST_PIXELS = 48,       /* pixels of a tile, at least */
    FEWEST_PIXELS_MANY = 196  /* … when there are many weights */
};

const struct direct_ops *direct_ops_for(enum cpu_isa isa)
{
    static const struct direct_ops *const table[CPU_ISA_COUNT] = {
        [CPU_AVX2] = &direct_ops_avx2, [CPU_AVX512] = &direct_ops_avx512};

    return table[isa];
}

struct state {
    struct direct plan; /* first: that of a direct_inner is freed by it */
    size_t bytes;       /* its own, with what lies behind it */
    const struct direct_ops *ops;
    struct conv_step step;
    struct direct_phase *phases;
    struct direct_panel *panels; /* of all phases */
    struct direct_stretch *stretches;
    int64_t offsets[]; /* of all phases */
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_to(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}

static void set_axes(struct direct *p, const struct phases_form *form)
{
    const struct window *w = &form->geometry.window;

    for (size_t i = 0; i < 2; i++) {
        const struct phases_axis axis = phases_axis(form, i);

        p->in[i] = w->in[i];
        p->out[i] = phases_places(&axis, 0);
        p->size[i] = w->out[i];
        p->apart[i] = axis.phases;
        p->kernel[i] = form->transposed ? axis.reach + 1 : w->kernel[i];
        p->stride[i] = axis.step;
        p->dilation[i] = form->transposed ? 1 : w->dilation[i];
        p->pad[i] = -axis.base;
    }
}

/* What is known before the work is cut: channels, their groups and shuffles, steps and panels. */
static struct direct begin_plan(const struct kernel_call *call, const struct phases_form *form)
{
    const struct conv_geometry *g = &form->geometry;
    const int64_t vector = direct_ops_for(cpu_isa_of(call->device))->vector;
    struct direct p = {.form = *form,
                       .vector = vector,
                       .epilogue = form->epilogue,
                       .images = g->batch,
                       .in_channels = g->in_channels,
                       .out_channels = g->out_channels,
                       .out_blocks = ceil_div(g->out_channels, vector),
                       .groups = g->groups,
                       .taps = g->window.kernel[0] * g->window.kernel[1],
                       .thin = call->in[CONV_X]->layout == LAYOUT_PLAIN};

    if (!form->transposed) {
        const struct conv_attrs *attrs = call->attrs;

        p.prelude = attrs->has_prelude;
        p.prelude_low = attrs->prelude_low;
        p.x_shuffle = attrs->x_shuffle;
        p.filter_shuffle = attrs->filter_shuffle;
    }
    p.in_blocks = ceil_div(g->in_channels, direct_pitch(&p));
    set_axes(&p, form);
    direct_choose_spread(call, &p);
    direct_choose_channels(&p);
    return p;
}

/* Panels that meet several groups multiply the channels of each by zeros for the others. */
static bool wastes(const struct kernel_call *call, const struct phases_form *form)
{
    const struct direct p = begin_plan(call, form);

    return direct_weight_floats(&p) >=
           TOO_MUCH_WASTE * p.in_channels / p.groups * p.out_channels * p.taps;
}

static const char *refuses_any(const struct kernel_call *call, struct phases_form *form)
{
    const struct operand *bias = kernel_input(call, CONV_BIAS);
    const bool plain = call->in[CONV_X]->layout == LAYOUT_PLAIN;

    if (direct_ops_for(cpu_isa_of(call->device)) == NULL)
        return "needs AVX2";
    if (call->in[CONV_X]->dtype != DTYPE_FLOAT)
        return "only float";
    if (call->in[CONV_W]->constant == NULL || (bias != NULL && bias->constant == NULL))
        return "weights are computed at run time";
    if (shape_count(&call->out[0]->shape) == 0)
        return "no elements";
    if (!phases_resolve(call, form))
        return "more than two dimensions";
    if (form->geometry.groups > 1 && (form->transposed || wastes(call, form)))
        return "groups of few channels";
    if (plain &&
        (form->transposed || form->geometry.groups > 1 ||
         form->geometry.in_channels > FEW_CHANNELS || conv_has_more(call->op, call->attrs)))
        return "plain in, blocked out is for few channels";
    return NULL;
}

static const char *refuses(const struct kernel_call *call)
{
    struct phases_form form;

    return refuses_any(call, &form);
}

/* In plain layout, blocks that would be half empty do not matter (pixels.c). */
static const char *refuses_transpose(const struct kernel_call *call)
{
    struct phases_form form;
    const char *refusal = refuses_any(call, &form);

    if (refusal == NULL && 2 * form.geometry.out_channels <= (int64_t)call->device->channel_block)
        refusal = "few output channels";
    return refusal;
}

static bool resolve_pool(const struct kernel_call *call, struct window *out_pool)
{
    struct conv_geometry conv;

    return conv_pool_resolve(call->attrs, &call->in[CONV_X]->shape, &call->in[CONV_W]->shape, &conv,
                             out_pool, NULL) == STATUS_OK;
}

/* A result one cell wide would be turned (window_turn_narrow()), and the pool with it. */
static const char *refuses_pool(const struct kernel_call *call)
{
    struct phases_form form;
    struct window pool;
    const char *refusal = refuses_any(call, &form);

    if (refusal == NULL && (!resolve_pool(call, &pool) || pool.spatial != 2 || pool.in[1] == 1))
        refusal = "not of two dimensions";
    return refusal;
}

/* ---- cutting the work ---- */

/* Whether every pixel out comes from one pixel in. */
static bool is_pointwise(const struct direct *p)
{
    for (size_t i = 0; i < 2; i++)
        if (p->kernel[i] != 1 || p->pad[i] != 0 || (p->out[i] - 1) * p->stride[i] >= p->in[i])
            return false;
    return true;
}

static int64_t rows_of(const struct direct *p, int64_t lines)
{
    return (lines - 1) * p->stride[0] + (p->kernel[0] - 1) * p->dilation[0] + 1;
}

/* So many tiles of equal size that each member gets as many as the others. */
static int64_t share_out(int64_t tiles, int64_t members, int64_t most)
{
    tiles = round_to(tiles, members);
    return tiles < most ? tiles : most;
}

static int64_t fewest_pixels(const struct direct *p)
{
    return direct_weight_floats(p) * (int64_t)sizeof(float) > MANY_WEIGHTS ? FEWEST_PIXELS_MANY
                                                                           : FEWEST_PIXELS;
}

static void cut_flat(struct direct *p, int64_t rows)
{
    const int64_t pixel_bytes = p->in_blocks * p->vector * (int64_t)sizeof(float);
    const int64_t all = p->lines * p->line, fewest = fewest_pixels(p);
    int64_t tile = (p->packs ? TILE_BYTES_PACKED : TILE_BYTES) / pixel_bytes;

    if (tile < fewest)
        tile = fewest;
    p->tiles = ceil_div(all, tile);
    if (!p->by_panels)
        p->tiles = share_out(p->tiles, p->members, ceil_div(all, rows));
    p->tile = round_to(ceil_div(all, p->tiles), rows);
    p->tiles = ceil_div(all, p->tile);
    p->block = p->tile * p->vector;
}

static void cut_lines(struct direct *p)
{
    const int64_t line_bytes = p->in_blocks * p->row * p->stride[0] * (int64_t)sizeof(float);
    const int64_t fewest = ceil_div(fewest_pixels(p), p->out[1]);
    int64_t tile = TILE_BYTES_PACKED / line_bytes, parts;

    if (tile < fewest)
        tile = fewest;
    parts = ceil_div(p->out[0], tile); /* of an image */
    if (parts > 1 || p->images == 1) {
        while (!p->by_panels && p->images * parts % p->members != 0 && parts < p->out[0])
            parts++;
        p->tile = ceil_div(p->out[0], parts);
        p->tiles = p->images * ceil_div(p->out[0], p->tile);
    } else {
        p->tiles = ceil_div(p->images, tile / p->out[0]);
        if (!p->by_panels)
            p->tiles = share_out(p->tiles, p->members, p->images);
        p->tile = ceil_div(p->images, p->tiles) * p->out[0];
        p->tiles = ceil_div(p->lines, p->tile);
    }
    p->rows_of_image = rows_of(p, p->tile < p->out[0] ? p->tile : p->out[0]);
    p->block = p->rows_of_image * p->row * ceil_div(p->tile, p->out[0]);
}

/* Fewest lines are computed twice when tiles are large; what they are pooled from stays in L2, and
 * is never the whole of what is pooled: that would take more memory than two steps. */
static void cut_pooled(struct direct *p)
{
    const struct window *w = &p->pool.window;
    const int64_t reach = (w->kernel[1] - 1) * w->dilation[1] + 1, rows = w->out[1];
    const int64_t blocks = p->out_blocks < DIRECT_PANEL_BLOCKS ? 1 : DIRECT_PANEL_BLOCKS;
    const int64_t line = blocks * p->vector * p->size[1];
    const int64_t line_bytes =
        (line + p->in_blocks * p->row * p->stride[0]) * (int64_t)sizeof(float);
    int64_t tile = (POOLED_BYTES / line_bytes - reach) / w->stride[1] + 1, parts, lines;

    parts = ceil_div(rows, tile > 1 ? tile : 1);
    if (parts == 1 && rows > 1)
        parts = 2;
    while (p->images * parts % p->members != 0 && parts < rows)
        parts++;
    p->tile = ceil_div(rows, parts);
    p->tiles = p->images * ceil_div(rows, p->tile);
    lines = (p->tile - 1) * w->stride[1] + reach;
    lines = lines < p->out[0] ? lines : p->out[0];
    p->rows_of_image = rows_of(p, lines);
    p->block = p->rows_of_image * p->row;
    p->y_block = lines * p->size[1] * p->vector;
}

static void choose_members(const struct kernel_call *call, struct direct *p)
{
    const int64_t most_tiles = p->flat ? p->lines * p->line : p->lines;
    const double macs = (double)direct_weight_floats(p) * (double)(p->lines * p->line);

    p->members = team_most(call->threads, macs / 50);
    p->by_panels = p->members > 1 && !p->pools &&
                   (direct_weight_floats(p) > p->images * p->x_image || most_tiles < p->members) &&
                   (p->panels % p->members == 0 || p->panels >= 4 * p->members);
}

/* A residual that is added last may lie where the sums would have to wait. */
static int64_t choose_chunk(const struct direct *p, int64_t steps)
{
    const int64_t step_bytes =
        p->channels * DIRECT_PANEL_BLOCKS * p->vector * (int64_t)sizeof(float);
    const int64_t chunks = ceil_div(steps * step_bytes, CHUNK_BYTES);

    if (chunks == 0 || (p->epilogue.has_residual && p->epilogue.residual_after))
        return steps > 0 ? steps : 1;
    return ceil_div(steps, chunks);
}

/* Offsets a step. */
static int64_t lookups_of(const struct direct *p)
{
    return p->scattered ? p->channels : 1;
}

int64_t direct_offset_of(const struct direct *p, int64_t channel)
{
    const int64_t pitch = direct_pitch(p);

    channel = channel < p->in_channels ? channel : p->in_channels - 1;
    if (p->x_shuffle != 0)
        channel = shuffled_channel(channel, p->in_channels, p->x_shuffle);
    return channel / pitch * p->block + channel % pitch;
}

/* Fills the phase's offsets, channels first, and returns how many steps they are. */
static int64_t set_offsets(const struct direct *p, const struct phases_form *form,
                           const struct phases_axis *axes, const int64_t *place, int64_t *to)
{
    const int64_t pitch = direct_pitch(p);
    const int64_t lookups = lookups_of(p);
    int64_t steps = 0;
    const struct window *w = &form->geometry.window;
    int64_t y, x;

    for (int64_t c = 0; c < p->in_channels; c += p->channels)
        for (int64_t i = 0; i < w->kernel[0]; i++)
            for (int64_t j = 0; j < w->kernel[1]; j++)
                if (phases_meet(form, axes, 0, place[0], i, &y) &&
                    phases_meet(form, axes, 1, place[1], j, &x)) {
                    for (int64_t k = 0; k < lookups; k++)
                        *to++ = direct_offset_of(p, c + k) + y * p->row +
                                x % p->stride[1] * p->phase + x / p->stride[1] * pitch;
                    steps++;
                }
    return steps;
}

static void set_phases(const struct phases_form *form, struct state *state)
{
    const struct phases_axis axes[2] = {phases_axis(form, 0), phases_axis(form, 1)};
    struct direct *p = &state->plan;
    struct direct_panel *panels = state->panels;
    int64_t k = 0, *offsets = state->offsets, weights = 0, steps;

    for (int64_t y = 0; y < axes[0].phases; y++)
        for (int64_t x = 0; x < axes[1].phases; x++, panels += p->panels) {
            struct direct_phase *phase = &state->phases[k++];

            *phase = (struct direct_phase){.place = {y, x}, .offsets = offsets, .panels = panels};
            steps = p->spread ? direct_set_spread_offsets(p, offsets)
                              : set_offsets(p, form, axes, phase->place, offsets);
            offsets += steps * lookups_of(p);
            phase->chunk = choose_chunk(p, p->spread ? direct_tap_steps(p) : steps);
            weights += direct_set_panels(p, steps, phase->chunk, weights, panels);
        }
}

static void set_pool(const struct kernel_call *call, struct direct *p)
{
    const struct conv_pool_attrs *attrs = call->attrs;

    p->pools = true;
    p->pool = (struct pool_plane){.kind = attrs->average ? POOL_AVERAGE : POOL_MAX,
                                  .count_padding = attrs->pool.count_include_pad != 0,
                                  .block = (size_t)p->vector};
    (void)resolve_pool(call, &p->pool.window); /* refuses_pool() saw that it can be */
    window_widen(&p->pool.window, WINDOW_MAX_RANK);
    p->pool_ops = pool_ops_for(cpu_isa_of(call->device));
}

/* Where operands lie, and what a line of pixels is. */
static void set_operands(const struct kernel_call *call, const struct phases_form *form,
                         struct direct *p)
{
    const int64_t pitch = direct_pitch(p);
    int64_t y_floats;

    if (call->op == &op_conv_pool)
        set_pool(call, p);
    p->x_image = operand_stride(call->in[CONV_X], p->in_blocks * p->in[0] * p->in[1] * pitch);
    p->y_block = p->size[0] * p->size[1] * p->vector;
    y_floats = p->out_blocks * p->vector *
               shape_product(&call->out[0]->shape, 2, call->out[0]->shape.rank);
    p->y_image = operand_stride(call->out[0], y_floats);
    p->residual_image =
        p->epilogue.has_residual ? operand_stride(call->in[CONV_RESIDUAL], y_floats) : p->y_image;
    p->flat = !p->thin && !form->transposed && !p->pools && is_pointwise(p);
    p->packs = !p->spread && (!p->flat || p->prelude || p->stride[0] != 1 || p->stride[1] != 1);
    p->line = p->flat ? p->out[0] * p->out[1] : p->out[1];
    p->lines = p->flat ? p->images : p->images * p->out[0];
    if (p->spread) {
        p->row = p->phase = p->in[1] * pitch;
        return;
    }
    p->phase = ceil_div((p->out[1] - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilation[1] + 1,
                        p->stride[1]) *
               pitch;
    p->row = p->phase * p->stride[1];
}

static void cut(const struct kernel_call *call, int64_t rows, struct direct *p)
{
    choose_members(call, p);
    if (p->pools)
        cut_pooled(p);
    else if (p->flat)
        cut_flat(p, rows);
    else
        cut_lines(p);
    if (!p->packs)
        p->block = p->in[0] * p->in[1] * p->vector;
    p->packed_floats = p->packs ? round_to(p->in_blocks * p->block, 16) : 0;
    p->scratch_floats =
        p->packed_floats + (p->pools ? round_to(DIRECT_PANEL_BLOCKS * p->y_block, 16) : 0);
}

static void cut_inner(const struct direct_inner *inner, struct direct *p)
{
    p->members = 1;
    p->tile = inner->pixels;
    p->packs = inner->x_block != 0;
    p->block = p->packs ? inner->x_block : p->in[0] * p->in[1] * p->vector;
    if (inner->y_block != 0)
        p->y_block = inner->y_block;
}

static void make_plan(const struct kernel_call *call, const struct phases_form *form,
                      const struct direct_inner *inner, struct state *state)
{
    const struct direct_ops *ops = state->ops;
    struct direct *p = &state->plan;

    set_operands(call, form, p);
    if (inner != NULL)
        cut_inner(inner, p);
    else
        cut(call, ops->rows, p);
    p->strips = p->flat    ? ceil_div(p->tile, ops->rows)
                : p->pools ? p->y_block / (p->size[1] * ops->vector) * ceil_div(p->line, ops->rows)
                           : p->tile * ceil_div(p->line, ops->rows);
    p->phase_count = p->apart[0] * p->apart[1];
    p->phases = state->phases;
    p->stretches = state->stretches;
    if (p->spread)
        direct_set_stretches(p, state->stretches);
    set_phases(form, state);
}

/* ---- constants ---- */

enum status direct_share(struct kernel_prepare *prepare, const struct direct *p,
                         struct conv_step *step)
{
    const struct direct_ops *ops = direct_ops_for(cpu_isa_of(prepare->call.device));
    char format[2 * PHASES_FORMAT_BYTES], by_phases[PHASES_FORMAT_BYTES];

    *step = (struct conv_step){
        .epilogue = &p->epilogue, .plan = p, .run = ops->run, .members = p->members};
    phases_format(&p->form, by_phases);
    if (p->spread)
        snprintf(by_phases, sizeof(by_phases), " taps %" PRId64 "-%" PRId64 " %" PRId64 "-%" PRId64,
                 p->met[0].from, p->met[0].end, p->met[1].from, p->met[1].end);
    snprintf(format, sizeof(format), "direct %" PRId64 " by %" PRId64 " /%" PRId64 " %" PRId64 "%s",
             p->channels, p->vector, p->groups, p->filter_shuffle, by_phases);
    return conv_step_share(prepare, format, (size_t)direct_weight_floats(p) * sizeof(float),
                           direct_pack, p, (size_t)(p->out_blocks * p->vector), step);
}

/* ---- the kernel ---- */

static struct state *create(const struct kernel_call *call, const struct phases_form *form,
                            const struct direct_inner *inner)
{
    const struct direct plan = begin_plan(call, form);
    const size_t offsets =
        (size_t)(ceil_div(plan.in_channels, plan.channels) * lookups_of(&plan) * plan.taps);
    const size_t phases = (size_t)(phases_axis(form, 0).phases * phases_axis(form, 1).phases);
    const size_t panels = (size_t)plan.panels;
    const size_t bytes =
        sizeof(struct state) + offsets * sizeof(int64_t) +
        phases * (sizeof(struct direct_phase) + panels * sizeof(struct direct_panel)) +
        (size_t)plan.stretch_count * sizeof(struct direct_stretch);
    struct state *state = calloc(1, bytes);

    if (state == NULL)
        return NULL;
    state->bytes = bytes;
    state->plan = plan;
    state->ops = direct_ops_for(cpu_isa_of(call->device));
    state->phases = (struct direct_phase *)(void *)(state->offsets + offsets);
    state->panels = (struct direct_panel *)(void *)(state->phases + phases);
    state->stretches = (struct direct_stretch *)(void *)(state->panels + phases * panels);
    make_plan(call, form, inner, state);
    return state;
}

struct direct *direct_create_inner(const struct kernel_call *call, const struct direct_inner *inner)
{
    struct phases_form form;
    struct state *state;

    (void)phases_resolve(call, &form);
    state = create(call, &form, inner);
    return state != NULL ? &state->plan : NULL;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    enum status status = STATUS_NO_MEMORY;
    struct phases_form form;
    struct state *state;
    const struct direct *p;

    (void)phases_resolve(&prepare->call, &form); /* refuses() saw that it can be */
    state = create(&prepare->call, &form, NULL);
    if (state != NULL)
        status = direct_share(prepare, &state->plan, &state->step);
    if (status == STATUS_OK)
        status = direct_share_prelude(prepare, &state->plan);
    if (status != STATUS_OK) {
        free(state);
        return error_set(err, status, "no memory for packed weights");
    }
    p = &state->plan;
    prepare->state = state;
    prepare->scratch_bytes =
        (size_t)(p->scratch_floats * (p->by_panels ? 1 : (int64_t)p->members)) * sizeof(float);
    prepare->host_bytes = state->bytes;
    snprintf(prepare->note, sizeof(prepare->note), "direct%s, %s of %" PRId64 "%s, %s",
             p->prelude                                    ? " behind scale and shift"
             : p->x_shuffle != 0 || p->filter_shuffle != 0 ? " of shuffled channels"
             : p->spread                                   ? " by taps that meet cells"
                                                           : "",
             p->by_panels ? "panels, tiles" : "tiles", p->tile,
             p->flat    ? ""
             : p->pools ? " pooled rows"
                        : " rows",
             cpu_isa_name(cpu_isa_of(prepare->call.device)));
    return STATUS_OK;
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *state = arg;

    return conv_step_run(&state->step, call, run);
}

#define DIRECT(variant, refuses_what)                                                              \
    const struct kernel kernel_##variant = {                                                       \
        .name = "cpu:direct",                                                                      \
        .flags = KERNEL_IN_PLACE_LAST | KERNEL_STRIDED,                                            \
        .layouts = 1u << LAYOUT_BLOCKED,                                                           \
        .in_layouts = 1u << LAYOUT_PLAIN,                                                          \
        .refuses = refuses_what,                                                                   \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
        .release = free,                                                                           \
    }

DIRECT(conv_transpose_direct, refuses_transpose);
DIRECT(conv_pool_direct, refuses_pool);
DIRECT(conv_direct, refuses);
