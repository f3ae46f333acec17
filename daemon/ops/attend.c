#include "ops/attend.h"

#include <inttypes.h>
#include <math.h>

bool op_is_spelled_out(const struct op_def *op)
{
    return op == &op_attend || op == &op_rotary_embedding;
}

/* Heads and columns of [batch, head, row, column], or of [batch, row, head and column]. */
static enum status divide(const struct shape *shape, int64_t heads, const char *name,
                          int64_t *out_heads, int64_t *out_rows, int64_t *out_columns,
                          struct error *err)
{
    const bool by_rows = shape->rank == 3;

    *out_heads = by_rows ? heads : shape->dims[1];
    *out_rows = shape->dims[by_rows ? 1 : 2];
    if (*out_heads < 1)
        return error_set(err, STATUS_INVALID, "%s has %" PRId64 " heads", name, *out_heads);
    if (by_rows && shape->dims[2] % heads != 0)
        return error_set(err, STATUS_INVALID, "%s has %" PRId64 " columns for %" PRId64 " heads",
                         name, shape->dims[2], heads);
    *out_columns = by_rows ? shape->dims[2] / heads : shape->dims[3];
    return STATUS_OK;
}

static bool is_past(const struct shape *past, const struct attend_geometry *g, int64_t columns)
{
    return past->rank == 4 && past->dims[0] == g->batch && past->dims[1] == g->kv_heads &&
           past->dims[3] == columns;
}

static enum status check_mask(const struct shape *mask, const struct attend_geometry *g,
                              struct error *err)
{
    const int64_t scores[] = {g->batch, g->q_heads, g->queries, g->keys};
    bool fits = mask->rank >= 2 && mask->rank <= 4;

    for (size_t i = 0; fits && i < mask->rank; i++) {
        const size_t axis = i + 4 - mask->rank;
        const int64_t size = mask->dims[i];

        fits = size == scores[axis] || size == 1 || (axis == 3 && size < g->keys);
    }
    return fits ? STATUS_OK
                : error_set(err, STATUS_INVALID,
                            "attn_mask does not fit scores of [%" PRId64 ",%" PRId64 ",%" PRId64
                            ",%" PRId64 "]",
                            scores[0], scores[1], scores[2], scores[3]);
}

static enum status find_past(const struct shape *const in[ATTEND_INPUTS], struct attend_geometry *g,
                             struct error *err)
{
    const struct shape *k = in[ATTEND_PAST_K], *v = in[ATTEND_PAST_V];

    if ((k == NULL) != (v == NULL))
        return error_set(err, STATUS_INVALID, "past_key and past_value come together");
    if (k == NULL)
        return STATUS_OK;
    if (!is_past(k, g, g->depth) || !is_past(v, g, g->width) || k->dims[2] != v->dims[2])
        return error_set(err, STATUS_INVALID, "past_key and past_value do not fit keys and values");
    if (in[ATTEND_KEYS_THERE] != NULL)
        return error_set(err, STATUS_UNSUPPORTED, "nonpad_kv_seqlen together with past_key");
    g->past = k->dims[2];
    g->keys += g->past;
    return STATUS_OK;
}

enum status attend_resolve(const struct attend_attrs *attrs,
                           const struct shape *const in[ATTEND_INPUTS],
                           struct attend_geometry *out_geometry, struct error *err)
{
    const struct shape *q = in[ATTEND_Q], *k = in[ATTEND_K], *v = in[ATTEND_V];
    struct attend_geometry g = {.by_rows = q->rank == 3};
    int64_t k_depth, v_heads, v_keys;

    if ((q->rank != 3 && q->rank != 4) || k->rank != q->rank || v->rank != q->rank)
        return error_set(err, STATUS_INVALID, "Q, K and V are not all of rank 3, or all of rank 4");
    g.batch = q->dims[0];
    TRY(divide(q, attrs->q_num_heads, "Q", &g.q_heads, &g.queries, &g.depth, err));
    TRY(divide(k, attrs->kv_num_heads, "K", &g.kv_heads, &g.keys, &k_depth, err));
    TRY(divide(v, attrs->kv_num_heads, "V", &v_heads, &v_keys, &g.width, err));
    if (k->dims[0] != g.batch || v->dims[0] != g.batch || k_depth != g.depth ||
        v_heads != g.kv_heads || v_keys != g.keys || g.q_heads % g.kv_heads != 0)
        return error_set(err, STATUS_INVALID, "queries, keys and values do not fit each other");
    TRY(find_past(in, &g, err));
    if (g.keys < 1)
        return error_set(err, STATUS_INVALID, "there are no keys");
    if (in[ATTEND_MASK] != NULL)
        TRY(check_mask(in[ATTEND_MASK], &g, err));
    if (in[ATTEND_KEYS_THERE] != NULL &&
        (in[ATTEND_KEYS_THERE]->rank != 1 || in[ATTEND_KEYS_THERE]->dims[0] != g.batch))
        return error_set(err, STATUS_INVALID, "nonpad_kv_seqlen is no number a sequence");
    *out_geometry = g;
    return STATUS_OK;
}

static enum status check_attrs(const struct attend_attrs *attrs, struct error *err)
{
    const int64_t precision = attrs->softmax_precision, mode = attrs->qk_matmul_output_mode;

    if (mode < ATTEND_RAW || mode > ATTEND_SOFTENED)
        return error_set(err, STATUS_INVALID, "qk_matmul_output_mode is %" PRId64, mode);
    if (precision != 0 &&
        (precision < 0 || precision >= DTYPE_COUNT || !dtype_is_float((enum dtype)precision)))
        return error_set(err, STATUS_INVALID, "softmax_precision is %" PRId64, precision);
    if (attrs->softcap < 0)
        return error_set(err, STATUS_INVALID, "softcap is %g", (double)attrs->softcap);
    return STATUS_OK;
}

static enum status check_types(const struct op_call *call, struct error *err)
{
    const enum dtype dtype = call->in[ATTEND_Q]->dtype;

    for (size_t i = 0; i < call->inputs; i++) {
        const enum dtype own = call->in[i] != NULL ? call->in[i]->dtype : dtype;
        const bool fits = i == ATTEND_KEYS_THERE
                              ? call->in[i] == NULL || own == DTYPE_INT64
                              : own == dtype || (i == ATTEND_MASK && own == DTYPE_BOOL);

        if (!fits)
            return error_set(err, STATUS_UNSUPPORTED, "input %zu is of type %s where Q is of %s", i,
                             dtype_name(own), dtype_name(dtype));
    }
    return STATUS_OK;
}

static void put(const struct op_call *call, size_t index, const struct shape *shape)
{
    if (index >= call->outputs || call->out[index] == NULL)
        return;
    call->out[index]->dtype = call->in[ATTEND_Q]->dtype;
    call->out[index]->shape = *shape;
}

static enum status resolve(const struct op_call *call, struct attend_geometry *out_geometry,
                           struct error *err)
{
    const struct shape *shapes[ATTEND_INPUTS] = {NULL};

    for (size_t i = 0; i < call->inputs; i++)
        shapes[i] = call->in[i] == NULL ? NULL : &call->in[i]->shape;
    return attend_resolve(call->attrs, shapes, out_geometry, err);
}

static enum status infer_attend(const struct op_call *call, struct error *err)
{
    struct attend_geometry g;
    struct shape out;

    TRY(check_attrs(call->attrs, err));
    TRY(check_types(call, err));
    TRY(resolve(call, &g, err));
    out = g.by_rows ? shape_make(3, (int64_t[]){g.batch, g.queries, g.q_heads * g.width})
                    : shape_make(4, (int64_t[]){g.batch, g.q_heads, g.queries, g.width});
    put(call, ATTEND_OUT, &out);
    out = shape_make(4, (int64_t[]){g.batch, g.kv_heads, g.keys, g.depth});
    put(call, ATTEND_PRESENT_K, &out);
    out.dims[3] = g.width;
    put(call, ATTEND_PRESENT_V, &out);
    out = shape_make(4, (int64_t[]){g.batch, g.q_heads, g.queries, g.keys});
    put(call, ATTEND_SCORES, &out);
    return STATUS_OK;
}

static uint64_t flops_attend(const struct op_call *call)
{
    struct attend_geometry g;

    if (resolve(call, &g, &(struct error){0}) != STATUS_OK)
        return 0;
    return (uint64_t)(g.batch * g.q_heads * g.queries * g.keys) *
           (uint64_t)(2 * (g.depth + g.width) + 6);
}

static const struct attr_def attend_rows[] = {
    OP_ATTR_INT(struct attend_attrs, is_causal, 0),
    OP_ATTR_INT(struct attend_attrs, q_num_heads, 0),
    OP_ATTR_INT(struct attend_attrs, kv_num_heads, 0),
    OP_ATTR_INT(struct attend_attrs, qk_matmul_output_mode, 0),
    OP_ATTR_INT(struct attend_attrs, softmax_precision, 0),
    OP_ATTR_FLOAT(struct attend_attrs, scale, NAN),
    OP_ATTR_FLOAT(struct attend_attrs, softcap, 0),
    OP_ATTR_END};

const struct op_def op_attend = {
    .name = "attend",
    .onnx = {"Attention", 23},
    .inputs = ATTEND_INPUTS,
    .min_inputs = 3,
    .outputs = ATTEND_OUTPUTS,
    .dtypes = DTYPE_FLOATS,
    .attrs = attend_rows,
    .attrs_size = sizeof(struct attend_attrs),
    .infer = infer_attend,
    .flops = flops_attend,
};

/* ---- RotaryEmbedding ---- */

static bool is_cache(const struct shape *cache, const struct shape *positions,
                     const struct rotary_geometry *g)
{
    if (cache->rank < 2 || cache->dims[cache->rank - 1] != g->turned / 2)
        return false;
    if (positions != NULL)
        return cache->rank == 2;
    return cache->rank == 3 && cache->dims[0] == g->batch && cache->dims[1] == g->rows;
}

enum status rotary_resolve(const struct rotary_attrs *attrs,
                           const struct shape *const in[ROTARY_INPUTS],
                           struct rotary_geometry *out_geometry, struct error *err)
{
    const struct shape *x = in[ROTARY_X], *positions = in[ROTARY_POSITIONS];
    struct rotary_geometry g = {.by_rows = x->rank == 3};

    if (x->rank != 3 && x->rank != 4)
        return error_set(err, STATUS_INVALID, "X is of rank %zu; 3 or 4 is needed", x->rank);
    g.batch = x->dims[0];
    TRY(divide(x, attrs->num_heads, "X", &g.heads, &g.rows, &g.columns, err));
    g.turned = attrs->rotary_embedding_dim == 0 ? g.columns : attrs->rotary_embedding_dim;
    if (g.turned < 2 || g.turned > g.columns || g.turned % 2 != 0)
        return error_set(err, STATUS_INVALID, "%" PRId64 " of %" PRId64 " columns to turn",
                         g.turned, g.columns);
    if (positions != NULL &&
        (positions->rank != 2 || positions->dims[0] != g.batch || positions->dims[1] != g.rows))
        return error_set(err, STATUS_INVALID, "position_ids is no number a row");
    if (!is_cache(in[ROTARY_COS], positions, &g) || !is_cache(in[ROTARY_SIN], positions, &g))
        return error_set(err, STATUS_INVALID, "cos_cache or sin_cache does not fit");
    *out_geometry = g;
    return STATUS_OK;
}

static enum status infer_rotary(const struct op_call *call, struct error *err)
{
    const struct shape *shapes[ROTARY_INPUTS] = {NULL};
    struct rotary_geometry g;

    for (size_t i = 0; i < call->inputs; i++) {
        const enum dtype wanted = i == ROTARY_POSITIONS ? DTYPE_INT64 : call->in[ROTARY_X]->dtype;

        if (call->in[i] == NULL)
            continue;
        shapes[i] = &call->in[i]->shape;
        if (call->in[i]->dtype != wanted)
            return error_set(err, STATUS_INVALID, "input %zu is of type %s, not %s", i,
                             dtype_name(call->in[i]->dtype), dtype_name(wanted));
    }
    TRY(rotary_resolve(call->attrs, shapes, &g, err));
    call->out[0]->dtype = call->in[ROTARY_X]->dtype;
    call->out[0]->shape = call->in[ROTARY_X]->shape;
    return STATUS_OK;
}

static const struct attr_def rotary_rows[] = {
    OP_ATTR_INT(struct rotary_attrs, interleaved, 0),
    OP_ATTR_INT(struct rotary_attrs, num_heads, 0),
    OP_ATTR_INT(struct rotary_attrs, rotary_embedding_dim, 0), OP_ATTR_END};

const struct op_def op_rotary_embedding = {
    .name = "rotary_embedding",
    .onnx = {"RotaryEmbedding", 23},
    .inputs = ROTARY_INPUTS,
    .min_inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = rotary_rows,
    .attrs_size = sizeof(struct rotary_attrs),
    .infer = infer_rotary,
    .flops = op_flops_each_output,
};
