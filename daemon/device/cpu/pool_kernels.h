/* Included by pool_base.c, pool_avx2.c and pool_avx512.c. */
#include "device/cpu/pool.h"
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

INLINE vf combine(const enum pool_kind kind, vf a, vf x)
{
    return kind == POOL_MAX ? vmax(a, x) : vadd(a, x);
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

static float reduce_scalar(enum pool_kind kind, const struct cells *cells)
{
    float sum = kind == POOL_MAX ? -__builtin_inff() : 0;

    for (int64_t d = 0; d < cells->count[0]; d++)
        for (int64_t h = 0; h < cells->count[1]; h++) {
            const float *row = cells->first + d * cells->step[0] + h * cells->step[1];

            for (int64_t i = 0; i < cells->count[2]; i++) {
                float x = row[i * cells->step[2]];

                sum = kind == POOL_MAX ? (sum > x ? sum : x) : sum + x;
            }
        }
    return kind == POOL_AVERAGE ? sum * cells->scale : sum;
}

static void reduce(const struct pool_plane *pool, const struct cells *cells, float *y)
{
    if (pool->block == 1)
        *y = reduce_scalar(pool->kind, cells);
    else if (pool->kind == POOL_MAX)
        for (size_t lane = 0; lane < pool->block; lane += VW)
            reduce_vector(POOL_MAX, cells, lane, y + lane);
    else
        for (size_t lane = 0; lane < pool->block; lane += VW)
            reduce_vector(POOL_AVERAGE, cells, lane, y + lane);
}

static void window(const struct pool_plane *pool, const float *x, float *y)
{
    const struct window *w = &pool->window;
    struct range ranges[WINDOW_MAX_RANK];
    struct cells cells;

    for (int64_t d = 0; d < w->out[0]; d++) {
        ranges[0] = clip(w, 0, d);
        for (int64_t h = 0; h < w->out[1]; h++) {
            ranges[1] = clip(w, 1, h);
            for (int64_t i = 0; i < w->out[2]; i++, y += pool->block) {
                ranges[2] = clip(w, 2, i);
                locate(pool, ranges, x, &cells);
                reduce(pool, &cells, y);
            }
        }
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
        sum = kind == POOL_MAX ? (sum > lanes[i] ? sum : lanes[i]) : sum + lanes[i];
    for (size_t i = whole * VW; i < cells; i++)
        sum = kind == POOL_MAX ? (sum > x[i] ? sum : x[i]) : sum + x[i];
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
    .window = window, .global = global, .normalize = normalize};
