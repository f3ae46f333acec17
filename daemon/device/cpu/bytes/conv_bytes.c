/* QLinearConv with channels last: windows are rows of a product as they lie.
 *
 *     y [places][channels out] = requantised (rows [places][taps x channels in] x W')
 *
 * A window's bytes of one line of the image lie side by side; so a place is an address, and a line
 * of the window a segment of the product (int_gemm.h).  The image is read where it is, or, where
 * windows hang over its edge or bytes are not elements, through a tile: the lines under a few lines
 * of results, copied with the edge around them.  Tiles are small enough to stay in the cache.
 *
 * Depthwise convolutions go over the same tiles, channels side by side: over the bytes where that
 * is possible (byte_quads.h), else over 16-bit differences. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/bytes/byte_quads.h"
#include "device/cpu/bytes/bytes.h"
#include "device/cpu/bytes/int_gemm.h"
#include "device/cpu/bytes/requantize.h"
#include "device/cpu/team.h"

enum {
    PLACES = 128,            /* of one call */
    WANTED_PLACES = 96,      /* a block has as many lines of results as that takes */
    TILE_BYTES_MAX = 1 << 18 /* but for one line of results */
};
enum { DEPTH, LINE, COLUMN }; /* of the window */

/* What sums become bytes with. */
struct finish {
    struct conv_columns columns;
    struct byte_factors factors; /* depthwise */
};

struct state {
    struct conv_geometry geometry;
    const struct window *window; /* of three dimensions; in `geometry` */
    struct conv_weights weights;
    const struct byte_loops *loops;
    const struct int_gemm_ops *lay;     /* what the elements of a tile are */
    const struct byte_quads_ops *quads; /* depthwise; NULL: 16-bit differences */
    bool is_depthwise, has_zeros;
    bool is_direct;  /* no tile */
    int64_t in, out; /* channels of a group; of all in one when depthwise */
    int64_t groups;
    int64_t lines, blocks;    /* of results in a block; blocks of an image and depth */
    int64_t tile_lines, wide; /* of a tile */
    int64_t chunks;           /* pieces of the columns, where there are few blocks */
    int64_t *offsets, *steps; /* of segments, bytes; of the weights' elements */
    size_t tile_bytes, column_bytes;
    void *known; /* memory of `finish` where all parameters are constant; NULL: each run has its own
                  */
    struct finish finish;
};

static bool is_depthwise(const struct kernel_call *call)
{
    const struct shape *x = &call->in[0]->shape, *w = &call->in[QLINEAR_B]->shape;
    const struct conv_attrs *attrs = call->attrs;

    return attrs->group > 1 && attrs->group == x->dims[1] && w->dims[0] == x->dims[1];
}

static const char *refuses(const struct kernel_call *call)
{
    const struct operand *zero = kernel_input(call, QLINEAR_B_ZERO);

    if (call->in[QLINEAR_B]->constant == NULL || (zero != NULL && zero->constant == NULL))
        return "weights that are computed";
    if (shape_count(&call->out[0]->shape) == 0 || shape_count(&call->in[QLINEAR_B]->shape) == 0)
        return "nothing to compute";
    return NULL;
}

static const char *refuses_depthwise(const struct kernel_call *call)
{
    return is_depthwise(call) ? refuses(call) : "not depthwise";
}

/* ---- what a plan fixes ---- */

static int64_t reach(const struct window *w, size_t i) /* cells from a window's first to its last */
{
    return (w->kernel[i] - 1) * w->dilation[i] + 1;
}

static bool hangs_over(const struct window *w)
{
    for (size_t i = 0; i < WINDOW_MAX_RANK; i++)
        if (w->pad_begin[i] != 0 || (w->out[i] - 1) * w->stride[i] + reach(w, i) > w->in[i])
            return true;
    return false;
}

/* Lines of the window are whole segments when their cells lie side by side. */
static bool has_whole_lines(const struct state *s)
{
    const struct window *w = s->window;

    return !s->is_depthwise && (w->dilation[COLUMN] == 1 || w->kernel[COLUMN] == 1) &&
           (!s->is_direct || s->groups == 1);
}

static int64_t taps_of(const struct window *w)
{
    return w->kernel[DEPTH] * w->kernel[LINE] * w->kernel[COLUMN];
}

static void fill_blocks(struct state *s, unsigned threads)
{
    const struct window *w = s->window;
    const size_t cell = (size_t)s->in * s->lay->element_bytes;
    int64_t units;

    s->wide = (w->out[COLUMN] - 1) * w->stride[COLUMN] + reach(w, COLUMN);
    s->lines = (WANTED_PLACES + w->out[COLUMN] - 1) / w->out[COLUMN];
    s->lines = s->lines < w->out[LINE] ? s->lines : w->out[LINE];
    do {
        s->tile_lines = (s->lines - 1) * w->stride[LINE] + reach(w, LINE);
        s->tile_bytes = (size_t)(w->kernel[DEPTH] * s->tile_lines * s->wide) * cell;
    } while (s->tile_bytes > TILE_BYTES_MAX && s->lines-- > 1);
    s->lines = s->lines > 1 ? s->lines : 1;
    s->tile_bytes = s->is_direct ? 0 : int_round_up((int64_t)s->tile_bytes + 64, 64);
    s->blocks = (w->out[LINE] + s->lines - 1) / s->lines;
    units = s->geometry.batch * s->groups * w->out[DEPTH] * s->blocks;
    s->chunks = 1;
    if (!s->is_depthwise && threads > 1 && units < 3 * (int64_t)threads) {
        const int64_t panels = int_columns(s->weights.ops, s->out) / s->weights.ops->panel;
        const int64_t wanted = (3 * (int64_t)threads + units - 1) / units;

        s->chunks = wanted < panels ? wanted : panels;
    }
}

static void fill_segments(struct state *s)
{
    const struct window *w = s->window;
    const int64_t in_line = s->is_direct ? w->in[COLUMN] : s->wide;
    const int64_t in_plane = s->is_direct ? w->in[LINE] * in_line : s->tile_lines * in_line;
    const int64_t depth_step = s->is_direct ? w->dilation[DEPTH] : 1;
    const int64_t cell =
        s->is_direct ? s->geometry.in_channels : s->in * (int64_t)s->lay->element_bytes;
    const int64_t per_line = has_whole_lines(s) ? 1 : w->kernel[COLUMN];
    const int64_t cells = w->kernel[COLUMN] / per_line; /* of a segment */
    const int64_t taps = taps_of(w);

    s->weights.shape =
        (struct int_shape){.segments = taps / cells, .length = cells * s->in, .n = s->out};
    for (int64_t g = 0; g < s->weights.shape.segments; g++) {
        const int64_t column = g % per_line, line = g / per_line % w->kernel[LINE];
        const int64_t depth = g / per_line / w->kernel[LINE];

        s->offsets[g] = (depth * depth_step * in_plane + line * w->dilation[LINE] * in_line +
                         column * w->dilation[COLUMN]) *
                        cell;
        for (int64_t i = 0; i < cells * s->in; i++)
            s->steps[g * cells * s->in + i] = i % s->in * taps + g * cells + i / s->in;
    }
}

static void choose_way(struct state *s, const struct kernel_call *call)
{
    const struct int_gemm_ops *ops = s->weights.ops;
    const int64_t cells =
        s->window->dilation[COLUMN] == 1 && s->groups == 1 ? s->window->kernel[COLUMN] : 1;

    s->is_direct = !s->is_depthwise && int_is_element(ops, call->in[0]->dtype) &&
                   !hangs_over(s->window) && cells * s->in % ops->step == 0;
}

static void pack(const struct state *s, const struct kernel_call *call, char *packed)
{
    const struct operand *zero = kernel_input(call, QLINEAR_B_ZERO);
    const bool per_channel = zero != NULL && shape_count(&zero->shape) > 1;
    const int64_t steps = s->in * taps_of(s->window);
    struct int_matrix matrix = {.dtype = call->in[QLINEAR_B]->dtype,
                                .steps = s->steps,
                                .column_stride = steps,
                                .zero_per_column = per_channel};

    for (int64_t g = 0; g < s->groups; g++) {
        matrix.data = (const char *)call->in[QLINEAR_B]->constant + g * s->out * steps;
        if (zero != NULL)
            matrix.zero = (const char *)zero->constant + (per_channel ? g * s->out : 0);
        int_pack(s->weights.ops, &s->weights.shape, &matrix,
                 packed + (size_t)g * s->weights.group_bytes);
    }
}

/* Differences [taps to pairs][channels]. */
static void pack_depthwise(const struct state *s, const struct kernel_call *call, int16_t *packed)
{
    const struct operand *w = call->in[QLINEAR_B], *zero = kernel_input(call, QLINEAR_B_ZERO);
    const bool per_channel = zero != NULL && shape_count(&zero->shape) > 1;
    const int64_t taps = taps_of(s->window), channels = byte_columns(s->loops, s->in);

    memset(packed, 0, byte_depthwise_bytes(s->loops, taps, s->in));
    for (int64_t c = 0; c < s->in; c++) {
        const int32_t base =
            zero != NULL ? int_byte_at(w->dtype, zero->constant, per_channel ? c : 0) : 0;

        for (int64_t t = 0; t < taps; t++)
            packed[t * channels + c] =
                (int16_t)(int_byte_at(w->dtype, w->constant, c * taps + t) - base);
    }
}

static size_t packed_bytes(const struct state *s)
{
    if (s->quads != NULL)
        return byte_quads_bytes(s->in);
    return s->is_depthwise ? byte_depthwise_bytes(s->loops, taps_of(s->window), s->in)
                           : (size_t)s->groups * s->weights.group_bytes;
}

static enum status share_weights(struct kernel_prepare *prepare, struct state *s)
{
    const struct kernel_call *call = &prepare->call;
    const struct operand *zero = kernel_input(call, QLINEAR_B_ZERO);
    char format[128];
    void *packed;
    bool is_new;

    snprintf(format, sizeof(format), "conv rows %s%s %lld of %lld in %lld groups minus %p",
             s->quads != NULL  ? "depthwise quads "
             : s->is_depthwise ? "depthwise "
                               : "",
             s->weights.ops->form, (long long)s->weights.shape.segments,
             (long long)s->weights.shape.length, (long long)s->groups,
             zero != NULL ? zero->constant_key : NULL);
    TRY(weights_share(prepare->weights, call->in[QLINEAR_B]->constant_key, format, packed_bytes(s),
                      &packed, &is_new));
    if (is_new && s->quads != NULL)
        byte_quads_pack(s->quads, s->in, call->in[QLINEAR_B]->dtype, call->in[QLINEAR_B]->constant,
                        packed);
    else if (is_new && s->is_depthwise)
        pack_depthwise(s, call, packed);
    else if (is_new)
        pack(s, call, packed);
    s->weights.packed = packed;
    for (int64_t g = 0; !s->is_depthwise && g < s->groups; g++)
        s->has_zeros |= int_has_zeros(s->weights.ops, &s->weights.shape,
                                      (char *)packed + (size_t)g * s->weights.group_bytes);
    prepare->constants_used &= ~(1u << QLINEAR_B);
    return STATUS_OK;
}

static size_t lines_of(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void release(void *arg)
{
    struct state *s = arg;

    if (s == NULL)
        return;
    free(s->offsets);
    free(s->steps);
    free(s->known);
    free(s);
}

/* Differences that fit a byte whatever the weights are, in a window of three by three. */
static const struct byte_quads_ops *quads_for(const struct state *s, const struct kernel_call *call)
{
    const struct operand *w = call->in[QLINEAR_B], *zero = kernel_input(call, QLINEAR_B_ZERO);
    const int32_t wanted = w->dtype == DTYPE_UINT8 ? 128 : 0;

    if (!s->is_depthwise || s->window->kernel[DEPTH] != 1 || s->window->kernel[LINE] != 3 ||
        s->window->kernel[COLUMN] != 3 || (zero == NULL && wanted != 0))
        return NULL;
    for (int64_t i = 0; zero != NULL && i < shape_count(&zero->shape); i++)
        if (int_byte_at(zero->dtype, zero->constant, i) != wanted)
            return NULL;
    return byte_quads_for(cpu_isa_of(call->device));
}

static size_t finish_bytes(const struct state *s)
{
    if (s->quads != NULL)
        return lines_of((size_t)byte_quads_columns(s->in) * (sizeof(int32_t) + sizeof(float)));
    return lines_of(s->is_depthwise ? byte_factor_bytes(s->loops, s->in)
                                    : conv_columns_bytes(&s->weights));
}

static void fill_finish(const struct state *s, const struct kernel_call *call,
                        const struct kernel_run *run, void *memory, struct finish *out);

static bool is_known(const struct kernel_call *call)
{
    for (size_t i = QLINEAR_A_SCALE; i < call->inputs; i++)
        if (i != QLINEAR_B && call->in[i] != NULL && call->in[i]->constant == NULL)
            return false;
    return true;
}

/* Once for all runs. */
static enum status know_finish(struct state *s, const struct kernel_call *call)
{
    const void *in[QLINEAR_BIAS + 1] = {NULL};

    if (!is_known(call))
        return STATUS_OK;
    s->known = aligned_alloc(64, s->column_bytes);
    if (s->known == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = QLINEAR_A_SCALE; i < call->inputs; i++)
        if (call->in[i] != NULL)
            in[i] = call->in[i]->constant;
    fill_finish(s, call, &(struct kernel_run){.in = in}, s->known, &s->finish);
    s->column_bytes = 0;
    return STATUS_OK;
}

static const struct int_gemm_ops *ops_for(const struct state *s, const struct kernel_call *call,
                                          int64_t taps)
{
    const struct operand *w = call->in[QLINEAR_B];
    const struct int_filters filters = {.dtype = w->dtype,
                                        .data = w->constant,
                                        .out = s->out * s->groups,
                                        .in = s->in,
                                        .taps = taps};

    return s->is_depthwise ? int_gemm_ops_for(cpu_isa_of(call->device))
                           : int_gemm_ops_for_filters(cpu_isa_of(call->device), &filters);
}

static enum status fill(struct kernel_prepare *prepare, struct state *s, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct conv_geometry *g = &s->geometry;
    int64_t taps;

    TRY(conv_resolve(call->attrs, &call->in[0]->shape, &call->in[QLINEAR_B]->shape, g, err));
    window_widen(&g->window, WINDOW_MAX_RANK);
    s->window = &g->window;
    s->groups = s->is_depthwise ? 1 : g->groups;
    s->in = g->in_channels / s->groups;
    s->out = g->out_channels / s->groups;
    s->loops = byte_loops_for(cpu_isa_of(call->device));
    taps = taps_of(s->window);
    s->weights.ops = ops_for(s, call, taps);
    s->quads = quads_for(s, call);
    s->lay = s->is_depthwise && s->quads == NULL ? int_gemm_ops_for(CPU_BASELINE) : s->weights.ops;
    s->weights.groups = s->groups;
    choose_way(s, call);
    fill_blocks(s, call->threads);
    s->offsets = calloc((size_t)taps, sizeof(*s->offsets));
    s->steps = calloc((size_t)(taps * s->in), sizeof(*s->steps));
    if (s->offsets == NULL || s->steps == NULL)
        return STATUS_NO_MEMORY;
    fill_segments(s);
    s->weights.group_bytes = lines_of(int_packed_bytes(s->weights.ops, &s->weights.shape));
    s->column_bytes = finish_bytes(s);
    TRY(share_weights(prepare, s));
    free(s->steps);
    s->steps = NULL;
    return know_finish(s, call);
}

static enum status prepare(struct kernel_prepare *prepare, bool depthwise, struct error *err)
{
    struct state *s = calloc(1, sizeof(*s));
    enum status status = STATUS_NO_MEMORY;

    prepare->constants_used = UINT32_MAX;
    if (s != NULL) {
        s->is_depthwise = depthwise;
        status = fill(prepare, s, err);
    }
    if (status != STATUS_OK) {
        release(s);
        return error_set(err, status, "no memory for packed weights");
    }
    prepare->state = s;
    prepare->scratch_bytes = s->column_bytes + s->tile_bytes * prepare->call.threads;
    prepare->host_bytes = sizeof(*s) + (size_t)taps_of(s->window) * sizeof(*s->offsets) +
                          (s->known != NULL ? finish_bytes(s) : 0);
    snprintf(prepare->note, sizeof(prepare->note), "%s%s",
             depthwise && s->quads == NULL ? "pairs" : s->weights.ops->form,
             s->is_direct ? " direct" : "");
    return STATUS_OK;
}

static enum status prepare_rows(struct kernel_prepare *arg, struct error *err)
{
    return prepare(arg, false, err);
}

static enum status prepare_depthwise(struct kernel_prepare *arg, struct error *err)
{
    return prepare(arg, true, err);
}

/* ---- a run ---- */

struct job {
    const struct state *state;
    const struct kernel_call *call;
    const struct kernel_run *run;
    struct finish finish;
    char *tiles; /* of the members */
    int32_t x_zero;
};

/* Lines [line, line + lines) of results of one image, group and depth. */
struct block {
    int64_t image, group, depth, line, lines;
    const char *base;               /* element under the first window's first tap */
    int64_t line_bytes, cell_bytes; /* from one line and cell of the input to the next */
};

/* One line of the tile; `h` and `d` may be outside of the image. */
static void copy_line(const struct job *job, const struct block *block, int64_t d, int64_t h,
                      char *to)
{
    const struct state *s = job->state;
    const struct window *w = s->window;
    const enum dtype dtype = job->call->in[0]->dtype;
    const size_t cell = (size_t)s->in * s->lay->element_bytes;
    const int64_t all = s->geometry.in_channels;
    int64_t before = w->pad_begin[COLUMN] < s->wide ? w->pad_begin[COLUMN] : s->wide;
    int64_t inside = s->wide - before < w->in[COLUMN] ? s->wide - before : w->in[COLUMN];
    const uint8_t *from;

    if (d < 0 || d >= w->in[DEPTH] || h < 0 || h >= w->in[LINE]) {
        before = s->wide;
        inside = 0;
    }
    int_lay_zeros(s->lay, dtype, before * s->in, job->x_zero, to);
    to += (size_t)before * cell;
    from = (const uint8_t *)job->run->in[0] +
           ((block->image * w->in[DEPTH] + d) * w->in[LINE] + h) * w->in[COLUMN] * all +
           block->group * s->in;
    if (s->groups == 1) {
        int_lay(s->lay, dtype, from, inside * s->in, job->x_zero, to);
    } else {
        for (int64_t i = 0; i < inside; i++)
            int_lay(s->lay, dtype, from + i * all, s->in, job->x_zero, to + (size_t)i * cell);
    }
    int_lay_zeros(s->lay, dtype, (s->wide - before - inside) * s->in, job->x_zero,
                  to + (size_t)inside * cell);
}

static void copy_tile(const struct job *job, const struct block *block, char *tile)
{
    const struct state *s = job->state;
    const struct window *w = s->window;
    const size_t line_bytes = (size_t)(s->wide * s->in) * s->lay->element_bytes;
    const int64_t lines = (block->lines - 1) * w->stride[LINE] + reach(w, LINE);

    for (int64_t k = 0; k < w->kernel[DEPTH]; k++) {
        const int64_t d =
            block->depth * w->stride[DEPTH] - w->pad_begin[DEPTH] + k * w->dilation[DEPTH];

        for (int64_t i = 0; i < lines; i++)
            copy_line(job, block, d, block->line * w->stride[LINE] - w->pad_begin[LINE] + i,
                      tile + (size_t)(k * s->tile_lines + i) * line_bytes);
    }
}

static void find_input(const struct job *job, struct block *block, char *tile)
{
    const struct state *s = job->state;
    const struct window *w = s->window;
    const int64_t all = s->geometry.in_channels;

    if (!s->is_direct) {
        copy_tile(job, block, tile);
        block->base = tile;
        block->cell_bytes = s->in * (int64_t)s->lay->element_bytes;
        block->line_bytes = s->wide * block->cell_bytes;
        return;
    }
    block->cell_bytes = all;
    block->line_bytes = w->in[COLUMN] * all;
    block->base = (const char *)job->run->in[0] +
                  ((block->image * w->in[DEPTH] + block->depth * w->stride[DEPTH]) * w->in[LINE] +
                   block->line * w->stride[LINE]) *
                      block->line_bytes +
                  block->group * s->in;
}

/* Addresses of the first elements under places [place, place + count) of the block. */
static void find_places(const struct state *s, const struct block *block, int64_t place,
                        int64_t count, const char **out_addresses)
{
    const struct window *w = s->window;
    const int64_t cell = w->stride[COLUMN] * block->cell_bytes;
    const int64_t line = w->stride[LINE] * block->line_bytes;
    const char *start = block->base + place / w->out[COLUMN] * line;
    int64_t x = place % w->out[COLUMN];

    for (int64_t p = 0; p < count; p++) {
        out_addresses[p] = start + x * cell;
        if (++x == w->out[COLUMN]) {
            x = 0;
            start += line;
        }
    }
}

/* Places [place, place + count) of the block by columns [from, to). */
static void multiply(const struct job *job, const struct block *block, int64_t place, int64_t count,
                     int64_t from, int64_t to)
{
    const struct state *s = job->state;
    const struct window *w = s->window;
    const char *addresses[PLACES];
    int32_t sums[PLACES];
    const int64_t at =
        ((block->image * w->out[DEPTH] + block->depth) * w->out[LINE] + block->line) *
            w->out[COLUMN] +
        place;
    const struct int_product product = {
        .shape = s->weights.shape,
        .packed = s->weights.packed + (size_t)block->group * s->weights.group_bytes,
        .rows = count,
        .row = addresses,
        .offsets = s->offsets,
        .from = from,
        .to = to,
        .start = job->finish.columns.starts + block->group * job->finish.columns.group,
        .row_sums = s->has_zeros ? sums : NULL,
        .result = INT_BYTES,
        .out = (char *)job->run->out[0] + at * s->geometry.out_channels + block->group * s->out,
        .ldo = s->geometry.out_channels,
        .scale = job->finish.columns.scales + block->group * job->finish.columns.group,
        .range = job->finish.columns.range};

    find_places(s, block, place, count, addresses);
    for (int64_t p = 0; s->has_zeros && p < count; p++)
        sums[p] = int_row_sum(s->weights.ops, &s->weights.shape, addresses[p], s->offsets);
    s->weights.ops->run(&product);
}

static void run_rows(const struct job *job, const struct block *block, int64_t chunk)
{
    const struct state *s = job->state;
    const int64_t places = block->lines * s->window->out[COLUMN];
    const int64_t panel = s->weights.ops->panel;
    const int64_t panels = int_columns(s->weights.ops, s->out) / panel;
    const int64_t from = panels * chunk / s->chunks * panel;
    const int64_t to = panels * (chunk + 1) / s->chunks * panel;

    for (int64_t p = 0; p < places; p += PLACES)
        multiply(job, block, p, places - p < PLACES ? places - p : PLACES, from,
                 to < s->out ? to : s->out);
}

static void run_quads(const struct job *job, const struct block *block, uint8_t *out)
{
    const struct state *s = job->state;
    const struct window *w = s->window;
    struct byte_quads line = {.channels = s->in,
                              .places = w->out[COLUMN],
                              .offsets = s->offsets,
                              .stride = w->stride[COLUMN] * s->in,
                              .weights = (const int8_t *)s->weights.packed,
                              .starts = job->finish.factors.starts,
                              .scales = job->finish.factors.scales,
                              .range = job->finish.factors.range};

    for (int64_t y = 0; y < block->lines; y++) {
        line.x = (const uint8_t *)block->base + y * w->stride[LINE] * block->line_bytes;
        line.y = out + y * w->out[COLUMN] * s->in;
        s->quads->run(&line);
    }
}

static void run_pairs(const struct job *job, const struct block *block, uint8_t *out)
{
    const struct state *s = job->state;
    const struct window *w = s->window;
    struct byte_depthwise line = {.taps = s->weights.shape.segments,
                                  .offsets = s->offsets,
                                  .channels = s->in,
                                  .places = w->out[COLUMN],
                                  .stride = w->stride[COLUMN] * s->in,
                                  .weights = (const int16_t *)(const void *)s->weights.packed,
                                  .factors = &job->finish.factors};

    for (int64_t y = 0; y < block->lines; y++) {
        line.x =
            (const int16_t *)(const void *)(block->base + y * w->stride[LINE] * block->line_bytes);
        line.y = out + y * w->out[COLUMN] * s->in;
        s->loops->depthwise(&line);
    }
}

static void run_depthwise(const struct job *job, const struct block *block)
{
    const struct state *s = job->state;
    const struct window *w = s->window;
    uint8_t *out = (uint8_t *)job->run->out[0] +
                   ((block->image * w->out[DEPTH] + block->depth) * w->out[LINE] + block->line) *
                       w->out[COLUMN] * s->in;

    if (s->quads != NULL)
        run_quads(job, block, out);
    else
        run_pairs(job, block, out);
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct state *s = job->state;
    const struct window *w = s->window;
    char *tile = job->tiles + member * s->tile_bytes;
    const int64_t units = s->geometry.batch * s->groups * w->out[DEPTH] * s->blocks * s->chunks;
    int64_t laid = -1; /* the block in the tile */
    struct block block = {0};
    size_t from, to;

    team_share((size_t)units, member, members, &from, &to);
    for (int64_t i = (int64_t)from; i < (int64_t)to; i++) {
        const int64_t number = i / s->chunks, plane = number / s->blocks;

        if (number != laid) {
            block.line = number % s->blocks * s->lines;
            block.lines =
                w->out[LINE] - block.line < s->lines ? w->out[LINE] - block.line : s->lines;
            block.depth = plane % w->out[DEPTH];
            block.group = plane / w->out[DEPTH] % s->groups;
            block.image = plane / w->out[DEPTH] / s->groups;
            find_input(job, &block, tile);
            laid = number;
        }
        if (s->is_depthwise)
            run_depthwise(job, &block);
        else
            run_rows(job, &block, i % s->chunks);
    }
}

static void fill_factors(const struct state *s, const struct kernel_call *call,
                         const struct kernel_run *run, void *memory, struct byte_factors *out)
{
    const struct conv_attrs *attrs = call->attrs;
    const float x = (float)quantized_parameter(call, run, QLINEAR_A_SCALE, 0);
    const float y = (float)quantized_parameter(call, run, QLINEAR_Y_SCALE, 0);
    const int64_t columns =
        s->quads != NULL ? byte_quads_columns(s->in) : byte_columns(s->loops, s->in);
    const int32_t *sums = s->quads != NULL ? byte_quads_sums(s->in, s->weights.packed) : NULL;
    uint32_t zero = (uint32_t)(int32_t)quantized_parameter(call, run, QLINEAR_A_ZERO, 0);
    int32_t *starts = memory;
    float *scales = (float *)(starts + columns);

    zero += call->in[0]->dtype == DTYPE_INT8 ? 128 : 0; /* as the bytes are laid */
    memset(memory, 0, finish_bytes(s));
    for (int64_t c = 0; c < s->in; c++) {
        const int64_t at = s->quads != NULL ? byte_quads_place(s->quads, s->in, c)
                                            : byte_factor_place(s->loops, c);

        starts[at] = (int32_t)quantized_parameter(call, run, QLINEAR_BIAS, c);
        if (sums != NULL)
            starts[at] = (int32_t)((uint32_t)starts[at] - zero * (uint32_t)sums[at]);
        scales[at] = x * (float)quantized_parameter(call, run, QLINEAR_B_SCALE, c) / y;
    }
    *out = (struct byte_factors){
        .starts = starts,
        .scales = scales,
        .range = quantized_range(&attrs->epilogue, call->out[0]->dtype, y,
                                 (float)quantized_parameter(call, run, QLINEAR_Y_ZERO, 0))};
}

static void fill_finish(const struct state *s, const struct kernel_call *call,
                        const struct kernel_run *run, void *memory, struct finish *out)
{
    if (s->is_depthwise)
        fill_factors(s, call, run, memory, &out->factors);
    else
        conv_columns_fill(&s->weights, call, run, QLINEAR_A_ZERO, true, memory, &out->columns);
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *s = arg;
    struct job job = {.state = s, .call = call, .run = run};
    const double products = (double)shape_count(&call->out[0]->shape) *
                            (double)(taps_of(s->window) * (s->is_depthwise ? 1 : s->in));

    job.tiles = (char *)run->scratch + s->column_bytes;
    job.x_zero = (int32_t)quantized_parameter(call, run, QLINEAR_A_ZERO, 0);
    if (s->known != NULL)
        job.finish = s->finish;
    else
        fill_finish(s, call, run, run->scratch, &job.finish);
    team_run(team_size(call->threads, products / (s->is_depthwise ? 10 : 100)), run_job, &job);
    return STATUS_OK;
}

const struct kernel kernel_qlinear_conv_rows = {
    .name = "cpu:rows",
    .layouts = 1U << LAYOUT_NHWC,
    .refuses = refuses,
    .prepare = prepare_rows,
    .enqueue = enqueue,
    .release = release,
};

const struct kernel kernel_qlinear_conv_depthwise = {
    .name = "cpu:depthwise",
    .layouts = 1U << LAYOUT_NHWC,
    .refuses = refuses_depthwise,
    .prepare = prepare_depthwise,
    .enqueue = enqueue,
    .release = release,
};
