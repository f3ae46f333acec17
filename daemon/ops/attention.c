#include "ops/attention.h"

struct shape attention_seen(const struct shape *shape, const struct attention_axes *axes)
{
    struct shape seen = {.rank = shape->rank};

    for (size_t i = 0; i < shape->rank; i++)
        seen.dims[i] = shape->dims[axes->axis[i]];
    return seen;
}

struct shape attention_output_shape(const struct attention_attrs *attrs,
                                    const struct attention_geometry *geometry)
{
    struct shape seen = geometry->lead, out = {.rank = geometry->rank};

    seen.dims[seen.rank++] = geometry->queries;
    seen.dims[seen.rank++] = geometry->width;
    for (size_t i = 0; i < out.rank; i++)
        out.dims[attrs->out.axis[i]] = seen.dims[i];
    return out;
}

struct attention_view attention_view(const struct shape *shape, const struct attention_axes *axes)
{
    int64_t strides[SHAPE_MAX_RANK] = {0}, stride = 1;
    struct attention_view view = {.row = 0};

    for (size_t i = shape->rank; i-- > 0;) {
        strides[i] = stride;
        stride *= shape->dims[i];
    }
    for (size_t i = 0; i + 2 < shape->rank; i++)
        view.lead[i] = shape->dims[axes->axis[i]] == 1 ? 0 : strides[axes->axis[i]];
    view.row = strides[axes->axis[shape->rank - 2]];
    view.column = strides[axes->axis[shape->rank - 1]];
    return view;
}

/* A mask has its axes in order, maybe fewer than the scores. */
struct attention_view attention_mask_view(const struct shape *mask, size_t rank)
{
    struct attention_view view = {.column = 1};
    int64_t stride = 1;

    for (size_t i = mask->rank; i-- > 0;) {
        size_t axis = i + rank - mask->rank;
        int64_t own = mask->dims[i] == 1 ? 0 : stride;

        if (axis + 2 < rank)
            view.lead[axis] = own;
        else if (axis + 2 == rank)
            view.row = own;
        stride *= mask->dims[i];
    }
    return view;
}

/* Each axis once. */
static bool is_permutation(const struct attention_axes *axes, size_t rank)
{
    unsigned found = 0;

    for (size_t i = 0; i < rank; i++)
        found |= 1U << axes->axis[i];
    return found == (1U << rank) - 1;
}

static bool axes_are_valid(const struct attention_attrs *attrs, size_t rank)
{
    return is_permutation(&attrs->q, rank) && is_permutation(&attrs->k, rank) &&
           is_permutation(&attrs->v, rank) && is_permutation(&attrs->out, rank) &&
           attrs->out.axis[rank - 1] == rank - 1;
}

static bool find_lead(const struct shape *q, const struct shape *k, const struct shape *v,
                      struct shape *out_lead)
{
    const struct shape of_q = shape_make(q->rank - 2, q->dims);
    const struct shape of_k = shape_make(k->rank - 2, k->dims);
    const struct shape of_v = shape_make(v->rank - 2, v->dims);
    struct shape scores;

    return shape_broadcast(&of_q, &of_k, &scores) == STATUS_OK &&
           shape_broadcast(&scores, &of_v, out_lead) == STATUS_OK;
}

static bool mask_fits(const struct shape *mask, const struct attention_geometry *geometry)
{
    struct shape scores = geometry->lead, all;

    scores.dims[scores.rank++] = geometry->queries;
    scores.dims[scores.rank++] = geometry->keys;
    return mask->rank > 0 && mask->dims[mask->rank - 1] == geometry->keys &&
           shape_broadcast(mask, &scores, &all) == STATUS_OK && shape_is_equal(&all, &scores);
}

enum status attention_resolve(const struct attention_attrs *attrs, const struct shape *q,
                              const struct shape *k, const struct shape *v,
                              const struct shape *const mask[2],
                              struct attention_geometry *out_geometry, struct error *err)
{
    struct attention_geometry geometry = {.rank = q->rank};
    struct shape seen_q, seen_k, seen_v;
    const size_t row = q->rank - 2, column = q->rank - 1;

    if (q->rank < 2 || k->rank != q->rank || v->rank != q->rank || !axes_are_valid(attrs, q->rank))
        return error_set(err, STATUS_INVALID, "its operands are not matrices of one rank");
    seen_q = attention_seen(q, &attrs->q);
    seen_k = attention_seen(k, &attrs->k);
    seen_v = attention_seen(v, &attrs->v);
    geometry.queries = seen_q.dims[row];
    geometry.depth = seen_q.dims[column];
    geometry.keys = seen_k.dims[row];
    geometry.width = seen_v.dims[column];
    if (seen_k.dims[column] != geometry.depth || seen_v.dims[row] != geometry.keys ||
        geometry.keys < 1 || !find_lead(&seen_q, &seen_k, &seen_v, &geometry.lead))
        return error_set(err, STATUS_INVALID, "queries, keys and values do not fit each other");
    geometry.heads = shape_count(&geometry.lead);
    for (size_t i = 0; i < 2; i++)
        if (mask[i] != NULL && !mask_fits(mask[i], &geometry))
            return error_set(err, STATUS_INVALID, "a mask does not fit the scores");
    *out_geometry = geometry;
    return STATUS_OK;
}

static enum status resolve(const struct op_call *call, struct attention_geometry *out_geometry,
                           struct error *err)
{
    const struct shape *shapes[ATTENTION_INPUTS] = {NULL};

    for (size_t i = 0; i < call->inputs; i++)
        shapes[i] = call->in[i] == NULL ? NULL : &call->in[i]->shape;
    return attention_resolve(call->attrs, shapes[ATTENTION_Q], shapes[ATTENTION_K],
                             shapes[ATTENTION_V], shapes + ATTENTION_MASK, out_geometry, err);
}

/* Both products, the scale, and a softmax of each row of scores. */
static uint64_t flops(const struct op_call *call)
{
    struct attention_geometry g;

    if (resolve(call, &g, &(struct error){0}) != STATUS_OK)
        return 0;
    return (uint64_t)(g.heads * g.queries * g.keys) * (uint64_t)(2 * (g.depth + g.width) + 6);
}

static enum status infer_attention(const struct op_call *call, struct error *err)
{
    const struct attention_attrs *attrs = call->attrs;
    struct attention_geometry geometry;

    for (size_t i = 0; i < call->inputs; i++)
        if (call->in[i] != NULL && call->in[i]->dtype != call->in[0]->dtype &&
            (i < ATTENTION_MASK ||
             (call->in[i]->dtype != DTYPE_FLOAT && call->in[i]->dtype != DTYPE_BOOL)))
            return error_set(err, STATUS_INVALID, "input %zu is of type %s where input 0 is of %s",
                             i, dtype_name(call->in[i]->dtype), dtype_name(call->in[0]->dtype));
    TRY(resolve(call, &geometry, err));
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = attention_output_shape(attrs, &geometry);
    return STATUS_OK;
}

const struct op_def op_attention = {
    .name = "attention",
    .onnx = {"Attention", .since = 1, .domain = "sluice"},
    .inputs = ATTENTION_INPUTS,
    .min_inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_BIT(FLOAT) | DTYPE_BIT(FLOAT16) | DTYPE_BIT(BFLOAT16),
    .attrs_size = sizeof(struct attention_attrs),
    .flags = OP_INTERNAL,
    .infer = infer_attention,
    .flops = flops,
};
