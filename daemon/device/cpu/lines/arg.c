/* ArgMax and ArgMin: the first (or last) place of the largest or smallest element along an axis. */
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/team.h"
#include "ops/reduce.h"

struct arg_job {
    const void *in;
    int64_t *out;
    size_t outer, count, inner;
    bool largest;
    bool last;
};

#define LOAD(x)          (x)
#define LOAD_HALF(x)     float_from_half(x)
#define LOAD_BFLOAT16(x) float_from_bfloat16(x)

/* A NaN wins against numbers, as in NumPy. */
#define ARG(name, type, value_type, load)                                                          \
    static int64_t place_##name(const struct arg_job *job, const type *x)                          \
    {                                                                                              \
        value_type best = load(x[0]);                                                              \
        int64_t place = 0;                                                                         \
                                                                                                   \
        for (size_t i = 1; i < job->count && best == best; i++) {                                  \
            value_type value = load(x[i * job->inner]);                                            \
            bool better = job->largest ? value > best : value < best;                              \
                                                                                                   \
            if (better || value != value || (job->last && value == best)) {                        \
                best = value;                                                                      \
                place = (int64_t)i;                                                                \
            }                                                                                      \
        }                                                                                          \
        return place;                                                                              \
    }                                                                                              \
    static void share_##name(void *arg, unsigned member, unsigned members)                         \
    {                                                                                              \
        const struct arg_job *job = arg;                                                           \
        size_t from, to;                                                                           \
                                                                                                   \
        team_share(job->outer * job->inner, member, members, &from, &to);                          \
        for (size_t i = from; i < to; i++)                                                         \
            job->out[i] =                                                                          \
                place_##name(job, (const type *)job->in +                                          \
                                      i / job->inner * job->count * job->inner + i % job->inner);  \
    }
ARG(float, float, float, LOAD)
ARG(double, double, double, LOAD)
ARG(half, uint16_t, float, LOAD_HALF)
ARG(bfloat16, uint16_t, float, LOAD_BFLOAT16)
ARG(int8, int8_t, int8_t, LOAD)
ARG(int16, int16_t, int16_t, LOAD)
ARG(int32, int32_t, int32_t, LOAD)
ARG(int64, int64_t, int64_t, LOAD)
ARG(uint8, uint8_t, uint8_t, LOAD)
ARG(uint16, uint16_t, uint16_t, LOAD)
ARG(uint32, uint32_t, uint32_t, LOAD)
ARG(uint64, uint64_t, uint64_t, LOAD)

static const team_fn shares[DTYPE_COUNT] = {
    [DTYPE_FLOAT] = share_float,       [DTYPE_DOUBLE] = share_double, [DTYPE_FLOAT16] = share_half,
    [DTYPE_BFLOAT16] = share_bfloat16, [DTYPE_INT8] = share_int8,     [DTYPE_INT16] = share_int16,
    [DTYPE_INT32] = share_int32,       [DTYPE_INT64] = share_int64,   [DTYPE_UINT8] = share_uint8,
    [DTYPE_UINT16] = share_uint16,     [DTYPE_UINT32] = share_uint32, [DTYPE_UINT64] = share_uint64,
};

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = 1;
    return STATUS_OK;
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct arg_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;
    size_t axis = shape_axis(shape, attrs->axis);
    struct arg_job job = {.in = run->in[0],
                          .out = run->out[0],
                          .outer = (size_t)shape_product(shape, 0, axis),
                          .count = (size_t)shape->dims[axis],
                          .inner = (size_t)shape_product(shape, axis + 1, shape->rank),
                          .largest = call->op == &op_arg_max,
                          .last = attrs->select_last_index != 0};

    (void)state;
    team_run(team_size(run->lane->threads, (double)shape_count(shape)), shares[call->in[0]->dtype],
             &job);
    return STATUS_OK;
}

const struct kernel kernel_arg_max_loops = {
    .name = "cpu:loops",
    .prepare = prepare,
    .enqueue = enqueue,
};

const struct kernel kernel_arg_min_loops = {
    .name = "cpu:loops",
    .prepare = prepare,
    .enqueue = enqueue,
};
