/* Depthwise convolution, included by depthwise_base.c, depthwise_avx2.c and depthwise_avx512.c.
 *
 * The micro-kernel holds R neighbouring pixels of a block of channels in registers and goes through
 * the taps in order: one load of weights for R multiply-adds on the input as it lies.  Where
 * windows hang over the left or right edge, pixels go one by one with the taps that are inside.
 */
#include "device/cpu/conv/depthwise.h"
#include "device/cpu/conv/finish.h"
#include "device/cpu/team.h"

extern const struct depthwise_ops SIMD_NAME(depthwise_ops);

enum {
    ROWS = 14, /* with the weights and what is loaded: all 16 registers that AVX2 has */
    BLOCK = VW < 8 ? 8 : VW
};

/* ---- R pixels ---- */

struct strip {
    int64_t times;                 /* so many rows of R pixels, one below the other */
    const float *x;                /* under the first tap of the first pixel */
    int64_t x_next;                /* floats to that of the next row */
    int64_t step;                  /* … of the next pixel */
    int64_t down, across;          /* … to the next tap's */
    int64_t tap_rows, tap_columns; /* so many taps */
    const float *w;
    int64_t w_row; /* floats to the next row of taps */
    const float *bias;
    const float *residual; /* added to it, laid out as y; NULL: none */
    float low, high;
    float *y;
    int64_t y_next;
};

INLINE void micro(const int R, const int64_t step, const struct strip *strip)
{
    const int64_t down = strip->down, across = strip->across, y_next = strip->y_next;
    const int64_t tap_rows = strip->tap_rows, tap_columns = strip->tap_columns;
    const vf start = vload(strip->bias), low = vset1(strip->low), high = vset1(strip->high);
    const float *from = strip->x, *residual = strip->residual;
    float *y = strip->y;

    for (int64_t i = 0; i < strip->times; i++, from += strip->x_next, y += y_next) {
        const float *rows = from, *w_row = strip->w;
        vf s[ROWS];

        UNROLL for (int r = 0; r < R; r++) s[r] = start;
        if (residual != NULL) {
            UNROLL for (int r = 0; r < R; r++) s[r] = vadd(s[r], vload(residual + r * BLOCK));
            residual += y_next;
        }
        for (int64_t k = 0; k < tap_rows; k++, rows += down, w_row += strip->w_row) {
            const float *x = rows, *w = w_row;

            for (int64_t j = 0; j < tap_columns; j++, x += across, w += BLOCK) {
                const vf weight = vload(w);

                UNROLL for (int r = 0; r < R; r++) vmac(s[r], vload(x + r * step), weight);
            }
        }
        UNROLL for (int r = 0; r < R; r++) vstore(y + r * BLOCK, vmin(high, vmax(low, s[r])));
    }
}

typedef void (*micro_fn)(const struct strip *strip);

/* Steps that are known make addresses constant. */
#define MICRO(R)                                                                                   \
    static void micro_##R##_1(const struct strip *strip)                                           \
    {                                                                                              \
        micro(R, BLOCK, strip);                                                                    \
    }                                                                                              \
    static void micro_##R##_2(const struct strip *strip)                                           \
    {                                                                                              \
        micro(R, 2 * BLOCK, strip);                                                                \
    }                                                                                              \
    static void micro_##R##_any(const struct strip *strip)                                         \
    {                                                                                              \
        micro(R, strip->step, strip);                                                              \
    }
#define EACH_ROWS(do)                                                                              \
    do                                                                                             \
    (1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) do(13) do(14)
EACH_ROWS(MICRO)
#define MICRO_ROW(R) [R] = {micro_##R##_1, micro_##R##_2, micro_##R##_any},
static const micro_fn micros[ROWS + 1][3] = {EACH_ROWS(MICRO_ROW)};

/* ---- rows of the result ---- */

struct range {
    int64_t first, count;
};

/* The taps that lie inside of an axis when the first lies at `at`. */
static struct range find_taps(int64_t at, int64_t dilation, int64_t taps, int64_t in)
{
    int64_t first = 0, last = taps;

    while (first < last && at + first * dilation < 0)
        first++;
    while (last > first && at + (last - 1) * dilation >= in)
        last--;
    return (struct range){first, last - first};
}

/* A strip of rows from place `first` on. */
static struct strip from_place(const struct depthwise *p, const struct depthwise_plane *plane,
                               const struct strip *rows, int64_t first)
{
    const int64_t at = first * p->stride[1] - plane->pad[1];
    struct strip strip = *rows;

    strip.x += at * BLOCK;
    strip.y += first * BLOCK;
    if (strip.residual != NULL)
        strip.residual += first * BLOCK;
    return strip;
}

static micro_fn micro_for(const struct depthwise *p, int64_t count)
{
    return micros[count][p->stride[1] <= 2 ? p->stride[1] - 1 : 2];
}

static void run_edge(const struct depthwise *p, const struct depthwise_plane *plane,
                     const struct strip *rows, int64_t first, int64_t end)
{
    for (int64_t place = first; place < end; place++) {
        const struct range taps = find_taps(place * p->stride[1] - plane->pad[1], p->dilation[1],
                                            p->kernel[1], plane->in[1]);
        struct strip strip = from_place(p, plane, rows, place);

        strip.tap_columns = taps.count;
        strip.x += taps.first * strip.across;
        strip.w += taps.first * BLOCK;
        micro_for(p, 1)(&strip);
    }
}

/* Rows of a small plane: a few places of all of them, then the next few. */
static void run_columns(const struct depthwise *p, const struct depthwise_plane *plane,
                        const struct strip *rows)
{
    int64_t left = plane->insides, place = plane->inside;

    for (int64_t groups = (left + ROWS - 1) / ROWS; groups > 0; groups--) {
        const int64_t count = left / groups;
        const struct strip strip = from_place(p, plane, rows, place);

        micro_for(p, count)(&strip);
        place += count;
        left -= count;
    }
}

/* Rows of a large plane, one after the other, as they lie in memory. */
static void run_along(const struct depthwise *p, const struct depthwise_plane *plane,
                      const struct strip *rows)
{
    const int64_t all = plane->insides, groups = (all + ROWS - 1) / ROWS;
    const int64_t large = groups > 0 ? all % groups : 0; /* groups of one pixel more */
    struct strip strip = from_place(p, plane, rows, plane->inside);

    for (int64_t i = 0; i < rows->times && groups > 0; i++) {
        struct strip part = strip;

        for (int64_t count = all / groups, k = 0; k < 2; k++, count++) {
            part.times = k == 0 ? groups - large : large;
            part.x_next = count * part.step;
            part.y_next = count * BLOCK;
            if (part.times > 0)
                micro_for(p, count)(&part);
            part.x += part.times * part.x_next;
            part.y += part.times * part.y_next;
            if (part.residual != NULL)
                part.residual += part.times * part.y_next;
        }
        strip.x += strip.x_next;
        strip.y += strip.y_next;
        if (strip.residual != NULL)
            strip.residual += strip.y_next;
    }
}

/* `rows`: the first tap column of place 0 in rows that have the same taps inside. */
static void run_places(const struct depthwise *p, const struct depthwise_plane *plane,
                       const struct strip *rows)
{
    run_edge(p, plane, rows, 0, plane->inside);
    (p->out[1] <= 2 * ROWS ? run_columns : run_along)(p, plane, rows);
    run_edge(p, plane, rows, plane->inside + plane->insides, p->out[1]);
}

struct target {            /* rows of the result */
    const float *residual; /* of these rows; NULL: none */
    float *y;
};

/* So many rows of place y and below, one vector of the block's channels. */
static void run_lane(const struct depthwise *p, const struct depthwise_plane *plane, int64_t y,
                     int64_t times, int64_t lane, struct target to)
{
    const bool finishes = finish_is_needed(&p->epilogue, to.residual);
    const int64_t top = y * p->stride[0] - plane->pad[0];
    const struct range taps = find_taps(top, p->dilation[0], p->kernel[0], plane->in[0]);
    const int64_t line = plane->in[1] * BLOCK;
    const struct strip rows = {
        .times = times,
        .x = plane->x + (top + taps.first * p->dilation[0]) * line + lane,
        .x_next = p->stride[0] * line,
        .step = p->stride[1] * BLOCK,
        .down = p->dilation[0] * line,
        .across = p->dilation[1] * BLOCK,
        .tap_rows = taps.count,
        .tap_columns = p->kernel[1],
        .w = plane->weights + taps.first * p->kernel[1] * BLOCK + lane,
        .w_row = p->kernel[1] * BLOCK,
        .bias = plane->bias + lane,
        .residual = to.residual == NULL || p->epilogue.residual_after ? NULL : to.residual + lane,
        .low = finish_low(&p->epilogue, finishes),
        .high = finish_high(&p->epilogue, finishes),
        .y = to.y + lane,
        .y_next = p->out[1] * BLOCK};

    run_places(p, plane, &rows);
}

/* So many rows from y on, less than `left`, have all taps inside; 1 when y itself has not. */
static int64_t find_alike(const struct depthwise *p, const struct depthwise_plane *plane, int64_t y,
                          int64_t left)
{
    const int64_t reach = (p->kernel[0] - 1) * p->dilation[0];
    int64_t top = y * p->stride[0] - plane->pad[0], count = 0;

    for (; count < left && top >= 0 && top + reach < plane->in[0]; top += p->stride[0])
        count++;
    return count > 0 ? count : 1;
}

/* Rows [from, to). */
static void run_rows(const struct depthwise *p, const struct depthwise_plane *plane, int64_t from,
                     int64_t end, struct target to)
{
    const bool finishes = finish_is_needed(&p->epilogue, to.residual);

    for (int64_t y = from, times; y < end; y += times) {
        const int64_t left = end - y;

        times = find_alike(p, plane, y, left < p->alike ? left : p->alike);
        for (int64_t lane = 0; lane < BLOCK; lane += VW)
            run_lane(p, plane, y, times, lane, to);
        if (finishes)
            finish_row(&p->epilogue, to.y, p->epilogue.residual_after ? to.residual : NULL,
                       times * p->out[1] * BLOCK);
        to.y += times * p->out[1] * BLOCK;
        if (to.residual != NULL)
            to.residual += times * p->out[1] * BLOCK;
    }
}

static void run_rows_alone(const struct depthwise *p, const struct depthwise_plane *plane,
                           int64_t from, int64_t to, float *y)
{
    run_rows(p, plane, from, to, (struct target){.y = y});
}

/* ---- planes ---- */

static float *put_zeros(float *to, int64_t pixels)
{
    for (int64_t i = 0; i < pixels * BLOCK; i += VW)
        vstore(to + i, vzero());
    return to + pixels * BLOCK;
}

static float *put_pixels(float *to, const float *x, int64_t pixels)
{
    for (int64_t i = 0; i < pixels * BLOCK; i += VW)
        vstore(to + i, vload(x + i));
    return to + pixels * BLOCK;
}

/* The rows of the padded plane that rows [from, to) of the result need. */
static void pack(const struct depthwise *p, const float *x, int64_t from, int64_t to, float *packed)
{
    const int64_t reach = (p->kernel[0] - 1) * p->dilation[0], width = p->padded[1];
    const int64_t left = p->pad[1] < width ? p->pad[1] : width, room = width - left;
    const int64_t used = p->in[1] < room ? p->in[1] : room;

    for (int64_t row = from * p->stride[0]; row <= (to - 1) * p->stride[0] + reach; row++) {
        float *line = packed + row * width * BLOCK;
        const int64_t y = row - p->pad[0];

        if (y < 0 || y >= p->in[0]) {
            (void)put_zeros(line, width);
            continue;
        }
        line = put_zeros(line, left);
        line = put_pixels(line, x + y * p->in[1] * BLOCK, used);
        (void)put_zeros(line, room - used);
    }
}

static void run_plane(const struct conv_run *run, int64_t index, int64_t from, int64_t to,
                      float *scratch)
{
    const struct depthwise *p = run->plan;
    const int64_t block = index % p->blocks;
    const int64_t at = (index * p->out[0] + from) * p->out[1] * BLOCK;
    struct depthwise_plane plane = {.x = run->x + index * p->in[0] * p->in[1] * BLOCK,
                                    .in = {p->in[0], p->in[1]},
                                    .pad = {p->pad[0], p->pad[1]},
                                    .inside = p->inside,
                                    .insides = p->insides,
                                    .weights =
                                        run->weights + block * p->kernel[0] * p->kernel[1] * BLOCK,
                                    .bias = run->bias + block * BLOCK};

    if (p->padded[0] > 0) {
        pack(p, plane.x, from, to, scratch);
        plane.x = scratch;
        plane.in[0] = p->padded[0], plane.in[1] = p->padded[1];
        plane.pad[0] = plane.pad[1] = 0;
        plane.inside = 0, plane.insides = p->out[1];
    }
    run_rows(p, &plane, from, to,
             (struct target){run->residual != NULL ? run->residual + at : NULL, run->y + at});
}

/* Members share the rows of all images, with all their channels, as those of a 1x1 convolution do:
 * what one of them wrote it reads, from its own cache.  Few rows: the planes instead. */
static void run_all(const struct conv_run *run, unsigned member, unsigned members)
{
    const struct depthwise *p = run->plan;
    const int64_t images = p->by_planes ? p->planes : p->planes / p->blocks;
    const int64_t together = p->planes / images;
    float *scratch = run->scratch + (int64_t)member * p->padded[0] * p->padded[1] * BLOCK;
    size_t first, last;

    team_share((size_t)(images * p->out[0]), member, members, &first, &last);
    for (int64_t row = (int64_t)first, end = (int64_t)last; row < end;) {
        const int64_t from = row % p->out[0], left = end - row;
        const int64_t count = left < p->out[0] - from ? left : p->out[0] - from;

        for (int64_t i = 0; i < together; i++)
            run_plane(run, row / p->out[0] * together + i, from, from + count, scratch);
        row += count;
    }
}

const struct depthwise_ops SIMD_NAME(depthwise_ops) = {
    .block = BLOCK, .run = run_all, .rows = run_rows_alone};
