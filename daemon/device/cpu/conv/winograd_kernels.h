/* Winograd F(m x m, 3x3), included by winograd_avx2.c and winograd_avx512.c.
 *
 * A tile is (m + 2) x (m + 2) inputs and m x m outputs.  Three steps for a block of tiles:
 *   1. input transform   V[in block][point][tile][VW]   = B' d B, VW channels at once
 *   2. batched product   M[out block][point][tile][VW]  = sum over channels of V U, one small
 * matrix product a point
 *   3. output transform  A' M A, + bias, + residual, activation, stored in the blocked layout
 * In V the VW channels of neighbouring tiles lie side by side, so the micro-kernel reaches its rows
 * with constant offsets from one pointer, and the transforms store whole vectors.
 *
 * Interpolation points of F(4x4): 0, ±3/4, ±3/2 and infinity: the same cost as 0, ±1, ±2 and an
 * error 3.7 times smaller.  All scale factors are in the weights (winograd.c).
 */
#include "device/cpu/conv/finish.h"
#include "device/cpu/conv/winograd.h"
#include "device/cpu/team.h"

extern const struct winograd_ops SIMD_NAME(winograd_ops);

#define POINT_A 0.75f
#define POINT_B 1.5f

enum {
    PANEL = 2 * VW,
    MAX_EDGE = 6,
#if defined(__AVX512F__)
    ROWS = 12
#else
    ROWS = 6
#endif
};

/* ---- one-dimensional transforms; m is a constant where they are inlined ---- */

/* d[0 … m+1] to o[0 … m+1]: coefficients of the products of (x - x_j) */
INLINE void transform_in(const int m, const vf *d, vf *o)
{
    if (m == 2) {
        o[0] = vsub(d[2], d[0]);
        o[1] = vadd(d[2], d[1]);
        o[2] = vsub(d[2], d[1]);
        o[3] = vsub(d[3], d[1]);
    } else {
        const vf a = vset1(POINT_A), b = vset1(POINT_B);
        const vf a2 = vset1(POINT_A * POINT_A), b2 = vset1(POINT_B * POINT_B);
        const vf s = vset1(POINT_A * POINT_A + POINT_B * POINT_B);
        const vf p = vset1(POINT_A * POINT_A * POINT_B * POINT_B);
        vf ea = vfnma(b2, d[2], d[4]), oa = vmul(a, vfnma(b2, d[1], d[3]));
        vf eb = vfnma(a2, d[2], d[4]), ob = vmul(b, vfnma(a2, d[1], d[3]));

        o[0] = vfma(p, d[0], vfnma(s, d[2], d[4]));
        o[1] = vadd(ea, oa);
        o[2] = vsub(ea, oa);
        o[3] = vadd(eb, ob);
        o[4] = vsub(eb, ob);
        o[5] = vfma(p, d[1], vfnma(s, d[3], d[5]));
    }
}

/* x[0 … m+1] to o[0 … m-1]: powers of the points */
INLINE void transform_out(const int m, const vf *x, vf *o)
{
    if (m == 2) {
        o[0] = vadd(x[0], vadd(x[1], x[2]));
        o[1] = vadd(x[3], vsub(x[1], x[2]));
    } else {
        const float a = POINT_A, b = POINT_B;
        vf ea = vadd(x[1], x[2]), oa = vsub(x[1], x[2]);
        vf eb = vadd(x[3], x[4]), ob = vsub(x[3], x[4]);

        o[0] = vadd(x[0], vadd(ea, eb));
        o[1] = vfma(vset1(a), oa, vmul(vset1(b), ob));
        o[2] = vfma(vset1(a * a), ea, vmul(vset1(b * b), eb));
        o[3] = vfma(vset1(a * a * a), oa, vfma(vset1(b * b * b), ob, x[5]));
    }
}

/* ---- steps 1 and 3 for one tile and one channel block ---- */

INLINE void tile_in(const int m, const float *x, int64_t row, float *v, int64_t point)
{
    const int t = m + 2;
    vf middle[MAX_EDGE][MAX_EDGE], d[MAX_EDGE], o[MAX_EDGE];

    UNROLL for (int j = 0; j < t; j++)
    {
        UNROLL for (int i = 0; i < t; i++) d[i] = vload(x + i * row + j * VW);
        transform_in(m, d, o);
        UNROLL for (int i = 0; i < t; i++) middle[i][j] = o[i];
    }
    UNROLL for (int i = 0; i < t; i++)
    {
        transform_in(m, middle[i], o);
        UNROLL for (int j = 0; j < t; j++) vstore(v + (i * t + j) * point, o[j]);
    }
}

struct target { /* where a tile of one channel block goes */
    float *y;
    const float *residual; /* added before the clamp; NULL: none */
    int64_t row;           /* floats */
    int64_t rows, columns; /* at most m: less at the border */
    vf bias, low, high;
};

INLINE void tile_out(const int m, const float *products, int64_t point, const struct target *to)
{
    const int t = m + 2;
    vf middle[MAX_EDGE][MAX_EDGE], x[MAX_EDGE], o[MAX_EDGE];

    UNROLL for (int j = 0; j < t; j++)
    {
        UNROLL for (int i = 0; i < t; i++) x[i] = vload(products + (i * t + j) * point);
        transform_out(m, x, o);
        UNROLL for (int i = 0; i < m; i++) middle[i][j] = o[i];
    }
    UNROLL for (int i = 0; i < m; i++)
    {
        if (i >= to->rows)
            break;
        transform_out(m, middle[i], o);
        UNROLL for (int j = 0; j < m; j++)
        {
            vf y = vadd(o[j], to->bias);

            if (j >= to->columns)
                break;
            if (to->residual != NULL)
                y = vadd(y, vload(to->residual + i * to->row + j * VW));
            vstore(to->y + i * to->row + j * VW, vmin(to->high, vmax(to->low, y)));
        }
    }
}

/* Image and upper left output of a tile. */
static void locate(const struct winograd *p, int64_t tile, int64_t *image, int64_t *y, int64_t *x)
{
    int64_t per_image = p->tiles_down * p->tiles_across, rest = tile % per_image;

    *image = tile / per_image;
    *y = rest / p->tiles_across * p->m;
    *x = rest % p->tiles_across * p->m;
}

/* A tile that reaches over the border, with zeros around. */
static void copy_border(const struct winograd *p, const float *plane, int64_t y, int64_t x,
                        float *buffer)
{
    const int t = p->m + 2;

    for (int64_t i = y; i < y + t; i++)
        for (int64_t j = x; j < x + t; j++, buffer += VW)
            vstore(buffer, i >= 0 && i < p->h && j >= 0 && j < p->w
                               ? vload(plane + (i * p->w + j) * VW)
                               : vzero());
}

INLINE void block_in(const int m, const struct conv_run *run, int64_t first, int64_t tiles,
                     int64_t channel_block, float *v)
{
    const struct winograd *p = run->plan;
    const int64_t row = p->w * VW, plane = row * p->h, point = p->block_tiles * VW;
    _Alignas(64) float buffer[MAX_EDGE * MAX_EDGE * VW];

    for (int64_t k = 0; k < tiles; k++) {
        int64_t image, y, x;
        const float *from;

        locate(p, first + k, &image, &y, &x);
        from = run->x + image * p->x_image + channel_block * plane;
        y -= p->pad_top;
        x -= p->pad_left;
        if (y >= 0 && x >= 0 && y + m + 2 <= p->h && x + m + 2 <= p->w) {
            tile_in(m, from + y * row + x * VW, row, v + k * VW, point);
        } else {
            copy_border(p, from, y, x, buffer);
            tile_in(m, buffer, (m + 2) * VW, v + k * VW, point);
        }
    }
}

INLINE void block_out(const int m, const struct conv_run *run, const float *products, int64_t first,
                      int64_t tiles, int64_t channel_block)
{
    const struct winograd *p = run->plan;
    const int64_t point = p->block_tiles * VW;
    const bool finishes = finish_is_needed(&p->epilogue, run->residual),
               after = p->epilogue.residual_after;
    struct target to = {.row = p->out_w * VW,
                        .bias = vload(run->bias + channel_block * VW),
                        .low = vset1(finish_low(&p->epilogue, finishes)),
                        .high = vset1(finish_high(&p->epilogue, finishes))};

    for (int64_t k = 0; k < tiles; k++) {
        int64_t image, y, x, at;
        const float *residual;

        locate(p, first + k, &image, &y, &x);
        at = (channel_block * p->out_h + y) * to.row + x * VW;
        residual = run->residual != NULL ? run->residual + image * p->residual_image + at : NULL;
        to.y = run->y + image * p->y_image + at;
        to.residual = after ? NULL : residual;
        to.rows = p->out_h - y < m ? p->out_h - y : m;
        to.columns = p->out_w - x < m ? p->out_w - x : m;
        tile_out(m, products + k * VW, point, &to);
        for (int64_t i = 0; finishes && i < to.rows; i++)
            finish_row(&p->epilogue, to.y + i * to.row,
                       after && residual != NULL ? residual + i * to.row : NULL, to.columns * VW);
    }
}

static void input_2(const struct conv_run *run, int64_t first, int64_t tiles, int64_t block,
                    float *v)
{
    block_in(2, run, first, tiles, block, v);
}

static void input_4(const struct conv_run *run, int64_t first, int64_t tiles, int64_t block,
                    float *v)
{
    block_in(4, run, first, tiles, block, v);
}

static void output_2(const struct conv_run *run, const float *products, int64_t first,
                     int64_t tiles, int64_t block)
{
    block_out(2, run, products, first, tiles, block);
}

static void output_4(const struct conv_run *run, const float *products, int64_t first,
                     int64_t tiles, int64_t block)
{
    block_out(4, run, products, first, tiles, block);
}

static void input(const struct conv_run *run, int64_t first, int64_t tiles, int64_t block, float *v)
{
    const struct winograd *p = run->plan;

    (p->m == 2 ? input_2 : input_4)(run, first, tiles, block, v);
}

static void output(const struct conv_run *run, const float *products, int64_t first, int64_t tiles,
                   int64_t block)
{
    const struct winograd *p = run->plan;

    (p->m == 2 ? output_2 : output_4)(run, products, first, tiles, block);
}

/* ---- step 2: R tiles by two vectors of output channels ---- */

struct strip {
    const float *v;
    int64_t v_stride; /* floats to the next channel block */
    const float *u;
    int64_t blocks; /* of input channels */
    float *out;
    int64_t out_stride;
    const float *next; /* to be prefetched, `lines` lines for each channel block */
    int64_t lines;
};

INLINE void micro(const int R, const struct strip *strip)
{
    const float *v = strip->v, *u = strip->u, *next = strip->next;
    const int64_t lines = strip->lines;
    vf s[ROWS][2];

    UNROLL for (int r = 0; r < R; r++) s[r][0] = s[r][1] = vzero();
    for (int64_t n = strip->blocks; n > 0; n--, v += strip->v_stride, next += 16 * lines)
        UNROLL for (int k = 0; k < VW; k++, u += PANEL)
        {
            vf b0 = vload(u), b1 = vload(u + VW);

            if (k < lines)
                __builtin_prefetch(next + k * 16, 0, 2);
            UNROLL for (int r = 0; r < R; r++)
            {
                vf x = vset1(v[r * VW + k]);

                vmac(s[r][0], x, b0);
                vmac(s[r][1], x, b1);
            }
        }
    UNROLL for (int r = 0; r < R; r++)
    {
        vstore(strip->out + r * VW, s[r][0]);
        vstore(strip->out + strip->out_stride + r * VW, s[r][1]);
    }
}

#define MICRO(R)                                                                                   \
    static void micro_##R(const struct strip *strip)                                               \
    {                                                                                              \
        micro(R, strip);                                                                           \
    }
MICRO(1)
MICRO(2)
MICRO(3)
MICRO(4)
MICRO(5)
MICRO(6)
#if defined(__AVX512F__)
MICRO(7)
MICRO(8)
MICRO(9)
MICRO(10)
MICRO(11)
MICRO(12)
#endif

static void (*const micros[ROWS + 1])(const struct strip *strip) = {
    NULL,    micro_1, micro_2, micro_3,  micro_4,  micro_5,  micro_6,
#if defined(__AVX512F__)
    micro_7, micro_8, micro_9, micro_10, micro_11, micro_12,
#endif
};

/* One point, one panel.  Meanwhile the next panel of weights is fetched into L2, evenly over the
 * groups; groups are of nearly equal size, none of one or two rows. */
static void product(const struct winograd *p, const float *v, const float *u, float *out,
                    int64_t tiles)
{
    const int64_t groups = (tiles + ROWS - 1) / ROWS;
    const int64_t lines = (VW * PANEL / 16 + groups - 1) / groups;
    const float *next = u + p->in_blocks * VW * PANEL;

    for (int64_t group = 0, done = 0, rows; group < groups; group++, done += rows) {
        struct strip strip = {.v = v + done * VW,
                              .v_stride = p->stride,
                              .u = u,
                              .blocks = p->in_blocks,
                              .out = out + done * VW,
                              .out_stride = p->stride,
                              .next = next + group * p->in_blocks * lines * 16,
                              .lines = lines < VW ? lines : VW};

        rows = (tiles - done) / (groups - group);
        micros[rows](&strip);
    }
}

/* ---- the two orders ---- */

static int64_t tiles_of(const struct winograd *p, int64_t block)
{
    int64_t left = p->tiles - block * p->block_tiles;

    return left < p->block_tiles ? left : p->block_tiles;
}

static void run_tiles(const struct conv_run *run, unsigned member, unsigned members)
{
    const struct winograd *p = run->plan;
    const int64_t point = p->block_tiles * VW, usize = p->in_blocks * VW * PANEL;
    float *v = run->scratch + (int64_t)member * (p->in_blocks + 2) * p->stride;
    float *out = v + p->in_blocks * p->stride;
    size_t from, to;

    team_share((size_t)p->blocks, member, members, &from, &to);
    for (int64_t b = (int64_t)from; b < (int64_t)to; b++) {
        const int64_t first = b * p->block_tiles, tiles = tiles_of(p, b);

        for (int64_t c = 0; c < p->in_blocks; c++)
            input(run, first, tiles, c, v + c * p->stride);
        for (int64_t q = 0; q < p->panels; q++) {
            for (int64_t i = 0; i < p->points; i++)
                product(p, v + i * point, run->weights + (q * p->points + i) * usize,
                        out + i * point, tiles);
            for (int64_t c = 2 * q; c < 2 * q + 2 && c < p->out_blocks; c++)
                output(run, out + (c - 2 * q) * p->stride, first, tiles, c);
        }
    }
}

static void run_points(const struct conv_run *run, unsigned member, unsigned members)
{
    const struct winograd *p = run->plan;
    const int64_t point = p->block_tiles * VW, usize = p->in_blocks * VW * PANEL;
    float *v = run->scratch, *out = v + p->in_blocks * p->stride;

    for (int64_t b = 0; b < p->blocks; b++) {
        const int64_t first = b * p->block_tiles, tiles = tiles_of(p, b);
        size_t from, to;

        team_share((size_t)p->in_blocks, member, members, &from, &to);
        for (int64_t c = (int64_t)from; c < (int64_t)to; c++)
            input(run, first, tiles, c, v + c * p->stride);
        team_barrier();
        team_share((size_t)(p->points * p->panels), member, members, &from, &to);
        for (int64_t i = (int64_t)from; i < (int64_t)to; i++)
            product(p, v + i / p->panels * point, run->weights + i * usize,
                    out + i % p->panels * 2 * p->stride + i / p->panels * point, tiles);
        team_barrier();
        team_share((size_t)p->out_blocks, member, members, &from, &to);
        for (int64_t c = (int64_t)from; c < (int64_t)to; c++)
            output(run, out + c * p->stride, first, tiles, c);
        team_barrier();
    }
}

static void run_all(const struct conv_run *run, unsigned member, unsigned members)
{
    const struct winograd *p = run->plan;

    (p->order == WINOGRAD_TILES ? run_tiles : run_points)(run, member, members);
}

/* ---- weights ---- */

/* One value of each of the kernels, as the compiler has vectors of. */
struct lanes {
    double at[VW];
};

static inline struct lanes combine(const double factors[3], const struct lanes *a,
                                   const struct lanes *b, const struct lanes *c)
{
    struct lanes sum;

    for (int i = 0; i < VW; i++)
        sum.at[i] = factors[0] * a->at[i] + factors[1] * b->at[i] + factors[2] * c->at[i];
    return sum;
}

static void transform(const struct winograd_weights *job)
{
    struct lanes k[9] = {0};
    float *to = job->to;

    for (int64_t o = 0; o < job->count; o++)
        for (int i = 0; i < 9; i++)
            k[i].at[o] = (double)job->kernels[o * job->step + i];
    for (int i = 0; i < job->edge; i++) {
        const struct lanes rows[3] = {combine(job->g[i], &k[0], &k[3], &k[6]),
                                      combine(job->g[i], &k[1], &k[4], &k[7]),
                                      combine(job->g[i], &k[2], &k[5], &k[8])};

        for (int j = 0; j < job->edge; j++, to += job->stride) {
            const struct lanes point = combine(job->g[j], &rows[0], &rows[1], &rows[2]);
            float line[VW];

            for (int o = 0; o < VW; o++)
                line[o] = (float)point.at[o];
            memcpy(to, line, (size_t)job->count * sizeof(float));
        }
    }
}

const struct winograd_ops SIMD_NAME(winograd_ops) = {
    .vector = VW, .rows = ROWS, .run = run_all, .transform = transform};
