/* Included by pool_base.c, pool_avx2.c and pool_avx512.c. */
#include "device/cpu/conv/pool.h"
#include "device/cpu/vmath.h"

extern const struct pool_ops SIMD_NAME(pool_ops);

/* The taps of one dimension that lie on cells. */
struct range {
    int64_t first; /* cell under the first of them */
    int64_t count;
    int64_t padded; /* taps on cells or padding */
};

static struct range clip(const struct window *w, size_t i, int64_t place)
{
    int64_t start = place * w->stride[i] - w->pad_begin[i], step = w->dilation[i];
    int64_t skip = start < 0 ? (-start + step - 1) / step : 0;
    int64_t end = w->in[i] - start, all = w->in[i] + w->pad_end[i] - start;
    int64_t inside = (end + step - 1) / step, reached = (all + step - 1) / step;
    struct range range = {.first = start + skip * step};

    inside = inside < w->kernel[i] ? inside : w->kernel[i];
    range.count = inside > skip ? inside - skip : 0;
    range.padded = reached < w->kernel[i] ? reached : w->kernel[i];
    return range;
}

struct cells { /* the box of cells under one window */
    const float *first;
    int64_t count[WINDOW_MAX_RANK];
    int64_t step[WINDOW_MAX_RANK]; /* floats */
    float scale;                   /* average: 1 / how many count */
};

static void locate(const struct pool_plane *pool, const struct range *ranges, const float *x,
                   struct cells *cells)
{
    const struct window *w = &pool->window;
    int64_t at = 0, unit = (int64_t)pool->block, inside = 1, padded = 1;

    for (size_t i = WINDOW_MAX_RANK; i-- > 0; unit *= w->in[i]) {
        at += ranges[i].first * unit;
        cells->count[i] = ranges[i].count;
        cells->step[i] = w->dilation[i] * unit;
        inside *= ranges[i].count;
        padded *= ranges[i].padded;
    }
    cells->first = x + at;
    if (pool->count_padding)
        inside = padded;
    cells->scale = inside > 0 ? 1.0f / (float)inside : 0;
}

/* The largest of what was found and x.  A NaN among the cells is passed over, as by comparing one
 * after the other; `a` is none. */
INLINE vf combine(const enum pool_kind kind, vf a, vf x)
{
    return kind == POOL_MAX ? vmax(x, a) : vadd(a, x);
}

INLINE float combine_one(const enum pool_kind kind, float a, float x)
{
    return kind == POOL_MAX ? (x > a ? x : a) : a + x;
}

INLINE void reduce_vector(const enum pool_kind kind, const struct cells *cells, size_t lane,
                          float *y)
{
    vf sum = kind == POOL_MAX ? vset1(-__builtin_inff()) : vzero();

    for (int64_t d = 0; d < cells->count[0]; d++)
        for (int64_t h = 0; h < cells->count[1]; h++) {
            const float *row = cells->first + d * cells->step[0] + h * cells->step[1] + lane;

            for (int64_t i = 0; i < cells->count[2]; i++)
                sum = combine(kind, sum, vload(row + i * cells->step[2]));
        }
    if (kind == POOL_AVERAGE)
        sum = vmul(sum, vset1(cells->scale));
    vstore(y, sum);
}

/* Places of a row under whose windows all cells are there: [first, end). */
struct inside {
    int64_t first, end;
};

static struct inside find_inside(const struct window *w)
{
    const size_t last = WINDOW_MAX_RANK - 1;
    const int64_t stride = w->stride[last], pad = w->pad_begin[last];
    const int64_t room = w->in[last] + pad - (w->kernel[last] - 1) * w->dilation[last] - 1;
    struct inside inside = {.first = (pad + stride - 1) / stride,
                            .end = room >= 0 ? room / stride + 1 : 0};

    inside.end = inside.end < w->out[last] ? inside.end : w->out[last];
    inside.first = inside.first < inside.end ? inside.first : inside.end;
    return inside;
}

INLINE void blocked_row(const enum pool_kind kind, const struct pool_plane *pool,
                        const struct inside *inside, struct range *ranges, const float *x, float *y)
{
    const struct window *w = &pool->window;
    const int64_t block = (int64_t)pool->block, step = w->stride[2] * block;
    struct cells cells = {.first = x};

    for (int64_t i = 0; i < w->out[2]; i++, y += block) {
        if (i > inside->first && i < inside->end) {
            cells.first += step;
        } else {
            ranges[2] = clip(w, 2, i);
            locate(pool, ranges, x, &cells);
        }
        for (int64_t lane = 0; lane < block; lane += VW)
            reduce_vector(kind, &cells, (size_t)lane, y + lane);
    }
}

/* ---- plain rows ---- */

enum { LINE = 2 * POOL_MAX_REACH };

INLINE void take_row(const enum pool_kind kind, const float *row, int64_t count, float *line)
{
    int64_t i = 0;

    for (; i + VW <= count; i += VW)
        vstore(line + i, combine(kind, vload(line + i), vload(row + i)));
    for (; i < count; i++)
        line[i] = combine_one(kind, line[i], row[i]);
}

/* The rows under the windows become one, cells [left, left + count), with what changes nothing
 * where there are none. */
INLINE void make_line(const enum pool_kind kind, const struct pool_plane *pool,
                      const struct range *ranges, const float *x, int64_t left, int64_t count,
                      float *line)
{
    const struct window *w = &pool->window;
    const int64_t from = left > 0 ? left : 0;
    const int64_t end = left + count < w->in[2] ? left + count : w->in[2];

    for (int64_t i = 0; i < count; i++)
        line[i] = kind == POOL_MAX ? -__builtin_inff() : 0;
    for (int64_t d = 0; d < ranges[0].count; d++)
        for (int64_t h = 0; h < ranges[1].count; h++) {
            const int64_t plane = ranges[0].first + d * w->dilation[0];
            const int64_t row = plane * w->in[1] + ranges[1].first + h * w->dilation[1];

            if (end > from)
                take_row(kind, x + row * w->in[2] + from, end - from, line + from - left);
        }
}

INLINE void reduce_line(const enum pool_kind kind, const struct window *w, const float *line,
                        int64_t count, float *y)
{
    const int64_t stride = w->stride[2], step = w->dilation[2];
    int64_t i = 0;

    for (; stride == 1 && i + VW <= count; i += VW) {
        vf sum = vload(line + i);

        for (int64_t k = 1; k < w->kernel[2]; k++)
            sum = combine(kind, sum, vload(line + i + k * step));
        vstore(y + i, sum);
    }
    for (; i < count; i++) {
        float sum = line[i * stride];

        for (int64_t k = 1; k < w->kernel[2]; k++)
            sum = combine_one(kind, sum, line[i * stride + k * step]);
        y[i] = sum;
    }
}

/* `x`: the plane, of which nothing is read. */
static void scale_row(const struct pool_plane *pool, const struct inside *inside,
                      struct range *ranges, const float *x, int64_t first, int64_t count, float *y)
{
    const struct window *w = &pool->window;
    struct cells cells = {.scale = 0};

    for (int64_t i = first; i < first + count; i++) {
        if (i == first || i <= inside->first || i >= inside->end) {
            ranges[2] = clip(w, 2, i);
            locate(pool, ranges, x, &cells);
        }
        y[i] *= cells.scale;
    }
}

INLINE void plain_row(const enum pool_kind kind, const struct pool_plane *pool,
                      const struct inside *inside, struct range *ranges, const float *x, float *y)
{
    const struct window *w = &pool->window;
    const int64_t reach = (w->kernel[2] - 1) * w->dilation[2];
    const int64_t piece = (LINE - reach - 1) / w->stride[2] + 1;
    _Alignas(64) float line[LINE];

    for (int64_t first = 0, count; first < w->out[2]; first += count) {
        const int64_t left = first * w->stride[2] - w->pad_begin[2];

        count = w->out[2] - first < piece ? w->out[2] - first : piece;
        make_line(kind, pool, ranges, x, left, (count - 1) * w->stride[2] + reach + 1, line);
        reduce_line(kind, w, line, count, y + first);
        if (kind == POOL_AVERAGE)
            scale_row(pool, inside, ranges, x, first, count, y);
    }
}

static void any_row(const struct pool_plane *pool, const struct inside *inside,
                    struct range *ranges, const float *x, float *y)
{
    const bool largest = pool->kind == POOL_MAX;

    if (pool->block > 1 && largest)
        blocked_row(POOL_MAX, pool, inside, ranges, x, y);
    else if (pool->block > 1)
        blocked_row(POOL_AVERAGE, pool, inside, ranges, x, y);
    else if (largest)
        plain_row(POOL_MAX, pool, inside, ranges, x, y);
    else
        plain_row(POOL_AVERAGE, pool, inside, ranges, x, y);
}

static void window(const struct pool_plane *pool, const float *x, float *y)
{
    const struct window *w = &pool->window;
    const struct inside inside = find_inside(w);
    const int64_t row = w->out[2] * (int64_t)pool->block;
    struct range ranges[WINDOW_MAX_RANK];

    for (int64_t d = 0; d < w->out[0]; d++) {
        ranges[0] = clip(w, 0, d);
        for (int64_t h = 0; h < w->out[1]; h++, y += row) {
            ranges[1] = clip(w, 1, h);
            any_row(pool, &inside, ranges, x, y);
        }
    }
}

static void rows(const struct pool_plane *pool, const float *x, int64_t top, int64_t from,
                 int64_t to, float *y)
{
    const struct window *w = &pool->window;
    const struct inside inside = find_inside(w);
    struct range ranges[WINDOW_MAX_RANK] = {clip(w, 0, 0)};

    for (int64_t h = from; h < to; h++, y += w->out[2] * (int64_t)pool->block) {
        ranges[1] = clip(w, 1, h);
        ranges[1].first -= top;
        any_row(pool, &inside, ranges, x, y);
    }
}

/* Four sums side by side, so that long maps lose little. */
INLINE vf global_vector(const enum pool_kind kind, const float *x, size_t cells, size_t step)
{
    const vf start = kind == POOL_MAX ? vset1(-__builtin_inff()) : vzero();
    vf s[4] = {start, start, start, start};
    size_t i = 0;

    for (; i + 4 <= cells; i += 4)
        UNROLL for (size_t k = 0; k < 4; k++) s[k] = combine(kind, s[k], vload(x + (i + k) * step));
    for (; i < cells; i++)
        s[0] = combine(kind, s[0], vload(x + i * step));
    return combine(kind, combine(kind, s[0], s[1]), combine(kind, s[2], s[3]));
}

/* Cells of one channel lie side by side: lanes, then the rest. */
static float global_plain(enum pool_kind kind, const float *x, size_t cells)
{
    const size_t whole = cells / VW;
    float lanes[VW], sum = kind == POOL_MAX ? -__builtin_inff() : 0;

    vstore(lanes, kind == POOL_MAX ? global_vector(POOL_MAX, x, whole, VW)
                                   : global_vector(POOL_AVERAGE, x, whole, VW));
    for (size_t i = 0; i < (size_t)VW; i++)
        sum = combine_one(kind, sum, lanes[i]);
    for (size_t i = whole * VW; i < cells; i++)
        sum = combine_one(kind, sum, x[i]);
    return kind == POOL_AVERAGE ? sum / (float)cells : sum;
}

static void global(enum pool_kind kind, const float *x, size_t cells, size_t block, float *out)
{
    if (block == 1) {
        *out = global_plain(kind, x, cells);
        return;
    }
    for (size_t lane = 0; lane < block; lane += VW)
        if (kind == POOL_MAX)
            vstore(out + lane, global_vector(POOL_MAX, x + lane, cells, block));
        else
            vstore(out + lane, vmul(global_vector(POOL_AVERAGE, x + lane, cells, block),
                                    vset1(1.0f / (float)cells)));
}

static void normalize(const float *x, size_t channels, size_t size, float scale, float bias,
                      float beta, float *y, float *squares)
{
    const size_t before = (size - 1) / 2;

    memset(squares, 0, (channels + size + 16) * sizeof(float));
    for (size_t c = 0; c < channels; c++)
        squares[before + c] = x[c] * x[c];
    for (size_t c = 0; c < channels; c += VW) {
        size_t part = channels - c < (size_t)VW ? channels - c : (size_t)VW;
        vf sum = vzero(), value = part == (size_t)VW ? vload(x + c) : vload_part(x + c, part);

        for (size_t i = 0; i < size; i++)
            sum = vadd(sum, vload(squares + c + i));
        sum = vfma(sum, vset1(scale), vset1(bias));
        value = vmul(value, vexp(vmul(vset1(-beta), vlog(sum))));
        if (part == (size_t)VW)
            vstore(y + c, value);
        else
            vstore_part(y + c, value, part);
    }
}

const struct pool_ops SIMD_NAME(pool_ops) = {
    .window = window, .rows = rows, .global = global, .normalize = normalize};
