/* Products with weights that stay bytes: each becomes a float when it is used.
 *
 * Few rows: weights go from bytes to registers, so that a quarter of a float matrix's memory is
 * read.  Many rows: some columns at a time are made floats and packed, and the float product runs
 * over them.  Both sum in the order of gemm.h: a row has the same bits either way, and as with
 * weights that were folded to floats. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/bytes/bytes.h"
#include "device/cpu/bytes/int_gemm.h"
#include "device/cpu/bytes/requantize.h"
#include "device/cpu/constant.h"
#include "device/cpu/epilogue.h"
#include "device/cpu/product/gemm.h"
#include "device/cpu/team.h"
#include "ops/matmul_bytes.h"

enum { FEW_ROWS = 12, COLUMNS = 96 /* whole panels of every form of float weights */ };

struct state {
    struct byte_weights weights; /* complete */
    struct epilogue epilogue;
    enum cpu_isa isa;
    int64_t m, n;
    const float *bias; /* constant */
    bool has_bias;
    size_t floats_bytes, packed_bytes, member_bytes;
};

static int64_t padded(int64_t n)
{
    return int_round_up(n, COLUMNS);
}

static const char *refuses(const struct kernel_call *call)
{
    const struct operand *zero = kernel_input(call, MATMUL_BYTES_ZERO);
    const struct operand *bias = kernel_input(call, MATMUL_BIAS);

    if (bias != NULL && bias->constant == NULL)
        return "a bias that is computed";
    if (call->in[MATMUL_B]->constant == NULL || call->in[MATMUL_BYTES_SCALE]->constant == NULL ||
        (zero != NULL && zero->constant == NULL))
        return "weights that are computed";
    return NULL;
}

/* Scales and zero points of all columns, then B row by row, columns padded. */
static void pack(const struct kernel_call *call, int64_t k, int64_t n, void *packed)
{
    const struct matmul_attrs *attrs = call->attrs;
    const struct operand *b = call->in[MATMUL_B], *scale = call->in[MATMUL_BYTES_SCALE];
    const struct operand *zero = kernel_input(call, MATMUL_BYTES_ZERO);
    const bool many = shape_count(&scale->shape) > 1;
    const bool many_zeros = zero != NULL && shape_count(&zero->shape) > 1;
    float *scales = packed;
    int32_t *zeros = (int32_t *)(scales + padded(n));
    uint8_t *rows = (uint8_t *)(zeros + padded(n));

    memset(packed, 0, (size_t)padded(n) * (sizeof(float) + sizeof(int32_t) + (size_t)k));
    for (int64_t j = 0; j < n; j++) {
        scales[j] = (float)element_read(DTYPE_FLOAT, scale->constant, many ? (size_t)j : 0);
        if (zero != NULL)
            zeros[j] = int_byte_at(zero->dtype, zero->constant, many_zeros ? j : 0);
    }
    for (int64_t i = 0; i < k; i++) {
        const uint8_t *from = b->constant;

        if (!attrs->trans_b)
            memcpy(rows + i * padded(n), from + i * n, (size_t)n);
        for (int64_t j = 0; attrs->trans_b && j < n; j++)
            rows[i * padded(n) + j] = from[j * k + i];
    }
}

static enum status share(struct kernel_prepare *prepare, struct state *s)
{
    const struct kernel_call *call = &prepare->call;
    const struct matmul_attrs *attrs = call->attrs;
    const struct operand *zero = kernel_input(call, MATMUL_BYTES_ZERO);
    const int64_t k = s->weights.k, columns = padded(s->n);
    char format[96];
    void *packed;
    bool is_new;

    snprintf(format, sizeof(format), "bytes%s times %p minus %p", attrs->trans_b ? " turned" : "",
             call->in[MATMUL_BYTES_SCALE]->constant_key, zero != NULL ? zero->constant_key : NULL);
    TRY(weights_share(prepare->weights, call->in[MATMUL_B]->constant_key, format,
                      (size_t)columns * (sizeof(float) + sizeof(int32_t) + (size_t)k), &packed,
                      &is_new));
    if (is_new)
        pack(call, k, s->n, packed);
    s->weights.scales = packed;
    s->weights.zeros = (const int32_t *)(s->weights.scales + columns);
    s->weights.bytes = (const uint8_t *)(s->weights.zeros + columns);
    s->weights.stride = columns;
    prepare->constants_used &=
        ~(1u << MATMUL_B | 1u << MATMUL_BYTES_SCALE | 1u << MATMUL_BYTES_ZERO);
    return STATUS_OK;
}

static enum status fill(struct kernel_prepare *prepare, struct state *s, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct matmul_attrs *attrs = call->attrs;
    struct matmul_geometry g;

    TRY(matmul_resolve(&call->in[0]->shape, &call->in[MATMUL_B]->shape, false, attrs->trans_b, &g,
                       err));
    s->isa = cpu_isa_of(call->device);
    s->m = g.batches * g.m;
    s->n = g.n;
    s->weights.k = g.k;
    s->weights.is_signed = call->in[MATMUL_B]->dtype == DTYPE_INT8;
    s->epilogue = attrs->epilogue;
    s->has_bias = attrs->has_bias;
    if (s->m > FEW_ROWS) {
        const struct gemm_matrix a = {NULL, g.k, 1};

        s->floats_bytes = (size_t)(g.k * COLUMNS) * sizeof(float);
        s->packed_bytes = int_round_up((int64_t)gemm_packed_bytes(s->isa, g.k, COLUMNS), 64);
        s->member_bytes = s->floats_bytes + s->packed_bytes +
                          int_round_up((int64_t)gemm_scratch_bytes(s->isa, s->m, &a, 1), 64);
    }
    if (s->has_bias)
        TRY(constant_share(prepare, MATMUL_BIAS, (size_t)padded(g.n), false, 1, &s->bias));
    return share(prepare, s);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    struct state *s = calloc(1, sizeof(*s));
    enum status status = STATUS_NO_MEMORY;

    prepare->constants_used = UINT32_MAX;
    if (s != NULL)
        status = fill(prepare, s, err);
    if (status != STATUS_OK) {
        free(s);
        return error_set(err, status, "no memory for weights");
    }
    prepare->state = s;
    prepare->scratch_bytes = s->member_bytes * prepare->call.threads;
    snprintf(prepare->note, sizeof(prepare->note), "bytes, %s, %s",
             s->m > FEW_ROWS ? "packed on the way" : "direct", cpu_isa_name(s->isa));
    return STATUS_OK;
}

/* ---- a run ---- */

struct job {
    const struct state *state;
    const float *a, *bias, *residual;
    float *c;
    char *scratch;
};

static void run_direct(const struct job *job, int64_t from, int64_t to)
{
    const struct state *s = job->state;

    byte_loops_for(s->isa)->weigh(&s->weights, s->m, job->a, job->bias, from, to, job->c, s->n);
    for (int64_t row = 0; row < s->m; row++) {
        const int64_t at = row * s->n + from;

        epilogue_ops_for(s->isa)->apply(&s->epilogue, job->c + at,
                                        job->residual != NULL ? job->residual + at : NULL,
                                        (size_t)(to - from));
    }
}

static void run_packed(const struct job *job, int64_t from, int64_t to, char *scratch)
{
    const struct state *s = job->state;
    const int64_t k = s->weights.k;
    float *floats = (float *)(void *)scratch;
    float *packed = (float *)(void *)(scratch + s->floats_bytes);
    const struct gemm_matrix b = {floats, COLUMNS, 1};
    const struct gemm gemm = {.m = s->m,
                              .k = k,
                              .n = to - from,
                              .a = {job->a, k, 1},
                              .packed = packed,
                              .bias = job->bias != NULL ? job->bias + from : NULL,
                              .residual = job->residual != NULL ? job->residual + from : NULL,
                              .ldr = s->n,
                              .c = job->c + from,
                              .ldc = s->n,
                              .epilogue = s->epilogue};

    for (int64_t i = 0; i < k; i++)
        byte_loops_for(s->isa)->unpack(&s->weights, i, from, COLUMNS, floats + i * COLUMNS);
    gemm_pack(s->isa, k, gemm.n, &b, 1, packed);
    gemm_run_single(s->isa, &gemm, packed + s->packed_bytes / sizeof(float));
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct state *s = job->state;
    size_t first, last;

    team_share((size_t)(padded(s->n) / COLUMNS), member, members, &first, &last);
    for (int64_t i = (int64_t)first; i < (int64_t)last; i++) {
        const int64_t from = i * COLUMNS, to = from + COLUMNS < s->n ? from + COLUMNS : s->n;

        if (s->m > FEW_ROWS)
            run_packed(job, from, to, job->scratch + member * s->member_bytes);
        else
            run_direct(job, from, to);
    }
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *s = arg;
    const double products = (double)s->m * (double)s->n * (double)s->weights.k;
    struct job job = {.state = s,
                      .a = run->in[MATMUL_A],
                      .bias = s->bias,
                      .residual = s->epilogue.has_residual ? run->in[MATMUL_RESIDUAL] : NULL,
                      .c = run->out[0],
                      .scratch = run->scratch};

    if (s->m == 0 || s->n == 0)
        return STATUS_OK;
    team_run(team_size(call->threads, products / 40), run_job, &job);
    return STATUS_OK;
}

const struct kernel kernel_matmul_bytes_floats = {
    .name = "cpu:bytes",
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};
