/* MatMul and Gemm for every type: plain loops, sums in double, or in 64-bit integers that wrap. */
#include "device/cpu/constant.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/team.h"
#include "ops/gemm.h"
#include "ops/matmul.h"
#include "tensor/element.h"

struct job {
    enum dtype dtype;
    struct matmul_geometry geometry;
    struct shape a_shape, b_shape;
    const void *a, *b, *residual;
    void *y;
    bool trans_a, trans_b;
    double scale;
    const void *c; /* NULL: none; added times beta */
    double beta;
    int64_t c_row, c_column; /* strides, 0 where it is repeated */
    struct epilogue epilogue;
};

static uint64_t read_integer(enum dtype dtype, const void *data, int64_t index)
{
    const char *at = (const char *)data + (size_t)index * dtype_bytes(dtype);
    uint64_t wide;
    int32_t narrow;

    if (dtype == DTYPE_INT64 || dtype == DTYPE_UINT64) {
        memcpy(&wide, at, sizeof(wide));
        return wide;
    }
    memcpy(&narrow, at, sizeof(narrow));
    return dtype == DTYPE_UINT32 ? (uint64_t)(uint32_t)narrow : (uint64_t)(int64_t)narrow;
}

static void integer_cell(const struct job *job, int64_t a, int64_t a_step, int64_t b,
                         int64_t b_step, int64_t at)
{
    uint64_t sum = 0;

    for (int64_t i = 0; i < job->geometry.k; i++)
        sum += read_integer(job->dtype, job->a, a + i * a_step) *
               read_integer(job->dtype, job->b, b + i * b_step);
    /* little-endian: the low half of the sum is what wraps */
    memcpy((char *)job->y + (size_t)at * dtype_bytes(job->dtype), &sum, dtype_bytes(job->dtype));
}

static void float_cell(const struct job *job, int64_t a, int64_t a_step, int64_t b, int64_t b_step,
                       int64_t at, int64_t row, int64_t column)
{
    const bool after = job->epilogue.residual_after;
    double sum = 0, residual = 0;

    for (int64_t i = 0; i < job->geometry.k; i++)
        sum += element_read(job->dtype, job->a, (size_t)(a + i * a_step)) *
               element_read(job->dtype, job->b, (size_t)(b + i * b_step));
    sum *= job->scale;
    if (job->c != NULL)
        sum += job->beta * element_read(job->dtype, job->c,
                                        (size_t)(row * job->c_row + column * job->c_column));
    if (job->residual != NULL)
        residual = element_read(job->dtype, job->residual, (size_t)at);
    sum = epilogue_activate(&job->epilogue, sum + (after ? 0 : residual));
    element_write(job->dtype, job->y, (size_t)at, sum + (after ? residual : 0));
}

static void run_row(const struct job *job, int64_t index, int64_t row)
{
    const struct matmul_geometry *g = &job->geometry;
    const int64_t a0 = matmul_operand_index(g, &job->a_shape, index) * g->m * g->k;
    const int64_t b0 = matmul_operand_index(g, &job->b_shape, index) * g->k * g->n;
    const int64_t a = a0 + (job->trans_a ? row : row * g->k), a_step = job->trans_a ? g->m : 1;
    const int64_t b_step = job->trans_b ? 1 : g->n;

    for (int64_t column = 0; column < g->n; column++) {
        int64_t b = b0 + (job->trans_b ? column * g->k : column);
        int64_t at = (index * g->m + row) * g->n + column;

        if (dtype_is_float(job->dtype))
            float_cell(job, a, a_step, b, b_step, at, row, column);
        else
            integer_cell(job, a, a_step, b, b_step, at);
    }
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    size_t from, to;

    team_share((size_t)(job->geometry.batches * job->geometry.m), member, members, &from, &to);
    for (size_t i = from; i < to; i++)
        run_row(job, (int64_t)i / job->geometry.m, (int64_t)i % job->geometry.m);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = UINT32_MAX;
    return STATUS_OK;
}

static enum status start(struct job *job, const struct kernel_call *call,
                         const struct kernel_run *run)
{
    job->dtype = call->in[0]->dtype;
    job->a_shape = call->in[0]->shape;
    job->b_shape = call->in[1]->shape;
    TRY(matmul_resolve(&job->a_shape, &job->b_shape, job->trans_a, job->trans_b, &job->geometry,
                       NULL));
    job->a = run->in[0];
    job->b = run->in[1];
    job->residual = job->epilogue.has_residual ? run->in[MATMUL_RESIDUAL] : NULL;
    job->y = run->out[0];
    team_run(run->lane->threads, run_job, job);
    return STATUS_OK;
}

static enum status enqueue_matmul(const void *state, const struct kernel_call *call,
                                  const struct kernel_run *run)
{
    const struct matmul_attrs *attrs = call->attrs;
    struct job job = {.trans_a = attrs->trans_a,
                      .trans_b = attrs->trans_b,
                      .scale = attrs->has_scale ? (double)attrs->scale : 1,
                      .epilogue = attrs->epilogue};

    (void)state;
    if (attrs->has_bias) {
        job.c = run->in[MATMUL_BIAS];
        job.beta = 1;
        job.c_column = 1;
    }
    return start(&job, call, run);
}

static enum status enqueue_gemm(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct gemm_attrs *attrs = call->attrs;
    const struct operand *c = kernel_input(call, GEMM_C);
    struct job job = {.trans_a = attrs->transA != 0,
                      .trans_b = attrs->transB != 0,
                      .scale = (double)attrs->alpha,
                      .epilogue = attrs->epilogue};

    (void)state;
    if (c != NULL && attrs->beta != 0) {
        int64_t columns = c->shape.rank > 0 ? c->shape.dims[c->shape.rank - 1] : 1;
        int64_t rows = c->shape.rank > 1 ? c->shape.dims[0] : 1;

        job.c = run->in[GEMM_C];
        job.beta = (double)attrs->beta;
        job.c_column = columns > 1 ? 1 : 0;
        job.c_row = rows > 1 ? columns : 0;
    }
    return start(&job, call, run);
}

const struct kernel kernel_matmul_plain = {
    .name = "cpu:plain",
    .flags = KERNEL_IN_PLACE_LAST,
    .prepare = prepare,
    .enqueue = enqueue_matmul,
};

const struct kernel kernel_gemm_plain = {
    .name = "cpu:plain",
    .flags = KERNEL_IN_PLACE_LAST,
    .prepare = prepare,
    .enqueue = enqueue_gemm,
};
