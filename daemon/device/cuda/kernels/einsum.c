/* Einsum, Col2Im, ConstantOfShape. */
#include "device/cuda/kernels/einsum.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/pointwise_plan.h"
#include "device/cuda/kernels/product_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/indexing.h"
#include "ops/movement.h"

/* ---- Einsum ---- */

static enum status parse(const struct kernel_call *call, struct einsum_plan *plan,
                         struct error *err)
{
    const struct shape *shapes[EINSUM_MAX_INPUTS];

    for (size_t i = 0; i < call->inputs && i < EINSUM_MAX_INPUTS; i++)
        shapes[i] = &call->in[i]->shape;
    return einsum_parse(call->attrs, call->inputs, shapes, plan, err);
}

/* The stride of `label` in input `input`: of all its axes of this label, but those of length 1. */
static int64_t stride_of(const struct einsum_plan *plan, const struct kernel_call *call,
                         size_t input, size_t label)
{
    const struct shape *shape = &call->in[input]->shape;
    int64_t stride = 0;

    for (size_t i = 0; i < plan->in_ranks[input]; i++)
        if (plan->in[input][i] == label && shape->dims[i] != 1)
            stride += shape_product(shape, i + 1, shape->rank);
    return stride;
}

static bool is_in_output(const struct einsum_plan *plan, size_t label)
{
    for (size_t i = 0; i < plan->out_rank; i++)
        if (plan->out[i] == label)
            return true;
    return false;
}

static void add_label(struct axes *axes, const struct einsum_plan *plan,
                      const struct kernel_call *call, size_t label, int64_t out_stride)
{
    int64_t strides[WALK_OPERANDS] = {out_stride};

    for (size_t k = 0; k < call->inputs; k++)
        strides[k + 1] = stride_of(plan, call, k, label);
    axes_add(axes, plan->lengths[label], strides);
}

/* Axes of the output, and of the sum. */
static void find_axes(const struct einsum_plan *plan, const struct kernel_call *call,
                      struct axes *out, struct axes *sum)
{
    *out = *sum = (struct axes){.operands = call->inputs + 1};
    for (size_t i = 0; i < plan->out_rank; i++)
        add_label(out, plan, call, plan->out[i],
                  shape_product(&call->out[0]->shape, i + 1, plan->out_rank));
    for (size_t label = 0; label < plan->labels; label++)
        if (!is_in_output(plan, label) && sum->rank < AXES_RANK)
            add_label(sum, plan, call, label, 0);
    axes_simplify(out, -1);
    axes_simplify(sum, -1);
}

static const char *refuse_einsum(const struct kernel_call *call)
{
    struct einsum_plan plan;
    struct axes out, sum;

    if (call->inputs > EINSUM_INPUTS)
        return "too many operands";
    for (size_t i = 1; i < call->inputs; i++)
        if (call->in[i]->dtype != call->in[0]->dtype)
            return "operands of different types";
    if (parse(call, &plan, NULL) != STATUS_OK)
        return "its equation is not valid";
    find_axes(&plan, call, &out, &sum);
    if (out.rank > WALK_RANK || sum.rank > WALK_RANK || plan.labels > AXES_RANK)
        return "too many labels";
    return refuse_strings(call);
}

static enum status prepare_einsum(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct walk_strides out_strides[WALK_OPERANDS], sum_strides[WALK_OPERANDS];
    struct einsum_plan plan;
    struct einsum *einsum;
    struct axes out, sum;

    TRY(parse(call, &plan, err));
    einsum = prepare_state(prepare, sizeof(*einsum), err);
    if (einsum == NULL)
        return STATUS_NO_MEMORY;
    find_axes(&plan, call, &out, &sum);
    (void)axes_finish(&out, &einsum->out, out_strides);
    (void)axes_finish(&sum, &einsum->sum, sum_strides);
    for (size_t k = 0; k < call->inputs; k++) {
        einsum->out_strides[k] = out_strides[k + 1];
        einsum->sum_strides[k] = sum_strides[k + 1];
    }
    einsum->inputs = (uint32_t)call->inputs;
    einsum->type = pointwise_type_of(call->in[0]->dtype);
    einsum->dtype = call->in[0]->dtype;
    return STATUS_OK;
}

static enum status run_einsum(const void *state, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    struct einsum einsum = *(const struct einsum *)state;

    for (size_t k = 0; k < call->inputs; k++)
        einsum.in[k] = run->in[k];
    einsum.to = run->out[0];
    return cuda_status(cuda_einsum(&einsum, cuda_stream(run)));
}

const struct kernel kernel_einsum_sums = {
    .name = "cuda:sums",
    .refuses = refuse_einsum,
    .prepare = prepare_einsum,
    .enqueue = run_einsum,
    .release = free,
};

/* ---- Einsum of two operands as a product ---- */

/* Labels by where they are: rows are of the first operand and the output, columns of the second
 * and the output, summed ones of both operands, the batch of all three. */
struct einsum_groups {
    struct axes batch, rows, columns, sum; /* operands: out, a, b, none */
};

/* False when a label is of one operand alone. */
static bool add_to_group(struct einsum_groups *groups, const struct einsum_plan *plan,
                         const struct kernel_call *call, size_t label, int64_t out_stride)
{
    const int64_t strides[WALK_OPERANDS] = {out_stride, stride_of(plan, call, 0, label),
                                            stride_of(plan, call, 1, label)};
    bool in_a = strides[1] != 0, in_b = strides[2] != 0, in_out = is_in_output(plan, label);

    if (plan->lengths[label] == 1)
        return true;
    if (in_out)
        axes_add(in_a && in_b ? &groups->batch
                 : in_a       ? &groups->rows
                              : &groups->columns,
                 plan->lengths[label], strides);
    else if (in_a && in_b)
        axes_add(&groups->sum, plan->lengths[label], strides);
    return in_out || (in_a && in_b);
}

static bool find_groups(const struct kernel_call *call, struct einsum_groups *groups)
{
    struct axes *const all[] = {&groups->batch, &groups->rows, &groups->columns, &groups->sum};
    struct einsum_plan plan;

    if (call->inputs != 2 || parse(call, &plan, NULL) != STATUS_OK)
        return false;
    for (size_t i = 0; i < 4; i++)
        *all[i] = (struct axes){.operands = 4};
    for (size_t i = 0; i < plan.out_rank; i++)
        if (!add_to_group(groups, &plan, call, plan.out[i],
                          shape_product(&call->out[0]->shape, i + 1, plan.out_rank)))
            return false;
    for (size_t label = 0; label < plan.labels; label++)
        if (!is_in_output(&plan, label) && !add_to_group(groups, &plan, call, label, 0))
            return false;
    for (size_t i = 1; i < 4; i++)
        axes_simplify(all[i], -1);
    return groups->sum.rank == 1;
}

/* Takes the innermost axis out of `axes`; those before it become part of the batch. */
static void split_axis(const struct axes *axes, struct axes *batch, int64_t *size,
                       int64_t *out_stride, int64_t *stride, size_t operand)
{
    size_t last = axes->rank - 1;

    for (size_t i = 0; i < last; i++)
        axes_add(
            batch, axes->sizes[i],
            (const int64_t[]){axes->strides[0][i], axes->strides[1][i], axes->strides[2][i], 0});
    *size = axes->sizes[last];
    *out_stride = axes->strides[0][last];
    *stride = axes->strides[operand][last];
}

static const char *refuse_einsum_product(const struct kernel_call *call)
{
    struct einsum_groups groups;

    if (refuse_einsum(call) != NULL)
        return refuse_einsum(call);
    if (!find_groups(call, &groups))
        return "no product of two operands over one axis";
    if (groups.batch.rank + groups.rows.rank + groups.columns.rank > WALK_RANK)
        return "too many labels";
    return NULL;
}

static enum status prepare_einsum_product(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct product *product = prepare_state(prepare, sizeof(*product), err);
    struct einsum_groups groups;

    if (product == NULL)
        return STATUS_NO_MEMORY;
    (void)find_groups(call, &groups);
    split_axis(&groups.rows, &groups.batch, &product->m, &product->out_m, &product->a_m, 1);
    split_axis(&groups.columns, &groups.batch, &product->n, &product->out_n, &product->b_n, 2);
    product->k = groups.sum.sizes[0];
    product->a_k = groups.sum.strides[1][0];
    product->b_k = groups.sum.strides[2][0];
    product_batch(product, &groups.batch);
    product->kind = PRODUCT_MATRIX;
    product->type = pointwise_type_of(call->in[0]->dtype);
    product->dtype = call->in[0]->dtype;
    product->out_dtype = call->out[0]->dtype;
    product->scale = 1;
    return STATUS_OK;
}

static enum status run_einsum_product(const void *state, const struct kernel_call *call,
                                      const struct kernel_run *run)
{
    struct product product = *(const struct product *)state;

    (void)call;
    product.a = run->in[0];
    product.b = run->in[1];
    product.out = run->out[0];
    return cuda_status(cuda_product(&product, cuda_stream(run)));
}

const struct kernel kernel_einsum_product = {
    .name = "cuda:product",
    .refuses = refuse_einsum_product,
    .prepare = prepare_einsum_product,
    .enqueue = run_einsum_product,
    .release = free,
};

/* ---- Col2Im ---- */

static int64_t or_default(const struct ints *list, size_t i, int64_t standard)
{
    return list->values != NULL ? list->values[i] : standard;
}

static int64_t known_index(const struct operand *operand, size_t i)
{
    int32_t narrow;
    int64_t wide;

    if (operand->dtype == DTYPE_INT32) {
        memcpy(&narrow, (const char *)operand->constant + i * sizeof(narrow), sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, (const char *)operand->constant + i * sizeof(wide), sizeof(wide));
    return wide;
}

static const char *refuse_fold(const struct kernel_call *call)
{
    if (call->in[0]->dtype != DTYPE_FLOAT)
        return "float only";
    if (call->out[0]->shape.rank > FOLD_AXES + 2)
        return "too many axes";
    return refuse_unknown_values(call, 1 << 1 | 1 << 2);
}

static enum status prepare_fold(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct col2im_attrs *attrs = call->attrs;
    const struct shape *out = &call->out[0]->shape;
    struct fold *fold = prepare_state(prepare, sizeof(*fold), err);
    size_t axes = out->rank - 2;

    if (fold == NULL)
        return STATUS_NO_MEMORY;
    fold->axes = (uint32_t)axes;
    fold->planes = out->dims[0] * out->dims[1];
    fold->places = call->in[0]->shape.dims[2];
    fold->elements = 1;
    for (size_t i = 0; i < axes; i++) {
        int64_t pad_after = or_default(&attrs->pads, i + axes, 0), reach;

        fold->image[i] = out->dims[i + 2];
        fold->block[i] = known_index(call->in[2], i);
        fold->stride[i] = or_default(&attrs->strides, i, 1);
        fold->dilation[i] = or_default(&attrs->dilations, i, 1);
        fold->pad[i] = or_default(&attrs->pads, i, 0);
        reach = fold->dilation[i] * (fold->block[i] - 1) + 1;
        fold->along[i] = (fold->image[i] + fold->pad[i] + pad_after - reach) / fold->stride[i] + 1;
        fold->elements *= fold->block[i];
    }
    return STATUS_OK;
}

static enum status run_fold(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    struct fold fold = *(const struct fold *)state;

    (void)call;
    fold.from = run->in[0];
    fold.to = run->out[0];
    return cuda_status(cuda_fold(&fold, cuda_stream(run)));
}

const struct kernel kernel_col2im_sums = {
    .name = "cuda:sums",
    .refuses = refuse_fold,
    .prepare = prepare_fold,
    .enqueue = run_fold,
    .release = free,
};

/* ---- ConstantOfShape ---- */

static enum status run_fill(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    const struct constant_of_shape_attrs *attrs = call->attrs;
    struct fill fill = {.count = shape_count(&call->out[0]->shape),
                        .bytes = (uint32_t)dtype_bytes(call->out[0]->dtype),
                        .to = run->out[0]};

    (void)state;
    if (attrs->value.dtype != DTYPE_NONE)
        memcpy(&fill.bits, attrs->value.data, fill.bytes);
    return cuda_status(cuda_fill(&fill, cuda_stream(run)));
}

const struct kernel kernel_constant_of_shape_sums = {
    .name = "cuda:fill",
    .refuses = refuse_strings,
    .prepare = prepare_stateless,
    .enqueue = run_fill,
};
