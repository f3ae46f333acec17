/* Attention: where its operands lie, and whether it may write over Q. */
#include "ops/attention.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/attention_rows.h"
#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/rows.h"

enum { OPERANDS = ATTENTION_INPUTS + 1 }; /* the result first */
enum { BFLOAT16_CAPABILITY = 80 };

static const char *refuse_type(const struct kernel_call *call)
{
    return call->in[ATTENTION_Q]->dtype == DTYPE_FLOAT ? NULL : "16-bit types";
}

/* Each block reads its queries until it writes over them. */
static const char *refuse_in_place(const struct kernel_call *call)
{
    const struct attention_attrs *attrs = call->attrs;
    const struct shape *q = &call->in[ATTENTION_Q]->shape;

    if (!shape_is_equal(q, &call->out[0]->shape))
        return "Q and the result differ in shape";
    if (q->dims[attrs->q.axis[q->rank - 1]] > ATTENTION_COLUMNS)
        return "several blocks read the same queries";
    for (size_t i = 0; i < q->rank; i++)
        if (attrs->q.axis[i] != attrs->out.axis[i])
            return "the result has other axes than Q";
    return NULL;
}

static const char *refuse_over(const struct kernel_call *call)
{
    const char *why = refuse_type(call);

    return why != NULL ? why : refuse_in_place(call);
}

/* ---- by tensor cores ---- */

static const char *refuse_columns(const struct cuda_device *cuda,
                                  const struct attention_attrs *attrs, enum dtype dtype,
                                  const struct shape *const *shapes)
{
    const struct shape *q = shapes[ATTENTION_Q], *v = shapes[ATTENTION_V];

    if (!dtype_is_narrow(dtype))
        return "tensor cores are for 16-bit types";
    if (dtype == DTYPE_BFLOAT16 && cuda->capability < BFLOAT16_CAPABILITY)
        return "bfloat16 below capability 8.0";
    if (q->dims[attrs->q.axis[q->rank - 1]] > ATTENTION16_COLUMNS ||
        v->dims[attrs->v.axis[v->rank - 1]] > ATTENTION16_COLUMNS)
        return "heads of more than 256";
    return NULL;
}

bool tensor_takes_attention(struct device *device, const struct attention_attrs *attrs,
                            enum dtype dtype, const struct shape *const *shapes)
{
    return refuse_columns(cuda_device_of(device), attrs, dtype, shapes) == NULL;
}

static const char *refuse_tensor(const struct kernel_call *call)
{
    const struct shape *shapes[ATTENTION_INPUTS] = {[ATTENTION_Q] = &call->in[ATTENTION_Q]->shape,
                                                    [ATTENTION_V] = &call->in[ATTENTION_V]->shape};

    return refuse_columns(cuda_device_of(call->device), call->attrs, call->in[ATTENTION_Q]->dtype,
                          shapes);
}

static const char *refuse_tensor_over(const struct kernel_call *call)
{
    const char *why = refuse_tensor(call);

    return why != NULL ? why : refuse_in_place(call);
}

/* How many elements of an operand's rows of `columns` may be moved at once, all of a row so. */
static uint32_t unit_of_rows(const struct attention_operand *operand, const void *data,
                             int64_t columns)
{
    static const int64_t units[] = {ATTENTION_UNIT, 2};

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        int64_t odd = operand->row | columns;

        for (size_t k = 0; k < WALK_RANK; k++)
            odd |= operand->heads.of[k];
        if (operand->column == 1 && odd % units[i] == 0 &&
            (uintptr_t)data % ((size_t)units[i] * sizeof(uint16_t)) == 0)
            return (uint32_t)units[i];
    }
    return 1;
}

/* ---- both ---- */

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
        *operands[k] = (struct attention_operand){
            .heads = heads[k], .row = views[k].row, .column = views[k].column};
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
    attention->dtype = call->in[ATTENTION_Q]->dtype;
    attention->is_causal = attrs->is_causal;
    attention->causal_offset = attrs->causal_offset;
    attention->causal_fill = attrs->causal_fill;
    find_views(call, geometry.rank, views);
    set_operands(attention, &geometry.lead, views);
    for (size_t i = 0; i < ATTENTION_MASKS; i++)
        if (call_input(call, ATTENTION_MASK + i) != NULL) {
            attention->mask[i].dtype = call->in[ATTENTION_MASK + i]->dtype;
            attention->hides[i] = attrs->mask[i].hides;
            attention->fill[i] = attrs->mask[i].fill;
        }
    (void)snprintf(prepare->note, sizeof(prepare->note), "64 queries at a time%s",
                   attrs->is_causal ? ", causal" : "");
    return STATUS_OK;
}

static struct attention attention_of_run(const void *state, const struct kernel_call *call,
                                         const struct kernel_run *run)
{
    struct attention attention = *(const struct attention *)state;

    attention.q_data = run->in[ATTENTION_Q];
    attention.k_data = run->in[ATTENTION_K];
    attention.v_data = run->in[ATTENTION_V];
    for (size_t i = 0; i < ATTENTION_MASKS; i++)
        attention.mask_data[i] = run_input(call, run, ATTENTION_MASK + i);
    attention.out_data = run->out[0];
    return attention;
}

static enum status enqueue_attention(const void *state, const struct kernel_call *call,
                                     const struct kernel_run *run)
{
    const struct attention attention = attention_of_run(state, call, run);

    return cuda_status(cuda_attention(&attention, cuda_stream(run)));
}

/* Units are of these addresses: what they are changes no sum. */
static enum status enqueue_tensor(const void *state, const struct kernel_call *call,
                                  const struct kernel_run *run)
{
    struct attention a = attention_of_run(state, call, run);

    a.q.unit = unit_of_rows(&a.q, a.q_data, a.depth);
    a.k.unit = unit_of_rows(&a.k, a.k_data, a.depth);
    a.v.unit = unit_of_rows(&a.v, a.v_data, a.width);
    a.out.unit = unit_of_rows(&a.out, a.out_data, a.width);
    return cuda_status(cuda_attention16(&a, cuda_stream(run)));
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

const struct kernel kernel_attention_tensor_over = {
    .name = "cuda:tensor",
    .flags = KERNEL_IN_PLACE,
    .refuses = refuse_tensor_over,
    .prepare = prepare_attention,
    .enqueue = enqueue_tensor,
    .release = free,
};

const struct kernel kernel_attention_tensor = {
    .name = "cuda:tensor",
    .refuses = refuse_tensor,
    .prepare = prepare_attention,
    .enqueue = enqueue_tensor,
    .release = free,
};
