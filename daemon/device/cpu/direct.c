/* Conv by direct sums on the blocked layout: which layers, how the weights are packed, how the work
 * is cut.  The cut only says what is computed when: bits do not depend on it. */
#include "device/cpu/direct.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/constant.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/team.h"
#include "ops/conv.h"

extern const struct direct_ops direct_ops_avx2, direct_ops_avx512;

enum {
    FEW_CHANNELS = 8,       /* of a plain input, at most */
    PANEL_BLOCKS = 2,       /* output blocks that a panel of weights is for */
    CHUNK_BYTES = 24 << 10, /* of the weights of a chunk of steps: stay in L1 */
    TILE_BYTES_PACKED = 256 << 10,
    TILE_BYTES = 512 << 10,  /* of a tile's input: stays in L2 */
    MANY_WEIGHTS = 1 << 20,  /* bytes that come from beyond L2 for each tile: … */
    MOST_WASTE = 8,          /* times the products that there are */
    FEWEST_PIXELS = 48,      /* pixels of a tile, at least */
    FEWEST_PIXELS_MANY = 196 /* … when there are many weights */
};

/* NULL at the baseline. */
static const struct direct_ops *direct_ops_for(enum cpu_isa isa)
{
    static const struct direct_ops *const table[CPU_ISA_COUNT] = {
        [CPU_AVX2] = &direct_ops_avx2, [CPU_AVX512] = &direct_ops_avx512};

    return table[isa];
}

struct state {
    struct direct plan;
    struct phases_form form;
    const struct direct_ops *ops;
    struct conv_step step;
    struct direct_phase *phases;
    struct direct_panel *panels; /* of all phases */
    int64_t offsets[];           /* of all phases */
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_to(int64_t a, int64_t b)
{
    return ceil_div(a, b) * b;
}

/* Of a step. */
static int64_t channels_of(const struct direct *p)
{
    return p->thin ? 1 : DIRECT_CHANNELS;
}

static int64_t pitch_of(const struct direct *p, int64_t vector)
{
    return p->thin ? 1 : vector;
}

/* The input channels that a panel's outputs are sums of, in steps, from a whole block on. */
struct extent {
    int64_t block, steps;
};

static struct extent find_extent(const struct direct *p, int64_t panel, int64_t vector)
{
    const int64_t in = p->in_channels / p->groups, out = p->out_channels / p->groups;
    const int64_t first = panel * PANEL_BLOCKS * vector, end = first + PANEL_BLOCKS * vector;
    const int64_t last = (end < p->out_channels ? end : p->out_channels) - 1;
    const int64_t block = first / out * in / pitch_of(p, vector);
    const int64_t channels = (last / out + 1) * in - block * pitch_of(p, vector);

    return (struct extent){block, ceil_div(channels, channels_of(p))};
}

/* Of a panel, by one channel in. */
static int64_t width_of(const struct direct *p, int64_t panel, int64_t vector)
{
    const int64_t left = p->out_blocks - panel * PANEL_BLOCKS;

    return (left < PANEL_BLOCKS ? left : PANEL_BLOCKS) * vector;
}

static int64_t weight_floats(const struct direct *p, int64_t vector)
{
    const int64_t taps = p->steps / ceil_div(p->in_channels, channels_of(p));
    int64_t floats = 0;

    for (int64_t i = 0; i < p->panels; i++)
        floats += find_extent(p, i, vector).steps * taps * channels_of(p) * width_of(p, i, vector);
    return floats;
}

/* Panels that meet several groups multiply the channels of each by zeros for the others. */
static bool wastes(const struct kernel_call *call, const struct conv_geometry *g)
{
    const int64_t vector = direct_ops_for(cpu_isa_of(call->device))->vector;
    struct direct p = {.in_channels = g->in_channels,
                       .out_channels = g->out_channels,
                       .out_blocks = ceil_div(g->out_channels, vector),
                       .groups = g->groups,
                       .steps = ceil_div(g->in_channels, DIRECT_CHANNELS)};

    p.panels = ceil_div(p.out_blocks, PANEL_BLOCKS);
    return weight_floats(&p, vector) > MOST_WASTE * g->in_channels / g->groups * g->out_channels;
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
    if (form->geometry.groups > 1 && (form->transposed || wastes(call, &form->geometry)))
        return "groups of few channels";
    if (plain &&
        (form->transposed || form->geometry.groups > 1 ||
         form->geometry.in_channels > FEW_CHANNELS || conv_has_prelude(call->op, call->attrs)))
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

/* ---- cutting the work ---- */

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

static int64_t fewest_pixels(const struct direct *p, int64_t vector)
{
    return weight_floats(p, vector) * (int64_t)sizeof(float) > MANY_WEIGHTS ? FEWEST_PIXELS_MANY
                                                                            : FEWEST_PIXELS;
}

static void cut_flat(struct direct *p, const struct direct_ops *ops)
{
    const int64_t pixel_bytes = p->in_blocks * ops->vector * (int64_t)sizeof(float);
    const int64_t all = p->lines * p->line, fewest = fewest_pixels(p, ops->vector);
    int64_t tile = (p->packs ? TILE_BYTES_PACKED : TILE_BYTES) / pixel_bytes;

    if (tile < fewest)
        tile = fewest;
    p->tiles = ceil_div(all, tile);
    if (!p->by_panels)
        p->tiles = share_out(p->tiles, p->members, ceil_div(all, ops->rows));
    p->tile = round_to(ceil_div(all, p->tiles), ops->rows);
    p->tiles = ceil_div(all, p->tile);
    p->block = p->tile * ops->vector;
}

static void cut_lines(struct direct *p, const struct direct_ops *ops)
{
    const int64_t line_bytes = p->in_blocks * p->row * p->stride[0] * (int64_t)sizeof(float);
    const int64_t fewest = ceil_div(fewest_pixels(p, ops->vector), p->out[1]);
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

static void choose_members(const struct kernel_call *call, struct direct *p, int64_t vector)
{
    const int64_t most_tiles = p->flat ? p->lines * p->line : p->lines;
    const double macs = (double)weight_floats(p, vector) * (double)(p->lines * p->line);

    p->members = team_most(call->threads, macs / 50);
    p->by_panels = p->members > 1 &&
                   (weight_floats(p, vector) > p->images * p->x_image || most_tiles < p->members) &&
                   (p->panels % p->members == 0 || p->panels >= 4 * p->members);
}

/* A residual that is added last may lie where the sums would have to wait. */
static int64_t choose_chunk(const struct direct *p, int64_t vector, int64_t steps)
{
    const int64_t step_bytes = channels_of(p) * PANEL_BLOCKS * vector * (int64_t)sizeof(float);
    const int64_t chunks = ceil_div(steps * step_bytes, CHUNK_BYTES);

    if (chunks == 0 || (p->epilogue.has_residual && p->epilogue.residual_after))
        return steps > 0 ? steps : 1;
    return ceil_div(steps, chunks);
}

/* Panels of `steps` steps, or fewer, when they do not need all channels.  Returns how many floats
 * their weights are. */
static int64_t set_panels(const struct direct *p, int64_t vector, int64_t steps, int64_t chunk,
                          int64_t before, struct direct_panel *panels)
{
    const int64_t taps = steps / ceil_div(p->in_channels, channels_of(p));
    int64_t floats = before;

    for (int64_t i = 0; i < p->panels; i++) {
        const struct extent extent = find_extent(p, i, vector);
        const int64_t count = extent.steps * taps;

        panels[i] = (struct direct_panel){.in_block = extent.block,
                                          .steps = count,
                                          .chunks = count > 0 ? ceil_div(count, chunk) : 1,
                                          .weights = floats};
        floats += count * channels_of(p) * width_of(p, i, vector);
    }
    return floats - before;
}

/* Fills the phase's offsets, channels first, and returns how many steps they are. */
static int64_t set_offsets(const struct direct *p, const struct phases_form *form,
                           const struct phases_axis *axes, const int64_t *place, int64_t vector,
                           int64_t *to)
{
    const int64_t pitch = pitch_of(p, vector), channels = channels_of(p), *first = to;
    const struct window *w = &form->geometry.window;
    int64_t y, x;

    for (int64_t c = 0; c < p->in_channels; c += channels)
        for (int64_t i = 0; i < w->kernel[0]; i++)
            for (int64_t j = 0; j < w->kernel[1]; j++)
                if (phases_meet(form, axes, 0, place[0], i, &y) &&
                    phases_meet(form, axes, 1, place[1], j, &x))
                    *to++ = c / pitch * p->block + c % pitch + y * p->row +
                            x % p->stride[1] * p->phase + x / p->stride[1] * pitch;
    return to - first;
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
            steps = set_offsets(p, form, axes, phase->place, state->ops->vector, offsets);
            offsets += steps;
            phase->chunk = choose_chunk(p, state->ops->vector, steps);
            weights += set_panels(p, state->ops->vector, steps, phase->chunk, weights, panels);
        }
}

static void make_plan(const struct kernel_call *call, const struct phases_form *form,
                      struct state *state)
{
    const struct conv_geometry *g = &form->geometry;
    const struct direct_ops *ops = state->ops;
    struct direct *p = &state->plan;
    int64_t pitch;

    p->epilogue = form->epilogue;
    if (!form->transposed) {
        const struct conv_attrs *attrs = call->attrs;

        p->prelude = attrs->has_prelude;
        p->prelude_low = attrs->prelude_low;
    }
    p->thin = call->in[CONV_X]->layout == LAYOUT_PLAIN;
    pitch = pitch_of(p, ops->vector);
    p->images = g->batch;
    p->in_channels = g->in_channels;
    p->out_channels = g->out_channels;
    p->in_blocks = ceil_div(g->in_channels, pitch);
    p->out_blocks = ceil_div(g->out_channels, ops->vector);
    p->panels = ceil_div(p->out_blocks, PANEL_BLOCKS);
    p->groups = g->groups;
    set_axes(p, form);
    p->x_image = p->in_blocks * p->in[0] * p->in[1] * pitch;
    p->y_image = p->out_blocks * p->size[0] * p->size[1] * ops->vector;
    p->flat = !p->thin && !form->transposed && is_pointwise(p);
    p->packs = !p->flat || p->prelude || p->stride[0] != 1 || p->stride[1] != 1;
    p->line = p->flat ? p->out[0] * p->out[1] : p->out[1];
    p->lines = p->flat ? p->images : p->images * p->out[0];
    p->steps = ceil_div(g->in_channels, channels_of(p)) * g->window.kernel[0] * g->window.kernel[1];
    p->phase = ceil_div((p->out[1] - 1) * p->stride[1] + (p->kernel[1] - 1) * p->dilation[1] + 1,
                        p->stride[1]) *
               pitch;
    p->row = p->phase * p->stride[1];
    choose_members(call, p, ops->vector);
    (p->flat ? cut_flat : cut_lines)(p, ops);
    if (!p->packs)
        p->block = p->in[0] * p->in[1] * ops->vector;
    p->scratch_floats = p->packs ? round_to(p->in_blocks * p->block, 16) : 0;
    p->strips = p->flat ? ceil_div(p->tile, ops->rows) : p->tile * ceil_div(p->line, ops->rows);
    p->phase_count = p->apart[0] * p->apart[1];
    p->phases = state->phases;
    set_phases(form, state);
}

/* ---- constants ---- */

/* The taps of a phase by their numbers in the kernel; returns how many they are. */
static int64_t list_taps(const struct phases_form *form, const struct direct_phase *phase,
                         int64_t *numbers)
{
    const struct window *w = &form->geometry.window;
    const struct phases_axis axes[2] = {phases_axis(form, 0), phases_axis(form, 1)};
    int64_t count = 0, ignored;

    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++)
            if (phases_meet(form, axes, 0, phase->place[0], i, &ignored) &&
                phases_meet(form, axes, 1, phase->place[1], j, &ignored))
                numbers[count++] = i * w->kernel[1] + j;
    return count;
}

/* One channel pair's taps at their place: [panel][channels of a step][tap][channel][out channel].
 */
static void pack_taps(const struct state *state, const struct direct_phase *phase, int64_t o,
                      int64_t c, const float *taps, const int64_t *numbers, int64_t count,
                      float *packed)
{
    const struct direct *p = &state->plan;
    const int64_t vector = state->ops->vector, channels = channels_of(p);
    const int64_t index = o / (PANEL_BLOCKS * vector), width = width_of(p, index, vector);
    const struct direct_panel *panel = &phase->panels[index];

    c -= panel->in_block * pitch_of(p, vector);
    packed += panel->weights + o % (PANEL_BLOCKS * vector);
    for (int64_t i = 0; i < count; i++)
        packed[((c / channels * count + i) * channels + c % channels) * width] = taps[numbers[i]];
}

static void pack_phase(const struct state *state, const struct phases_form *form,
                       const struct direct_phase *phase, const float *kernels, int64_t *numbers,
                       float *packed)
{
    const struct direct *p = &state->plan;
    const int64_t taps = form->geometry.window.kernel[0] * form->geometry.window.kernel[1];
    const int64_t count = list_taps(form, phase, numbers);

    const int64_t in = p->in_channels / p->groups, out = p->out_channels / p->groups;

    for (int64_t o = 0; o < p->out_channels; o++)
        for (int64_t i = 0; i < in; i++) {
            const int64_t c = o / out * in + i; /* a transposed one has no groups */
            const int64_t filter = form->transposed ? c * p->out_channels + o : o * in + i;

            pack_taps(state, phase, o, c, kernels + filter * taps, numbers, count, packed);
        }
}

static enum status pack(const void *arg, const float *weights, float *packed)
{
    const struct state *state = arg;
    const struct direct *p = &state->plan;
    const struct window *w = &state->form.geometry.window;
    int64_t *numbers = calloc((size_t)(w->kernel[0] * w->kernel[1]), sizeof(*numbers));

    if (numbers == NULL)
        return STATUS_NO_MEMORY;
    memset(packed, 0, (size_t)weight_floats(p, state->ops->vector) * sizeof(float));
    for (int64_t k = 0; k < p->phase_count; k++)
        pack_phase(state, &state->form, &p->phases[k], weights, numbers, packed);
    free(numbers);
    return STATUS_OK;
}

static enum status share(struct kernel_prepare *prepare, struct state *state)
{
    const struct direct *p = &state->plan;
    const int64_t vector = state->ops->vector;
    char format[PHASES_FORMAT_BYTES + 32], by_phases[PHASES_FORMAT_BYTES];

    state->step = (struct conv_step){
        .epilogue = &p->epilogue, .plan = p, .run = state->ops->run, .members = p->members};
    phases_format(&state->form, by_phases);
    snprintf(format, sizeof(format), "direct %" PRId64 " by %" PRId64 " /%" PRId64 "%s",
             channels_of(p), vector, p->groups, by_phases);
    return conv_step_share(prepare, format, (size_t)weight_floats(p, vector) * sizeof(float), pack,
                           state, (size_t)(p->out_blocks * vector), &state->step);
}

static double element(const struct operand *operand, size_t i)
{
    float value;

    memcpy(&value, (const char *)operand->constant + i * sizeof(value), sizeof(value));
    return (double)value;
}

/* A prelude's factors, then its summands, each padded with zeros to whole blocks. */
static void fill_prelude(const struct kernel_call *call, size_t channels, size_t padded,
                         float *factors)
{
    const struct conv_attrs *attrs = call->attrs;
    const struct operand *const *in = call->in + CONV_PRELUDE; /* scale, B, mean, var */

    memset(factors, 0, 2 * padded * sizeof(float));
    for (size_t c = 0; c < channels; c++) {
        double factor =
            element(in[0], c) / sqrt(element(in[3], c) + (double)attrs->prelude_epsilon);

        factors[c] = (float)factor;
        factors[padded + c] = (float)(element(in[1], c) - element(in[2], c) * factor);
    }
}

static enum status share_prelude(struct kernel_prepare *prepare, struct state *state)
{
    const struct operand *const *in = prepare->call.in + CONV_PRELUDE;
    const struct conv_attrs *attrs = prepare->call.attrs;
    const size_t channels = (size_t)state->plan.in_channels;
    const size_t padded = (size_t)(state->plan.in_blocks * state->ops->vector);
    char format[128];
    void *factors;
    bool is_new;

    if (!state->plan.prelude)
        return STATUS_OK;
    snprintf(format, sizeof(format), "prelude %p %p %p %a by %zu", in[1]->constant_key,
             in[2]->constant_key, in[3]->constant_key, (double)attrs->prelude_epsilon, padded);
    TRY(weights_share(prepare->weights, in[0]->constant_key, format, 2 * padded * sizeof(float),
                      &factors, &is_new));
    if (is_new)
        fill_prelude(&prepare->call, channels, padded, factors);
    state->plan.scale = factors;
    state->plan.shift = state->plan.scale + padded;
    return STATUS_OK;
}

/* ---- the kernel ---- */

static struct state *create(const struct kernel_call *call, const struct phases_form *form)
{
    const struct window *w = &form->geometry.window;
    const int64_t channels = call->in[CONV_X]->layout == LAYOUT_PLAIN ? 1 : DIRECT_CHANNELS;
    const size_t steps =
        (size_t)(ceil_div(form->geometry.in_channels, channels) * w->kernel[0] * w->kernel[1]);
    const size_t phases = (size_t)(phases_axis(form, 0).phases * phases_axis(form, 1).phases);
    const struct direct_ops *ops = direct_ops_for(cpu_isa_of(call->device));
    const size_t panels = (size_t)ceil_div(form->geometry.out_channels, PANEL_BLOCKS * ops->vector);
    struct state *state =
        calloc(1, sizeof(*state) + steps * sizeof(state->offsets[0]) +
                      phases * (sizeof(*state->phases) + panels * sizeof(*state->panels)));

    if (state == NULL)
        return NULL;
    state->form = *form;
    state->ops = ops;
    state->phases = (struct direct_phase *)(void *)(state->offsets + steps);
    state->panels = (struct direct_panel *)(void *)(state->phases + phases);
    make_plan(call, form, state);
    return state;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    enum status status = STATUS_NO_MEMORY;
    struct phases_form form;
    struct state *state;
    const struct direct *p;

    (void)phases_resolve(&prepare->call, &form); /* refuses() saw that it can be */
    state = create(&prepare->call, &form);
    if (state != NULL)
        status = share(prepare, state);
    if (status == STATUS_OK)
        status = share_prelude(prepare, state);
    if (status != STATUS_OK) {
        free(state);
        return error_set(err, status, "no memory for packed weights");
    }
    p = &state->plan;
    prepare->state = state;
    prepare->scratch_bytes =
        (size_t)(p->scratch_floats * (p->by_panels ? 1 : (int64_t)p->members)) * sizeof(float);
    prepare->host_bytes = sizeof(*state) + (size_t)p->steps * sizeof(state->offsets[0]) +
                          (size_t)p->phase_count *
                              (sizeof(*state->phases) + (size_t)p->panels * sizeof(*state->panels));
    snprintf(prepare->note, sizeof(prepare->note), "direct%s, %s of %" PRId64 "%s, %s",
             p->prelude ? " behind scale and shift" : "", p->by_panels ? "panels, tiles" : "tiles",
             p->tile, p->flat ? "" : " rows", cpu_isa_name(cpu_isa_of(prepare->call.device)));
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
        .flags = KERNEL_IN_PLACE_LAST,                                                             \
        .layouts = 1u << LAYOUT_BLOCKED,                                                           \
        .in_layouts = 1u << LAYOUT_PLAIN,                                                          \
        .refuses = refuses_what,                                                                   \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
        .release = free,                                                                           \
    }

DIRECT(conv_transpose_direct, refuses_transpose);
DIRECT(conv_direct, refuses);
