/* Reductions along axes.
 *
 * The dimensions in memory fall into kept and reduced ones; neighbours of a kind are merged.  When
 * the last one is reduced, each result is the sum over rows of consecutive elements; when it is
 * kept, whole rows are taken into running totals, one a column, in blocks so that long sums lose
 * little; up to a block they are bit by bit the sums of other runtimes, which add row by row (a
 * variance as a difference of such sums shows every other order).  Results are shared among
 * threads, a single result never is: the order of summation depends on the shape of what is summed
 * only.
 */
#include "ops/reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/flat.h"
#include "device/cpu/lines/reduce_internal.h"
#include "device/cpu/team.h"
#include "device/cpu/wide.h"

enum { CHUNK = 256, BLOCK_ROWS = 512, SHORT_ROW = 8 };

static const struct row {
    const struct op_def *op;
    enum way way;
    enum reduce_loop loop;
} rows[] = {
    {&op_reduce_sum, SUM, REDUCE_sum},
    {&op_reduce_mean, MEAN, REDUCE_sum},
    {&op_reduce_l1, L1, REDUCE_sum_abs},
    {&op_reduce_l2, L2, REDUCE_sum_square},
    {&op_reduce_sum_square, SUM_SQUARE, REDUCE_sum_square},
    {&op_reduce_log_sum, LOG_SUM, REDUCE_sum},
    {&op_reduce_log_sum_exp, LOG_SUM_EXP, REDUCE_sum_exp_from},
    {&op_reduce_max, MAX, REDUCE_max},
    {&op_reduce_min, MIN, REDUCE_min},
    {&op_reduce_prod, PROD, REDUCE_prod},
};

/* ---- geometry ---- */

/* Dimensions in memory and whether each is reduced. */
static size_t memory_dims(const struct operand *in, size_t block, const bool *reduced, size_t *dims,
                          bool *out_reduced)
{
    size_t rank = in->shape.rank;

    for (size_t i = 0; i < rank; i++) {
        dims[i] = (size_t)in->shape.dims[i];
        out_reduced[i] = reduced[i];
    }
    if (in->layout == LAYOUT_BLOCKED) {
        dims[1] = (dims[1] + block - 1) / block;
        dims[rank] = block;
        out_reduced[rank++] = false;
    }
    return rank;
}

static void make_axes(struct reduce_state *state, const struct operand *in, size_t block,
                      const bool *reduced)
{
    size_t dims[AXES_MAX_RANK], strides[AXES_MAX_RANK], stride = 1;
    bool is_reduced[AXES_MAX_RANK];
    size_t rank = memory_dims(in, block, reduced, dims, is_reduced);

    for (size_t i = rank; i-- > 0;) {
        strides[i] = stride;
        stride *= dims[i];
    }
    state->kept.count = state->reduced.count = 1;
    state->in_columns = true;
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] == 1)
            continue;
        axes_add(is_reduced[i] ? &state->reduced : &state->kept, dims[i], strides[i]);
        state->in_columns = !is_reduced[i];
    }
    if (state->reduced.rank == 0) /* a sum of one element */
        axes_add(&state->reduced, 1, 0);
    if (state->kept.rank == 0)
        axes_add(&state->kept, 1, 0);
    if (state->kept.count == 1)
        state->in_columns = false;
    state->reduced_count = state->reduced.count;
    /* also for a single result: a row alone has the bits of one among others */
    state->in_short_rows =
        state->way != LOG_SUM_EXP && state->reduced.rank == 1 && state->reduced.strides[0] == 1 &&
        state->reduced.count <= SHORT_ROW && state->kept.rank == 1 &&
        (state->kept.count == 1 || state->kept.strides[0] == state->reduced.count);
}

static enum status find_reduced(const struct kernel_call *call, bool *reduced)
{
    const struct operand *axes = call->inputs > 1 ? call->in[1] : NULL;
    struct tensor known;

    if (axes != NULL)
        known = (struct tensor){axes->dtype, axes->shape, axes->constant};
    return reduce_axes(call->attrs, axes != NULL ? &known : NULL, call->in[0]->shape.rank, reduced,
                       NULL);
}

/* ---- floats ---- */

struct reduce_job {
    const struct reduce_state *state;
    const float *in;
    float *out;
};

double reduce_finish(const struct reduce_state *state, double total, double shift)
{
    switch (state->way) {
    case MEAN:
        return total / (double)state->reduced_count;
    case L2:
        return sqrt(total);
    case LOG_SUM:
        return log(total);
    case LOG_SUM_EXP:
        return log(total) + shift;
    default:
        return total;
    }
}

static double combine(enum reduce_loop loop, double a, double b)
{
    switch (loop) {
    case REDUCE_max:
        return a > b || isnan(a) ? a : b;
    case REDUCE_min:
        return a < b || isnan(a) ? a : b;
    case REDUCE_prod:
        return a * b;
    default:
        return a + b;
    }
}

/* All rows of one result. */
static double reduce_rows(const struct reduce_state *state, enum reduce_loop loop, const float *x,
                          float shift)
{
    const struct axes *axes = &state->reduced;
    size_t length = axes->dims[axes->rank - 1];
    struct axes outer;
    double total = state->loops->row[loop](x, 0, shift);

    if (axes->rank == 1)
        return combine(loop, total, state->loops->row[loop](x, length, shift));
    outer = *axes;
    outer.rank--;
    for (size_t i = 0; length > 0 && i < axes->count / length; i++)
        total = combine(loop, total,
                        state->loops->row[loop](x + axes_offset(&outer, i), length, shift));
    return total;
}

static void reduce_results(void *arg, unsigned member, unsigned members)
{
    const struct reduce_job *job = arg;
    const struct reduce_state *state = job->state;
    size_t from, to;

    team_share(state->kept.count, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        const float *x = job->in + axes_offset(&state->kept, i);
        double shift = 0;

        if (state->way == LOG_SUM_EXP) {
            shift = reduce_rows(state, REDUCE_max, x, 0);
            shift = isinf(shift) ? 0 : shift;
        }
        job->out[i] =
            (float)reduce_finish(state, reduce_rows(state, state->loop, x, (float)shift), shift);
    }
}

static void fill(float *totals, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        totals[i] = value;
}

/* Totals of `count` ≤ CHUNK columns: blocks of rows first, then the blocks. */
static void reduce_columns(const struct reduce_state *state, enum reduce_loop loop, const float *x,
                           size_t count, const float *shifts, float *totals)
{
    float part[CHUNK], neutral = (float)state->loops->row[loop](x, 0, 0);
    bool is_sum = loop != REDUCE_max && loop != REDUCE_min && loop != REDUCE_prod;

    fill(totals, count, neutral);
    for (size_t i = 0; i < state->reduced.count; i += BLOCK_ROWS) {
        size_t end = state->reduced.count - i < BLOCK_ROWS ? state->reduced.count : i + BLOCK_ROWS;

        if (is_sum)
            fill(part, count, 0);
        for (size_t r = i; r < end; r++)
            state->loops->columns[loop](x + axes_offset(&state->reduced, r), is_sum ? part : totals,
                                        count, shifts);
        if (is_sum)
            state->loops->columns[REDUCE_sum](part, totals, count, NULL);
    }
}

/* Tasks are chunks of columns of each outer index of the kept dimensions. */
static void reduce_chunks(void *arg, unsigned member, unsigned members)
{
    const struct reduce_job *job = arg;
    const struct reduce_state *state = job->state;
    size_t width = state->kept.dims[state->kept.rank - 1];
    size_t chunks = (width + CHUNK - 1) / CHUNK;
    size_t from, to;

    team_share(state->kept.count / width * chunks, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        size_t first = i / chunks * width + i % chunks * CHUNK; /* the output's index */
        size_t left = width - i % chunks * CHUNK, count = left < CHUNK ? left : CHUNK;
        const float *x = job->in + axes_offset(&state->kept, first);
        float shifts[CHUNK], totals[CHUNK];

        fill(shifts, count, 0);
        if (state->way == LOG_SUM_EXP) {
            reduce_columns(state, REDUCE_max, x, count, NULL, shifts);
            for (size_t k = 0; k < count; k++)
                shifts[k] = isinf(shifts[k]) ? 0 : shifts[k];
        }
        reduce_columns(state, state->loop, x, count, shifts, totals);
        for (size_t k = 0; k < count; k++)
            job->out[first + k] = (float)reduce_finish(state, (double)totals[k], (double)shifts[k]);
    }
}

/* Many results of a few neighbours each: their first elements, then their second … */
static void reduce_short_rows(void *arg, unsigned member, unsigned members)
{
    const struct reduce_job *job = arg;
    const struct reduce_state *state = job->state;
    const size_t length = state->reduced.count, count = state->kept.count;
    const float neutral = (float)state->loops->row[state->loop](NULL, 0, 0);
    size_t from, to;

    team_share((count + CHUNK - 1) / CHUNK, member, members, &from, &to);
    for (size_t first = from * CHUNK; first < to * CHUNK && first < count; first += CHUNK) {
        const size_t part = count - first < CHUNK ? count - first : CHUNK;
        const float *x = job->in + first * length;
        float elements[CHUNK], totals[CHUNK];

        fill(totals, part, neutral);
        for (size_t k = 0; k < length; k++) {
            for (size_t i = 0; i < part; i++)
                elements[i] = x[i * length + k];
            state->loops->columns[state->loop](elements, totals, part, NULL);
        }
        for (size_t i = 0; i < part; i++)
            job->out[first + i] = (float)reduce_finish(state, (double)totals[i], 0);
    }
}

static team_fn float_share(const struct reduce_state *state)
{
    return state->in_short_rows ? reduce_short_rows
           : state->in_columns  ? reduce_chunks
                                : reduce_results;
}

/* ---- the kernel ---- */

static bool keeps_dims(const struct kernel_call *call)
{
    return call->out[0]->shape.rank == call->in[0]->shape.rank;
}

/* In the blocked layout channels must stay; so must the batch, or it could not be blocked again.  A
 * result without places may be plain. */
static const char *refuses_blocked(const struct kernel_call *call, const bool *reduced)
{
    const struct operand *in = call->in[0], *out = call->out[0];

    if (in->dtype != DTYPE_FLOAT && !dtype_is_narrow(in->dtype))
        return "only floats in the blocked layout";
    if (reduced[0] || reduced[1])
        return "batch or channels are reduced in the blocked layout";
    if (out->layout == LAYOUT_BLOCKED)
        return keeps_dims(call) ? NULL : "dimensions go in the blocked layout";
    for (size_t i = 2; i < in->shape.rank; i++)
        if (!reduced[i] && in->shape.dims[i] > 1)
            return "places are left for a plain result";
    return dtype_is_narrow(in->dtype) ? "16-bit floats from blocked to plain" : NULL;
}

static const char *refuses(const struct kernel_call *call)
{
    bool reduced[SHAPE_MAX_RANK];
    enum dtype dtype = call->in[0]->dtype;

    if (call->inputs > 1 && call->in[1] != NULL && call->in[1]->constant == NULL &&
        shape_count(&call->in[1]->shape) > 0)
        return "axes are not known";
    if (find_reduced(call, reduced) != STATUS_OK)
        return "axes do not fit";
    if (dtype != DTYPE_FLOAT && !dtype_is_narrow(dtype) && !reduce_any_takes(dtype))
        return "no loop for this type";
    if (call->in[0]->layout == LAYOUT_BLOCKED)
        return refuses_blocked(call, reduced);
    if (call->in[0]->layout != LAYOUT_PLAIN || call->out[0]->layout != LAYOUT_PLAIN)
        return "only plain and blocked layouts";
    return NULL;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct reduce_state *state = calloc(1, sizeof(*state));
    bool reduced[SHAPE_MAX_RANK];

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    (void)find_reduced(call, reduced);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].op == call->op) {
            state->way = rows[i].way;
            state->loop = rows[i].loop;
        }
    state->loops = loops_for(call->device);
    state->dtype = call->in[0]->dtype;
    make_axes(state, call->in[0], call->device->channel_block, reduced);
    state->wide_bytes = wide_scratch_bytes(call);
    if (call->in[0]->layout == LAYOUT_BLOCKED && call->out[0]->layout == LAYOUT_PLAIN)
        state->packed_bytes = state->kept.count * sizeof(float);
    prepare->scratch_bytes = state->wide_bytes + state->packed_bytes;
    prepare->constants_used = 1;
    prepare->state = state;
    return STATUS_OK;
}

/* [N, C/b, b] to [N, C]. */
static void drop_padding(const struct operand *out, size_t block, const float *from, float *to)
{
    size_t batch = (size_t)out->shape.dims[0], channels = (size_t)out->shape.dims[1];
    size_t padded = (channels + block - 1) / block * block;

    for (size_t n = 0; n < batch; n++)
        memcpy(to + n * channels, from + n * padded, channels * sizeof(float));
}

static void run_floats(const struct reduce_state *state, const struct kernel_call *call,
                       const struct kernel_run *run)
{
    const void *in[WIDE_OPERANDS];
    void *out[WIDE_OPERANDS];
    double work = (double)state->kept.count * (double)state->reduced.count * 0.2;
    struct reduce_job job = {.state = state};

    wide_open(call, run, in, out);
    job.in = in[0];
    job.out = state->packed_bytes > 0 ? run->scratch : out[0];
    team_run(team_size(run->lane->threads, work), float_share(state), &job);
    if (state->packed_bytes > 0)
        drop_padding(call->out[0], call->device->channel_block, run->scratch, out[0]);
    wide_close(call, run, out);
    operand_zero_padding(call->out[0], call->device, run->out[0]);
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct reduce_state *state = arg;

    if (state->kept.count == 0)
        return STATUS_OK;
    if (state->dtype == DTYPE_FLOAT || dtype_is_narrow(state->dtype)) {
        run_floats(state, call, run);
    } else {
        struct reduce_any_job job = {state, run->in[0], run->out[0]};
        double work = (double)state->kept.count * (double)state->reduced.count * 3;

        team_run(team_size(run->lane->threads, work), reduce_any, &job);
    }
    return STATUS_OK;
}

#define REDUCE(operator)                                                                           \
    const struct kernel kernel_##operator##_loops = {                                              \
        .name = "cpu:loops",                                                                       \
        .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED,                                        \
        .refuses = refuses,                                                                        \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
        .release = free,                                                                           \
    };
REDUCE(reduce_l1)
REDUCE(reduce_l2)
REDUCE(reduce_log_sum)
REDUCE(reduce_log_sum_exp)
REDUCE(reduce_max)
REDUCE(reduce_mean)
REDUCE(reduce_min)
REDUCE(reduce_prod)
REDUCE(reduce_sum)
REDUCE(reduce_sum_square)
