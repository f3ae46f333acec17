/* Quantised models that are written as real arithmetic between DequantizeLinear and QuantizeLinear
 * are computed on the bytes:
 *
 *     Q(Relu(Conv(DQ(x), DQ(W), DQ(b))))   →  QLinearConv(x, W, b, relu)
 *     Q(MatMul(DQ(a), DQ(b)))              →  QLinearMatMul(a, b)        Gemm with its bias alike
 *     Q(Add(DQ(a), DQ(b)))                 →  QLinearAdd(a, b)           Mul alike
 *     Q(GlobalAveragePool(DQ(x)))          →  QLinearGlobalAveragePool(x)
 *     Q(f(DQ(x)))                          →  ByteTable(x, Q(f(DQ(0 … 255))))
 *     Q(MaxPool(DQ(x))), Reshape, Concat … →  the same on x, where scale and zero point stay;
 *                                             what is concatenated with others goes by tables
 *
 * Tables, sums and moves give the very bytes of the float graph.  Products are summed exactly and
 * scaled once, as QLinearConv is defined; the float graph rounds on its way and may differ from
 * that by one step where a result lies between two.
 *
 * Runs before constants are folded, so that weights stay bytes, and only on devices that have
 * kernels for it.  A ReLU or Clip in front of the Q joins the product.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/match.h"
#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/quantize.h"
#include "ops/quantized.h"
#include "tensor/element.h"

enum { CONCAT_MAX = 64 };

/* Bytes and what they stand for: one end of a DequantizeLinear or QuantizeLinear. */
struct quantized {
    struct value *bytes, *scale, *zero; /* zero may be NULL */
    enum dtype type;
    int64_t axis;
    bool per_tensor;
};

static bool is_constant(const struct value *value)
{
    return value != NULL && value->constant != NULL && value->constant->tensor.data != NULL;
}

static struct value *input(const struct node *node, size_t index)
{
    return index < node->inputs ? node->in[index] : NULL;
}

/* Scale and zero point of a DequantizeLinear or QuantizeLinear, both constant. */
static bool read_parameters(const struct node *node, struct quantized *out)
{
    const struct quantize_attrs *attrs = node->attrs;

    *out = (struct quantized){.scale = input(node, 1), .zero = input(node, 2), .axis = attrs->axis};
    if (!is_constant(out->scale) || out->scale->dtype != DTYPE_FLOAT || attrs->block_size != 0 ||
        attrs->precision != 0 || (out->zero != NULL && !is_constant(out->zero)))
        return false;
    out->per_tensor = shape_count(&out->scale->shape) == 1;
    return out->per_tensor || out->scale->shape.rank == 1;
}

static bool is_byte(enum dtype dtype)
{
    return dtype == DTYPE_UINT8 || dtype == DTYPE_INT8;
}

static bool read_dequantize(const struct value *value, struct quantized *out)
{
    const struct node *node = producer_is(value, "DequantizeLinear");

    if (node == NULL || !read_parameters(node, out) ||
        ((const struct quantize_attrs *)node->attrs)->output_dtype > DTYPE_FLOAT)
        return false;
    out->bytes = node->in[0];
    out->type = out->zero != NULL ? out->zero->dtype : out->bytes->dtype;
    return true;
}

/* Bytes with one scale. */
static bool read_activation(const struct value *value, struct quantized *out)
{
    return read_dequantize(value, out) && is_byte(out->type) && out->per_tensor;
}

static bool read_quantize(const struct node *node, struct quantized *out)
{
    if (!node_is(node, "QuantizeLinear") || !read_parameters(node, out) || !out->per_tensor)
        return false;
    out->bytes = node->out[0];
    out->type = out->zero != NULL ? out->zero->dtype : DTYPE_UINT8;
    return is_byte(out->type) &&
           (out->zero != NULL || ((const struct quantize_attrs *)node->attrs)->output_dtype == 0);
}

static float scale_at(const struct quantized *q, int64_t index)
{
    const float *scales = q->scale->constant->tensor.data;

    return scales[q->per_tensor ? 0 : index];
}

static double zero_of(const struct quantized *q)
{
    return q->zero == NULL ? 0 : element_read(q->zero->dtype, q->zero->constant->tensor.data, 0);
}

static bool same_quantization(const struct quantized *a, const struct quantized *b)
{
    return a->type == b->type && scale_at(a, 0) == scale_at(b, 0) && zero_of(a) == zero_of(b);
}

/* The zero point as an input: a new constant where it was left out. */
static struct value *zero_input(struct graph *graph, const struct quantized *q)
{
    struct constant *constant;

    if (q->zero != NULL)
        return q->zero;
    constant = constant_allocate(q->type, &(struct shape){.rank = 0});
    return constant == NULL ? NULL : graph_add_constant(graph, "", constant);
}

/* ---- products ---- */

/* A fusion being made: the Q, and what is in front of it. */
struct fusion {
    struct graph *graph;
    struct node *root; /* the QuantizeLinear */
    struct node *made; /* by this node, before its activation */
    struct quantized y;
    struct epilogue epilogue;
};

static bool read_clip(const struct node *node, struct epilogue *out)
{
    double low = -(double)__FLT_MAX__, high = (double)__FLT_MAX__;
    const struct value *min = input(node, 1), *max = input(node, 2);

    if ((min != NULL && !value_scalar(min, &low)) || (max != NULL && !value_scalar(max, &high)))
        return false;
    *out = (struct epilogue){.act = ACT_CLIP, .a = (float)low, .b = (float)high};
    return low <= high;
}

/* Weights: constant bytes with a scale for all or one for each index of `axis`. */
static bool read_weights(const struct value *value, int64_t axis, size_t rank,
                         struct quantized *out)
{
    if (!read_dequantize(value, out) || !is_byte(out->type) || !is_constant(out->bytes) ||
        out->bytes->shape.rank != rank)
        return false;
    if (out->per_tensor)
        return true;
    return (out->axis < 0 ? out->axis + (int64_t)rank : out->axis) == axis &&
           shape_count(&out->scale->shape) == out->bytes->shape.dims[axis];
}

/* Sums of bytes are kept in 32 bits, where floats have no such end. */
static bool sums_fit(const struct quantized *w, int64_t channels, const struct value *bias)
{
    const int32_t *start = bias != NULL ? bias->constant->tensor.data : NULL;
    int64_t room;

    if (channels <= 0)
        return false;
    room = INT32_MAX - shape_count(&w->bytes->shape) / channels * UINT8_MAX * UINT8_MAX;
    for (int64_t i = 0; start != NULL && i < channels; i++)
        if (llabs((long long)start[i]) > room)
            return false;
    return room >= 0;
}

/* The int32 bias in units of the products: its scale must be theirs. */
static bool read_bias(struct value *value, const struct quantized *x, const struct quantized *w,
                      int64_t channels, struct value **out_bias)
{
    struct quantized bias;

    *out_bias = NULL;
    if (value == NULL)
        return sums_fit(w, channels, NULL);
    if (!read_dequantize(value, &bias) || bias.bytes->dtype != DTYPE_INT32 ||
        !is_constant(bias.bytes) || bias.bytes->shape.rank != 1 ||
        bias.bytes->shape.dims[0] != channels ||
        (!bias.per_tensor && shape_count(&bias.scale->shape) != channels))
        return false;
    for (int64_t i = 0; bias.zero != NULL && i < shape_count(&bias.zero->shape); i++)
        if (((const int32_t *)bias.zero->constant->tensor.data)[i] != 0)
            return false;
    for (int64_t i = 0; i < channels; i++) {
        const double wanted = (double)scale_at(x, 0) * (double)scale_at(w, i);

        if (fabs((double)scale_at(&bias, i) - wanted) > 1e-6 * wanted)
            return false;
    }
    *out_bias = bias.bytes;
    return sums_fit(w, channels, bias.bytes);
}

/* The inputs that all QLinear products have at the same places. */
static enum status product_inputs(const struct fusion *fusion, const struct quantized *a,
                                  const struct quantized *b, struct value *in[QLINEAR_BIAS])
{
    in[QLINEAR_A] = a->bytes;
    in[QLINEAR_A_SCALE] = a->scale;
    in[QLINEAR_A_ZERO] = zero_input(fusion->graph, a);
    in[QLINEAR_B] = b->bytes;
    in[QLINEAR_B_SCALE] = b->scale;
    in[QLINEAR_B_ZERO] = zero_input(fusion->graph, b);
    in[QLINEAR_Y_SCALE] = fusion->y.scale;
    in[QLINEAR_Y_ZERO] = zero_input(fusion->graph, &fusion->y);
    return in[QLINEAR_A_ZERO] == NULL || in[QLINEAR_B_ZERO] == NULL || in[QLINEAR_Y_ZERO] == NULL
               ? STATUS_NO_MEMORY
               : STATUS_OK;
}

static enum status fuse_conv(struct fusion *fusion)
{
    struct node *conv = fusion->made, *made;
    struct conv_attrs attrs = *(const struct conv_attrs *)conv->attrs;
    struct value *in[QLINEAR_BIAS + 1];
    struct quantized x, w;

    if (conv->inputs > 3 || attrs.epilogue.act != ACT_NONE ||
        !read_activation(conv->in[CONV_X], &x) ||
        !read_weights(conv->in[CONV_W], 0, conv->in[CONV_W]->producer->in[0]->shape.rank, &w) ||
        !read_bias(input(conv, CONV_BIAS), &x, &w, w.bytes->shape.dims[0], &in[QLINEAR_BIAS]))
        return STATUS_OK;
    TRY(product_inputs(fusion, &x, &w, in));
    made = node_replace(fusion->graph, fusion->root, &op_qlinear_conv,
                        in[QLINEAR_BIAS] != NULL ? 9 : 8, in);
    if (made == NULL)
        return STATUS_NO_MEMORY;
    attrs.epilogue = fusion->epilogue;
    *(struct conv_attrs *)made->attrs = attrs;
    return STATUS_OK;
}

/* Both kinds of products of matrices; `bias` and trans_b are Gemm's. */
static enum status make_matmul(struct fusion *fusion, const struct quantized *a,
                               const struct quantized *b, struct value *bias, bool trans_b)
{
    struct value *in[QLINEAR_BIAS + 1];
    struct node *made;

    TRY(product_inputs(fusion, a, b, in));
    in[QLINEAR_BIAS] = bias;
    made = node_replace(fusion->graph, fusion->root, &op_qlinear_matmul, bias != NULL ? 9 : 8, in);
    if (made == NULL)
        return STATUS_NO_MEMORY;
    *(struct quantized_matmul_attrs *)made->attrs = (struct quantized_matmul_attrs){
        .trans_b = trans_b, .has_bias = bias != NULL, .epilogue = fusion->epilogue};
    return STATUS_OK;
}

static enum status fuse_matmul(struct fusion *fusion)
{
    const struct node *matmul = fusion->made;
    struct quantized a, b;

    if (matmul->inputs != 2 || !read_activation(matmul->in[0], &a) ||
        (!read_weights(matmul->in[1], 1, 2, &b) && !read_activation(matmul->in[1], &b)))
        return STATUS_OK;
    return make_matmul(fusion, &a, &b, NULL, false);
}

static enum status fuse_gemm(struct fusion *fusion)
{
    const struct node *gemm = fusion->made;
    const struct gemm_attrs *attrs = gemm->attrs;
    const int64_t axis = attrs->transB != 0 ? 0 : 1;
    struct value *bias;
    struct quantized a, b;

    if (attrs->transA != 0 || attrs->alpha != 1 || attrs->beta != 1 || gemm->inputs > 3 ||
        !read_activation(gemm->in[0], &a) || !read_weights(gemm->in[1], axis, 2, &b) ||
        !read_bias(input(gemm, 2), &a, &b, b.bytes->shape.dims[axis], &bias))
        return STATUS_OK;
    return make_matmul(fusion, &a, &b, bias, attrs->transB != 0);
}

/* ---- element by element ---- */

static enum status fuse_pair(struct fusion *fusion, const struct op_def *op)
{
    struct quantized a, b;
    struct value *in[8];
    struct node *made;

    if (fusion->made->inputs != 2 || !read_activation(fusion->made->in[0], &a) ||
        !read_activation(fusion->made->in[1], &b))
        return STATUS_OK;
    in[QLINEAR_PAIR_A] = a.bytes;
    in[QLINEAR_PAIR_A_SCALE] = a.scale;
    in[QLINEAR_PAIR_A_ZERO] = zero_input(fusion->graph, &a);
    in[QLINEAR_PAIR_B] = b.bytes;
    in[QLINEAR_PAIR_B_SCALE] = b.scale;
    in[QLINEAR_PAIR_B_ZERO] = zero_input(fusion->graph, &b);
    in[QLINEAR_PAIR_Y_SCALE] = fusion->y.scale;
    in[QLINEAR_PAIR_Y_ZERO] = zero_input(fusion->graph, &fusion->y);
    if (in[QLINEAR_PAIR_A_ZERO] == NULL || in[QLINEAR_PAIR_B_ZERO] == NULL ||
        in[QLINEAR_PAIR_Y_ZERO] == NULL)
        return STATUS_NO_MEMORY;
    made = node_replace(fusion->graph, fusion->root, op, 8, in);
    if (made == NULL)
        return STATUS_NO_MEMORY;
    ((struct qlinear_pair_attrs *)made->attrs)->epilogue = fusion->epilogue;
    return STATUS_OK;
}

/* All bytes in the order of their bits. */
static struct value *all_bytes(struct graph *graph, enum dtype type)
{
    struct constant *constant = constant_allocate(type, &(struct shape){.rank = 1, .dims = {256}});

    if (constant == NULL)
        return NULL;
    for (unsigned i = 0; i < 256; i++)
        ((uint8_t *)(uintptr_t)constant->tensor.data)[i] = (uint8_t)i;
    return graph_add_constant(graph, "", constant);
}

/* A node like `like` in front of `before` that reads `value` as input `place`. */
static struct value *copy_node(struct graph *graph, struct node *before, const struct node *like,
                               size_t place, struct value *value)
{
    struct node *node = graph_add_node(graph, before, like->op, like->name, like->inputs, 1);
    struct value *out = graph_add_value(graph, "");

    if (node == NULL || out == NULL)
        return NULL;
    if (like->op->attrs_size > 0)
        memcpy(node->attrs, like->attrs, like->op->attrs_size);
    for (size_t i = 0; i < like->inputs; i++)
        node_set_input(node, i, i == place ? value : like->in[i]);
    node_set_output(node, 0, out);
    return out;
}

/* Q(f(DQ(all bytes))): folded with the model's other constants.  NULL for f: nothing between. */
static struct value *make_table(struct graph *graph, struct node *root, const struct node *f,
                                size_t place, const struct node *dequantize, enum dtype type)
{
    struct value *table = all_bytes(graph, type);

    if (table != NULL)
        table = copy_node(graph, root, dequantize, 0, table);
    if (table != NULL && f != NULL)
        table = copy_node(graph, root, f, place, table);
    return table == NULL ? NULL : copy_node(graph, root, root, 0, table);
}

/* The input that is no number known beforehand; SIZE_MAX when it is not the only one. */
static size_t only_input(const struct node *node)
{
    size_t place = SIZE_MAX;

    for (size_t i = 0; i < node->inputs; i++) {
        if (node->in[i] == NULL || (is_constant(node->in[i]) && node->in[i]->shape.rank == 0))
            continue;
        if (place != SIZE_MAX)
            return SIZE_MAX;
        place = i;
    }
    return place;
}

static enum status fuse_table(struct fusion *fusion)
{
    const struct node *f = node_is(fusion->made, "DequantizeLinear") ? NULL : fusion->made;
    const size_t place = f != NULL ? only_input(f) : 0;
    struct value *of = f == NULL ? fusion->root->in[0] : place != SIZE_MAX ? f->in[place] : NULL;
    struct value *in[2];
    struct quantized x;

    if ((f != NULL && (!node_is_elementwise(f) || f->outputs != 1 || node_is(f, "Cast"))) ||
        of == NULL || !read_activation(of, &x))
        return STATUS_OK;
    if (f == NULL && same_quantization(&x, &fusion->y)) {
        enum status status = graph_replace_value(fusion->graph, fusion->root->out[0], x.bytes);

        return status == STATUS_PRECONDITION ? STATUS_OK : status;
    }
    in[0] = x.bytes;
    in[1] = make_table(fusion->graph, fusion->root, f, place, of->producer, x.type);
    if (in[1] == NULL || node_replace(fusion->graph, fusion->root, &op_byte_table, 2, in) == NULL)
        return STATUS_NO_MEMORY;
    return STATUS_OK;
}

/* ---- pools and what only moves ---- */

static enum status fuse_average(struct fusion *fusion)
{
    struct quantized x;
    struct value *in[5];

    if (!read_activation(fusion->made->in[0], &x))
        return STATUS_OK;
    in[0] = x.bytes;
    in[1] = x.scale;
    in[2] = zero_input(fusion->graph, &x);
    in[3] = fusion->y.scale;
    in[4] = zero_input(fusion->graph, &fusion->y);
    if (in[2] == NULL || in[4] == NULL ||
        node_replace(fusion->graph, fusion->root, &op_qlinear_global_average_pool, 5, in) == NULL)
        return STATUS_NO_MEMORY;
    return STATUS_OK;
}

static bool only_moves(const struct node *node)
{
    static const char *const names[] = {"MaxPool", "Transpose",   "Slice",   "Gather",
                                        "Expand",  "Identity",    "Reshape", "DepthToSpace",
                                        "Tile",    "SpaceToDepth"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (node_is(node, names[i]))
            return node->outputs == 1;
    return node_is_reshaping(node);
}

static enum status fuse_move(struct fusion *fusion)
{
    const struct node *old = fusion->made;
    struct value *in[8];
    struct quantized x;
    struct node *made;

    if (old->inputs > 8 || !read_activation(old->in[0], &x) || !same_quantization(&x, &fusion->y))
        return STATUS_OK;
    memcpy((void *)in, (const void *)old->in, old->inputs * sizeof(struct value *));
    in[0] = x.bytes;
    made = node_replace(fusion->graph, fusion->root, old->op, old->inputs, in);
    if (made == NULL)
        return STATUS_NO_MEMORY;
    if (old->op->attrs_size > 0)
        memcpy(made->attrs, old->attrs, old->op->attrs_size);
    return STATUS_OK;
}

/* The bytes of one part in the whole's scale. */
static struct value *rescaled(struct fusion *fusion, struct value *part, const struct quantized *x)
{
    struct graph *graph = fusion->graph;
    struct value *table, *out;
    struct node *node;

    if (same_quantization(x, &fusion->y))
        return x->bytes;
    table = make_table(graph, fusion->root, NULL, 0, part->producer, x->type);
    node = graph_add_node(graph, fusion->root, &op_byte_table, "rescale", 2, 1);
    out = graph_add_value(graph, "");
    if (table == NULL || node == NULL || out == NULL)
        return NULL;
    node_set_input(node, 0, x->bytes);
    node_set_input(node, 1, table);
    node_set_output(node, 0, out);
    return out;
}

static enum status fuse_concat(struct fusion *fusion)
{
    const struct node *old = fusion->made;
    struct quantized parts[CONCAT_MAX];
    struct value *in[CONCAT_MAX];
    struct node *made;

    if (old->inputs > CONCAT_MAX)
        return STATUS_OK;
    for (size_t i = 0; i < old->inputs; i++)
        if (!read_activation(old->in[i], &parts[i]))
            return STATUS_OK;
    for (size_t i = 0; i < old->inputs; i++)
        if ((in[i] = rescaled(fusion, old->in[i], &parts[i])) == NULL)
            return STATUS_NO_MEMORY;
    made = node_replace(fusion->graph, fusion->root, old->op, old->inputs, in);
    if (made == NULL)
        return STATUS_NO_MEMORY;
    memcpy(made->attrs, old->attrs, old->op->attrs_size);
    return STATUS_OK;
}

/* ---- the walk ---- */

/* What made `value` when it has no other user. */
static struct node *own_producer(const struct graph *graph, const struct value *value,
                                 const struct node *user)
{
    return graph_single_user(graph, value) == user ? value->producer : NULL;
}

/* Products may have an activation in front of the Q; a table takes whatever else is there. */
static void look_behind_activation(struct fusion *fusion)
{
    struct node *act = fusion->made, *behind = own_producer(fusion->graph, act->in[0], act);
    struct epilogue epilogue = {.act = ACT_RELU};

    if (!node_is(act, "Relu") && !(node_is(act, "Clip") && read_clip(act, &epilogue)))
        return;
    if (node_is(behind, "Conv") || node_is(behind, "MatMul") || node_is(behind, "Gemm") ||
        node_is(behind, "Add") || node_is(behind, "Mul")) {
        fusion->made = behind;
        fusion->epilogue = epilogue;
    }
}

static enum status fuse(struct fusion *fusion)
{
    if (node_is(fusion->made, "DequantizeLinear"))
        return fuse_table(fusion);
    if (own_producer(fusion->graph, fusion->root->in[0], fusion->root) == NULL)
        return STATUS_OK;
    look_behind_activation(fusion);
    if (node_is(fusion->made, "Conv"))
        return fuse_conv(fusion);
    if (node_is(fusion->made, "MatMul"))
        return fuse_matmul(fusion);
    if (node_is(fusion->made, "Gemm"))
        return fuse_gemm(fusion);
    if (node_is(fusion->made, "GlobalAveragePool"))
        return fuse_average(fusion);
    if (node_is(fusion->made, "Concat"))
        return fuse_concat(fusion);
    if (only_moves(fusion->made))
        return fuse_move(fusion);
    if (node_is(fusion->made, "Add") && only_input(fusion->made) == SIZE_MAX)
        return fuse_pair(fusion, &op_qlinear_add);
    if (node_is(fusion->made, "Mul") && only_input(fusion->made) == SIZE_MAX)
        return fuse_pair(fusion, &op_qlinear_mul);
    return fusion->epilogue.act == ACT_NONE ? fuse_table(fusion) : STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    while (context->multiplies_bytes && link != &graph->nodes) {
        struct fusion fusion = {.graph = graph, .root = CONTAINER_OF(link, struct node, link)};

        link = link->next;
        if (!read_quantize(fusion.root, &fusion.y) || fusion.root->in[0]->producer == NULL)
            continue;
        fusion.made = fusion.root->in[0]->producer;
        if (fuse(&fusion) != STATUS_OK)
            return pass_no_memory(err);
    }
    return STATUS_OK;
}

const struct pass pass_fuse_quantized = {.name = "fuse_quantized", .stage = PASS_MODEL, .run = run};
