/* MeanVarianceNormalization: (x - mean) / (deviation + 1e-9) over any axes. */
#include <math.h>
#include <stdlib.h>

#include "device/cpu/axes.h"
#include "device/cpu/cpu.h"
#include "device/cpu/team.h"
#include "device/cpu/wide.h"
#include "ops/normalize.h"

struct mvn_job {
    struct axes kept, reduced;
    const void *in;
    void *out;
};

#define MVN(name, type)                                                                            \
    static void name##_group(const struct mvn_job *job, const type *x, type *y)                    \
    {                                                                                              \
        double count = (double)job->reduced.count, mean = 0, variance = 0;                         \
                                                                                                   \
        for (size_t i = 0; i < job->reduced.count; i++)                                            \
            mean += (double)x[axes_offset(&job->reduced, i)];                                      \
        mean /= count;                                                                             \
        for (size_t i = 0; i < job->reduced.count; i++) {                                          \
            double difference = (double)x[axes_offset(&job->reduced, i)] - mean;                   \
                                                                                                   \
            variance += difference * difference;                                                   \
        }                                                                                          \
        for (size_t i = 0; i < job->reduced.count; i++) {                                          \
            size_t at = axes_offset(&job->reduced, i);                                             \
                                                                                                   \
            y[at] = (type)(((double)x[at] - mean) / (sqrt(variance / count) + 1e-9));              \
        }                                                                                          \
    }                                                                                              \
    static void name(void *arg, unsigned member, unsigned members)                                 \
    {                                                                                              \
        const struct mvn_job *job = arg;                                                           \
        size_t from, to;                                                                           \
                                                                                                   \
        team_share(job->kept.count, member, members, &from, &to);                                  \
        for (size_t i = from; i < to; i++) {                                                       \
            size_t at = axes_offset(&job->kept, i);                                                \
                                                                                                   \
            name##_group(job, (const type *)job->in + at, (type *)job->out + at);                  \
        }                                                                                          \
    }
MVN(floats, float)
MVN(doubles, double)

static void split(const struct mvn_attrs *attrs, const struct shape *shape, struct mvn_job *job)
{
    static const int64_t usual[] = {0, 2, 3};
    const int64_t *axes = attrs->axes.values != NULL ? attrs->axes.values : usual;
    size_t count = attrs->axes.values != NULL ? attrs->axes.count : 3;
    bool reduced[SHAPE_MAX_RANK] = {false};

    for (size_t i = 0; i < count; i++)
        reduced[shape_axis(shape, axes[i])] = true;
    job->kept.count = job->reduced.count = 1;
    for (size_t i = 0; i < shape->rank; i++)
        axes_add(reduced[i] ? &job->reduced : &job->kept, (size_t)shape->dims[i],
                 (size_t)shape_product(shape, i + 1, shape->rank));
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
    const void *in[WIDE_OPERANDS];
    void *out[WIDE_OPERANDS];
    struct mvn_job job = {.in = NULL};
    bool wide = call->in[0]->dtype == DTYPE_DOUBLE;

    (void)state;
    if (shape_count(&call->in[0]->shape) == 0)
        return STATUS_OK;
    split(call->attrs, &call->in[0]->shape, &job);
    wide_open(call, run, in, out);
    job.in = in[0];
    job.out = out[0];
    team_run(team_size(run->lane->threads, (double)shape_count(&call->in[0]->shape) * 10),
             wide ? doubles : floats, &job);
    wide_close(call, run, out);
    return STATUS_OK;
}

/* Usually sums over the batch. */
const struct kernel kernel_mean_variance_normalization_loops = {
    .name = "cpu:loops",
    .flags = KERNEL_IN_PLACE | KERNEL_BATCH_INEXACT,
    .prepare = prepare,
    .enqueue = enqueue,
};
