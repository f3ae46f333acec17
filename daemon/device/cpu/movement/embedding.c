/* Rows of a table by number.
 *
 * The table is the product's: identity matrix times B, with scale, bias and activation, by the very
 * kernel of matrix products; a row of zeros comes last, for ids that are no row.  So each result
 * has the bits that the product with the one-hot matrix would have given.  It is made once a model.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/constant.h"
#include "device/cpu/move.h"
#include "device/cpu/product/gemm.h"
#include "device/cpu/team.h"
#include "ops/embedding.h"

/* Rows of the table that are computed at once. */
enum { STRIP = 64, FORMAT_BYTES = 200, ALIGNMENT = 64 };

struct state {
    const float *table; /* k + 1 rows */
    int64_t k, n;
};

static const char *refuses(const struct kernel_call *call)
{
    const struct operand *bias = kernel_input(call, EMBEDDING_BIAS);

    if (call->in[EMBEDDING_B]->dtype != DTYPE_FLOAT)
        return "only float";
    if (call->in[EMBEDDING_B]->constant == NULL || (bias != NULL && bias->constant == NULL))
        return "the matrix is computed at run time";
    return NULL;
}

static void *aligned(size_t bytes)
{
    return aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
}

/* Everything by which two tables of one matrix can differ. */
static void write_format(const struct kernel_call *call, char format[FORMAT_BYTES])
{
    const struct embedding_attrs *attrs = call->attrs;
    const struct matmul_attrs *product = &attrs->product;
    const struct operand *bias = kernel_input(call, EMBEDDING_BIAS);

    (void)snprintf(format, FORMAT_BYTES, "table%s * %a bias %p act %d %a %a",
                   product->trans_b ? " transposed" : "",
                   (double)(product->has_scale ? product->scale : 1),
                   bias != NULL ? bias->constant_key : NULL, (int)product->epilogue.act,
                   (double)product->epilogue.a, (double)product->epilogue.b);
}

/* Multiplies strips of the identity matrix, and one row of zeros. */
static void fill_rows(struct gemm *gemm, enum cpu_isa isa, int64_t k, float *one_hot, float *table,
                      void *scratch)
{
    for (int64_t from = 0; from <= k; from += STRIP) {
        int64_t rows = k + 1 - from < STRIP ? k + 1 - from : STRIP;

        memset(one_hot, 0, (size_t)(rows * k) * sizeof(float));
        for (int64_t i = 0; i < rows && from + i < k; i++)
            one_hot[i * k + from + i] = 1;
        gemm->m = rows;
        gemm->a = (struct gemm_matrix){one_hot, k, 1};
        gemm->c = table + from * gemm->n;
        gemm_run_single(isa, gemm, scratch);
    }
}

static enum status fill_table(const struct kernel_call *call, const struct state *state,
                              float *table)
{
    const struct embedding_attrs *attrs = call->attrs;
    const struct matmul_attrs *product = &attrs->product;
    const struct operand *bias = kernel_input(call, EMBEDDING_BIAS);
    const enum cpu_isa isa = cpu_isa_of(call->device);
    const int64_t k = state->k, n = state->n;
    void *b_copy = NULL, *bias_copy = NULL;
    const float *b = constant_floats(call->in[EMBEDDING_B], &b_copy);
    struct gemm gemm = {.k = k, .n = n, .ldc = n, .epilogue = product->epilogue};
    float *packed = aligned(gemm_packed_bytes(isa, k, n));
    float *one_hot = aligned((size_t)(STRIP * k) * sizeof(float));
    void *scratch = aligned(gemm_scratch_bytes(isa, STRIP, &(struct gemm_matrix){NULL, k, 1}, 1));
    enum status status = STATUS_NO_MEMORY;

    if (bias != NULL)
        gemm.bias = constant_floats(bias, &bias_copy);
    if (b != NULL && packed != NULL && one_hot != NULL && scratch != NULL &&
        (bias == NULL || gemm.bias != NULL)) {
        const struct gemm_matrix source =
            product->trans_b ? (struct gemm_matrix){b, 1, k} : (struct gemm_matrix){b, n, 1};

        gemm_pack(isa, k, n, &source, product->has_scale ? product->scale : 1, packed);
        gemm.packed = packed;
        fill_rows(&gemm, isa, k, one_hot, table, scratch);
        status = STATUS_OK;
    }
    free(scratch);
    free(one_hot);
    free(packed);
    free(bias_copy);
    free(b_copy);
    return status;
}

static enum status share_table(struct kernel_prepare *prepare, struct state *state)
{
    const void *key = prepare->call.in[EMBEDDING_B]->constant_key;
    char format[FORMAT_BYTES];
    enum status status;
    void *table;
    bool is_new;

    write_format(&prepare->call, format);
    TRY(weights_share(prepare->weights, key, format,
                      (size_t)((state->k + 1) * state->n) * sizeof(float), &table, &is_new));
    state->table = table;
    if (!is_new)
        return STATUS_OK;
    status = fill_table(&prepare->call, state, table);
    if (status != STATUS_OK)
        weights_drop(prepare->weights, key, format);
    return status;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct embedding_attrs *attrs = prepare->call.attrs;
    const int64_t *dims = prepare->call.in[EMBEDDING_B]->shape.dims;
    const bool trans_b = attrs->product.trans_b;
    struct state *state = calloc(1, sizeof(*state));

    if (state != NULL) {
        state->k = dims[trans_b ? 1 : 0];
        state->n = dims[trans_b ? 0 : 1];
    }
    if (state == NULL || share_table(prepare, state) != STATUS_OK) {
        free(state);
        return error_set(err, STATUS_NO_MEMORY, "no memory for a table");
    }
    prepare->state = state;
    (void)snprintf(prepare->note, sizeof(prepare->note), "table of %" PRId64 " rows", state->k);
    return STATUS_OK;
}

struct job {
    const struct state *state;
    const void *ids;
    enum dtype dtype;
    bool wraps;
    size_t count;
    float *to;
};

static void pick_share(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct state *state = job->state;
    const size_t row_bytes = (size_t)state->n * sizeof(float);
    size_t from, to;

    team_share(job->count, member, members, &from, &to);
    for (size_t i = from; i < to; i++) {
        int64_t id = read_index(job->dtype, job->ids, (int64_t)i);

        if (id < 0 && job->wraps)
            id += state->k;
        if (id < 0 || id >= state->k)
            id = state->k; /* the row of zeros */
        memcpy(job->to + i * (size_t)state->n, state->table + id * state->n, row_bytes);
    }
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct embedding_attrs *attrs = call->attrs;
    const struct state *state = arg;
    struct job job = {.state = state,
                      .ids = run->in[EMBEDDING_IDS],
                      .dtype = call->in[EMBEDDING_IDS]->dtype,
                      .wraps = attrs->wraps,
                      .count = (size_t)shape_count(&call->in[EMBEDDING_IDS]->shape),
                      .to = run->out[0]};
    double nanoseconds = (double)job.count * (4 + (double)state->n / 4);

    team_run(team_size(call->threads, nanoseconds), pick_share, &job);
    return STATUS_OK;
}

const struct kernel kernel_embedding_table = {.name = "cpu:table",
                                              .refuses = refuses,
                                              .prepare = prepare,
                                              .enqueue = enqueue,
                                              .release = free};
