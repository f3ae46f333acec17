/* Reductions, ArgMax and ArgMin, softmax and its kin, global pools, running sums. */
#include "device/cuda/kernels/lines.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/lines_plan.h"
#include "device/cuda/kernels/pointwise_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/normalize.h"
#include "ops/pool.h"
#include "ops/reduce.h"
#include "ops/softmax.h"

static void set_types(struct lines *lines, const struct kernel_call *call)
{
    lines->type = pointwise_type_of(call->in[0]->dtype);
    lines->in_dtype = call->in[0]->dtype;
    lines->out_dtype = call->out[0]->dtype;
}

static void set_addresses(struct lines *lines, const struct kernel_run *run)
{
    lines->in = run->in[0];
    lines->out = run->out[0];
}

/* ---- reductions ---- */

static const struct reduce_row {
    const struct op_def *op;
    enum reduce_way way;
} reduce_rows[] = {
    {&op_reduce_sum, REDUCE_SUM},
    {&op_reduce_mean, REDUCE_MEAN},
    {&op_reduce_l1, REDUCE_L1},
    {&op_reduce_l2, REDUCE_L2},
    {&op_reduce_sum_square, REDUCE_SUM_SQUARE},
    {&op_reduce_log_sum, REDUCE_LOG_SUM},
    {&op_reduce_log_sum_exp, REDUCE_LOG_SUM_EXP},
    {&op_reduce_max, REDUCE_MAX},
    {&op_reduce_min, REDUCE_MIN},
    {&op_reduce_prod, REDUCE_PROD},
    {&op_global_average_pool, REDUCE_MEAN},
    {&op_global_max_pool, REDUCE_MAX_OF_NUMBERS},
    {&op_global_lp_pool, REDUCE_LP},
};

static enum reduce_way way_of(const struct op_def *op)
{
    for (size_t i = 0; i < sizeof(reduce_rows) / sizeof(reduce_rows[0]); i++)
        if (reduce_rows[i].op == op)
            return reduce_rows[i].way;
    return REDUCE_SUM;
}

static bool is_global_pool(const struct op_def *op)
{
    return op == &op_global_average_pool || op == &op_global_max_pool || op == &op_global_lp_pool;
}

static enum status find_reduced(const struct kernel_call *call, bool *reduced)
{
    const struct operand *axes = call_input(call, 1);
    struct tensor known;

    if (is_global_pool(call->op)) {
        for (size_t i = 0; i < call->in[0]->shape.rank; i++)
            reduced[i] = i >= 2;
        return STATUS_OK;
    }
    if (axes != NULL)
        known = operand_tensor(axes);
    return reduce_axes(call->attrs, axes != NULL ? &known : NULL, call->in[0]->shape.rank, reduced,
                       NULL);
}

static const char *refuse_reduce(const struct kernel_call *call)
{
    bool reduced[SHAPE_MAX_RANK];

    if (refuse_unknown_values(call, 1 << 1) != NULL)
        return "axes are not known";
    if (find_reduced(call, reduced) != STATUS_OK)
        return "axes do not fit";
    if (call->op == &op_global_lp_pool && ((const struct pool_attrs *)call->attrs)->p < 1)
        return "p is less than 1";
    return NULL;
}

/* What the largest and the smallest of no integers are. */
static void set_bounds(struct reduce *reduce, enum dtype dtype)
{
    unsigned bits = (unsigned)dtype_bytes(dtype) * 8;
    bool is_signed = ((DTYPE_SIGNED >> dtype) & 1) != 0;

    if (is_signed) {
        reduce->least = -(INT64_C(1) << (bits - 2)) * 2;
        reduce->most = -(reduce->least + 1);
    } else {
        reduce->most = (int64_t)(dtype == DTYPE_BOOL ? 1 : UINT64_MAX >> (64 - bits));
    }
}

/* Integers whose result is a real number are computed as such. */
static bool is_real_way(enum reduce_way way)
{
    return way == REDUCE_L2 || way == REDUCE_LOG_SUM || way == REDUCE_LOG_SUM_EXP;
}

static enum status prepare_reduce(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct reduce *reduce = prepare_state(prepare, sizeof(*reduce), err);
    bool reduced[SHAPE_MAX_RANK];
    struct axes axes;

    if (reduce == NULL)
        return STATUS_NO_MEMORY;
    (void)find_reduced(call, reduced);
    lines_axes_of_reduction(&axes, call->in[0], call->out[0], reduced);
    lines_make(&reduce->lines, &axes, reduced, NULL);
    set_types(&reduce->lines, call);
    reduce->way = way_of(call->op);
    if (reduce->way == REDUCE_LP)
        reduce->p = (uint32_t)((const struct pool_attrs *)call->attrs)->p;
    if (is_real_way((enum reduce_way)reduce->way) && !dtype_is_float(call->in[0]->dtype))
        reduce->lines.type = PW_DOUBLE;
    set_bounds(reduce, call->in[0]->dtype);
    return STATUS_OK;
}

static enum status run_reduce(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    struct reduce reduce = *(const struct reduce *)state;

    (void)call;
    set_addresses(&reduce.lines, run);
    return cuda_status(cuda_reduce(&reduce, cuda_stream(run)));
}

#define REDUCE(operator)                                                                           \
    const struct kernel kernel_##operator##_lines = {                                              \
        .name = "cuda:lines",                                                                      \
        .layouts = ANY_LAYOUT,                                                                     \
        .refuses = refuse_reduce,                                                                  \
        .prepare = prepare_reduce,                                                                 \
        .enqueue = run_reduce,                                                                     \
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
REDUCE(global_average_pool)
REDUCE(global_max_pool)
REDUCE(global_lp_pool)

/* ---- ArgMax, ArgMin ---- */

static enum status prepare_arg(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct arg_attrs *attrs = call->attrs;
    struct arg_reduce *reduce = prepare_state(prepare, sizeof(*reduce), err);
    bool reduced[SHAPE_MAX_RANK] = {false};
    struct axes axes;

    if (reduce == NULL)
        return STATUS_NO_MEMORY;
    reduced[shape_axis(&call->in[0]->shape, attrs->axis)] = true;
    lines_axes_of_reduction(&axes, call->in[0], call->out[0], reduced);
    lines_make(&reduce->lines, &axes, reduced, NULL);
    set_types(&reduce->lines, call);
    reduce->largest = call->op == &op_arg_max;
    reduce->last = attrs->select_last_index != 0;
    return STATUS_OK;
}

static enum status run_arg(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    struct arg_reduce reduce = *(const struct arg_reduce *)state;

    (void)call;
    set_addresses(&reduce.lines, run);
    return cuda_status(cuda_arg_reduce(&reduce, cuda_stream(run)));
}

#define ARG(operator)                                                                              \
    const struct kernel kernel_##operator##_lines = {                                              \
        .name = "cuda:lines",                                                                      \
        .layouts = ANY_LAYOUT,                                                                     \
        .prepare = prepare_arg,                                                                    \
        .enqueue = run_arg,                                                                        \
        .release = free,                                                                           \
    };
ARG(arg_max)
ARG(arg_min)

/* ---- Softmax, LogSoftmax, Hardmax, LpNormalization ---- */

static enum line_way line_way_of(const struct op_def *op)
{
    if (op == &op_log_softmax)
        return LINE_LOG_SOFTMAX;
    if (op == &op_hardmax)
        return LINE_HARDMAX;
    return op == &op_lp_normalization ? LINE_LP : LINE_SOFTMAX;
}

static enum status prepare_map(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct lp_attrs *attrs = call->attrs; /* all of them start with the axis */
    struct line_map *map = prepare_state(prepare, sizeof(*map), err);
    bool reduced[SHAPE_MAX_RANK] = {false};
    struct axes axes;

    if (map == NULL)
        return STATUS_NO_MEMORY;
    reduced[shape_axis(&call->in[0]->shape, attrs->axis)] = true;
    lines_axes_of_map(&axes, call->in[0], call->out[0]);
    lines_make(&map->lines, &axes, reduced, NULL);
    set_types(&map->lines, call);
    map->way = line_way_of(call->op);
    map->p = map->way == LINE_LP ? (uint32_t)attrs->p : 0;
    return STATUS_OK;
}

static enum status run_map(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    struct line_map map = *(const struct line_map *)state;

    (void)call;
    set_addresses(&map.lines, run);
    return cuda_status(cuda_line_map(&map, cuda_stream(run)));
}

#define ALONG_AXIS(operator)                                                                       \
    const struct kernel kernel_##operator##_lines = {                                              \
        .name = "cuda:lines",                                                                      \
        .flags = KERNEL_IN_PLACE,                                                                  \
        .layouts = ANY_LAYOUT,                                                                     \
        .prepare = prepare_map,                                                                    \
        .enqueue = run_map,                                                                        \
        .release = free,                                                                           \
    };
ALONG_AXIS(softmax)
ALONG_AXIS(log_softmax)
ALONG_AXIS(hardmax)
ALONG_AXIS(lp_normalization)

/* ---- CumSum ---- */

static int64_t axis_value(const struct operand *axis)
{
    int64_t wide;
    int32_t narrow;

    if (axis->dtype == DTYPE_INT32) {
        memcpy(&narrow, axis->constant, sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, axis->constant, sizeof(wide));
    return wide;
}

static const char *refuse_cumsum(const struct kernel_call *call)
{
    if (call->in[1]->constant == NULL)
        return "the axis is not known";
    if (!shape_has_axis(&call->in[0]->shape, axis_value(call->in[1])))
        return "the axis does not fit";
    return NULL;
}

static enum status prepare_cumsum(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct cumsum_attrs *attrs = call->attrs;
    struct running_sum *sum = prepare_state(prepare, sizeof(*sum), err);
    bool reduced[SHAPE_MAX_RANK] = {false};
    struct axes axes;

    if (sum == NULL)
        return STATUS_NO_MEMORY;
    reduced[shape_axis(&call->in[0]->shape, axis_value(call->in[1]))] = true;
    lines_axes_of_map(&axes, call->in[0], call->out[0]);
    lines_make(&sum->lines, &axes, reduced, NULL);
    set_types(&sum->lines, call);
    if (sum->lines.type == PW_FLOAT)
        sum->lines.type = PW_DOUBLE; /* sums of many floats, each of which is seen */
    sum->exclusive = attrs->exclusive != 0;
    sum->reverse = attrs->reverse != 0;
    return STATUS_OK;
}

static enum status run_cumsum(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    struct running_sum sum = *(const struct running_sum *)state;

    (void)call;
    set_addresses(&sum.lines, run);
    return cuda_status(cuda_running_sum(&sum, cuda_stream(run)));
}

const struct kernel kernel_cumsum_lines = {
    .name = "cuda:lines",
    .refuses = refuse_cumsum,
    .prepare = prepare_cumsum,
    .enqueue = run_cumsum,
    .release = free,
};
