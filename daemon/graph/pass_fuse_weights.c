/* Weights that are kept as bytes in the model stay bytes in memory:
 *
 *     MatMul(x, Mul(Cast(q), scale [n]))      →  MatMulBytes(x, q, scale)
 *     MatMul(x, DequantizeLinear(q, s, z))    →  MatMulBytes(x, q, s, z)      Gemm alike
 *     Gather(Mul(Cast(q), scale [rows,1]), i) →  Mul(Cast(Gather(q, i)), Gather(scale, i))
 *     Gather(DequantizeLinear(q, s, z), i)    →  DequantizeLinear(Gather(q, i), s, z)
 *
 * Otherwise they would be folded to floats, four times as large.  The numbers are the same to the
 * last bit: each weight is made a float as the model says, when it is used.  Runs before constants
 * are folded, on devices that have the kernels.
 */
#include <string.h>

#include "graph/match.h"
#include "ops/gemm.h"
#include "ops/matmul_bytes.h"
#include "ops/quantize.h"

enum { LEAST_BYTES = 4096 }; /* smaller weights are not worth it */

/* Constant bytes and what makes them floats. */
struct byte_weights {
    struct value *bytes, *scale, *zero;
    int64_t axis; /* of the scales; -1: one for all */
    struct node *root;
};

static bool is_constant(const struct value *value)
{
    return value != NULL && value->constant != NULL && value->constant->tensor.data != NULL;
}

static bool are_bytes(const struct value *value)
{
    return is_constant(value) && value->shape.rank == 2 &&
           shape_count(&value->shape) >= LEAST_BYTES &&
           (value->dtype == DTYPE_INT8 || value->dtype == DTYPE_UINT8);
}

/* The axis along which a scale of a matrix goes; false when it is no such scale. */
static bool scale_axis(const struct value *scale, const struct shape *matrix, int64_t *out_axis)
{
    const struct shape *shape = &scale->shape;
    const int64_t count = shape_count(shape);

    if (!is_constant(scale) || scale->dtype != DTYPE_FLOAT || shape->rank > 2)
        return false;
    *out_axis = -1;
    if (count == 1)
        return true;
    *out_axis = shape->rank == 2 && shape->dims[1] == 1 ? 0 : 1;
    return count == matrix->dims[*out_axis] && (*out_axis == 1 || shape->rank == 2) &&
           (shape->rank == 1 || shape->dims[1 - *out_axis] == 1);
}

static bool read_scaled(const struct value *value, struct byte_weights *out)
{
    struct node *mul = producer_is(value, "Mul");

    for (size_t i = 0; mul != NULL && i < 2; i++) {
        const struct node *cast = producer_is(mul->in[i], "Cast");

        if (cast == NULL || !are_bytes(cast->in[0]) || node_attr_int(cast, "to", 0) != DTYPE_FLOAT)
            continue;
        *out = (struct byte_weights){.bytes = cast->in[0], .scale = mul->in[1 - i], .root = mul};
        return scale_axis(out->scale, &out->bytes->shape, &out->axis);
    }
    return false;
}

static bool read_dequantized(const struct value *value, struct byte_weights *out)
{
    struct node *node = producer_is(value, "DequantizeLinear");
    const struct quantize_attrs *attrs = node != NULL ? node->attrs : NULL;

    if (node == NULL || !are_bytes(node->in[0]) || !is_constant(node->in[1]) ||
        node->in[1]->dtype != DTYPE_FLOAT || attrs->block_size != 0 ||
        (attrs->output_dtype != 0 && attrs->output_dtype != DTYPE_FLOAT))
        return false;
    *out = (struct byte_weights){.bytes = node->in[0],
                                 .scale = node->in[1],
                                 .zero = node->inputs > 2 ? node->in[2] : NULL,
                                 .axis = attrs->axis < 0 ? attrs->axis + 2 : attrs->axis,
                                 .root = node};
    if (shape_count(&out->scale->shape) == 1)
        out->axis = -1;
    return out->zero == NULL || is_constant(out->zero);
}

static bool read_weights(const struct value *value, struct byte_weights *out)
{
    return read_scaled(value, out) || read_dequantized(value, out);
}

/* ---- products ---- */

static enum status replace_product(struct graph *graph, struct node *node,
                                   const struct byte_weights *w, struct value *bias, bool trans_b)
{
    struct value *in[MATMUL_BYTES_INPUTS] = {[MATMUL_A] = node->in[0],
                                             [MATMUL_B] = w->bytes,
                                             [MATMUL_BIAS] = bias,
                                             [MATMUL_BYTES_SCALE] = w->scale,
                                             [MATMUL_BYTES_ZERO] = w->zero};
    struct node *made = node_replace(graph, node, &op_matmul_bytes, MATMUL_BYTES_INPUTS, in);

    if (made == NULL)
        return STATUS_NO_MEMORY;
    *(struct matmul_attrs *)made->attrs =
        (struct matmul_attrs){.trans_b = trans_b, .has_bias = bias != NULL};
    return STATUS_OK;
}

static enum status fuse_matmul(struct graph *graph, struct node *node)
{
    struct byte_weights w;

    if (node->inputs != 2 || !read_weights(node->in[1], &w) || w.axis == 0)
        return STATUS_OK;
    return replace_product(graph, node, &w, NULL, false);
}

static enum status fuse_gemm(struct graph *graph, struct node *node)
{
    const struct gemm_attrs *attrs = node->attrs;
    const bool trans_b = attrs->transB != 0;
    struct value *c = node->inputs > GEMM_C ? node->in[GEMM_C] : NULL;
    struct byte_weights w;

    if (attrs->transA != 0 || attrs->alpha != 1 || attrs->beta != 1 || node->inputs > 3 ||
        !read_weights(node->in[1], &w) || w.axis == (trans_b ? 1 : 0))
        return STATUS_OK;
    if (c != NULL && (!is_constant(c) || c->dtype != DTYPE_FLOAT || c->shape.rank != 1 ||
                      c->shape.dims[0] != w.bytes->shape.dims[trans_b ? 0 : 1]))
        return STATUS_OK;
    return replace_product(graph, node, &w, c, trans_b);
}

/* ---- tables ---- */

/* A node like `like` in front of `before`; its output. */
static struct value *make_like(struct graph *graph, struct node *before, const struct node *like,
                               size_t inputs, struct value *const *in)
{
    struct node *node = graph_add_node(graph, before, like->op, like->name, inputs, 1);
    struct value *out = graph_add_value(graph, "");

    if (node == NULL || out == NULL)
        return NULL;
    if (like->op->attrs_size > 0)
        memcpy(node->attrs, like->attrs, like->op->attrs_size);
    for (size_t i = 0; i < inputs; i++)
        node_set_input(node, i, in[i]);
    node_set_output(node, 0, out);
    return out;
}

static struct value *make_pair(struct graph *graph, struct node *before, const struct node *like,
                               struct value *a, struct value *b)
{
    struct value *in[] = {a, b};

    return a == NULL || b == NULL ? NULL : make_like(graph, before, like, b == a ? 1 : 2, in);
}

/* Rows are picked first. */
static enum status fuse_gather(struct graph *graph, struct node *node)
{
    struct value *rows, *in[3];
    struct byte_weights w;
    struct node *made;

    if (node_attr_int(node, "axis", 0) != 0 || !read_weights(node->in[0], &w))
        return STATUS_OK;
    if (node_is(w.root, "DequantizeLinear") && w.axis != -1)
        return STATUS_OK; /* the picked rows have no axis of their own */
    rows = make_pair(graph, node, node, w.bytes, node->in[1]);
    if (rows == NULL)
        return STATUS_NO_MEMORY;
    in[0] = rows;
    in[1] = w.scale;
    in[2] = w.zero;
    if (node_is(w.root, "Mul")) {
        const struct node *cast = producer_is(w.root->in[0], "Cast");

        cast = cast != NULL ? cast : producer_is(w.root->in[1], "Cast");
        in[0] = make_like(graph, node, cast, 1, &rows);
        if (w.axis == 0)
            in[1] = make_pair(graph, node, node, w.scale, node->in[1]);
        if (in[0] == NULL || in[1] == NULL)
            return STATUS_NO_MEMORY;
    }
    made = node_replace(graph, node, w.root->op, w.root->inputs, in);
    if (made == NULL)
        return STATUS_NO_MEMORY;
    if (made->op->attrs_size > 0)
        memcpy(made->attrs, w.root->attrs, made->op->attrs_size);
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    while (context->weighs_bytes && link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        enum status status = STATUS_OK;

        link = link->next;
        if (node_is(node, "MatMul"))
            status = fuse_matmul(graph, node);
        else if (node_is(node, "Gemm"))
            status = fuse_gemm(graph, node);
        else if (node_is(node, "Gather"))
            status = fuse_gather(graph, node);
        if (status != STATUS_OK)
            return pass_no_memory(err);
    }
    return STATUS_OK;
}

const struct pass pass_fuse_weights = {.name = "fuse_weights", .stage = PASS_MODEL, .run = run};
