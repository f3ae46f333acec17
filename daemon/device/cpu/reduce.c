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

#include "device/cpu/axes.h"
#include "device/cpu/cpu.h"
#include "device/cpu/flat.h"
#include "device/cpu/loops.h"
#include "device/cpu/team.h"
#include "device/cpu/wide.h"

enum { CHUNK = 256, BLOCK_ROWS = 512, SHORT_ROW = 8 };

enum way { SUM, MEAN, L1, L2, SUM_SQUARE, LOG_SUM, LOG_SUM_EXP, MAX, MIN, PROD };

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

struct reduce_state {
    const struct loops *loops;
    enum way way;
    enum reduce_loop loop;
    enum dtype dtype;
    struct axes kept; /* in the order of the output */
    struct axes reduced;
    bool in_columns;      /* the last dimension in memory is kept */
    bool in_short_rows;   /* few elements behind each result, one result after the other */
    size_t wide_bytes;    /* of scratch, for 16-bit operands */
    size_t packed_bytes;  /* of scratch: the blocked result, before it is made plain */
    size_t reduced_count; /* elements behind one result */
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

static double finish(const struct reduce_state *state, double total, double shift)
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
        job->out[i] = (float)finish(state, reduce_rows(state, state->loop, x, (float)shift), shift);
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
            job->out[first + k] = (float)finish(state, (double)totals[k], (double)shifts[k]);
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
            job->out[first + i] = (float)finish(state, (double)totals[i], 0);
    }
}

static team_fn float_share(const struct reduce_state *state)
{
    return state->in_short_rows ? reduce_short_rows
           : state->in_columns  ? reduce_chunks
                                : reduce_results;
}

/* ---- doubles and integers: one element after the other ---- */

/* What all types keep while reducing: integers in `whole` (wrapping), the rest in `real`. */
struct total {
    double real;
    uint64_t whole;
};

/* Takes one more element, given as a real number, as wrapped bits, and as its size. */
static inline void take(struct total *total, enum way way, double shift, double real,
                        uint64_t whole, uint64_t size)
{
    switch (way) {
    case SUM:
    case MEAN:
    case LOG_SUM:
        total->whole += whole;
        total->real += real;
        break;
    case L1:
        total->whole += size;
        total->real += fabs(real);
        break;
    case L2:
    case SUM_SQUARE:
        total->whole += whole * whole;
        total->real += real * real;
        break;
    case LOG_SUM_EXP:
        total->real += exp(real - shift);
        break;
    case PROD:
        total->whole *= whole;
        total->real *= real;
        break;
    case MAX:
    case MIN:
        break;
    }
}

#define SIGNED_SIZE(value)   (value < 0 ? 0 - (uint64_t)value : (uint64_t)value)
#define UNSIGNED_SIZE(value) ((uint64_t)value)
#define NO_SIZE(value)       0

#define REDUCE_TYPE(type, bits, size, lowest, highest, result)                                     \
    static type extreme_##type(const struct axes *axes, const type *x, bool largest)               \
    {                                                                                              \
        type best = largest ? (lowest) : (highest);                                                \
                                                                                                   \
        for (size_t i = 0; i < axes->count; i++) {                                                 \
            type value = x[axes_offset(axes, i)];                                                  \
                                                                                                   \
            if ((largest ? value > best : value < best) || value != value)                         \
                best = value;                                                                      \
            if (best != best)                                                                      \
                break;                                                                             \
        }                                                                                          \
        return best;                                                                               \
    }                                                                                              \
    static type reduce_##type(const struct reduce_state *state, const type *x)                     \
    {                                                                                              \
        const struct axes *axes = &state->reduced;                                                 \
        enum way way = state->way;                                                                 \
        struct total total = {way == PROD ? 1 : 0, way == PROD ? 1 : 0};                           \
        double shift = 0;                                                                          \
                                                                                                   \
        if (way == MAX || way == MIN)                                                              \
            return extreme_##type(axes, x, way == MAX);                                            \
        if (way == LOG_SUM_EXP) {                                                                  \
            shift = axes->count > 0 ? (double)extreme_##type(axes, x, true) : 0;                   \
            shift = isinf(shift) ? 0 : shift;                                                      \
        }                                                                                          \
        for (size_t i = 0; i < axes->count; i++) {                                                 \
            type value = x[axes_offset(axes, i)];                                                  \
                                                                                                   \
            take(&total, way, shift, (double)value, bits(value), size(value));                     \
        }                                                                                          \
        return result;                                                                             \
    }                                                                                              \
    static void results_##type(const struct reduce_state *state, const void *in, void *out,        \
                               size_t from, size_t to)                                             \
    {                                                                                              \
        for (size_t i = from; i < to; i++)                                                         \
            ((type *)out)[i] =                                                                     \
                reduce_##type(state, (const type *)in + axes_offset(&state->kept, i));             \
    }

static bool is_real(enum way way)
{
    return way == L2 || way == LOG_SUM || way == LOG_SUM_EXP;
}

static double real_result(const struct reduce_state *state, const struct total *total, double shift)
{
    return finish(state, total->real, shift);
}

/* An integer result: cut towards zero where the way there is a real number. */
static int64_t whole_result(const struct reduce_state *state, const struct total *total,
                            double shift)
{
    double real;

    if (state->way == MEAN)
        return state->reduced_count > 0 ? (int64_t)total->whole / (int64_t)state->reduced_count : 0;
    if (!is_real(state->way))
        return (int64_t)total->whole;
    real = finish(state, total->real, shift);
    return real >= -9223372036854775808.0 && real < 9223372036854775808.0 ? (int64_t)real
                                                                          : INT64_MIN;
}
#define WHOLE(type) (type) whole_result(state, &total, shift)

REDUCE_TYPE(int8_t, UNSIGNED_SIZE, SIGNED_SIZE, INT8_MIN, INT8_MAX, WHOLE(int8_t))
REDUCE_TYPE(uint8_t, UNSIGNED_SIZE, UNSIGNED_SIZE, 0, UINT8_MAX, WHOLE(uint8_t))
REDUCE_TYPE(int32_t, UNSIGNED_SIZE, SIGNED_SIZE, INT32_MIN, INT32_MAX, WHOLE(int32_t))
REDUCE_TYPE(uint32_t, UNSIGNED_SIZE, UNSIGNED_SIZE, 0, UINT32_MAX, WHOLE(uint32_t))
REDUCE_TYPE(int64_t, UNSIGNED_SIZE, SIGNED_SIZE, INT64_MIN, INT64_MAX, WHOLE(int64_t))

static uint64_t unsigned_result(const struct reduce_state *state, const struct total *total,
                                double shift)
{
    if (state->way == MEAN)
        return state->reduced_count > 0 ? total->whole / state->reduced_count : 0;
    return (uint64_t)whole_result(state, total, shift);
}
REDUCE_TYPE(uint64_t, UNSIGNED_SIZE, UNSIGNED_SIZE, 0, UINT64_MAX,
            unsigned_result(state, &total, shift))

REDUCE_TYPE(double, NO_SIZE, NO_SIZE, -INFINITY, INFINITY, real_result(state, &total, shift))

typedef void (*results_fn)(const struct reduce_state *state, const void *in, void *out, size_t from,
                           size_t to);

static const results_fn results[DTYPE_COUNT] = {
    [DTYPE_DOUBLE] = results_double, [DTYPE_INT8] = results_int8_t,
    [DTYPE_UINT8] = results_uint8_t, [DTYPE_BOOL] = results_uint8_t,
    [DTYPE_INT32] = results_int32_t, [DTYPE_UINT32] = results_uint32_t,
    [DTYPE_INT64] = results_int64_t, [DTYPE_UINT64] = results_uint64_t,
};

struct any_job {
    const struct reduce_state *state;
    const void *in;
    void *out;
};

static void reduce_any(void *arg, unsigned member, unsigned members)
{
    const struct any_job *job = arg;
    size_t from, to;

    team_share(job->state->kept.count, member, members, &from, &to);
    results[job->state->dtype](job->state, job->in, job->out, from, to);
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
    if (dtype != DTYPE_FLOAT && !dtype_is_narrow(dtype) && results[dtype] == NULL)
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
        struct any_job job = {state, run->in[0], run->out[0]};
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
