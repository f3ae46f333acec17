/* Attention: softmax(scale Q K^T + masks) V, some queries of one head at a time.
 *
 *     K of a head is packed, and V               (the columns of a packed product are keys)
 *     scores  [block, keys]   = Q K^T            stay in the caches
 *     scores                  = e^(scores + masks - the largest), and one over their sums
 *     result  [block, width]  = scores V, times that
 *
 * Q is read and the result is written where they lie, whatever their strides.  A query's sums run
 * in the order of gemm.h and of its row of scores, so no query depends on the others, and threads
 * may divide them as they like.
 */
#include "ops/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/product/gemm.h"
#include "device/cpu/product/soften.h"
#include "device/cpu/team.h"

/* A block of scores of so many bytes stays in L2 beside K and V. */
enum { SCORES_BYTES = 64 << 10, BLOCK_STEP = 8 };

struct attention_state {
    struct attention_geometry geometry;
    enum cpu_isa isa;
    const struct soften_ops *soften;
    float scale;
    bool zeroes_nan;
    struct attention_view q, k, v, out, mask[2];
    bool has_mask[2];
    int64_t block; /* queries at a time */
    int64_t lds;   /* from one row of scores to the next */
};

/* ---- views ---- */

/* Elements in front of head `head`. */
static int64_t head_offset(const struct attention_geometry *g, const struct attention_view *view,
                           int64_t head)
{
    int64_t offset = 0;

    for (size_t i = g->lead.rank; i-- > 0; head /= g->lead.dims[i])
        offset += head % g->lead.dims[i] * view->lead[i];
    return offset;
}

static struct gemm_matrix matrix(const float *data, int64_t row_stride, int64_t column_stride)
{
    return (struct gemm_matrix){data, row_stride, column_stride};
}

/* ---- scratch of a member: laid out the same way when it is measured and when it is used ---- */

struct workspace {
    float *keys, *values; /* packed; in the same place where all queries of a head are one block */
    float *scores;
    float *factors; /* one over a row's sum */
    float *copy;    /* of Q, where the product wants one */
};

static float *take(float *base, size_t bytes, size_t *used)
{
    float *piece = base != NULL ? base + *used / sizeof(float) : NULL;

    *used += (bytes + 63) / 64 * 64;
    return piece;
}

static bool is_one_block(const struct attention_state *state)
{
    return state->block >= state->geometry.queries;
}

/* Returns the bytes; base may be NULL. */
static size_t lay_out(const struct attention_state *state, float *base, struct workspace *work)
{
    const struct attention_geometry *g = &state->geometry;
    const size_t keys = gemm_packed_bytes(state->isa, g->depth, g->keys);
    const size_t values = gemm_packed_bytes(state->isa, g->keys, g->width);
    const size_t rows = (size_t)state->block, row = (size_t)state->lds * sizeof(float);
    const struct gemm_matrix q = matrix(NULL, state->q.row, state->q.column);
    const struct gemm_matrix scores = matrix(NULL, state->lds, 1);
    size_t used = 0, of_q = gemm_scratch_bytes(state->isa, state->block, &q, 1);
    size_t of_scores = gemm_scratch_bytes(state->isa, state->block, &scores, 1);

    if (is_one_block(state)) {
        work->keys = work->values = take(base, keys > values ? keys : values, &used);
    } else {
        work->keys = take(base, keys, &used);
        work->values = take(base, values, &used);
    }
    work->scores = take(base, rows * row, &used);
    work->factors = take(base, rows * sizeof(float), &used);
    work->copy = take(base, of_q > of_scores ? of_q : of_scores, &used);
    return used;
}

/* ---- one block ---- */

struct job {
    const struct attention_state *state;
    const struct kernel_run *run;
    size_t member_bytes;
};

static const float *input(const struct job *job, size_t index, const struct attention_view *view,
                          int64_t head)
{
    return (const float *)job->run->in[index] + head_offset(&job->state->geometry, view, head);
}

static void pack_keys(const struct job *job, int64_t head, const struct workspace *work)
{
    const struct attention_state *s = job->state;
    const float *k = input(job, ATTENTION_K, &s->k, head);
    const struct gemm_matrix turned = matrix(k, s->k.column, s->k.row);

    gemm_pack(s->isa, s->geometry.depth, s->geometry.keys, &turned, s->scale, work->keys);
}

static void pack_values(const struct job *job, int64_t head, const struct workspace *work)
{
    const struct attention_state *s = job->state;
    const float *v = input(job, ATTENTION_V, &s->v, head);
    const struct gemm_matrix matrix_v = matrix(v, s->v.row, s->v.column);

    gemm_pack(s->isa, s->geometry.keys, s->geometry.width, &matrix_v, 1, work->values);
}

/* Scores become parts of a sum that is not divided by yet. */
static void soften(const struct job *job, int64_t head, int64_t row, int64_t rows,
                   const struct workspace *work)
{
    const struct attention_state *s = job->state;
    struct soften_rows softened = {.scores = work->scores,
                                   .stride = s->lds,
                                   .rows = rows,
                                   .keys = s->geometry.keys,
                                   .factors = work->factors};
    size_t count = 0;

    for (size_t i = 0; i < SOFTEN_MASKS; i++)
        if (s->has_mask[i]) {
            softened.mask[count] =
                input(job, ATTENTION_MASK + i, &s->mask[i], head) + row * s->mask[i].row;
            softened.mask_stride[count++] = s->mask[i].row;
        }
    s->soften->soften(&softened);
    for (int64_t i = 0; i < rows && s->zeroes_nan; i++)
        if (isnan(work->factors[i])) {
            memset(work->scores + i * s->lds, 0, (size_t)s->lds * sizeof(float));
            work->factors[i] = 1;
        }
}

/* Queries [row, row + rows) of a head. */
static void run_block(const struct job *job, int64_t head, int64_t row, int64_t rows,
                      const struct workspace *work)
{
    const struct attention_state *s = job->state;
    const struct attention_geometry *g = &s->geometry;
    const float *q = input(job, ATTENTION_Q, &s->q, head) + row * s->q.row;
    float *out = (float *)job->run->out[0] + head_offset(g, &s->out, head) + row * s->out.row;
    const struct gemm scores = {.m = rows,
                                .k = g->depth,
                                .n = gemm_columns(s->isa, g->keys), /* no panel in part */
                                .a = matrix(q, s->q.row, s->q.column),
                                .packed = work->keys,
                                .c = work->scores,
                                .ldc = s->lds};
    const struct gemm result = {.m = rows,
                                .k = g->keys,
                                .n = g->width,
                                .a = matrix(work->scores, s->lds, 1),
                                .packed = work->values,
                                .c = out,
                                .ldc = s->out.row};

    gemm_run_single(s->isa, &scores, work->copy);
    soften(job, head, row, rows, work);
    if (is_one_block(s))
        pack_values(job, head, work);
    gemm_run_single(s->isa, &result, work->copy);
    s->soften->scale(out, s->out.row, rows, g->width, work->factors);
}

/* Members share the queries of all heads. */
static void run_share(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct attention_state *s = job->state;
    const int64_t queries = s->geometry.queries;
    char *scratch = (char *)job->run->scratch + member * job->member_bytes;
    struct workspace work;
    int64_t packed = -1; /* head */
    size_t from, to;

    (void)lay_out(s, (float *)(void *)scratch, &work);
    team_share((size_t)(s->geometry.heads * queries), member, members, &from, &to);
    for (int64_t at = (int64_t)from, rows; at < (int64_t)to; at += rows) {
        const int64_t head = at / queries, row = at % queries;

        rows = s->block < queries - row ? s->block : queries - row;
        rows = rows < (int64_t)to - at ? rows : (int64_t)to - at;
        if (head != packed) {
            pack_keys(job, head, &work);
            if (!is_one_block(s))
                pack_values(job, head, &work);
            packed = head;
        }
        run_block(job, head, row, rows, &work);
    }
}

/* ---- the kernel ---- */

static enum status resolve(const struct kernel_call *call, struct attention_state *state,
                           struct error *err)
{
    const struct attention_attrs *attrs = call->attrs;
    const struct shape *shapes[ATTENTION_INPUTS] = {NULL};

    for (size_t i = 0; i < call->inputs; i++)
        shapes[i] = call->in[i] != NULL ? &call->in[i]->shape : NULL;
    TRY(attention_resolve(attrs, shapes[ATTENTION_Q], shapes[ATTENTION_K], shapes[ATTENTION_V],
                          shapes + ATTENTION_MASK, &state->geometry, err));
    state->scale = attrs->scale;
    state->zeroes_nan = attrs->zeroes_nan;
    state->q = attention_view(shapes[ATTENTION_Q], &attrs->q);
    state->k = attention_view(shapes[ATTENTION_K], &attrs->k);
    state->v = attention_view(shapes[ATTENTION_V], &attrs->v);
    state->out = attention_view(&call->out[0]->shape, &attrs->out);
    for (size_t i = 0; i < 2; i++)
        if (shapes[ATTENTION_MASK + i] != NULL) {
            state->has_mask[i] = true;
            state->mask[i] = attention_mask_view(shapes[ATTENTION_MASK + i], state->geometry.rank);
        }
    return STATUS_OK;
}

/* Rows of scores do not fall into one set of the cache. */
static int64_t scores_stride(int64_t keys)
{
    const int64_t line = 16, way = 1024;
    int64_t stride = (keys + line - 1) / line * line;

    return stride % way == 0 ? stride + line : stride;
}

static int64_t choose_block(const struct attention_state *state)
{
    const int64_t queries = state->geometry.queries;
    int64_t most = SCORES_BYTES / (int64_t)sizeof(float) / state->lds / BLOCK_STEP * BLOCK_STEP;
    int64_t blocks;

    most = most < BLOCK_STEP ? BLOCK_STEP : most;
    if (queries <= most)
        return queries;
    blocks = (queries + most - 1) / most; /* of nearly equal size */
    return (queries + blocks * BLOCK_STEP - 1) / (blocks * BLOCK_STEP) * BLOCK_STEP;
}

/* Each block reads its queries before it writes over them. */
static const char *refuses_type(const struct kernel_call *call)
{
    const struct attention_attrs *attrs = call->attrs;

    for (size_t i = ATTENTION_MASK; i < call->inputs; i++)
        if (call->in[i] != NULL && call->in[i]->dtype == DTYPE_BOOL)
            return "boolean masks";
    if (attrs->is_causal)
        return "causal attention";
    return call->in[ATTENTION_Q]->dtype == DTYPE_FLOAT ? NULL : "16-bit types";
}

static const char *refuses_over(const struct kernel_call *call)
{
    const struct attention_attrs *attrs = call->attrs;
    const struct shape *q = &call->in[ATTENTION_Q]->shape;

    if (refuses_type(call) != NULL)
        return refuses_type(call);
    if (!shape_is_equal(q, &call->out[0]->shape))
        return "Q and the result differ in shape";
    for (size_t i = 0; i < q->rank; i++)
        if (attrs->q.axis[i] != attrs->out.axis[i])
            return "the result has other axes than Q";
    return NULL;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct attention_state *state = calloc(1, sizeof(*state));
    struct workspace work;
    enum status status;

    if (state == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    state->isa = cpu_isa_of(call->device);
    state->soften = soften_ops_for(state->isa);
    status = resolve(call, state, err);
    if (status != STATUS_OK) {
        free(state);
        return status;
    }
    state->lds = scores_stride(state->geometry.keys);
    state->block = choose_block(state);
    prepare->state = state;
    prepare->scratch_bytes = lay_out(state, NULL, &work) * (call->threads > 0 ? call->threads : 1);
    prepare->constants_used = (1U << ATTENTION_INPUTS) - 1;
    snprintf(prepare->note, sizeof(prepare->note), "%lld queries at a time, %s",
             (long long)state->block, cpu_isa_name(state->isa));
    return STATUS_OK;
}

/* Nanoseconds, about: products at half of what large ones reach, and one exponential a score. */
static double guess_time(const struct attention_geometry *g)
{
    const double scores = (double)g->heads * (double)g->queries * (double)g->keys;

    return scores * (0.5 + (double)(g->depth + g->width) / 40);
}

static enum status enqueue(const void *arg, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct attention_state *state = arg;
    struct workspace work;
    struct job job = {.state = state, .run = run, .member_bytes = lay_out(state, NULL, &work)};

    if (shape_count(&call->out[0]->shape) == 0)
        return STATUS_OK;
    team_run(team_size(call->threads, guess_time(&state->geometry)), run_share, &job);
    return STATUS_OK;
}

const struct kernel kernel_attention_over = {
    .name = "cpu:blocked",
    .flags = KERNEL_IN_PLACE,
    .refuses = refuses_over,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};

const struct kernel kernel_attention_apart = {
    .name = "cpu:blocked",
    .refuses = refuses_type,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = free,
};
