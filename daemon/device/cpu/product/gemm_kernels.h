/* Packed matrix product; included by gemm_base.c, gemm_avx2.c and gemm_avx512.c.
 *
 * Loops, outermost first: runs of kc of the inner dimension, panels of PANEL columns, groups of
 * ROWS rows.  A block of A (block_rows x kc) stays in L2, where it lies or, if its columns are
 * apart or its rows would fall into one set of the cache, copied next to each other; a panel of
 * weights (kc x PANEL) stays in L2 or L1 while all row groups pass over it, and the next panel is
 * prefetched meanwhile.  The micro-kernel starts from the bias (or from C after the first run), so
 * bias, activation and residual cost no pass over memory of their own.
 *
 * Packed: [run of k][panel][row][column of the panel]: the order in which it is read.
 */
#include <assert.h>
#include <stdlib.h>

#include "device/cpu/activate.h"
#include "device/cpu/product/gemm_internal.h"

extern const struct gemm_ops SIMD_NAME(gemm_ops);

#if defined(__AVX512F__)
enum { ROWS = 8 };
#else
enum { ROWS = 4 };
#endif
enum {
    VECTORS = 3, /* of a row of the micro-kernel: ROWS x 3 accumulators fill the registers */
    PANEL = VECTORS * VW,
    RUN = 768, /* inner steps at a time: long runs save passes over C */
    BLOCK_ROWS = 16 * ROWS,
    LINE_PANELS = 4,  /* at a time, of a single row */
    STRIDE = RUN + 16 /* of a copied row: one line more, so that rows fall into different sets */
};

static int64_t run_length(int64_t k) /* runs of nearly equal length, multiples of 8 */
{
    int64_t runs = (k + RUN - 1) / RUN;

    return runs > 0 ? ((k + runs - 1) / runs + 7) / 8 * 8 : 8;
}

static int64_t padded(int64_t n)
{
    return (n + VW - 1) / VW * VW;
}

/* First column of a panel, also of the one behind the last.  Panels are as wide as possible, but a
 * last one of a single vector would wait for its multiply-adds: the two last ones share. */
static int64_t panel_column(int64_t n, int64_t panel)
{
    const int64_t all = padded(n), column = panel * PANEL;

    if (all % PANEL == VW && column + VW == all && panel > 0)
        return column - VW;
    return column < all ? column : all;
}

static int64_t panel_width(int64_t n, int64_t panel)
{
    return panel_column(n, panel + 1) - panel_column(n, panel);
}

/* ---- packing ---- */

/* Rows k of B lie one after the other. */
static void pack_rows(const float *b, int64_t stride, int64_t k, int64_t columns, int64_t width,
                      float scale, float *to)
{
    for (int64_t i = 0; i < k; i++, to += width) {
        const float *from = b + i * stride;

        for (int64_t j = 0; j < columns; j++)
            to[j] = from[j] * scale;
        for (int64_t j = columns; j < width; j++)
            to[j] = 0;
    }
}

INLINE void transpose_4x4(const float *from, int64_t stride, __m128 scale, float *to, int64_t width)
{
    __m128 r0 = _mm_loadu_ps(from), r1 = _mm_loadu_ps(from + stride);
    __m128 r2 = _mm_loadu_ps(from + 2 * stride), r3 = _mm_loadu_ps(from + 3 * stride);

    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps(to, _mm_mul_ps(r0, scale));
    _mm_storeu_ps(to + width, _mm_mul_ps(r1, scale));
    _mm_storeu_ps(to + 2 * width, _mm_mul_ps(r2, scale));
    _mm_storeu_ps(to + 3 * width, _mm_mul_ps(r3, scale));
}

/* Columns of B lie one after the other, each `stride` behind the last (B is transposed). */
static void pack_columns(const float *b, int64_t stride, int64_t k, int64_t columns, int64_t width,
                         float scale, float *to)
{
    const __m128 scales = _mm_set1_ps(scale);
    const int64_t whole_columns = columns / 4 * 4, whole_k = k / 4 * 4;

    for (int64_t j = 0; j < whole_columns; j += 4) {
        for (int64_t i = 0; i < whole_k; i += 4)
            transpose_4x4(b + j * stride + i, stride, scales, to + i * width + j, width);
        for (int64_t i = whole_k; i < k; i++)
            for (int64_t c = j; c < j + 4; c++)
                to[i * width + c] = b[c * stride + i] * scale;
    }
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = whole_columns; j < columns; j++)
            to[i * width + j] = b[j * stride + i] * scale;
        for (int64_t j = columns; j < width; j++)
            to[i * width + j] = 0;
    }
}

static void pack_any(const struct gemm_matrix *b, int64_t k, int64_t columns, int64_t width,
                     float scale, float *to)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < width; j++)
            to[i * width + j] =
                j < columns ? b->data[i * b->row_stride + j * b->column_stride] * scale : 0;
}

static void pack(int64_t k, int64_t n, const struct gemm_matrix *b, float scale, float *packed)
{
    const int64_t length = run_length(k);

    for (int64_t k0 = 0; k0 < k; k0 += length)
        for (int64_t panel = 0; panel * PANEL < n; panel++) {
            int64_t steps = k - k0 < length ? k - k0 : length, j = panel_column(n, panel);
            int64_t width = panel_width(n, panel), columns = n - j < width ? n - j : width;
            struct gemm_matrix part = *b;

            part.data += k0 * b->row_stride + j * b->column_stride;
            if (b->column_stride == 1)
                pack_rows(part.data, part.row_stride, steps, columns, width, scale, packed);
            else if (b->row_stride == 1)
                pack_columns(part.data, part.column_stride, steps, columns, width, scale, packed);
            else
                pack_any(&part, steps, columns, width, scale, packed);
            packed += steps * width;
        }
}

/* ---- the micro-kernel ---- */

struct strip {      /* rows of A by one panel, a run of k */
    const float *a; /* rows `lda` apart */
    int64_t lda;
    const float *w;
    int64_t steps;
    float *c;
    int64_t ldc;
    const float *start; /* the bias; NULL: go on from c */
    const float *next;  /* what to prefetch, `lines` lines every 8 steps */
    int64_t lines;
};

/* R rows by V vectors; both are constants where it is inlined. */
INLINE void micro(const int R, const int V, const struct strip *strip)
{
    const float *a[ROWS], *w = strip->w, *next = strip->next;
    const int64_t lines = strip->lines, steps = strip->steps;
    float *c = strip->c;
    int64_t k = 0;
    vf s[ROWS][VECTORS];

    UNROLL for (int r = 0; r < R; r++) a[r] = strip->a + r * strip->lda;
    if (strip->start != NULL) /* by the time the sums are there, C is near */
        UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)
            __builtin_prefetch(c + r * strip->ldc + v * VW, 1, 3);
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++) s[r][v] =
        vload(strip->start != NULL ? strip->start + v * VW : c + r * strip->ldc + v * VW);
    for (; k + 8 <= steps; k += 8, next += 16 * lines)
        UNROLL for (int i = 0; i < 8; i++, w += V * VW)
        {
            vf b[VECTORS];

            UNROLL for (int v = 0; v < V; v++) b[v] = vload(w + v * VW);
            if (i < lines)
                __builtin_prefetch(next + i * 16, 0, 2);
            UNROLL for (int r = 0; r < R; r++)
            {
                vf x = vset1(a[r][k + i]);

                UNROLL for (int v = 0; v < V; v++) vmac(s[r][v], x, b[v]);
            }
        }
    for (; k < steps; k++, w += V * VW)
        UNROLL for (int r = 0; r < R; r++)
        {
            vf x = vset1(a[r][k]);

            UNROLL for (int v = 0; v < V; v++)
            {
                vf b = vload(w + v * VW);

                vmac(s[r][v], x, b);
            }
        }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int v = 0; v < V; v++)
        vstore(c + r * strip->ldc + v * VW, s[r][v]);
}

#define MICRO(R)                                                                                   \
    static void micro_##R##_1(const struct strip *strip)                                           \
    {                                                                                              \
        micro(R, 1, strip);                                                                        \
    }                                                                                              \
    static void micro_##R##_2(const struct strip *strip)                                           \
    {                                                                                              \
        micro(R, 2, strip);                                                                        \
    }                                                                                              \
    static void micro_##R##_3(const struct strip *strip)                                           \
    {                                                                                              \
        micro(R, 3, strip);                                                                        \
    }
#define MICRO_ROW(R)                                                                               \
    {                                                                                              \
        NULL, micro_##R##_1, micro_##R##_2, micro_##R##_3                                          \
    }
MICRO(1)
MICRO(2)
MICRO(3)
MICRO(4)
#if defined(__AVX512F__)
MICRO(5)
MICRO(6)
MICRO(7)
MICRO(8)
#endif

static void (*const micros[ROWS + 1][VECTORS + 1])(const struct strip *strip) = {
    {NULL},       MICRO_ROW(1), MICRO_ROW(2), MICRO_ROW(3), MICRO_ROW(4),
#if defined(__AVX512F__)
    MICRO_ROW(5), MICRO_ROW(6), MICRO_ROW(7), MICRO_ROW(8),
#endif
};

/* ---- the end of a tile, which lies in L1 ---- */

static void finish(const struct epilogue *epilogue, float *c, int64_t ldc, int64_t rows,
                   int64_t columns, const float *residual, int64_t ldr)
{
    const float a = epilogue->a, b = epilogue->b;
    const bool after = epilogue->residual_after;

    WITH_ACTIVATION(
        epilogue->act, for (int64_t r = 0; r < rows; r++) {
            float *row = c + r * ldc;
            const float *other = residual != NULL ? residual + r * ldr : NULL;

            for (int64_t j = 0; j < columns; j += VW) {
                vf x = vload(row + j);

                if (other != NULL && !after)
                    x = vadd(x, vload(other + j));
                x = vactivate(ACTIVATION, x, a, b);
                if (other != NULL && after)
                    x = vadd(x, vload(other + j));
                vstore(row + j, x);
            }
        })
}

struct tile {
    const struct gemm *gemm;
    int64_t row, rows;
    int64_t column, columns, width; /* width: with the panel's padding */
    bool first, last;               /* run of k */
};

static void copy_in(const struct tile *tile, float *buffer, const float *from, int64_t stride)
{
    for (int64_t r = 0; r < tile->rows; r++) {
        memcpy(buffer + r * PANEL, from + (tile->row + r) * stride + tile->column,
               (size_t)tile->columns * sizeof(float));
        memset(buffer + r * PANEL + tile->columns, 0,
               (size_t)(tile->width - tile->columns) * sizeof(float));
    }
}

/* A panel that is not whole goes through a small buffer. */
static void run_partial(const struct tile *tile, struct strip *strip)
{
    const struct gemm *g = tile->gemm;
    _Alignas(64) float c[ROWS * PANEL], residual[ROWS * PANEL], start[PANEL] = {0};
    float *to = g->c + tile->row * g->ldc + tile->column;

    if (!tile->first)
        copy_in(tile, c, g->c, g->ldc);
    else if (g->bias != NULL)
        memcpy(start, g->bias + tile->column, (size_t)tile->columns * sizeof(float));
    if (tile->last && g->residual != NULL)
        copy_in(tile, residual, g->residual, g->ldr);
    strip->c = c;
    strip->ldc = PANEL;
    strip->start = tile->first ? start : NULL;
    micros[tile->rows][tile->width / VW](strip);
    if (tile->last)
        finish(&g->epilogue, c, PANEL, tile->rows, tile->width,
               g->residual != NULL ? residual : NULL, PANEL);
    for (int64_t r = 0; r < tile->rows; r++)
        memcpy(to + r * g->ldc, c + r * PANEL, (size_t)tile->columns * sizeof(float));
}

static void run_whole(const struct tile *tile, struct strip *strip)
{
    static const float zeros[PANEL];
    const struct gemm *g = tile->gemm;
    const float *residual = g->residual;

    strip->c = g->c + tile->row * g->ldc + tile->column;
    strip->ldc = g->ldc;
    strip->start = !tile->first ? NULL : g->bias != NULL ? g->bias + tile->column : zeros;
    micros[tile->rows][tile->width / VW](strip);
    if (tile->last && (residual != NULL || g->epilogue.act != ACT_NONE))
        finish(&g->epilogue, strip->c, g->ldc, tile->rows, tile->width,
               residual != NULL ? residual + tile->row * g->ldr + tile->column : NULL, g->ldr);
}

static void copy_block(const struct gemm *g, int64_t row, int64_t rows, int64_t k0, int64_t steps,
                       float *block)
{
    const struct gemm_matrix *a = &g->a;

    for (int64_t r = 0; r < rows; r++, block += STRIDE) {
        const float *from = a->data + (row + r) * a->row_stride + k0 * a->column_stride;

        if (a->column_stride == 1)
            memcpy(block, from, (size_t)steps * sizeof(float));
        else
            for (int64_t i = 0; i < steps; i++)
                block[i] = from[i * a->column_stride];
    }
}

/* One panel, a run of k, all rows of the block in groups of nearly equal size. */
static void run_panel(const struct gemm *g, int64_t row, int64_t rows, int64_t panel, int64_t k0,
                      int64_t steps, const struct gemm_matrix *block)
{
    const int64_t groups = (rows + ROWS - 1) / ROWS;
    const int64_t lines = (8 * PANEL / 16 + groups - 1) / groups;
    const int64_t column = panel_column(g->n, panel), width = panel_width(g->n, panel);
    const float *w = g->packed + k0 * padded(g->n) + column * steps;
    struct tile tile = {
        .gemm = g, .column = column, .width = width, .first = k0 == 0, .last = k0 + steps >= g->k};

    tile.columns = g->n - tile.column < width ? g->n - tile.column : width;
    for (int64_t group = 0, done = 0; group < groups; group++, done += tile.rows) {
        struct strip strip = {.a = block->data + done * block->row_stride,
                              .lda = block->row_stride,
                              .w = w,
                              .steps = steps,
                              .next = w + width * steps + group * (steps / 8) * lines * 16,
                              .lines = lines < 8 ? lines : 8};

        tile.rows = (rows - done) / (groups - group);
        tile.row = row + done;
        if (tile.columns == tile.width)
            run_whole(&tile, &strip);
        else
            run_partial(&tile, &strip);
    }
}

/* ---- one row: bound by reading B, so several panels at once ---- */

/* One row by P panels of V vectors: each sum has its own multiply-adds in the same order as above,
 * but there are enough of them to read B as fast as it comes. */
INLINE void line(const int P, const int V, const struct strip *strip)
{
    const int64_t apart = V * VW * strip->steps; /* panels */
    const float *a = strip->a, *w = strip->w;
    vf s[LINE_PANELS][VECTORS];

    UNROLL for (int p = 0; p < P; p++) UNROLL for (int v = 0; v < V; v++) s[p][v] =
        vload((strip->start != NULL ? strip->start : strip->c) + (p * V + v) * VW);
    for (int64_t k = 0; k < strip->steps; k++, w += V * VW) {
        vf x = vset1(a[k]);

        UNROLL for (int p = 0; p < P; p++) UNROLL for (int v = 0; v < V; v++)
        {
            const float *from = w + p * apart + v * VW;
            vf b = vload(from);

            vmac(s[p][v], x, b);
        }
    }
    UNROLL for (int p = 0; p < P; p++) UNROLL for (int v = 0; v < V; v++)
        vstore(strip->c + (p * V + v) * VW, s[p][v]);
}
static void line_4_3(const struct strip *strip)
{
    line(4, 3, strip);
}
static void line_2_3(const struct strip *strip)
{
    line(2, 3, strip);
}
static void line_2_2(const struct strip *strip)
{
    line(2, 2, strip);
}

static void end_line(const struct gemm *g, int64_t row, int64_t column, int64_t columns)
{
    const float *residual = g->residual;

    if (residual != NULL || g->epilogue.act != ACT_NONE)
        finish(&g->epilogue, g->c + row * g->ldc + column, g->ldc, 1, columns,
               residual != NULL ? residual + row * g->ldr + column : NULL, g->ldr);
}

/* Whether `count` panels from `panel` on have `width` columns each, none of them padding. */
static bool are_whole(const struct gemm *g, int64_t panel, int64_t last, int64_t count,
                      int64_t width)
{
    const int64_t column = panel_column(g->n, panel);

    return panel + count <= last && panel_width(g->n, panel) == width &&
           panel_column(g->n, panel + count) == column + count * width &&
           column + count * width <= g->n;
}

/* As many panels as go together; how many. */
static int64_t run_line(const struct gemm *g, int64_t row, int64_t panel, int64_t last, int64_t k0,
                        int64_t steps, const float *a)
{
    static const struct {
        int64_t count, width;
        void (*run)(const struct strip *strip);
    } lines[] = {{4, PANEL, line_4_3}, {2, PANEL, line_2_3}, {2, 2 * VW, line_2_2}};
    static const float zeros[LINE_PANELS * PANEL];
    const int64_t column = panel_column(g->n, panel);
    struct strip strip = {.a = a,
                          .w = g->packed + k0 * padded(g->n) + column * steps,
                          .steps = steps,
                          .c = g->c + row * g->ldc + column};

    if (k0 == 0)
        strip.start = g->bias != NULL ? g->bias + column : zeros;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (are_whole(g, panel, last, lines[i].count, lines[i].width)) {
            lines[i].run(&strip);
            if (k0 + steps >= g->k)
                end_line(g, row, column, lines[i].count * lines[i].width);
            return lines[i].count;
        }
    return 0;
}

static bool copies(const struct gemm_matrix *a)
{
    const int64_t way = 4096 / sizeof(float); /* of a first-level cache: as far apart as its sets */

    return a->column_stride != 1 || a->row_stride % way == 0;
}

static void run(const struct gemm *g, int64_t row, int64_t rows, int64_t first, int64_t last,
                float *copy)
{
    const int64_t length = run_length(g->k);
    int64_t k0 = 0;

    do { /* once even for k = 0: the results are bias and residual then */
        int64_t steps = g->k - k0 < length ? g->k - k0 : length;
        struct gemm_matrix block = {copy, STRIDE, 1};

        if (copies(&g->a))
            copy_block(g, row, rows, k0, steps, copy);
        else
            block =
                (struct gemm_matrix){g->a.data + row * g->a.row_stride + k0, g->a.row_stride, 1};
        for (int64_t panel = first, done; panel<last; panel += done> 0 ? done : 1) {
            done = rows == 1 ? run_line(g, row, panel, last, k0, steps, block.data) : 0;
            if (done == 0)
                run_panel(g, row, rows, panel, k0, steps, &block);
        }
        k0 += length;
    } while (k0 < g->k);
}

const struct gemm_ops SIMD_NAME(gemm_ops) = {
    .rows = ROWS,
    .panel = PANEL,
    .vector = VW,
    .block_rows = BLOCK_ROWS,
    .row_floats = STRIDE,
    .copies = copies,
    .pack = pack,
    .run = run,
};
