/* A depthwise convolution between two 1x1 (or in front of one), band by band.
 *
 * A band is some rows of the result of one image.  For each pair of blocks of channels a member
 * expands the rows of the input that the band's windows meet, and filters them, into scratch that
 * stays in its L2; then it projects the band to where the result will be.  Windows of neighbouring
 * bands overlap: expanded rows that the next one meets too are kept, so that only the first band of
 * a member's share expands rows that another member expands as well.
 *
 *      x ──expand──> rows of the depthwise input ──filter──> rows of its result ──project──> y
 *                    [block][row][column][channel]           [block][row][column][channel]
 *
 * What is computed, and in which order sums are, is up to direct.c and depthwise.c, whose plans and
 * micro-kernels these are: the bits are those of three steps.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/conv/depthwise.h"
#include "device/cpu/conv/direct.h"
#include "device/cpu/team.h"
#include "ops/separable_conv.h"

enum { BAND_BYTES = 512 << 10 /* of a band's scratch, about: stays in L2 */ };

struct state {
    /* Of one image's rows. */
    struct direct *expand; /* NULL: the depthwise convolution reads x as it lies */
    struct depthwise depthwise;
    struct direct *project;
    const struct direct_ops *direct_ops;
    const struct depthwise_ops *depthwise_ops;
    struct conv_step parts[3]; /* their weights and biases: expand, depthwise, project */
    struct conv_step step;     /* the whole */
    int64_t images, bands;     /* of all; of an image */
    int64_t rows, rows_in;     /* of a band, at most: of the result, of what its windows meet */
    int64_t x_image;           /* floats from one image to the next */
    int64_t x_block;           /* … from one block of channels to the next, of what is filtered */
    int64_t y_block;           /* … of what is projected */
    int64_t scratch_floats;    /* of a member */
};

enum { EXPAND, DEPTHWISE, PROJECT };

/* ---- the parts as convolutions of their own ---- */

struct part {
    struct operand x, out;
    const struct operand *in[CONV_RESIDUAL + 1], *outs[1];
    struct kernel_call call;
};

/* False: the shapes do not fit. */
static bool set_part(const struct kernel_call *call, const struct conv_attrs *attrs, size_t first,
                     const struct operand *x, struct part *part)
{
    const bool adds = attrs->epilogue.has_residual;
    struct conv_geometry geometry;

    part->x = *x;
    part->in[CONV_X] = &part->x;
    part->in[CONV_W] = call->in[first];
    part->in[CONV_BIAS] = call->in[first + 1];
    part->in[CONV_RESIDUAL] = adds ? call->in[SEPARABLE_RESIDUAL] : NULL;
    if (conv_resolve(attrs, &x->shape, &part->in[CONV_W]->shape, &geometry, NULL) != STATUS_OK)
        return false;
    part->out = (struct operand){
        .dtype = x->dtype, .layout = LAYOUT_BLOCKED, .shape = conv_output_shape(&geometry)};
    if (first == SEPARABLE_PROJECT)
        part->out.outer_stride = call->out[0]->outer_stride;
    part->outs[0] = &part->out;
    part->call = (struct kernel_call){.op = &op_conv,
                                      .attrs = attrs,
                                      .inputs = adds ? CONV_RESIDUAL + 1 : CONV_RESIDUAL,
                                      .in = part->in,
                                      .outputs = 1,
                                      .out = part->outs,
                                      .device = call->device,
                                      .threads = call->threads};
    return true;
}

static bool set_parts(const struct kernel_call *call, struct part parts[3])
{
    const struct separable_conv_attrs *attrs = call->attrs;
    const struct operand *x = call->in[SEPARABLE_X];

    if (call->in[SEPARABLE_EXPAND] != NULL) {
        if (!set_part(call, &attrs->expand, SEPARABLE_EXPAND, x, &parts[EXPAND]))
            return false;
        x = &parts[EXPAND].out;
    }
    return set_part(call, &attrs->depthwise, SEPARABLE_DEPTHWISE, x, &parts[DEPTHWISE]) &&
           set_part(call, &attrs->project, SEPARABLE_PROJECT, &parts[DEPTHWISE].out,
                    &parts[PROJECT]);
}

static const char *refuses(const struct kernel_call *call)
{
    struct part parts[3];

    if (call->in[SEPARABLE_X]->layout != LAYOUT_BLOCKED)
        return "plain in";
    if (!set_parts(call, parts))
        return "the shapes do not fit";
    for (size_t i = call->in[SEPARABLE_EXPAND] != NULL ? EXPAND : DEPTHWISE; i <= PROJECT; i++) {
        const struct kernel *kernel = i == DEPTHWISE ? &kernel_conv_depthwise : &kernel_conv_direct;
        const char *refusal = kernel->refuses(&parts[i].call);

        if (refusal != NULL)
            return refusal;
    }
    return NULL;
}

/* ---- cutting the work ---- */

struct rows {
    int64_t from, to;
};

/* What is filtered to make these rows of the result. */
static struct rows rows_met(const struct depthwise *p, struct rows made)
{
    const int64_t reach = (p->kernel[0] - 1) * p->dilation[0];
    struct rows met = {made.from * p->stride[0] - p->pad[0],
                       (made.to - 1) * p->stride[0] - p->pad[0] + reach + 1};

    met.from = met.from < 0 ? 0 : met.from < p->in[0] ? met.from : p->in[0];
    met.to = met.to > p->in[0] ? p->in[0] : met.to > met.from ? met.to : met.from;
    return met;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t most_rows_met(const struct depthwise *p, int64_t rows)
{
    const int64_t met = (rows - 1) * p->stride[0] + (p->kernel[0] - 1) * p->dilation[0] + 1;

    return met < p->in[0] ? met : p->in[0];
}

/* Floats of a member's scratch for bands of so many rows. */
static int64_t band_floats(const struct state *state, bool expands, int64_t rows)
{
    const struct depthwise *p = &state->depthwise;
    const int64_t pixels_in = expands ? most_rows_met(p, rows) * p->in[1] : 0;

    return (pixels_in + rows * p->out[1]) * p->blocks * state->depthwise_ops->block;
}

/* Of a member's scratch, at most: what stays in L2, and no more than half of what the steps by
 * themselves would have in memory, over all members. */
static int64_t most_floats(const struct kernel_call *call, const struct state *state, bool expands)
{
    const int64_t whole = state->images * band_floats(state, expands, state->depthwise.out[0]);
    const int64_t share = whole / (2 * (int64_t)call->threads);
    const int64_t cached = BAND_BYTES / (int64_t)sizeof(float);

    return share < cached ? share : cached;
}

static void cut(const struct kernel_call *call, bool expands, struct state *state)
{
    const struct depthwise *p = &state->depthwise;
    const int64_t block = state->depthwise_ops->block;
    int64_t rows = 1, most;

    state->images = p->planes / p->blocks;
    most = most_floats(call, state, expands);
    while (rows < p->out[0] && band_floats(state, expands, rows + 1) <= most)
        rows++;
    state->bands = ceil_div(p->out[0], rows);
    while (state->images * state->bands % (int64_t)call->threads != 0 && state->bands < p->out[0])
        state->bands++;
    state->rows = ceil_div(p->out[0], state->bands);
    state->bands = ceil_div(p->out[0], state->rows);
    state->rows_in = expands ? most_rows_met(p, state->rows) : p->in[0];
    state->x_block = state->rows_in * p->in[1] * block;
    state->y_block = state->rows * p->out[1] * block;
    state->scratch_floats = ceil_div(band_floats(state, expands, state->rows), 16) * 16;
}

/* ---- a band ---- */

struct band {
    int64_t image;
    struct rows made, met;
    int64_t kept;  /* of the rows met: in scratch already */
    int64_t moved; /* so many rows further down than they belong */
};

static void expand_panel(const struct conv_run *run, const struct band *band, int64_t panel,
                         float *expanded)
{
    const struct state *s = run->plan;
    const struct direct *p = s->expand;
    const struct direct_panel *blocks = &p->phases->panels[panel];
    const int64_t block = s->depthwise_ops->block, line = s->depthwise.in[1] * block;
    const int64_t first = band->met.from + band->kept;
    const struct conv_run part = {.plan = p,
                                  .weights = s->parts[EXPAND].weights,
                                  .bias = s->parts[EXPAND].bias,
                                  .y = expanded};
    const struct direct_segment segment = {.v = run->x + band->image * p->x_image + first * line,
                                           .at = band->kept * line,
                                           .pixels = (band->met.to - first) * s->depthwise.in[1]};

    for (int64_t b = blocks->first; band->kept > 0 && b < blocks->first + blocks->blocks; b++)
        memmove(expanded + b * s->x_block, expanded + b * s->x_block + band->moved * line,
                (size_t)(band->kept * line) * sizeof(float));
    s->direct_ops->pixels(&part, &segment, panel, panel + 1);
}

/* `x` holds rows from `first` on, `rows` of them, of the blocks of one image. */
static void filter_blocks(const struct state *s, const struct band *band, const float *x,
                          struct rows held, struct rows blocks, float *filtered)
{
    const struct depthwise *p = &s->depthwise;
    const int64_t block = s->depthwise_ops->block;
    struct depthwise_plane plane = {.in = {held.to - held.from, p->in[1]},
                                    .pad = {p->pad[0] + held.from, p->pad[1]},
                                    .inside = p->inside,
                                    .insides = p->insides};

    for (int64_t b = blocks.from; b < blocks.to; b++) {
        plane.x = x + b * s->x_block;
        plane.weights = s->parts[DEPTHWISE].weights + b * p->kernel[0] * p->kernel[1] * block;
        plane.bias = s->parts[DEPTHWISE].bias + b * block;
        s->depthwise_ops->rows(p, &plane, band->made.from, band->made.to,
                               filtered + b * s->y_block);
    }
}

static void project(const struct conv_run *run, const struct band *band, const float *filtered)
{
    const struct state *s = run->plan;
    const struct direct *p = s->project;
    const int64_t block = s->depthwise_ops->block, line = s->depthwise.out[1] * block;
    const struct conv_run part = {.plan = p,
                                  .weights = s->parts[PROJECT].weights,
                                  .bias = s->parts[PROJECT].bias,
                                  .residual = run->residual,
                                  .y = run->y};
    const struct direct_segment segment = {.v = filtered,
                                           .at = band->image * p->y_image + band->made.from * line,
                                           .image = band->image,
                                           .pixels = (band->made.to - band->made.from) *
                                                     s->depthwise.out[1]};

    s->direct_ops->pixels(&part, &segment, 0, p->panels);
}

static void run_band(const struct conv_run *run, const struct band *band, float *scratch)
{
    const struct state *s = run->plan;
    const struct depthwise *p = &s->depthwise;

    if (s->expand == NULL) {
        filter_blocks(s, band, run->x + band->image * s->x_image, (struct rows){0, p->in[0]},
                      (struct rows){0, p->blocks}, scratch);
        project(run, band, scratch);
        return;
    }
    float *filtered = scratch + p->blocks * s->x_block;

    for (int64_t q = 0; q < s->expand->panels; q++) {
        const struct direct_panel *panel = &s->expand->phases->panels[q];

        expand_panel(run, band, q, scratch);
        filter_blocks(s, band, scratch, band->met,
                      (struct rows){panel->first, panel->first + panel->blocks}, filtered);
    }
    project(run, band, filtered);
}

/* Members share the bands of all images. */
static void run_all(const struct conv_run *run, unsigned member, unsigned members)
{
    const struct state *s = run->plan;
    float *scratch = run->scratch + (int64_t)member * s->scratch_floats;
    struct band before = {0};
    size_t from, to;

    team_share((size_t)(s->images * s->bands), member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        const int64_t index = (int64_t)i % s->bands, first = index * s->rows;
        const int64_t end = first + s->rows, last = s->depthwise.out[0];
        struct band band = {.image = (int64_t)i / s->bands,
                            .made = {first, end < last ? end : last}};

        band.met = rows_met(&s->depthwise, band.made);
        if (i > from && index > 0 && before.met.to > band.met.from) {
            band.kept = before.met.to - band.met.from;
            band.moved = band.met.from - before.met.from;
        }
        run_band(run, &band, scratch);
        before = band;
    }
}

/* ---- the kernel ---- */

static void release(void *arg)
{
    struct state *state = arg;

    if (state != NULL) {
        free(state->expand);
        free(state->project);
    }
    free(state);
}

/* False: no memory. */
static bool create_parts(const struct part *parts, bool expands, struct state *state)
{
    const struct depthwise *p = &state->depthwise;
    const struct direct_inner project = {.pixels = state->rows * p->out[1],
                                         .x_block = state->y_block};
    const struct direct_inner expand = {.pixels = state->rows_in * p->in[1],
                                        .y_block = state->x_block};

    state->project = direct_create_inner(&parts[PROJECT].call, &project);
    if (expands)
        state->expand = direct_create_inner(&parts[EXPAND].call, &expand);
    return state->project != NULL && (!expands || state->expand != NULL);
}

static enum status share_parts(const struct kernel_prepare *prepare, const struct part *parts,
                               struct state *state)
{
    for (size_t i = state->expand != NULL ? EXPAND : DEPTHWISE; i <= PROJECT; i++) {
        struct kernel_prepare part = {.call = parts[i].call, .weights = prepare->weights};

        TRY(i == DEPTHWISE ? depthwise_share(&part, &state->depthwise, &state->parts[i])
                           : direct_share(&part, i == EXPAND ? state->expand : state->project,
                                          &state->parts[i]));
    }
    return STATUS_OK;
}

static double nanoseconds(const struct state *state)
{
    const struct depthwise *p = &state->depthwise;
    const int64_t of_result =
        direct_weight_floats(state->project) +
        p->blocks * state->depthwise_ops->block * (p->kernel[0] * p->kernel[1] + 8);
    const int64_t of_input = state->expand != NULL ? direct_weight_floats(state->expand) : 0;

    return (double)state->images *
           (double)(of_result * p->out[0] * p->out[1] + of_input * p->in[0] * p->in[1]) / 50;
}

static enum status make_state(struct kernel_prepare *prepare, struct state *state)
{
    const struct kernel_call *call = &prepare->call;
    const enum cpu_isa isa = cpu_isa_of(call->device);
    const bool expands = call->in[SEPARABLE_EXPAND] != NULL;
    struct part parts[3];

    if (!set_parts(call, parts)) /* refuses() saw that they fit */
        return STATUS_INTERNAL;
    state->direct_ops = direct_ops_for(isa);
    state->depthwise_ops = depthwise_ops_for(isa);
    depthwise_make_plan(&parts[DEPTHWISE].call, &state->depthwise);
    state->x_image = operand_stride(call->in[SEPARABLE_X],
                                    state->depthwise.blocks * state->depthwise.in[0] *
                                        state->depthwise.in[1] * state->depthwise_ops->block);
    cut(call, expands, state);
    if (!create_parts(parts, expands, state))
        return STATUS_NO_MEMORY;
    state->step = (struct conv_step){.epilogue = &state->project->epilogue,
                                     .plan = state,
                                     .run = run_all,
                                     .members = team_most(call->threads, nanoseconds(state))};
    return share_parts(prepare, parts, state);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    struct state *state = calloc(1, sizeof(*state));
    enum status status = state != NULL ? make_state(prepare, state) : STATUS_NO_MEMORY;

    if (status != STATUS_OK) {
        release(state);
        return error_set(err, status, "no memory for packed weights");
    }
    prepare->state = state;
    prepare->host_bytes = sizeof(*state);
    prepare->scratch_bytes = (size_t)(state->step.members * state->scratch_floats) * sizeof(float);
    snprintf(prepare->note, sizeof(prepare->note),
             "%sdepthwise, project, bands of %" PRId64 " rows, %s",
             state->expand != NULL ? "expand, " : "", state->rows,
             cpu_isa_name(cpu_isa_of(prepare->call.device)));
    return STATUS_OK;
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *state = arg;
    const bool adds = state->step.epilogue->has_residual;
    const void *const in[] = {[CONV_X] = run->in[SEPARABLE_X],
                              [CONV_RESIDUAL] = adds ? run->in[SEPARABLE_RESIDUAL] : NULL};
    struct kernel_run whole = *run;

    whole.in = in;
    return conv_step_run(&state->step, call, &whole);
}

const struct kernel kernel_separable_conv_bands = {
    .name = "cpu:bands",
    .flags = KERNEL_IN_PLACE_LAST | KERNEL_STRIDED,
    .layouts = 1u << LAYOUT_BLOCKED,
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = release,
};
