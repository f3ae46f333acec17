/* Quantised operators beside the products: sums, products and tables of bytes, pools. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/broadcast.h"
#include "device/cpu/bytes/bytes.h"
#include "device/cpu/bytes/requantize.h"
#include "device/cpu/flat.h"
#include "device/cpu/team.h"
#include "ops/pool.h"

/* ---- QLinearAdd, QLinearMul ---- */

enum { PIECE = 256 };

struct pair_job {
    const struct byte_loops *loops;
    struct byte_pair pair;
};

static const char *refuses_pair(const struct kernel_call *call)
{
    const struct operand *a = call->in[QLINEAR_PAIR_A], *b = call->in[QLINEAR_PAIR_B];

    if (call->out[0]->layout != LAYOUT_PLAIN &&
        (!shape_is_equal(&a->shape, &b->shape) || a->constant != NULL || b->constant != NULL))
        return "channels last of different shapes";
    return NULL;
}

/* A piece of a row of an operand; one that is repeated comes in a buffer. */
static const uint8_t *piece_of(const uint8_t *row, ptrdiff_t column_stride, size_t at,
                               uint8_t buffer[PIECE])
{
    if (column_stride != 0)
        return row + at;
    memset(buffer, *row, PIECE);
    return buffer;
}

static void combine_tile(void *arg, const struct tile *tile, const void *const *in, void *out)
{
    const struct pair_job *job = arg;
    const uint8_t *a = in[0], *b = in[1];
    uint8_t *y = out, left[PIECE], right[PIECE];

    for (size_t r = 0; r < tile->rows; r++) {
        if (tile->column_strides[0] != 0 && tile->column_strides[1] != 0)
            job->loops->combine(&job->pair, a, b, y, tile->columns);
        else
            for (size_t i = 0; i < tile->columns; i += PIECE)
                job->loops->combine(&job->pair, piece_of(a, tile->column_strides[0], i, left),
                                    piece_of(b, tile->column_strides[1], i, right), y + i,
                                    tile->columns - i < PIECE ? tile->columns - i : PIECE);
        a += tile->row_strides[0];
        b += tile->row_strides[1];
        y += tile->out_row_stride;
    }
}

static enum status enqueue_pair(const struct kernel_call *call, const struct kernel_run *run,
                                bool multiplies)
{
    static const size_t bytes[] = {1, 1};
    const struct qlinear_pair_attrs *attrs = call->attrs;
    const struct operand *operands[] = {call->in[QLINEAR_PAIR_A], call->in[QLINEAR_PAIR_B]};
    const void *in[] = {run->in[QLINEAR_PAIR_A], run->in[QLINEAR_PAIR_B]};
    const float y_scale = (float)quantized_parameter(call, run, QLINEAR_PAIR_Y_SCALE, 0);
    struct broadcast broadcast;
    struct pair_job job = {
        .loops = byte_loops_for(cpu_isa_of(call->device)),
        .pair = {.multiplies = multiplies,
                 .a_signed = operands[0]->dtype == DTYPE_INT8,
                 .b_signed = operands[1]->dtype == DTYPE_INT8,
                 .a_zero = (int32_t)quantized_parameter(call, run, QLINEAR_PAIR_A_ZERO, 0),
                 .b_zero = (int32_t)quantized_parameter(call, run, QLINEAR_PAIR_B_ZERO, 0),
                 .a_scale = (float)quantized_parameter(call, run, QLINEAR_PAIR_A_SCALE, 0),
                 .b_scale = (float)quantized_parameter(call, run, QLINEAR_PAIR_B_SCALE, 0),
                 .y_scale = y_scale,
                 .range = quantized_range(
                     &attrs->epilogue, call->out[0]->dtype, y_scale,
                     (float)quantized_parameter(call, run, QLINEAR_PAIR_Y_ZERO, 0))}};

    byte_pair_complete(&job.pair);
    broadcast_make(&broadcast, call->out[0], 2, operands, call->device);
    broadcast_run(&broadcast, in, bytes, run->out[0], 1, run->lane->threads, 0.5, combine_tile,
                  &job);
    return STATUS_OK;
}

static enum status enqueue_add(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    (void)state;
    return enqueue_pair(call, run, false);
}

static enum status enqueue_mul(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    (void)state;
    return enqueue_pair(call, run, true);
}

static enum status prepare_all(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = UINT32_MAX;
    return STATUS_OK;
}

#define PAIR(stem, enqueue_fn)                                                                     \
    const struct kernel kernel_##stem##_tiles = {                                                  \
        .name = "cpu:tiles",                                                                       \
        .flags = KERNEL_IN_PLACE | KERNEL_STRIDED,                                                 \
        .layouts = 1U << LAYOUT_PLAIN | 1U << LAYOUT_NHWC,                                         \
        .refuses = refuses_pair,                                                                   \
        .prepare = prepare_all,                                                                    \
        .enqueue = enqueue_fn,                                                                     \
    }
PAIR(qlinear_add, enqueue_add);
PAIR(qlinear_mul, enqueue_mul);

/* ---- ByteTable ---- */

struct table_job {
    const struct byte_loops *loops;
    const uint8_t *table;
};

static void table_piece(void *arg, const void *in, void *out, size_t count)
{
    const struct table_job *job = arg;

    job->loops->look_up(job->table, in, out, count);
}

static enum status enqueue_table(const void *state, const struct kernel_call *call,
                                 const struct kernel_run *run)
{
    struct flat flat = flat_make(call->in[0], call->out[0], call->device);
    struct table_job job = {.loops = byte_loops_for(cpu_isa_of(call->device)),
                            .table = run->in[BYTE_TABLE_TABLE]};

    (void)state;
    flat_run(&flat, run->in[0], 1, run->out[0], 1, run->lane->threads, 0.1, table_piece, &job);
    return STATUS_OK;
}

const struct kernel kernel_byte_table_flat = {
    .name = "cpu:flat",
    .flags = KERNEL_IN_PLACE | KERNEL_STRIDED,
    .layouts = 1U << LAYOUT_PLAIN | 1U << LAYOUT_NHWC,
    .prepare = prepare_all,
    .enqueue = enqueue_table,
};

/* ---- MaxPool with channels last ---- */

struct pool_job {
    const struct byte_loops *loops;
    struct window window;   /* of three dimensions */
    size_t channels, lines; /* lines of results in all */
    bool is_signed;
    const uint8_t *x;
    uint8_t *y, *scratch; /* a line of the input for each member */
    size_t line_bytes;
};

static const char *refuses_pool(const struct kernel_call *call)
{
    if (call->in[0]->dtype != DTYPE_INT8 && call->in[0]->dtype != DTYPE_UINT8)
        return "only bytes";
    if (call->outputs > 1 && call->out[1] != NULL)
        return "indices are wanted";
    return NULL;
}

/* Cells of the input that window `at` meets along an axis: the first, and how many. */
static size_t cells_under(const struct window *w, size_t axis, int64_t at, int64_t *out_first)
{
    const int64_t first = at * w->stride[axis] - w->pad_begin[axis], dilation = w->dilation[axis];
    const int64_t skipped = first < 0 ? (-first + dilation - 1) / dilation : 0;
    size_t count = 0;

    *out_first = first + skipped * dilation;
    while (skipped + (int64_t)count < w->kernel[axis] &&
           *out_first + (int64_t)count * dilation < w->in[axis])
        count++;
    return count;
}

static void take(const struct pool_job *job, const uint8_t *from, size_t bytes, bool is_first,
                 uint8_t *to)
{
    if (is_first)
        memcpy(to, from, bytes);
    else
        job->loops->maximum(from, to, bytes, job->is_signed);
}

/* The largest of the lines under line `line` of results, in `to`; false when there is none. */
static bool pool_lines(const struct pool_job *job, const uint8_t *image, int64_t line, uint8_t *to)
{
    const struct window *w = &job->window;
    const size_t bytes = (size_t)w->in[2] * job->channels;
    int64_t d, h;
    const size_t depths = cells_under(w, 0, line / w->out[1], &d);
    const size_t heights = cells_under(w, 1, line % w->out[1], &h);

    for (size_t i = 0; i < depths * heights; i++) {
        const int64_t at_d = d + (int64_t)(i / heights) * w->dilation[0];
        const int64_t at_h = h + (int64_t)(i % heights) * w->dilation[1];

        take(job, image + (size_t)(at_d * w->in[1] + at_h) * bytes, bytes, i == 0, to);
    }
    return depths * heights > 0;
}

/* Whole cells of channels, padding left out. */
static void pool_columns(const struct pool_job *job, const uint8_t *line, uint8_t *to)
{
    const struct window *w = &job->window;

    for (int64_t x = 0; x < w->out[2]; x++, to += job->channels) {
        int64_t first;
        const size_t count = line != NULL ? cells_under(w, 2, x, &first) : 0;

        for (size_t i = 0; i < count; i++)
            take(job, line + (size_t)(first + (int64_t)i * w->dilation[2]) * job->channels,
                 job->channels, i == 0, to);
        if (count == 0) /* a window over nothing but padding */
            memset(to, job->is_signed ? 0x80 : 0, job->channels);
    }
}

static void run_pool(void *arg, unsigned member, unsigned members)
{
    const struct pool_job *job = arg;
    const struct window *w = &job->window;
    const size_t image_lines = (size_t)(w->out[0] * w->out[1]);
    const size_t image_bytes = (size_t)(w->in[0] * w->in[1] * w->in[2]) * job->channels;
    size_t from, to;

    uint8_t *line = job->scratch + member * job->line_bytes;

    team_share(job->lines, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        const bool any = pool_lines(job, job->x + i / image_lines * image_bytes,
                                    (int64_t)(i % image_lines), line);

        pool_columns(job, any ? line : NULL, job->y + i * (size_t)w->out[2] * job->channels);
    }
}

static size_t pool_line_bytes(const struct kernel_call *call)
{
    const struct shape *x = &call->in[0]->shape;

    return ((size_t)(x->dims[x->rank - 1] * x->dims[1]) + 63) / 64 * 64;
}

static enum status prepare_pool(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->scratch_bytes = prepare->call.threads * pool_line_bytes(&prepare->call);
    return STATUS_OK;
}

static enum status enqueue_pool(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct shape *x = &call->in[0]->shape;
    struct pool_job job = {.loops = byte_loops_for(cpu_isa_of(call->device)),
                           .channels = (size_t)x->dims[1],
                           .is_signed = call->in[0]->dtype == DTYPE_INT8,
                           .x = run->in[0],
                           .y = run->out[0],
                           .scratch = run->scratch,
                           .line_bytes = pool_line_bytes(call)};
    double reads;

    (void)state;
    TRY(pool_resolve(call->attrs, x, &job.window, NULL));
    window_widen(&job.window, WINDOW_MAX_RANK);
    job.lines = (size_t)(x->dims[0] * job.window.out[0] * job.window.out[1]);
    reads = (double)shape_count(&call->out[0]->shape) *
            (double)(job.window.kernel[0] * job.window.kernel[1] * job.window.kernel[2]);
    team_run(team_size(call->threads, reads / 40), run_pool, &job);
    return STATUS_OK;
}

const struct kernel kernel_max_pool_bytes = {
    .name = "cpu:bytes",
    .layouts = 1U << LAYOUT_NHWC,
    .refuses = refuses_pool,
    .prepare = prepare_pool,
    .enqueue = enqueue_pool,
};

/* ---- QLinearGlobalAveragePool: exact sums, scaled once ---- */

enum { AVERAGED = 64 }; /* channels at a time */

struct average_job {
    size_t images, channels, cells;
    bool is_signed, channels_last;
    const uint8_t *x;
    uint8_t *y;
    double scale, zero; /* of x */
    struct byte_range range;
};

static void put_average(const struct average_job *job, size_t at, int64_t sum)
{
    double q =
        rint(((double)sum - job->zero * (double)job->cells) * job->scale) + (double)job->range.zero;

    q = q < (double)job->range.low ? (double)job->range.low : q;
    q = q > (double)job->range.high ? (double)job->range.high : q;
    job->y[at] = (uint8_t)(int)q;
}

/* A channel whose cells lie side by side. */
static void average_row(const struct average_job *job, size_t at)
{
    const uint8_t *from = job->x + at * job->cells;
    int64_t sum = 0;

    for (size_t i = 0; i < job->cells; i++)
        sum += job->is_signed ? (int8_t)from[i] : from[i];
    put_average(job, at, sum);
}

/* Channels side by side, as many cells at a time as 32 bits hold sums of. */
static void average_channels(const struct average_job *job, size_t at, size_t count)
{
    enum { CELLS = 1 << 20 };
    const uint8_t flip = job->is_signed ? 0x80 : 0;
    const size_t image = at / job->channels;
    const uint8_t *from = job->x + image * job->cells * job->channels + at % job->channels;
    int64_t sums[AVERAGED] = {0};

    for (size_t i = 0; i < job->cells;) {
        const size_t end = job->cells - i < CELLS ? job->cells : i + CELLS;
        uint32_t some[AVERAGED] = {0};

        for (; i < end; i++, from += job->channels)
            for (size_t c = 0; c < count; c++)
                some[c] += (uint8_t)(from[c] ^ flip);
        for (size_t c = 0; c < count; c++)
            sums[c] += some[c];
    }
    for (size_t c = 0; c < count; c++)
        put_average(job, at + c, sums[c] - flip * (int64_t)job->cells);
}

static void run_average(void *arg, unsigned member, unsigned members)
{
    const struct average_job *job = arg;
    size_t from, to;

    team_share(job->images * job->channels, member, members, &from, &to);
    while (from < to) {
        size_t count = job->channels - from % job->channels;

        count = count < to - from ? count : to - from;
        count = count < AVERAGED ? count : AVERAGED;
        if (job->channels_last) {
            average_channels(job, from, count);
            from += count;
        } else {
            average_row(job, from++);
        }
    }
}

static enum status enqueue_average(const void *state, const struct kernel_call *call,
                                   const struct kernel_run *run)
{
    static const struct epilogue none = {.act = ACT_NONE};
    const struct operand *x = call->in[QLINEAR_POOL_X];
    const double x_scale = quantized_parameter(call, run, QLINEAR_POOL_X_SCALE, 0);
    const double y_scale = quantized_parameter(call, run, QLINEAR_POOL_Y_SCALE, 0);
    struct average_job job = {
        .images = (size_t)x->shape.dims[0],
        .channels = (size_t)x->shape.dims[1],
        .cells = (size_t)shape_product(&x->shape, 2, x->shape.rank),
        .is_signed = x->dtype == DTYPE_INT8,
        .channels_last = x->layout == LAYOUT_NHWC,
        .x = run->in[QLINEAR_POOL_X],
        .y = run->out[0],
        .zero = quantized_parameter(call, run, QLINEAR_POOL_X_ZERO, 0),
        .range = quantized_range(&none, call->out[0]->dtype, (float)y_scale,
                                 (float)quantized_parameter(call, run, QLINEAR_POOL_Y_ZERO, 0))};

    (void)state;
    job.scale = x_scale / (double)job.cells / y_scale;
    team_run(team_size(run->lane->threads, (double)shape_count(&x->shape)), run_average, &job);
    return STATUS_OK;
}

const struct kernel kernel_qlinear_global_average_pool_loop = {
    .name = "cpu:loop",
    .layouts = 1U << LAYOUT_PLAIN | 1U << LAYOUT_NHWC,
    .out_layouts = 1U << LAYOUT_PLAIN | 1U << LAYOUT_NHWC,
    .prepare = prepare_all,
    .enqueue = enqueue_average,
};
