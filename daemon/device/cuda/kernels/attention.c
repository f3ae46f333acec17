/* Attention: where its operands lie, and whether it may write over Q. */
#include "ops/attention.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/rows.h"

enum { OPERANDS = ATTENTION_INPUTS + 1 }; /* the result first */

static const char *refuse_type(const struct kernel_call *call)
{
    return call->in[ATTENTION_Q]->dtype == DTYPE_FLOAT ? NULL : "16-bit types";
}

/* Each block reads its queries until it writes over them. */
static const char *refuse_over(const struct kernel_call *call)
{
    const struct attention_attrs *attrs = call->attrs;
    const struct shape *q = &call->in[ATTENTION_Q]->shape;

    if (refuse_type(call) != NULL)
        return refuse_type(call);
    if (!shape_is_equal(q, &call->out[0]->shape))
        return "Q and the result differ in shape";
    if (q->dims[attrs->q.axis[q->rank - 1]] > ATTENTION_COLUMNS)
        return "several blocks read the same queries";
    for (size_t i = 0; i < q->rank; i++)
        if (attrs->q.axis[i] != attrs->out.axis[i])
            return "the result has other axes than Q";
    return NULL;
}

/* Views of the result and the inputs; those of masks that are left out are zero. */
static void find_views(const struct kernel_call *call, size_t rank,
                       struct attention_view views[OPERANDS])
{
    const struct attention_attrs *attrs = call->attrs;

    views[0] = attention_view(&call->out[0]->shape, &attrs->out);
    views[1 + ATTENTION_Q] = attention_view(&call->in[ATTENTION_Q]->shape, &attrs->q);
    views[1 + ATTENTION_K] = attention_view(&call->in[ATTENTION_K]->shape, &attrs->k);
    views[1 + ATTENTION_V] = attention_view(&call->in[ATTENTION_V]->shape, &attrs->v);
    for (size_t i = ATTENTION_MASK; i < ATTENTION_INPUTS; i++)
        views[1 + i] = call_input(call, i) != NULL ? attention_mask_view(&call->in[i]->shape, rank)
                                                   : (struct attention_view){.column = 1};
}

static void set_operands(struct attention *attention, const struct shape *lead,
                         const struct attention_view views[OPERANDS])
{
    struct attention_operand *operands[OPERANDS] = {&attention->out,     &attention->q,
                                                    &attention->k,       &attention->v,
                                                    &attention->mask[0], &attention->mask[1]};
    struct axes axes = {.operands = OPERANDS};
    struct walk_strides heads[WALK_OPERANDS];

    for (size_t i = 0; i < lead->rank; i++) {
        int64_t strides[WALK_OPERANDS] = {0};

        for (size_t k = 0; k < OPERANDS; k++)
            strides[k] = views[k].lead[i];
        axes_add(&axes, lead->dims[i], strides);
    }
    axes_simplify(&axes, 0);
    (void)axes_finish(&axes, &attention->heads, heads); /* no more axes than a tensor has */
    for (size_t k = 0; k < OPERANDS; k++)
        *operands[k] = (struct attention_operand){heads[k], views[k].row, views[k].column};
}

static enum status prepare_attention(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct attention_attrs *attrs = call->attrs;
    const struct shape *shapes[ATTENTION_INPUTS] = {NULL};
    struct attention_view views[OPERANDS];
    struct attention_geometry geometry;
    struct attention *attention;

    for (size_t i = 0; i < call->inputs; i++)
        shapes[i] = call->in[i] != NULL ? &call->in[i]->shape : NULL;
    TRY(attention_resolve(attrs, shapes[ATTENTION_Q], shapes[ATTENTION_K], shapes[ATTENTION_V],
                          shapes + ATTENTION_MASK, &geometry, err));
    attention = prepare_state(prepare, sizeof(*attention), err);
    if (attention == NULL)
        return STATUS_NO_MEMORY;
    attention->scale = attrs->scale;
    attention->queries = geometry.queries;
    attention->keys = geometry.keys;
    attention->depth = geometry.depth;
    attention->width = geometry.width;
    find_views(call, geometry.rank, views);
    set_operands(attention, &geometry.lead, views);
    (void)snprintf(prepare->note, sizeof(prepare->note), "64 queries at a time, 64 keys");
    return STATUS_OK;
}

static enum status enqueue_attention(const void *state, const struct kernel_call *call,
                                     const struct kernel_run *run)
{
    struct attention attention = *(const struct attention *)state;

    attention.q_data = run->in[ATTENTION_Q];
    attention.k_data = run->in[ATTENTION_K];
    attention.v_data = run->in[ATTENTION_V];
    for (size_t i = 0; i < ATTENTION_MASKS; i++)
        attention.mask_data[i] = run_input(call, run, ATTENTION_MASK + i);
    attention.out_data = run->out[0];
    return cuda_status(cuda_attention(&attention, cuda_stream(run)));
}

const struct kernel kernel_attention_over = {
    .name = "cuda:blocked",
    .flags = KERNEL_IN_PLACE,
    .refuses = refuse_over,
    .prepare = prepare_attention,
    .enqueue = enqueue_attention,
    .release = free,
};

const struct kernel kernel_attention_apart = {
    .name = "cuda:blocked",
    .refuses = refuse_type,
    .prepare = prepare_attention,
    .enqueue = enqueue_attention,
    .release = free,
};
