/* com.microsoft BiasGelu, FastGelu, SkipLayerNormalization: rows of the last dimension. */
#include "ops/fused.h"

#include <math.h>
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/team.h"
#include "device/cpu/wide.h"

struct fused_job {
    const struct loops *loops;
    const struct op_def *op;
    size_t rows, size;
    double epsilon;
    const float *in[WIDE_OPERANDS]; /* NULL: left out */
    float *out[WIDE_OPERANDS];
    float *sums; /* a row for each member, where the sum itself is not wanted */
};

/* c = a + b */
static void add_row(const struct fused_job *job, const float *a, const float *b, float *c)
{
    const struct tile tile = {.rows = 1, .columns = job->size, .column_strides = {1, 1}};
    const void *in[] = {a, b};

    job->loops->binary[BINARY_add](NULL, &tile, in, c);
}

static void gelu_row(const struct fused_job *job, size_t row)
{
    enum unary_loop loop = job->op == &op_fast_gelu ? UNARY_gelu_tanh : UNARY_gelu;
    const float *x = job->in[0] + row * job->size;
    float *y = job->out[0] + row * job->size;

    if (job->in[1] != NULL) {
        add_row(job, x, job->in[1], y);
        x = y;
    }
    job->loops->unary[loop](x, y, job->size, 0, 0);
}

static void norm_row(const struct fused_job *job, size_t row, unsigned member)
{
    float *sum =
        job->out[3] != NULL ? job->out[3] + row * job->size : job->sums + member * job->size;
    double count = (double)job->size, mean, variance, factor;

    add_row(job, job->in[0] + row * job->size, job->in[1] + row * job->size, sum);
    if (job->in[4] != NULL)
        add_row(job, sum, job->in[4], sum);
    mean = job->loops->row[REDUCE_sum](sum, job->size, 0) / count;
    variance = job->loops->row[REDUCE_sum_square_from](sum, job->size, (float)mean) / count;
    factor = 1 / sqrt(variance + job->epsilon);
    job->loops->normalize_row(sum, job->out[0] + row * job->size, job->size, (float)mean,
                              (float)factor, job->in[2], job->in[3]);
    if (job->out[1] != NULL)
        job->out[1][row] = (float)mean;
    if (job->out[2] != NULL)
        job->out[2][row] = (float)factor;
}

static void run_rows(void *arg, unsigned member, unsigned members)
{
    const struct fused_job *job = arg;
    size_t from, to;

    team_share(job->rows, member, members, &from, &to);
    for (size_t i = from; i < to; i++)
        if (job->op == &op_skip_layer_normalization)
            norm_row(job, i, member);
        else
            gelu_row(job, i);
}

static size_t last_dim(const struct kernel_call *call)
{
    const struct shape *shape = &call->in[0]->shape;

    return shape->rank > 0 ? (size_t)shape->dims[shape->rank - 1] : 1;
}

static const char *refuses(const struct kernel_call *call)
{
    return call->in[0]->dtype == DTYPE_DOUBLE ? "no loop for doubles" : NULL;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;

    (void)err;
    prepare->scratch_bytes = wide_scratch_bytes(call);
    if (call->op == &op_skip_layer_normalization)
        prepare->scratch_bytes +=
            last_dim(call) * sizeof(float) * (call->threads > 0 ? call->threads : 1);
    prepare->constants_used = 31;
    return STATUS_OK;
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    struct fused_job job = {.loops = loops_for(call->device), .op = call->op};
    size_t count = (size_t)shape_count(&call->in[0]->shape);
    const void *in[WIDE_OPERANDS] = {NULL};
    void *out[WIDE_OPERANDS] = {NULL};

    (void)state;
    if (count == 0)
        return STATUS_OK;
    wide_open(call, run, in, out);
    for (size_t i = 0; i < WIDE_OPERANDS; i++) {
        job.in[i] = in[i];
        job.out[i] = out[i];
    }
    job.size = last_dim(call);
    job.rows = count / job.size;
    job.sums = (float *)(void *)((char *)run->scratch + wide_scratch_bytes(call));
    if (call->op == &op_skip_layer_normalization)
        job.epsilon = (double)((const struct skip_norm_attrs *)call->attrs)->epsilon;
    team_run(team_size(call->threads > 0 ? call->threads : 1, (double)count), run_rows, &job);
    wide_close(call, run, out);
    return STATUS_OK;
}

#define FUSED(operator)                                                                            \
    const struct kernel kernel_##operator##_rows = {                                               \
        .name = "cpu:rows",                                                                        \
        .refuses = refuses,                                                                        \
        .prepare = prepare,                                                                        \
        .enqueue = enqueue,                                                                        \
    };
FUSED(bias_gelu)
FUSED(fast_gelu)
FUSED(skip_layer_normalization)
