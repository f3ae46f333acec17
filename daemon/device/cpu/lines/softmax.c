/* Softmax, LogSoftmax, Hardmax and LpNormalization along one axis of a plain tensor.
 *
 * [outer, count, inner]: rows when the axis is the last one, else columns side by side.
 */
#include "ops/softmax.h"

#include <math.h>
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/team.h"
#include "device/cpu/wide.h"

struct axis_job {
    const struct loops *loops;
    const struct op_def *op;
    const void *in;
    void *out;
    size_t outer, count, inner;
    int64_t p; /* LpNormalization */
};

/* ---- softmax on floats ---- */

static void softmax_row(const struct axis_job *job, const float *x, float *y)
{
    size_t count = job->count;
    float top = (float)job->loops->row[REDUCE_max](x, count, 0);

    if (job->op == &op_log_softmax) {
        double sum = job->loops->row[REDUCE_sum_exp_from](x, count, top);

        job->loops->affine_row(x, y, count, top, 1, (float)-log(sum));
    } else {
        double sum = job->loops->exp_row(x, y, count, top);

        job->loops->unary[UNARY_divide](y, y, count, (float)sum, 0);
    }
}

static void softmax_rows(void *arg, unsigned member, unsigned members)
{
    const struct axis_job *job = arg;
    size_t from, to;

    team_share(job->outer, member, members, &from, &to);
    for (size_t i = from; i < to; i++)
        softmax_row(job, (const float *)job->in + i * job->count,
                    (float *)job->out + i * job->count);
}

enum { COLUMNS = 64 }; /* a task */

static void softmax_columns(void *arg, unsigned member, unsigned members)
{
    const struct axis_job *job = arg;
    size_t chunks = (job->inner + COLUMNS - 1) / COLUMNS, from, to;

    team_share(job->outer * chunks, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        size_t column = i % chunks * COLUMNS, left = job->inner - column;
        size_t at = i / chunks * job->count * job->inner + column;

        job->loops->softmax_columns((const float *)job->in + at, (float *)job->out + at, job->count,
                                    job->inner, left < COLUMNS ? left : COLUMNS,
                                    job->op == &op_log_softmax);
    }
}

/* ---- the same on doubles, and what is rare, one line after the other ---- */

/* Calls one(job, x, y) for each line along the axis; elements are job->inner apart. */
#define LINES(name, type, one)                                                                     \
    static void name(void *arg, unsigned member, unsigned members)                                 \
    {                                                                                              \
        const struct axis_job *job = arg;                                                          \
        size_t from, to;                                                                           \
                                                                                                   \
        team_share(job->outer * job->inner, member, members, &from, &to);                          \
        for (size_t i = from; i < to; i++) {                                                       \
            size_t at = i / job->inner * job->count * job->inner + i % job->inner;                 \
                                                                                                   \
            one(job, (const type *)job->in + at, (type *)job->out + at);                           \
        }                                                                                          \
    }

static void softmax_line(const struct axis_job *job, const double *x, double *y)
{
    double top = -INFINITY, sum = 0;

    for (size_t i = 0; i < job->count; i++)
        top = x[i * job->inner] > top || isnan(x[i * job->inner]) ? x[i * job->inner] : top;
    for (size_t i = 0; i < job->count; i++)
        sum += exp(x[i * job->inner] - top);
    for (size_t i = 0; i < job->count; i++) {
        double shifted = x[i * job->inner] - top;

        y[i * job->inner] = job->op == &op_log_softmax ? shifted - log(sum) : exp(shifted) / sum;
    }
}
LINES(softmax_doubles, double, softmax_line)

#define RARE(name, type)                                                                           \
    static void hardmax_line_##name(const struct axis_job *job, const type *x, type *y)            \
    {                                                                                              \
        size_t best = 0;                                                                           \
                                                                                                   \
        for (size_t i = 1; i < job->count; i++)                                                    \
            if (x[i * job->inner] > x[best * job->inner])                                          \
                best = i;                                                                          \
        for (size_t i = 0; i < job->count; i++)                                                    \
            y[i * job->inner] = i == best ? 1 : 0;                                                 \
    }                                                                                              \
    static void lp_line_##name(const struct axis_job *job, const type *x, type *y)                 \
    {                                                                                              \
        double norm = 0;                                                                           \
                                                                                                   \
        for (size_t i = 0; i < job->count; i++) {                                                  \
            double value = (double)x[i * job->inner];                                              \
                                                                                                   \
            norm += job->p == 1 ? fabs(value) : value * value;                                     \
        }                                                                                          \
        norm = job->p == 1 ? norm : sqrt(norm);                                                    \
        for (size_t i = 0; i < job->count; i++)                                                    \
            y[i * job->inner] = norm == 0 ? 0 : (type)((double)x[i * job->inner] / norm);          \
    }                                                                                              \
    LINES(hardmax_##name, type, hardmax_line_##name)                                               \
    LINES(lp_##name, type, lp_line_##name)
RARE(floats, float)
RARE(doubles, double)

/* ---- the kernel ---- */

static team_fn choose(const struct axis_job *job, bool doubles)
{
    if (job->op == &op_hardmax)
        return doubles ? hardmax_doubles : hardmax_floats;
    if (job->op == &op_lp_normalization)
        return doubles ? lp_doubles : lp_floats;
    if (doubles)
        return softmax_doubles;
    return job->inner == 1 ? softmax_rows : softmax_columns;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->scratch_bytes = wide_scratch_bytes(&prepare->call);
    prepare->constants_used = 1;
    return STATUS_OK;
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct lp_attrs *attrs = call->attrs; /* all of them start with the axis */
    const struct shape *shape = &call->in[0]->shape;
    size_t axis = shape_axis(shape, attrs->axis);
    struct axis_job job = {.loops = loops_for(call->device),
                           .op = call->op,
                           .outer = (size_t)shape_product(shape, 0, axis),
                           .count = (size_t)shape->dims[axis],
                           .inner = (size_t)shape_product(shape, axis + 1, shape->rank),
                           .p = call->op == &op_lp_normalization ? attrs->p : 0};
    const void *in[WIDE_OPERANDS];
    void *out[WIDE_OPERANDS];

    (void)state;
    if (shape_count(shape) == 0)
        return STATUS_OK;
    wide_open(call, run, in, out);
    job.in = in[0];
    job.out = out[0];
    team_run(team_size(run->lane->threads, (double)shape_count(shape)),
             choose(&job, call->in[0]->dtype == DTYPE_DOUBLE), &job);
    wide_close(call, run, out);
    return STATUS_OK;
}

#define ALONG_AXIS(operator)                                                                       \
    const struct kernel kernel_##operator##_loops = {                                              \
        .name = "cpu:loops",                                                                       \
        .flags = KERNEL_IN_PLACE,                                                                  \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
    };
ALONG_AXIS(softmax)
ALONG_AXIS(log_softmax)
ALONG_AXIS(hardmax)
ALONG_AXIS(lp_normalization)
