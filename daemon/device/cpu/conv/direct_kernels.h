/* Direct convolution, included by direct_avx2.c and direct_avx512.c: which tiles, from where.
 * direct_micro_kernels.h computes a panel of outputs over neighbouring pixels.
 *
 * Where pixels of a step would not be neighbours (strides), or lie beyond the border, or where
 * something is done to the input first (a prelude), the input of a tile is packed: with zeros
 * around, columns sorted by their remainder to the stride.
 *
 * The weights of a *chunk* of steps stay in L1 while all pixels of a tile pass; between chunks the
 * sums wait where the result will be.  An element is its bias, its residual (unless that is added
 * behind the activation) and the products of steps and channels in order, whatever tile, group or
 * chunk they fall into.
 */
#include "device/cpu/conv/direct.h"
#include "device/cpu/conv/finish.h"
#include "device/cpu/team.h"

extern const struct direct_ops SIMD_NAME(direct_ops);

#include "device/cpu/conv/direct_micro_kernels.h"

/* ---- tiles ---- */

struct tile {
    int64_t first, count; /* pixels of all lines, when flat; else lines */
};

static struct tile tile_at(const struct direct *p, int64_t index)
{
    const int64_t all = p->flat ? p->lines * p->line : p->lines;
    struct tile tile = {.first = index * p->tile, .count = p->tile};

    if (!p->flat && p->tile < p->out[0]) { /* tiles end with their image */
        const int64_t of_image = (p->out[0] + p->tile - 1) / p->tile;

        tile.first = index / of_image * p->out[0] + index % of_image * p->tile;
        if (tile.count > p->out[0] - index % of_image * p->tile)
            tile.count = p->out[0] - index % of_image * p->tile;
    }
    if (tile.count > all - tile.first)
        tile.count = all - tile.first;
    return tile;
}

struct prelude { /* of one block of channels */
    vf scale, shift, low;
};

static struct prelude read_prelude(const struct conv_run *run, int64_t block)
{
    const struct direct *p = run->plan;

    if (!p->prelude)
        return (struct prelude){.scale = vset1(1)};
    return (struct prelude){.scale = vload(p->scale + block * VW),
                            .shift = vload(p->shift + block * VW),
                            .low = vset1(p->prelude_low)};
}

/* Every stride'th of the vectors from x on. */
static void copy_vectors(bool changed, const struct prelude *prelude, const float *x,
                         int64_t stride, int64_t count, float *to)
{
    const struct prelude p = *prelude;

    if (changed)
        for (int64_t i = 0; i < count; i++, x += stride * VW)
            vstore(to + i * VW, vmax(p.low, vfma(vload(x), p.scale, p.shift)));
    else
        for (int64_t i = 0; i < count; i++, x += stride * VW)
            vstore(to + i * VW, vload(x));
}

/* Places of a flat tile: every stride'th pixel of every stride'th row. */
static void pack_flat(const struct conv_run *run, struct tile tile, int64_t block)
{
    const struct direct *p = run->plan;
    const struct prelude prelude = read_prelude(run, block);
    const float *plane = run->x + block * p->in[0] * p->in[1] * VW;
    float *to = run->scratch + block * p->block;

    for (int64_t pixel = tile.first, end = tile.first + tile.count; pixel < end;) {
        const int64_t image = pixel / p->line, y = pixel % p->line / p->out[1];
        const int64_t x = pixel % p->out[1], left = end - pixel;
        const int64_t count = left < p->out[1] - x ? left : p->out[1] - x;

        copy_vectors(p->prelude, &prelude,
                     plane + image * p->x_image +
                         (y * p->stride[0] * p->in[1] + x * p->stride[1]) * VW,
                     p->stride[1], count, to);
        to += count * VW;
        pixel += count;
    }
}

/* Where the columns of one phase of a packed row lie inside of the input: [*from, *to). */
static void find_columns(const struct direct *p, int64_t phase, int64_t columns, int64_t *from,
                         int64_t *to)
{
    const int64_t stride = p->stride[1], first = phase - p->pad[1];

    *from = first >= 0 ? 0 : (-first + stride - 1) / stride;
    *to = p->in[1] > first ? (p->in[1] - first + stride - 1) / stride : 0;
    *from = *from < columns ? *from : columns;
    *to = *to > columns ? columns : *to < *from ? *from : *to;
}

/* A row of the input with zeros around it, or nothing but zeros when `x` is NULL. */
static void pack_row(const struct direct *p, const float *x, const struct prelude *prelude,
                     float *to)
{
    const int64_t stride = p->stride[1], columns = p->phase / VW;

    for (int64_t phase = 0; phase < stride; phase++, to += p->phase) {
        int64_t first, last;

        find_columns(p, phase, columns, &first, &last);
        if (x == NULL)
            first = last = 0;
        memset(to, 0, (size_t)(first * VW) * sizeof(float));
        if (last > first)
            copy_vectors(p->prelude, prelude, x + (first * stride + phase - p->pad[1]) * VW, stride,
                         last - first, to + first * VW);
        memset(to + last * VW, 0, (size_t)((columns - last) * VW) * sizeof(float));
    }
}

INLINE void copy_columns(const float *x, const int64_t stride, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = x[i * stride];
}

static void pack_thin_row(const struct direct *p, const float *x, float *to)
{
    const int64_t stride = p->stride[1], columns = p->phase;

    for (int64_t phase = 0; phase < stride; phase++, to += p->phase) {
        int64_t first, last;

        find_columns(p, phase, columns, &first, &last);
        if (x == NULL)
            first = last = 0;
        memset(to, 0, (size_t)first * sizeof(float));
        memset(to + last, 0, (size_t)(columns - last) * sizeof(float));
        if (first == last)
            continue;
        if (stride == 2) /* known to the compiler: shuffles */
            copy_columns(x + first * 2 + phase - p->pad[1], 2, last - first, to + first);
        else
            copy_columns(x + first * stride + phase - p->pad[1], stride, last - first, to + first);
    }
}

static void pack_rows(const struct conv_run *run, struct tile tile, int64_t block)
{
    const struct direct *p = run->plan;
    const int64_t pitch = p->thin ? 1 : VW, plane = p->in[0] * p->in[1] * pitch;
    const struct prelude prelude = read_prelude(run, block); /* a thin input has none */
    const int64_t images = tile.count > p->out[0] ? tile.count / p->out[0] : 1;
    const int64_t top = tile.first % p->out[0] * p->stride[0] - p->pad[0];
    float *to = run->scratch + block * p->block;

    for (int64_t i = 0; i < images; i++) {
        const int64_t image = tile.first / p->out[0] + i;
        const float *from = run->x + image * p->x_image + block * plane;

        for (int64_t y = top; y < top + p->rows_of_image; y++, to += p->row) {
            const float *row = y >= 0 && y < p->in[0] ? from + y * p->in[1] * pitch : NULL;

            if (p->thin)
                pack_thin_row(p, row, to);
            else
                pack_row(p, row, &prelude, to);
        }
    }
}

static void pack(const struct conv_run *run, struct tile tile, int64_t block)
{
    const struct direct *p = run->plan;

    (p->flat ? pack_flat : pack_rows)(run, tile, block);
}

static void run_flat(const struct conv_run *run, struct tile tile, struct part part)
{
    const struct direct *p = run->plan;

    for (int64_t pixel = tile.first, end = tile.first + tile.count; pixel < end;) {
        const int64_t image = pixel / p->line, at = pixel % p->line, left = end - pixel;
        struct direct_segment segment = {.at = image * p->y_image + at * VW,
                                         .image = image,
                                         .pixels = left < p->line - at ? left : p->line - at};

        segment.v = p->packs ? run->scratch + (pixel - tile.first) * VW
                             : run->x + image * p->x_image + at * VW;
        run_segment(run, part, &segment);
        pixel += segment.pixels;
    }
}

static void run_lines(const struct conv_run *run, struct tile tile, struct part part)
{
    const struct direct *p = run->plan;
    const int64_t top = tile.first % p->out[0], *place = part.phase->place;

    for (int64_t i = 0; i < tile.count; i++) {
        const int64_t image = (tile.first + i) / p->out[0], y = (tile.first + i) % p->out[0];
        const int64_t row =
            (image - tile.first / p->out[0]) * p->rows_of_image + (y - top) * p->stride[0];
        const int64_t y_row = y * p->apart[0] + place[0];
        const struct direct_segment segment = {
            .v = run->scratch + row * p->row,
            .at = p->pools ? i * p->size[1] * VW
                           : image * p->y_image + (y_row * p->size[1] + place[1]) * VW,
            .image = image,
            .pixels = (p->size[1] - place[1] + p->apart[1] - 1) / p->apart[1]};

        if (y_row < p->size[0])
            run_segment(run, part, &segment);
    }
}

static void run_tile(const struct conv_run *run, struct tile tile, int64_t panel)
{
    const struct direct *p = run->plan;

    for (int64_t k = 0; k < p->phase_count; k++)
        for (int64_t chunk = 0; chunk < p->phases[k].panels[panel].chunks; chunk++)
            (p->flat ? run_flat : run_lines)(run, tile, part_at(&p->phases[k], panel, chunk));
}

/* ---- taps that are spread ---- */

struct tap { /* by its row and column; from which step on */
    int64_t row, column, step;
};

/* One tap, or some of its channels, wherever it meets cells. */
static void run_tap(const struct conv_run *run, struct tile tile, struct part part, struct tap tap)
{
    const struct direct *p = run->plan;
    const bool first = part.step == tap.step;
    const bool last = part.step + part.steps == tap.step + direct_tap_steps(p);

    for (int64_t i = 0; i < tile.count; i++) {
        const int64_t image = (tile.first + i) / p->out[0], y = (tile.first + i) % p->out[0];
        const struct direct_range rows = direct_met_at(p, 0, y);

        if (tap.row < rows.from || tap.row >= rows.end)
            continue;
        for (int64_t k = 0; k < p->stretch_count; k++) {
            const struct direct_stretch *s = &p->stretches[k];
            const struct direct_segment segment = {
                .v = run->x + image * p->x_image + y * p->row + s->from * VW,
                .at = image * p->y_image + (y * p->out[1] + s->from) * VW,
                .image = image,
                .pixels = s->pixels};

            if (tap.column < s->taps.from || tap.column >= s->taps.end)
                continue;
            part.begins = first && tap.row == rows.from && tap.column == s->taps.from;
            part.ends = last && tap.row + 1 == rows.end && tap.column + 1 == s->taps.end;
            run_segment(run, part, &segment);
        }
    }
}

static void run_spread(const struct conv_run *run, struct tile tile, int64_t panel)
{
    const struct direct *p = run->plan;
    const int64_t steps = direct_tap_steps(p), chunk = p->phases->chunk;
    struct tap tap = {.step = 0};

    for (tap.row = p->met[0].from; tap.row < p->met[0].end; tap.row++)
        for (tap.column = p->met[1].from; tap.column < p->met[1].end; tap.column++) {
            for (int64_t done = 0; done < steps; done += chunk)
                run_tap(run, tile,
                        (struct part){.phase = p->phases,
                                      .panel = panel,
                                      .step = tap.step + done,
                                      .steps = steps - done < chunk ? steps - done : chunk},
                        tap);
            tap.step += steps;
        }
}

/* All members on one tile. */
static void run_panels(const struct conv_run *run, unsigned member, unsigned members)
{
    const struct direct *p = run->plan;

    for (int64_t t = 0; t < p->tiles; t++) {
        const struct tile tile = tile_at(p, t);
        size_t from, to;

        if (p->packs) {
            team_share((size_t)p->in_blocks, member, members, &from, &to);
            for (int64_t c = (int64_t)from; c < (int64_t)to; c++)
                pack(run, tile, c);
            team_barrier();
        }
        team_share((size_t)p->panels, member, members, &from, &to);
        for (int64_t q = (int64_t)from; q < (int64_t)to; q++)
            (p->spread ? run_spread : run_tile)(run, tile, q);
        if (p->packs && t + 1 < p->tiles)
            team_barrier();
    }
}

static void run_tiles(const struct conv_run *all, unsigned member, unsigned members)
{
    const struct direct *p = all->plan;
    struct conv_run run = *all;
    size_t from, to;

    run.scratch += (int64_t)member * p->scratch_floats;
    team_share((size_t)p->tiles, member, members, &from, &to);
    for (int64_t t = (int64_t)from; t < (int64_t)to; t++) {
        const struct tile tile = tile_at(p, t);

        for (int64_t c = 0; p->packs && c < p->in_blocks; c++)
            pack(&run, tile, c);
        for (int64_t q = 0; q < p->panels; q++)
            (p->spread ? run_spread : run_tile)(&run, tile, q);
    }
}

static void run_pixels(const struct conv_run *run, const struct direct_segment *segment,
                       int64_t from_panel, int64_t to_panel)
{
    const struct direct *p = run->plan;

    for (int64_t q = from_panel; q < to_panel; q++)
        for (int64_t chunk = 0; chunk < p->phases->panels[q].chunks; chunk++)
            run_segment(run, part_at(p->phases, q, chunk), segment);
}

/* ---- a pool behind it ---- */

struct pooled { /* rows [from, to) of the pool's result, and the lines that they come from */
    int64_t image, from, to;
    int64_t top; /* the first of them in their image */
    struct tile tile;
};

static struct pooled pooled_at(const struct direct *p, int64_t index)
{
    const int64_t rows = p->pool.window.out[1], of_image = (rows + p->tile - 1) / p->tile;
    struct pooled pooled = {.image = index / of_image, .from = index % of_image * p->tile};
    int64_t end;

    pooled.to = pooled.from + p->tile < rows ? pooled.from + p->tile : rows;
    direct_pooled_lines(p, pooled.from, pooled.to, &pooled.top, &end);
    pooled.tile = (struct tile){.first = pooled.image * p->out[0] + pooled.top,
                                .count = end > pooled.top ? end - pooled.top : 0};
    return pooled;
}

/* The sums of a panel lie in L2. */
static void pool_panel(const struct direct *p, const struct pooled *pooled, int64_t panel,
                       const float *sums, float *y)
{
    const struct direct_panel *blocks = &p->phases[0].panels[panel];
    const int64_t row = p->pool.window.out[2] * VW, plane = p->pool.window.out[1] * row;

    y += pooled->image * p->y_image + blocks->first * plane + pooled->from * row;
    for (int64_t b = 0; b < blocks->blocks; b++)
        p->pool_ops->rows(&p->pool, sums + b * p->y_block, pooled->top, pooled->from, pooled->to,
                          y + b * plane);
}

static void run_pooled(const struct conv_run *all, unsigned member, unsigned members)
{
    const struct direct *p = all->plan;
    struct conv_run run = *all;
    size_t from, to;

    run.scratch += (int64_t)member * p->scratch_floats;
    run.y = run.scratch + p->packed_floats;
    team_share((size_t)p->tiles, member, members, &from, &to);
    for (int64_t t = (int64_t)from; t < (int64_t)to; t++) {
        const struct pooled pooled = pooled_at(p, t);

        for (int64_t c = 0; pooled.tile.count > 0 && c < p->in_blocks; c++)
            pack(&run, pooled.tile, c);
        for (int64_t q = 0; q < p->panels; q++) {
            if (pooled.tile.count > 0)
                run_tile(&run, pooled.tile, q);
            pool_panel(p, &pooled, q, run.y, all->y);
        }
    }
}

static void run_all(const struct conv_run *run, unsigned member, unsigned members)
{
    const struct direct *p = run->plan;

    (p->pools ? run_pooled : p->by_panels ? run_panels : run_tiles)(run, member, members);
}

const struct direct_ops SIMD_NAME(direct_ops) = {
    .vector = VW, .rows = ROWS, .run = run_all, .pixels = run_pixels};
