/* MatMulInteger, QLinearMatMul and MatMulIntegerToFloat: whole numbers in 32 bits, then perhaps
 * scaled to bytes again or to floats. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cpu/bytes/int_gemm.h"
#include "device/cpu/bytes/requantize.h"
#include "device/cpu/team.h"

enum { NONE = 99, GROUP = 96 /* rows of A at a time, at most */, STRIP = 12 /* they are these */ };

/* Input numbers of an operator; NONE: it has no such input. */
struct places {
    size_t b, a_zero, b_zero, a_scale, b_scale, y_scale, y_zero, bias;
    enum int_result result;
};

struct state {
    struct matmul_geometry geometry;
    struct int_shape shape;
    const struct places *places;
    const struct int_gemm_ops *ops;
    const char *packed; /* NULL: B is packed in each run */
    bool has_zeros;     /* of B */
    bool trans_b;
    bool by_row;   /* A's parameters differ from row to row */
    int64_t chunk; /* columns at a time */
    int64_t b_matrices;
    size_t b_bytes;   /* of a packed matrix */
    size_t row_bytes; /* of a row of A as elements */
    size_t member_bytes;
};

static int64_t count_of(const struct kernel_call *call, size_t index)
{
    const struct operand *operand = kernel_input(call, index);

    return operand != NULL ? shape_count(&operand->shape) : 0;
}

static void pack_b(const struct state *s, const struct kernel_call *call, const void *b,
                   const void *zero, char *packed)
{
    const struct matmul_geometry *g = &s->geometry;
    struct int_matrix matrix = {.dtype = call->in[s->places->b]->dtype,
                                .row_stride = s->trans_b ? 1 : g->n,
                                .column_stride = s->trans_b ? g->k : 1,
                                .zero = zero,
                                .zero_per_column = count_of(call, s->places->b_zero) > 1};

    for (int64_t i = 0; i < s->b_matrices; i++) {
        matrix.data = (const char *)b + i * g->k * g->n;
        int_pack(s->ops, &s->shape, &matrix, packed + (size_t)i * s->b_bytes);
    }
}

static size_t packed_bytes(const struct state *s)
{
    return (size_t)s->b_matrices * s->b_bytes;
}

static bool any_zeros(const struct state *s, const char *packed)
{
    for (int64_t i = 0; i < s->b_matrices; i++)
        if (int_has_zeros(s->ops, &s->shape, packed + (size_t)i * s->b_bytes))
            return true;
    return false;
}

static enum status share_b(struct kernel_prepare *prepare, struct state *s)
{
    const struct kernel_call *call = &prepare->call;
    const struct operand *b = call->in[s->places->b];
    const struct operand *zero = kernel_input(call, s->places->b_zero);
    char format[96];
    void *packed;
    bool is_new;

    if (b->constant == NULL || (zero != NULL && zero->constant == NULL))
        return STATUS_OK;
    snprintf(format, sizeof(format), "%s%s minus %p", s->ops->form, s->trans_b ? " turned" : "",
             zero != NULL ? zero->constant_key : NULL);
    TRY(weights_share(prepare->weights, b->constant_key, format, packed_bytes(s), &packed,
                      &is_new));
    if (is_new)
        pack_b(s, call, b->constant, zero != NULL ? zero->constant : NULL, packed);
    s->packed = packed;
    s->has_zeros = any_zeros(s, packed);
    prepare->constants_used &= ~(1u << s->places->b);
    return STATUS_OK;
}

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* A member's scratch: parameters of the columns, rows as elements, their addresses and sums. */
static size_t column_bytes(const struct state *s)
{
    return lines((size_t)int_columns(s->ops, s->geometry.n) * sizeof(int32_t));
}

static void fill(struct state *s, const struct kernel_call *call)
{
    const struct matmul_geometry *g = &s->geometry;
    const struct shape *b = &call->in[s->places->b]->shape;

    s->ops = int_gemm_ops_for(cpu_isa_of(call->device));
    s->shape = (struct int_shape){.segments = 1, .length = g->k, .n = g->n};
    s->b_matrices = b->rank > 2 ? shape_product(b, 0, b->rank - 2) : 1;
    s->b_bytes = lines(int_packed_bytes(s->ops, &s->shape));
    s->row_bytes = lines(int_segment_bytes(s->ops, g->k));
    s->by_row = count_of(call, s->places->a_zero) > 1 || count_of(call, s->places->a_scale) > 1;
    /* Few rows are shared by columns. */
    s->chunk = g->m * g->batches >= 2 * GROUP ? g->n : int_round_up(g->n / 4 + 1, s->ops->panel);
    s->chunk = s->chunk < 1 ? 1 : s->chunk;
    s->member_bytes = 3 * column_bytes(s) + GROUP * (s->row_bytes + 64);
}

static enum status prepare(struct kernel_prepare *prepare, const struct places *places,
                           struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct quantized_matmul_attrs *attrs = call->attrs;
    struct state *s = calloc(1, sizeof(*s));
    enum status status = STATUS_NO_MEMORY;

    prepare->constants_used = UINT32_MAX;
    if (s != NULL) {
        s->places = places;
        s->trans_b = attrs->trans_b;
        status = matmul_resolve(&call->in[0]->shape, &call->in[places->b]->shape, false, s->trans_b,
                                &s->geometry, err);
    }
    if (status == STATUS_OK) {
        fill(s, call);
        status = share_b(prepare, s);
    }
    if (status != STATUS_OK) {
        free(s);
        return error_set(err, status, "no memory for packed weights");
    }
    prepare->state = s;
    snprintf(prepare->note, sizeof(prepare->note), "%s", s->ops->form);
    prepare->scratch_bytes =
        s->member_bytes * call->threads + (s->packed == NULL ? packed_bytes(s) : 0);
    return STATUS_OK;
}

static const struct places integer_places = {.b = MATMUL_INTEGER_B,
                                             .a_zero = MATMUL_INTEGER_A_ZERO,
                                             .b_zero = MATMUL_INTEGER_B_ZERO,
                                             .a_scale = NONE,
                                             .b_scale = NONE,
                                             .y_scale = NONE,
                                             .y_zero = NONE,
                                             .bias = NONE,
                                             .result = INT_SUMS};
static const struct places qlinear_places = {.b = QLINEAR_B,
                                             .a_zero = QLINEAR_A_ZERO,
                                             .b_zero = QLINEAR_B_ZERO,
                                             .a_scale = QLINEAR_A_SCALE,
                                             .b_scale = QLINEAR_B_SCALE,
                                             .y_scale = QLINEAR_Y_SCALE,
                                             .y_zero = QLINEAR_Y_ZERO,
                                             .bias = QLINEAR_BIAS,
                                             .result = INT_BYTES};
static const struct places float_places = {.b = MATMUL_FLOAT_B,
                                           .a_zero = MATMUL_FLOAT_A_ZERO,
                                           .b_zero = MATMUL_FLOAT_B_ZERO,
                                           .a_scale = MATMUL_FLOAT_A_SCALE,
                                           .b_scale = MATMUL_FLOAT_B_SCALE,
                                           .y_scale = NONE,
                                           .y_zero = NONE,
                                           .bias = MATMUL_FLOAT_BIAS,
                                           .result = INT_FLOATS};

static enum status prepare_integer(struct kernel_prepare *arg, struct error *err)
{
    return prepare(arg, &integer_places, err);
}

static enum status prepare_qlinear(struct kernel_prepare *arg, struct error *err)
{
    return prepare(arg, &qlinear_places, err);
}

static enum status prepare_float(struct kernel_prepare *arg, struct error *err)
{
    return prepare(arg, &float_places, err);
}

/* ---- a run ---- */

struct job {
    const struct state *state;
    const struct kernel_call *call;
    const struct kernel_run *run;
    const char *packed;
    char *scratch; /* of the members */
    bool has_zeros;
    int64_t groups, chunks; /* of a product: pieces of rows and columns, groups nearly equal */
};

static double parameter(const struct job *job, size_t index, int64_t i)
{
    return quantized_parameter(job->call, job->run, index, i);
}

/* Rows of one product whose parameters are the same, and a piece of its columns. */
struct piece {
    int64_t index, row, rows, from, to;
};

static void fill_scales(const struct job *job, const struct piece *piece, float *scales)
{
    const struct places *places = job->state->places;
    const float a = (float)parameter(job, places->a_scale, piece->row);
    const float y = places->y_scale == NONE ? 1 : (float)parameter(job, places->y_scale, 0);
    const bool many = count_of(job->call, places->b_scale) > 1;
    float scale = a * (float)parameter(job, places->b_scale, 0) / y;

    for (int64_t j = piece->from; j < piece->to; j++)
        scales[j] = many ? a * (float)parameter(job, places->b_scale, j) / y : scale;
}

static struct byte_range range_of(const struct job *job)
{
    const struct quantized_matmul_attrs *attrs = job->call->attrs;

    return quantized_range(&attrs->epilogue, job->call->out[0]->dtype,
                           (float)parameter(job, QLINEAR_Y_SCALE, 0),
                           (float)parameter(job, QLINEAR_Y_ZERO, 0));
}

static void fill_columns(const struct job *job, const struct piece *piece, char *scratch,
                         struct int_product *product)
{
    const struct state *s = job->state;
    const struct places *places = s->places;
    int32_t *start = (int32_t *)(void *)scratch;
    float *scales = (float *)(void *)(scratch + column_bytes(s));
    float *shifts = (float *)(void *)(scratch + 2 * column_bytes(s));
    const bool has_bias = kernel_input(job->call, places->bias) != NULL;
    const bool is_float = places->result == INT_FLOATS;

    int_begin(s->ops, &s->shape, product->packed, job->call->in[0]->dtype,
              (int32_t)parameter(job, places->a_zero, piece->row),
              has_bias && !is_float ? job->run->in[places->bias] : NULL, start);
    product->start = start;
    if (places->result == INT_SUMS)
        return;
    fill_scales(job, piece, scales);
    product->scale = scales;
    if (!is_float)
        product->range = range_of(job);
    if (!is_float || !has_bias)
        return;
    for (int64_t j = piece->from; j < piece->to; j++)
        shifts[j] = (float)parameter(job, places->bias, j);
    product->shift = shifts;
}

static void run_piece(const struct job *job, const struct piece *piece, char *scratch)
{
    static const int64_t no_offset = 0;
    const struct state *s = job->state;
    const struct matmul_geometry *g = &s->geometry;
    const struct operand *a = job->call->in[0], *b = job->call->in[s->places->b];
    const char *from = (const char *)job->run->in[0] +
                       matmul_operand_index(g, &a->shape, piece->index) * g->m * g->k;
    char *rows = scratch + 3 * column_bytes(s);
    const bool as_they_lie = int_is_element(s->ops, a->dtype) && g->k % s->ops->step == 0;
    const char *addresses[GROUP];
    int32_t sums[GROUP];
    struct int_product product = {
        .shape = s->shape,
        .packed =
            job->packed + (size_t)matmul_operand_index(g, &b->shape, piece->index) * s->b_bytes,
        .rows = piece->rows,
        .row = addresses,
        .offsets = &no_offset,
        .from = piece->from,
        .to = piece->to,
        .row_sums = job->has_zeros ? sums : NULL,
        .result = s->places->result,
        .ldo = g->n};

    for (int64_t r = 0; r < piece->rows; r++) {
        const int64_t row = piece->row + r;

        addresses[r] = from + row * g->k;
        if (!as_they_lie) {
            char *to = rows + (size_t)r * s->row_bytes;

            int_lay(s->ops, a->dtype, addresses[r], g->k,
                    (int32_t)parameter(job, s->places->a_zero, row), to);
            addresses[r] = to; /* behind the row anything may be: B is 0 there */
        }
        if (job->has_zeros)
            sums[r] = int_row_sum(s->ops, &s->shape, addresses[r], &no_offset);
    }
    fill_columns(job, piece, scratch, &product);
    product.out = (char *)job->run->out[0] + (size_t)((piece->index * g->m + piece->row) * g->n) *
                                                 dtype_bytes(job->call->out[0]->dtype);
    s->ops->run(&product);
}

static int64_t group_begin(const struct job *job, int64_t group)
{
    const int64_t m = job->state->geometry.m, strips = (m + STRIP - 1) / STRIP;
    const int64_t row = strips * group / job->groups * STRIP;

    return row < m ? row : m;
}

static void run_job(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct state *s = job->state;
    const struct matmul_geometry *g = &s->geometry;
    char *scratch = job->scratch + member * s->member_bytes;
    size_t from, to;

    team_share((size_t)(g->batches * job->groups * job->chunks), member, members, &from, &to);
    for (size_t i = from; i < to; i++) { /* the groups of a chunk share its weights */
        const int64_t group = (int64_t)i % job->groups, chunk = (int64_t)i / job->groups;
        const int64_t first = group_begin(job, group);
        const int64_t rows = group_begin(job, group + 1) - first;
        const int64_t some = s->by_row ? 1 : rows, column = chunk % job->chunks * s->chunk;
        struct piece piece = {
            .index = chunk / job->chunks, .rows = some, .from = column, .to = column + s->chunk};

        piece.to = piece.to < g->n ? piece.to : g->n;
        for (piece.row = first; piece.row < first + rows; piece.row += some)
            run_piece(job, &piece, scratch);
    }
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct state *s = arg;
    const struct matmul_geometry *g = &s->geometry;
    struct job job = {.state = s,
                      .call = call,
                      .run = run,
                      .packed = s->packed,
                      .scratch = run->scratch,
                      .has_zeros = s->has_zeros};
    bool has_zero = kernel_input(call, s->places->b_zero) != NULL;
    unsigned members;

    if (s->packed == NULL) {
        pack_b(s, call, run->in[s->places->b], has_zero ? run->in[s->places->b_zero] : NULL,
               run->scratch);
        job.packed = run->scratch;
        job.has_zeros = any_zeros(s, run->scratch);
        job.scratch += packed_bytes(s);
    }
    members = team_size(call->threads, (double)(g->batches * g->m * g->n) * (double)g->k / 100);
    job.chunks = (g->n + s->chunk - 1) / s->chunk;
    job.groups = (g->m + GROUP - 1) / GROUP;
    if (g->batches * job.chunks < (int64_t)members) /* else the chunks are as many */
        job.groups = (job.groups + members - 1) / members * members;
    team_run(members, run_job, &job);
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

const struct kernel kernel_matmul_integer_to_float_bytes = {
    .name = "cpu:bytes",
    .prepare = prepare_float,
    .enqueue = enqueue,
    .release = free,
};
