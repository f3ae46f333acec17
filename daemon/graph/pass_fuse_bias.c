/* A constant added to every channel becomes the bias of what made the channels:
 *
 *     Add(Conv(x, w), c [1,M,1…])  →  Conv(x, w, c [M])
 *     Add(MatMul(x, W [k,n]), c [n])  →  MatMul(x, W, c)
 *     Add(Gemm(a, b), c [n])  →  Gemm(a, b, c)
 *
 * Runs once a model.  Where only shapes can tell that the constant adds no dimension ([1,1,n]), or
 * that a reshaping in between leaves the channels where they are, it is done in each plan; the
 * constant stays the model's own, so that plans share it and its packed form.
 */
#include "graph/fusion.h"
#include "graph/match.h"
#include "ops/conv.h"
#include "ops/gemm.h"
#include "ops/matmul_bytes.h"

static bool is_bare(const struct node *node, size_t bias_index)
{
    const struct epilogue *epilogue = node_epilogue(node);

    return epilogue != NULL && epilogue->act == ACT_NONE && !epilogue->has_residual &&
           (node->inputs <= bias_index || node->in[bias_index] == NULL);
}

/* Output channels by the weights; 0 when they are not known. */
static int64_t conv_channels(const struct node *node)
{
    const struct value *weights = node->in[CONV_W];

    if (weights->constant == NULL)
        return 0;
    if (node->op == &op_conv)
        return weights->shape.dims[0];
    return weights->shape.dims[1] * ((const struct conv_transpose_attrs *)node->attrs)->group;
}

/* [1,M,1,1] or [M,1,1] for weights of rank 4. */
static bool is_per_channel(const struct shape *shape, size_t rank, int64_t channels)
{
    size_t axis = shape->rank + 1 - rank; /* of the channels */

    if (channels == 0 || (shape->rank != rank && shape->rank != rank - 1))
        return false;
    for (size_t i = 0; i < shape->rank; i++)
        if (shape->dims[i] != (i == axis ? channels : 1))
            return false;
    return true;
}

static void release_view(struct constant *constant)
{
    constant_unref(constant->owner);
}

/* The same elements as a vector. */
static struct value *as_vector(struct graph *graph, const struct value *value, int64_t length)
{
    struct tensor tensor = value->constant->tensor;
    struct constant *vector;

    tensor.shape = (struct shape){.rank = 1, .dims = {length}};
    vector = constant_create(&tensor, constant_ref(value->constant), release_view);
    if (vector == NULL) {
        constant_unref(value->constant);
        return NULL;
    }
    return graph_add_constant(graph, value->name, vector);
}

static int64_t columns(const struct node *node)
{
    const struct value *b = node->in[1];

    if (b->constant == NULL || b->shape.rank != 2)
        return 0;
    if (node->op == &op_gemm && ((const struct gemm_attrs *)node->attrs)->transB != 0)
        return b->shape.dims[0];
    if (node->op == &op_matmul_bytes && ((const struct matmul_attrs *)node->attrs)->trans_b)
        return b->shape.dims[0];
    return b->shape.dims[1];
}

/* Whether the constant can be the node's bias, and of what length. */
static int64_t bias_length(const struct node *node, const struct value *value)
{
    const enum dtype dtype = node->op == &op_matmul_bytes ? DTYPE_FLOAT : node->in[1]->dtype;
    int64_t length;

    if (value->constant == NULL || value->dtype != dtype)
        return 0;
    if (node->op == &op_conv || node->op == &op_conv_transpose) {
        length = conv_channels(node);
        return is_per_channel(&value->shape, node->in[CONV_W]->shape.rank, length) ? length : 0;
    }
    length = columns(node);
    return value->shape.rank == 1 && value->shape.dims[0] == length ? length : 0;
}

static enum status set_bias(struct graph *graph, struct node *node, struct value *value)
{
    const size_t index = 2; /* of Conv, ConvTranspose, MatMul and Gemm alike */

    TRY(node_grow_inputs(graph, node, index + 1));
    node_set_input(node, index, value);
    if (node->op == &op_matmul || node->op == &op_matmul_bytes)
        ((struct matmul_attrs *)node->attrs)->has_bias = true;
    if (node->op == &op_gemm)
        ((struct gemm_attrs *)node->attrs)->beta = 1;
    return STATUS_OK;
}

/* ---- in a plan ---- */

/* What made `value`, or what it is another shape of, as long as nothing else uses it. */
static struct node *maker_of(const struct graph *graph, const struct value *value,
                             const struct node *user)
{
    while (value->producer != NULL && graph_single_user(graph, value) == user &&
           node_is_reshaping(value->producer)) {
        user = value->producer;
        value = user->in[0];
    }
    return graph_single_user(graph, value) == user ? value->producer : NULL;
}

/* The axis of `made` along which the node's channels lie, whose length is *out_length; SIZE_MAX
 * when a reshaping moved them. */
static size_t channel_axis(const struct node *node, const struct value *made, int64_t *out_length)
{
    const struct shape *from = &node->out[0]->shape, *to = &made->shape;
    bool is_conv = node->op == &op_conv || node->op == &op_conv_transpose;
    size_t axis = is_conv ? 1 : to->rank - 1;

    if (from->rank == 0 || to->rank <= axis || (!is_conv && node->in[1]->shape.rank < 2))
        return SIZE_MAX;
    *out_length = from->dims[is_conv ? 1 : from->rank - 1];
    if (to->dims[axis] != *out_length || (is_conv && to->dims[0] != from->dims[0]))
        return SIZE_MAX;
    return axis;
}

/* One element for each index of `axis` of a tensor of `rank` dimensions. */
static bool lies_along(const struct shape *shape, size_t rank, size_t axis, int64_t length)
{
    if (axis >= rank || shape->rank > rank || shape_count(shape) != length)
        return false;
    return axis + shape->rank >= rank && shape->dims[axis + shape->rank - rank] == length;
}

static enum status fuse_in_plan(struct graph *graph, struct node *add)
{
    for (size_t i = 0; i < 2; i++) {
        struct value *made = add->in[i], *other = add->in[1 - i];
        struct node *node = maker_of(graph, made, add);
        int64_t length = 0;
        size_t axis;

        if (node == NULL || !is_bare(node, 2) || other->constant == NULL ||
            other->dtype != node->out[0]->dtype)
            continue;
        axis = channel_axis(node, made, &length);
        if (!lies_along(&other->shape, made->shape.rank, axis, length))
            continue;
        TRY(set_bias(graph, node, other));
        return graph_replace_value(graph, add->out[0], made);
    }
    return STATUS_OK;
}

/* ---- in a model ---- */

static enum status fuse(struct graph *graph, struct node *add)
{
    for (size_t i = 0; i < 2; i++) {
        struct value *made = add->in[i], *other = add->in[1 - i];
        struct node *node = made->producer;
        int64_t length;

        if (node == NULL || !is_bare(node, 2) || graph_single_user(graph, made) != add)
            continue;
        length = bias_length(node, other);
        if (length == 0)
            continue;
        if (other->shape.rank != 1 && (other = as_vector(graph, other, length)) == NULL)
            return STATUS_NO_MEMORY;
        TRY(set_bias(graph, node, other));
        return graph_replace_value(graph, add->out[0], made);
    }
    return STATUS_OK;
}

static enum status fuse_all(struct graph *graph,
                            enum status (*fuse_one)(struct graph *graph, struct node *add),
                            struct error *err)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        if (node->op == &op_add && node->inputs == 2 && fuse_one(graph, node) != STATUS_OK)
            return error_set(err, STATUS_NO_MEMORY, "no memory");
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    (void)context;
    return fuse_all(graph, fuse, err);
}

static enum status run_plan(struct graph *graph, const struct pass_context *context,
                            struct error *err)
{
    (void)context;
    return fuse_all(graph, fuse_in_plan, err);
}

const struct pass pass_fuse_bias = {.name = "fuse_bias", .stage = PASS_MODEL, .run = run};
const struct pass pass_fuse_bias_plan = {
    .name = "fuse_bias_plan", .stage = PASS_PLAN, .run = run_plan};
