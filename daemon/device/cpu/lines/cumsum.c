/* CumSum: running sums along an axis that is known when it runs. */
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/wide.h"
#include "ops/reduce.h"

struct cumsum_job {
    size_t outer, count, inner;
    bool exclusive;
    bool reverse;
};

/* Integers wrap, so their sums are made on the unsigned type. */
#define CUMSUM(name, type, total_type)                                                             \
    static void sum_##name(const struct cumsum_job *job, const type *x, type *y)                   \
    {                                                                                              \
        for (size_t o = 0; o < job->outer * job->inner; o++) {                                     \
            size_t base = o / job->inner * job->count * job->inner + o % job->inner;               \
            total_type total = 0;                                                                  \
                                                                                                   \
            for (size_t k = 0; k < job->count; k++) {                                              \
                size_t at = base + (job->reverse ? job->count - 1 - k : k) * job->inner;           \
                total_type before = total;                                                         \
                                                                                                   \
                total += (total_type)x[at];                                                        \
                y[at] = (type)(job->exclusive ? before : total);                                   \
            }                                                                                      \
        }                                                                                          \
    }
CUMSUM(float, float, double)
CUMSUM(double, double, double)
CUMSUM(int32, int32_t, uint32_t)
CUMSUM(uint32, uint32_t, uint32_t)
CUMSUM(int64, int64_t, uint64_t)
CUMSUM(uint64, uint64_t, uint64_t)

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->scratch_bytes = wide_scratch_bytes(&prepare->call);
    prepare->constants_used = 3;
    return STATUS_OK;
}

static void run_type(const struct cumsum_job *job, enum dtype dtype, const void *x, void *y)
{
    switch (dtype) {
    case DTYPE_DOUBLE:
        sum_double(job, x, y);
        break;
    case DTYPE_INT32:
        sum_int32(job, x, y);
        break;
    case DTYPE_UINT32:
        sum_uint32(job, x, y);
        break;
    case DTYPE_INT64:
        sum_int64(job, x, y);
        break;
    case DTYPE_UINT64:
        sum_uint64(job, x, y);
        break;
    default:
        sum_float(job, x, y);
    }
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct cumsum_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;
    int64_t value = call->in[1]->dtype == DTYPE_INT64 ? *(const int64_t *)run->in[1]
                                                      : *(const int32_t *)run->in[1];
    struct cumsum_job job = {.exclusive = attrs->exclusive != 0, .reverse = attrs->reverse != 0};
    const void *in[WIDE_OPERANDS];
    void *out[WIDE_OPERANDS];
    size_t axis;

    (void)state;
    if (!shape_has_axis(shape, value))
        return STATUS_INVALID;
    axis = shape_axis(shape, value);
    job.outer = (size_t)shape_product(shape, 0, axis);
    job.count = (size_t)shape->dims[axis];
    job.inner = (size_t)shape_product(shape, axis + 1, shape->rank);
    wide_open(call, run, in, out);
    run_type(&job, call->in[0]->dtype, in[0], out[0]);
    wide_close(call, run, out);
    return STATUS_OK;
}

const struct kernel kernel_cumsum_loops = {
    .name = "cpu:loops",
    .prepare = prepare,
    .enqueue = enqueue,
};
