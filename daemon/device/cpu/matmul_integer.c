/* MatMulInteger and QLinearMatMul: whole numbers in 32 bits, then perhaps scaled to bytes again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cpu/constant.h"
#include "device/cpu/int_gemm.h"
#include "device/cpu/team.h"
#include "ops/quantized.h"
#include "tensor/element.h"

/* Input numbers of both operators. */
struct places {
    size_t b, a_zero, b_zero;
};

enum { GROUP = 24 }; /* rows of A at a time */

struct state {
    struct matmul_geometry geometry;
    struct places places;
    const struct int_gemm_ops *ops;
    bool is_qlinear;
    const char *packed; /* NULL: B is packed in each run */
    int64_t b_matrices;
    size_t b_bytes;      /* of a packed matrix */
    size_t row_bytes;    /* of a packed row of A */
    size_t member_bytes; /* scratch: rows of A, and of 32-bit sums */
};

static bool per_column(const struct operand *zero)
{
    return zero != NULL && shape_count(&zero->shape) > 1;
}

static void pack_b(const struct state *s, const struct kernel_call *call, const void *b,
                   const void *zero, char *packed)
{
    const struct matmul_geometry *g = &s->geometry;
    struct int_matrix matrix = {.dtype = call->in[s->places.b]->dtype,
                                .row_stride = g->n,
                                .column_stride = 1,
                                .zero = zero,
                                .zero_per_column =
                                    per_column(kernel_input(call, s->places.b_zero))};

    for (int64_t i = 0; i < s->b_matrices; i++) {
        matrix.data = (const char *)b + i * g->k * g->n;
        s->ops->pack(g->k, g->n, &matrix, packed + (size_t)i * s->b_bytes);
    }
}

static size_t packed_bytes(const struct state *s)
{
    return (size_t)s->b_matrices * s->b_bytes;
}

static enum status share_b(struct kernel_prepare *prepare, struct state *s)
{
    const struct kernel_call *call = &prepare->call;
    const struct operand *b = call->in[s->places.b];
    const struct operand *zero = kernel_input(call, s->places.b_zero);
    char format[64];
    void *packed;
    bool is_new;

    if (b->constant == NULL || (zero != NULL && zero->constant == NULL))
        return STATUS_OK;
    snprintf(format, sizeof(format), "%s minus %p", s->ops->form,
             zero != NULL ? zero->constant_key : NULL);
    TRY(weights_share(prepare->weights, b->constant_key, format, packed_bytes(s), &packed,
                      &is_new));
    if (is_new)
        pack_b(s, call, b->constant, zero != NULL ? zero->constant : NULL, packed);
    s->packed = packed;
    prepare->constants_used &= ~(1u << s->places.b);
    return STATUS_OK;
}

static enum status prepare(struct kernel_prepare *prepare, const struct places *places,
                           bool is_qlinear, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct shape *b = &call->in[places->b]->shape;
    struct state *s = calloc(1, sizeof(*s));
    enum status status = STATUS_NO_MEMORY;

    prepare->constants_used = UINT32_MAX;
    if (s != NULL)
        status = matmul_resolve(&call->in[0]->shape, b, false, false, &s->geometry, err);
    if (status == STATUS_OK) {
        s->places = *places;
        s->is_qlinear = is_qlinear;
        s->ops = int_gemm_ops_for(cpu_isa_of(call->device));
        s->b_matrices = b->rank > 2 ? shape_product(b, 0, b->rank - 2) : 1;
        s->b_bytes = s->ops->packed_bytes(s->geometry.k, s->geometry.n);
        s->row_bytes = s->ops->row_bytes(s->geometry.k);
        s->member_bytes =
            (GROUP * (s->row_bytes + (size_t)s->geometry.n * sizeof(int32_t)) + 63) / 64 * 64;
        status = share_b(prepare, s);
    }
    if (status != STATUS_OK) {
        free(s);
        return error_set(err, status, "no memory for packed weights");
    }
    prepare->state = s;
    snprintf(prepare->note, sizeof(prepare->note), "%s", s->ops->form);
    prepare->scratch_bytes = s->member_bytes * call->threads +
                             (s->packed == NULL ? (packed_bytes(s) + 63) / 64 * 64 : 0);
    return STATUS_OK;
}

static enum status prepare_integer(struct kernel_prepare *arg, struct error *err)
{
    static const struct places places = {MATMUL_INTEGER_B, MATMUL_INTEGER_A_ZERO,
                                         MATMUL_INTEGER_B_ZERO};

    return prepare(arg, &places, false, err);
}

static enum status prepare_qlinear(struct kernel_prepare *arg, struct error *err)
{
    static const struct places places = {QLINEAR_B, QLINEAR_A_ZERO, QLINEAR_B_ZERO};

    return prepare(arg, &places, true, err);
}

struct job {
    const struct state *state;
    const struct kernel_call *call;
    const struct kernel_run *run;
    const char *packed;
    char *scratch; /* of the members */
};

/* Element i of a parameter that may be one for all. */
static double parameter(const struct job *job, size_t index, int64_t i)
{
    const struct operand *operand = kernel_input(job->call, index);

    if (operand == NULL)
        return 0;
    return element_read(operand->dtype, job->run->in[index],
                        shape_count(&operand->shape) > 1 ? (size_t)i : 0);
}

static void requantize(const struct job *job, int64_t row, const int32_t *sums, int64_t at)
{
    const enum dtype dtype = job->call->out[0]->dtype;
    const float a = (float)parameter(job, QLINEAR_A_SCALE, row);
    const float y = (float)parameter(job, QLINEAR_Y_SCALE, 0);
    const float zero = (float)parameter(job, QLINEAR_Y_ZERO, 0);
    const float low = dtype == DTYPE_INT8 ? -128 : 0, high = dtype == DTYPE_INT8 ? 127 : 255;

    for (int64_t j = 0; j < job->state->geometry.n; j++) {
        float scale = a * (float)parameter(job, QLINEAR_B_SCALE, j) / y;
        float value = nearbyintf((float)sums[j] * scale) + zero;

        element_write(dtype, job->run->out[0], (size_t)(at + j),
                      (double)fminf(high, fmaxf(low, value)));
    }
}

/* Rows [row, row + rows) of product `index`. */
static void run_rows(const struct job *job, int64_t index, int64_t row, int64_t rows, char *scratch)
{
    const struct state *s = job->state;
    const struct matmul_geometry *g = &s->geometry;
    const struct operand *a = job->call->in[0], *b = job->call->in[s->places.b];
    const int64_t matrix = matmul_operand_index(g, &b->shape, index);
    const char *from =
        (const char *)job->run->in[0] + matmul_operand_index(g, &a->shape, index) * g->m * g->k;
    int32_t *sums = (int32_t *)(void *)scratch;
    char *packed_rows = (char *)(sums + GROUP * g->n);
    const int64_t at = (index * g->m + row) * g->n;

    for (int64_t r = 0; r < rows; r++)
        s->ops->pack_row(a->dtype, g->k, from + (row + r) * g->k,
                         (int32_t)parameter(job, s->places.a_zero, row + r),
                         packed_rows + (size_t)r * s->row_bytes);
    s->ops->run(rows, g->k, g->n, packed_rows, job->packed + (size_t)matrix * s->b_bytes,
                s->is_qlinear ? sums : (int32_t *)job->run->out[0] + at, g->n);
    for (int64_t r = 0; s->is_qlinear && r < rows; r++)
        requantize(job, row + r, sums + r * g->n, at + r * g->n);
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct matmul_geometry *g = &job->state->geometry;
    const int64_t groups = (g->m + GROUP - 1) / GROUP;
    char *scratch = job->scratch + member * job->state->member_bytes;
    size_t from, to;

    team_share((size_t)(g->batches * groups), member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        int64_t row = (int64_t)i % groups * GROUP;

        run_rows(job, (int64_t)i / groups, row, g->m - row < GROUP ? g->m - row : GROUP, scratch);
    }
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *s = arg;
    const struct matmul_geometry *g = &s->geometry;
    struct job job = {
        .state = s, .call = call, .run = run, .packed = s->packed, .scratch = run->scratch};
    bool has_zero = kernel_input(call, s->places.b_zero) != NULL;

    if (s->packed == NULL) {
        pack_b(s, call, run->in[s->places.b], has_zero ? run->in[s->places.b_zero] : NULL,
               run->scratch);
        job.packed = run->scratch;
        job.scratch += (packed_bytes(s) + 63) / 64 * 64;
    }
    team_run(team_size(call->threads, (double)(g->batches * g->m * g->n) * (double)g->k / 50),
             run_job, &job);
    return STATUS_OK;
}

const struct kernel kernel_matmul_integer_bytes = {
    .name = "cpu:bytes",
    .prepare = prepare_integer,
    .enqueue = enqueue,
    .release = free,
};

const struct kernel kernel_qlinear_matmul_bytes = {
    .name = "cpu:bytes",
    .prepare = prepare_qlinear,
    .enqueue = enqueue,
    .release = free,
};
