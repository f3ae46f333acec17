/* Conv and ConvTranspose in plain layout, by vectors of pixels: which ones, how the weights are
 * packed, how the work is cut.  The cut only says what is computed when: bits do not depend on it.
 */
#include "device/cpu/conv/pixels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/constant.h"
#include "device/cpu/team.h"
#include "ops/conv.h"

extern const struct pixels_ops pixels_ops_base, pixels_ops_avx2, pixels_ops_avx512;

enum {
    TILE_FLOATS = 24 << 10, /* of a tile's input: stays in L2 */
    TALL_TILE_FLOATS = 64 << 10,
    TILES_EACH = 4, /* of a member, so that none waits long for the others */
    MOST_TAPS_BLOCKED = 3
};

static const struct pixels_ops *pixels_ops_for(enum cpu_isa isa)
{
    static const struct pixels_ops *const table[CPU_ISA_COUNT] = {
        &pixels_ops_base, &pixels_ops_avx2, &pixels_ops_avx512};

    return table[isa];
}

struct state {
    struct pixels plan;
    struct phases_form form;
    const struct pixels_ops *ops;
    struct conv_step step;
    struct pixels_phase *phases;
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

static int64_t channels_of(const struct phases_form *form)
{
    return form->geometry.out_channels / form->geometry.groups;
}

/* ---- which ones ---- */

static const char *refuses_any(const struct kernel_call *call, struct phases_form *form)
{
    const struct operand *bias = kernel_input(call, CONV_BIAS);

    if (call->in[CONV_X]->dtype != DTYPE_FLOAT)
        return "only float";
    if (call->in[CONV_W]->constant == NULL || (bias != NULL && bias->constant == NULL))
        return "weights are computed at run time";
    if (conv_has_more(call->op, call->attrs))
        return "a prelude or a shuffle";
    if (shape_count(&call->out[0]->shape) == 0)
        return "no elements";
    if (!phases_resolve(call, form))
        return "more than two dimensions";
    return NULL;
}

/* Vectors go along rows: short ones leave them half empty.  So many sixteenths are used. */
static int64_t used_sixteenths(const struct kernel_call *call, const struct phases_form *form)
{
    const int64_t vector = pixels_ops_for(cpu_isa_of(call->device))->vector;
    const struct phases_axis across = phases_axis(form, 1);
    const int64_t places = phases_places(&across, 0);

    return 16 * places / round_to(places, vector);
}

/* Many channels come in blocks: to lay them out plainly takes about as long as three taps of an
 * empty block. */
static bool is_cheaper_blocked(const struct kernel_call *call, const struct phases_form *form)
{
    return call->op == &op_conv &&
           form->geometry.window.kernel[0] * form->geometry.window.kernel[1] <= MOST_TAPS_BLOCKED &&
           form->geometry.in_channels >= (int64_t)call->device->channel_block;
}

/* Instead of a blocked form: where most of a block of output channels would be empty. */
static const char *refuses_few(const struct kernel_call *call)
{
    struct phases_form form;
    const char *refusal = refuses_any(call, &form);

    if (refusal != NULL)
        return refusal;
    if (form.geometry.groups > 1)
        return "groups";
    if (2 * form.geometry.out_channels > (int64_t)call->device->channel_block)
        return "at least half of a block of channels";
    if (used_sixteenths(call, &form) < 9)
        return "short rows";
    if (is_cheaper_blocked(call, &form))
        return "few taps over blocks of channels";
    return NULL;
}

/* Instead of matrix products of gathered columns. */
static const char *refuses_rest(const struct kernel_call *call)
{
    struct phases_form form;
    const char *refusal = refuses_any(call, &form);

    if (refusal == NULL && used_sixteenths(call, &form) < 9)
        refusal = "short rows";
    return refusal;
}

/* ---- phases and their taps ---- */

/* Fills the offsets of the taps of the phase that begins at `place`; returns how many they are. */
static int64_t walk_taps(const struct phases_form *form, const struct pixels *p,
                         const int64_t *place, int64_t *offsets)
{
    const struct window *w = &form->geometry.window;
    int64_t count = 0, y, x;

    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++) {
            if (!phases_meet(form, p->axis, 0, place[0], i, &y) ||
                !phases_meet(form, p->axis, 1, place[1], j, &x))
                continue;
            offsets[count++] = y * p->row + x % p->axis[1].step * p->lane + x / p->axis[1].step;
        }
    return count;
}

static void set_phases(const struct phases_form *form, struct state *state)
{
    struct pixels *p = &state->plan;
    int64_t *offsets = state->offsets, weights = 0, k = 0;

    for (int64_t y = 0; y < p->axis[0].phases; y++)
        for (int64_t x = 0; x < p->axis[1].phases; x++) {
            struct pixels_phase *phase = &state->phases[k++];

            *phase = (struct pixels_phase){.place = {y, x}, .offsets = offsets, .weights = weights};
            phase->taps = walk_taps(form, p, phase->place, offsets);
            offsets += phase->taps;
            weights += phase->taps * p->in_channels * p->out_channels;
        }
    p->group_weights = weights;
}

/* ---- cutting the work ---- */

static void set_pitches(struct pixels *p, int64_t vector)
{
    const struct phases_axis *across = &p->axis[1];

    p->lane = round_to(p->tile[1], vector) + across->reach / across->step;
    p->row = p->lane * across->step;
    p->block = p->row * ((p->tile[0] - 1) * p->axis[0].step + p->axis[0].reach + 1);
}

static bool fits(const struct pixels *p, int64_t floats)
{
    return p->in_channels * p->block <= floats;
}

static int64_t tiles_of(const struct pixels *p, size_t i)
{
    return ceil_div(phases_places(&p->axis[i], 0), p->tile[i]);
}

static bool are_too_few(const struct pixels *p)
{
    return p->members > 1 && p->images * p->groups * tiles_of(p, 0) * tiles_of(p, 1) <
                                 TILES_EACH * (int64_t)p->members;
}

/* The widest tile of one row that fits, as many rows of it as fit, or as the taps reach over: else
 * most of the packing would be done again for the next tile. */
static void cut(struct pixels *p, int64_t vector)
{
    const int64_t rows = phases_places(&p->axis[0], 0), columns = phases_places(&p->axis[1], 0);
    const int64_t narrowest = 8 * vector;

    p->tile[0] = 1;
    p->tile[1] = columns;
    for (set_pitches(p, vector); p->tile[1] > narrowest && !fits(p, TILE_FLOATS);
         set_pitches(p, vector))
        p->tile[1] = round_to(p->tile[1] / 2, narrowest);
    for (int64_t more = 2; more <= rows; more++) {
        p->tile[0] = more;
        set_pitches(p, vector);
        if (fits(p, TILE_FLOATS) || (more <= p->axis[0].reach + 1 && fits(p, TALL_TILE_FLOATS)))
            continue;
        p->tile[0] = more - 1;
        break;
    }
    while (are_too_few(p) && p->tile[0] > 1)
        p->tile[0] = ceil_div(p->tile[0], 2);
    while (are_too_few(p) && p->tile[1] > narrowest)
        p->tile[1] = round_to(p->tile[1] / 2, narrowest);
    p->tile[0] = ceil_div(rows, tiles_of(p, 0));
    set_pitches(p, vector);
    p->tiles[0] = tiles_of(p, 0);
    p->tiles[1] = tiles_of(p, 1);
}

static void make_plan(const struct kernel_call *call, const struct phases_form *form,
                      struct state *state)
{
    const struct conv_geometry *g = &form->geometry;
    const int64_t taps = g->window.kernel[0] * g->window.kernel[1];
    struct pixels *p = &state->plan;
    double products;

    p->epilogue = form->epilogue;
    p->images = g->batch;
    p->groups = g->groups;
    p->in_channels = g->in_channels / g->groups;
    p->out_channels = channels_of(form);
    for (size_t i = 0; i < 2; i++)
        p->axis[i] = phases_axis(form, i);
    p->phase_count = p->axis[0].phases * p->axis[1].phases;
    p->phases = state->phases;
    products = (double)shape_count(&call->out[0]->shape) * (double)(p->in_channels * taps) /
               (double)p->phase_count;
    p->members = team_most(call->threads, products / 40);
    cut(p, state->ops->vector);
    set_phases(form, state);
}

/* ---- weights ---- */

/* Of output channel o and input channel c of a group. */
static const float *filter_of(const struct phases_form *form, const float *w, int64_t group,
                              int64_t o, int64_t c)
{
    const struct conv_geometry *g = &form->geometry;
    const int64_t in = g->in_channels / g->groups, out = channels_of(form);
    const int64_t at = form->transposed ? (group * in + c) * out + o : (group * out + o) * in + c;

    return w + at * g->window.kernel[0] * g->window.kernel[1];
}

/* [channel][tap of the phase][row] */
static float *pack_part(const struct phases_form *form, const struct phases_axis *axes,
                        const struct pixels_phase *phase, int64_t group, int64_t first,
                        int64_t rows, const float *w, float *to)
{
    const struct conv_geometry *g = &form->geometry;
    const int64_t in = g->in_channels / g->groups;
    int64_t ignored;

    for (int64_t c = 0; c < in; c++)
        for (int64_t i = 0; i < g->window.kernel[0]; i++)
            for (int64_t j = 0; j < g->window.kernel[1]; j++) {
                if (!phases_meet(form, axes, 0, phase->place[0], i, &ignored) ||
                    !phases_meet(form, axes, 1, phase->place[1], j, &ignored))
                    continue;
                for (int64_t r = 0; r < rows; r++)
                    *to++ = filter_of(form, w, group, first + r, c)[i * g->window.kernel[1] + j];
            }
    return to;
}

static enum status pack(const void *arg, const float *w, float *to)
{
    const struct state *state = arg;
    const struct pixels *p = &state->plan;
    const int64_t parts = ceil_div(p->out_channels, state->ops->rows);

    for (int64_t group = 0; group < p->groups; group++)
        for (int64_t k = 0; k < p->phase_count; k++)
            for (int64_t part = 0; part < parts; part++) {
                const int64_t first = pixels_part(p->out_channels, state->ops->rows, part);
                const int64_t end = pixels_part(p->out_channels, state->ops->rows, part + 1);

                to = pack_part(&state->form, p->axis, &p->phases[k], group, first, end - first, w,
                               to);
            }
    return STATUS_OK;
}

static enum status share(struct kernel_prepare *prepare, struct state *state)
{
    const struct pixels *p = &state->plan;
    char format[PHASES_FORMAT_BYTES + 32], by_phases[PHASES_FORMAT_BYTES];

    state->step = (struct conv_step){
        .epilogue = &p->epilogue, .plan = p, .run = state->ops->run, .members = p->members};
    phases_format(&state->form, by_phases);
    snprintf(format, sizeof(format), "pixels %" PRId64 " /%" PRId64 "%s", state->ops->rows,
             p->groups, by_phases);
    return conv_step_share(prepare, format, (size_t)(p->groups * p->group_weights) * sizeof(float),
                           pack, state, (size_t)state->form.geometry.out_channels, &state->step);
}

/* ---- the kernel ---- */

static void release(void *arg)
{
    struct state *state = arg;

    if (state != NULL)
        free(state->phases);
    free(state);
}

static struct state *create(const struct kernel_call *call, const struct phases_form *form)
{
    const struct window *w = &form->geometry.window;
    const size_t phases = (size_t)(phases_axis(form, 0).phases * phases_axis(form, 1).phases);
    const size_t taps = (size_t)(w->kernel[0] * w->kernel[1]);
    struct state *state = calloc(1, sizeof(*state) + taps * sizeof(state->offsets[0]));

    if (state == NULL)
        return NULL;
    state->phases = calloc(phases, sizeof(*state->phases));
    if (state->phases == NULL) {
        release(state);
        return NULL;
    }
    state->form = *form;
    state->ops = pixels_ops_for(cpu_isa_of(call->device));
    make_plan(call, form, state);
    return state;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    struct phases_form form;
    enum status status = STATUS_NO_MEMORY;
    struct state *state;
    const struct pixels *p;

    (void)phases_resolve(&prepare->call, &form); /* refuses() saw that it can be */
    state = create(&prepare->call, &form);
    if (state != NULL)
        status = share(prepare, state);
    if (status != STATUS_OK) {
        release(state);
        return error_set(err, status, "no memory for packed weights");
    }
    p = &state->plan;
    prepare->state = state;
    prepare->scratch_bytes =
        (size_t)((int64_t)p->members * p->in_channels * p->block) * sizeof(float);
    prepare->host_bytes =
        sizeof(*state) + (size_t)p->phase_count * sizeof(*state->phases) +
        (size_t)(form.geometry.window.kernel[0] * form.geometry.window.kernel[1]) *
            sizeof(state->offsets[0]);
    snprintf(prepare->note, sizeof(prepare->note),
             "pixels, tiles of %" PRId64 " by %" PRId64 ", %s", p->tile[0], p->tile[1],
             cpu_isa_name(cpu_isa_of(prepare->call.device)));
    return STATUS_OK;
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *state = arg;

    return conv_step_run(&state->step, call, run);
}

#define PIXELS(name_of, refuses_what)                                                              \
    const struct kernel kernel_##name_of = {                                                       \
        .name = "cpu:pixels",                                                                      \
        .flags = KERNEL_IN_PLACE_LAST,                                                             \
        .refuses = refuses_what,                                                                   \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
        .release = release,                                                                        \
    }

PIXELS(conv_pixels, refuses_few);
PIXELS(conv_pixels_rest, refuses_rest); /* behind all that is blocked */
PIXELS(conv_transpose_pixels, refuses_few);
PIXELS(conv_transpose_pixels_rest, refuses_rest);
