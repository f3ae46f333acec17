/* y = s x + t per channel behind a convolution or Gemm goes into its weights and bias.
 *
 *      x ──> Conv(W, b) ──> BatchNormalization        becomes        x ──> Conv(sW, sb + t)
 *      x ──> Conv(W, b) ──> Mul(s) ──> Add(t)
 *
 *      x ──> MatMul(W) ──> Add(b) ──> Mul(s)         becomes        x ──> MatMul(sW) ──> Add(sb)
 *
 * Computed in double, rounded once.  Weights are rewritten only when the sum has no other user; a
 * weight shared by several convolutions stays as it is for the others. */
#include "graph/match.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The linear step before: where its weights keep the output channel. */
struct linear {
    struct node *node;
    size_t channels;
    size_t rank;  /* of its result */
    double alpha; /* what it multiplies its product and its bias by (Gemm) */
    double beta;
};

struct affine {
    size_t channels;
    double *scale; /* both in one allocation */
    double *shift;
};

static bool is_float_constant(const struct value *value)
{
    return value != NULL && value->constant != NULL && value->dtype == DTYPE_FLOAT;
}

static size_t weight_channels(const struct node *node, const struct shape *weight)
{
    if (node_is(node, "Conv"))
        return (size_t)weight->dims[0];
    if (node_is(node, "ConvTranspose"))
        return (size_t)(weight->dims[1] * node_attr_int(node, "group", 1));
    return (size_t)weight->dims[node_attr_int(node, "transB", 0) != 0 ? 0 : 1];
}

/* Else the operator's rule will refuse the node. */
static bool groups_fit(const struct node *node, const struct shape *weight)
{
    int64_t group = node_attr_int(node, "group", 1);

    return group >= 1 && group <= weight->dims[0] && weight->dims[0] % group == 0;
}

/* Gemm's C may have any shape that broadcasts to [m, n]; here only one row of it, or one number. */
static bool is_row(const struct value *value, size_t channels)
{
    const struct shape *shape = &value->constant->tensor.shape;
    size_t count = (size_t)shape_count(shape);

    return (count == 1 || (count == channels && shape->dims[shape->rank - 1] == (int64_t)channels));
}

static bool read_linear(struct node *node, struct linear *out)
{
    const struct shape *weight;
    bool gemm = node_is(node, "Gemm");

    if (!gemm && !node_is(node, "Conv") && !node_is(node, "ConvTranspose"))
        return false;
    if (node->inputs < 2 || node->inputs > 3 || !is_float_constant(node->in[1]))
        return false;
    if (node->inputs == 3 && node->in[2] != NULL && !is_float_constant(node->in[2]))
        return false;
    weight = &node->in[1]->constant->tensor.shape;
    if ((gemm ? weight->rank != 2 : weight->rank < 3) || !groups_fit(node, weight))
        return false;
    *out = (struct linear){.node = node,
                           .channels = weight_channels(node, weight),
                           .rank = weight->rank,
                           .alpha = gemm ? (double)node_attr_float(node, "alpha", 1) : 1,
                           .beta = gemm ? (double)node_attr_float(node, "beta", 1) : 1};
    return node->inputs < 3 || node->in[2] == NULL || is_row(node->in[2], out->channels);
}

/* --- the affine step ----------------------------------------------------------------------------
 */

static bool affine_init(struct affine *affine, size_t channels)
{
    affine->channels = channels;
    affine->scale = calloc(channels + 1, 2 * sizeof(double));
    if (affine->scale == NULL)
        return false;
    affine->shift = affine->scale + channels;
    for (size_t i = 0; i < channels; i++)
        affine->scale[i] = 1;
    return true;
}

static bool is_parameter(const struct node *node, size_t index, size_t channels)
{
    return is_float_constant(node->in[index]) &&
           shape_count(&node->in[index]->constant->tensor.shape) == (int64_t)channels;
}

static bool read_batch_normalization(const struct node *node, struct affine *affine)
{
    double epsilon = (double)node_attr_float(node, "epsilon", 1e-5F);
    const struct tensor *in[5];

    if (node->inputs != 5)
        return false;
    for (size_t i = 1; i < 5; i++) {
        if (!is_parameter(node, i, affine->channels))
            return false;
        in[i] = &node->in[i]->constant->tensor;
    }
    for (size_t i = 0; i < affine->channels; i++) {
        double scale = tensor_float(in[1], i) / sqrt(tensor_float(in[4], i) + epsilon);

        affine->scale[i] = scale;
        affine->shift[i] = tensor_float(in[2], i) - tensor_float(in[3], i) * scale;
        if (!isfinite(scale) || !isfinite(affine->shift[i]))
            return false;
    }
    return true;
}

/* One number for all, or one a channel where channels stand: *out_step is 0 or 1. */
static bool is_per_channel(const struct linear *linear, const struct value *value, size_t *out_step)
{
    const struct shape *shape;
    size_t behind = linear->rank - 2; /* dimensions behind the channels */

    if (!is_float_constant(value))
        return false;
    shape = &value->constant->tensor.shape;
    if (shape->rank > linear->rank)
        return false;
    *out_step = shape_count(shape) == 1 ? 0 : 1;
    if (*out_step == 0)
        return true;
    if (shape_count(shape) != (int64_t)linear->channels || shape->rank < behind + 1)
        return false;
    return shape->dims[shape->rank - 1 - behind] == (int64_t)linear->channels;
}

static bool apply(const struct node *node, bool constant_first, double c, double *scale,
                  double *shift)
{
    if (node_is(node, "Mul"))
        *scale = c;
    else if (node_is(node, "Add"))
        *shift = c;
    else if (node_is(node, "Sub"))
        *shift = constant_first ? c : -c;
    else if (!node_is(node, "Div") || constant_first || c == 0)
        return false;
    else
        *scale = 1 / c;
    if (node_is(node, "Sub") && constant_first)
        *scale = -1;
    return true;
}

static bool read_arithmetic(const struct linear *linear, const struct node *node,
                            struct affine *affine)
{
    bool constant_first;
    const struct value *constant;
    size_t step;

    if (node->inputs != 2 || node->in[0] == node->in[1])
        return false;
    constant_first = node->in[1] == linear->node->out[0];
    constant = node->in[constant_first ? 0 : 1];
    if (!is_per_channel(linear, constant, &step))
        return false;
    for (size_t i = 0; i < affine->channels; i++)
        if (!apply(node, constant_first, tensor_float(&constant->constant->tensor, i * step),
                   &affine->scale[i], &affine->shift[i]))
            return false;
    return true;
}

static bool read_affine(const struct linear *linear, const struct node *node, struct affine *affine)
{
    if (node_is(node, "BatchNormalization"))
        return node->in[0] == linear->node->out[0] && read_batch_normalization(node, affine);
    return read_arithmetic(linear, node, affine);
}

/* --- new weights --------------------------------------------------------------------------------
 */

/* Where the output channel stands among the indices of the weights. */
enum channel_axis { CHANNEL_FIRST, CHANNEL_SECOND, CHANNEL_GROUPED };
struct channel_map {
    enum channel_axis axis;
    size_t inner;      /* elements behind the second dimension */
    size_t columns;    /* of the second dimension */
    size_t group_rows; /* of the first dimension, in one group */
};

static struct channel_map map_channels(const struct linear *linear, const struct shape *shape)
{
    struct channel_map map = {.axis = CHANNEL_FIRST,
                              .inner = (size_t)shape_product(shape, 2, shape->rank),
                              .columns = (size_t)shape->dims[1]};

    if (node_is(linear->node, "ConvTranspose")) {
        map.axis = CHANNEL_GROUPED;
        map.group_rows = (size_t)shape->dims[0] / (size_t)node_attr_int(linear->node, "group", 1);
    } else if (node_is(linear->node, "MatMul") ||
               (node_is(linear->node, "Gemm") && node_attr_int(linear->node, "transB", 0) == 0)) {
        map.axis = CHANNEL_SECOND;
    }
    return map;
}

/* The output channel of the weights' elements behind these two indices. */
static size_t channel_of(const struct channel_map *map, size_t first, size_t second)
{
    if (map->axis == CHANNEL_GROUPED)
        return first / map->group_rows * map->columns + second;
    return map->axis == CHANNEL_FIRST ? first : second;
}

/* How scaled weights come back once they have left memory: from the old ones, by the same sums. */
struct scaled_origin {
    struct constant_origin origin; /* source: the old weights */
    struct channel_map map;
    double scale[]; /* per channel */
};

static void scale_run(const float *from, float *to, size_t count, double scale)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (float)((double)from[i] * scale);
}

/* Run by run of one channel: all weights of a model pass here. */
static enum status scale_weights(const struct constant_origin *origin, void *to)
{
    const struct scaled_origin *scaled = (const struct scaled_origin *)origin;
    const struct channel_map *map = &scaled->map;
    const struct tensor *old = &origin->source->tensor;
    size_t rows = (size_t)old->shape.dims[0];
    const float *in = old->data;
    float *out = to;
    size_t run = map->axis == CHANNEL_FIRST ? map->columns * map->inner : map->inner;
    size_t runs = map->axis == CHANNEL_FIRST ? 1 : map->columns;

    for (size_t first = 0; first < rows; first++)
        for (size_t second = 0; second < runs; second++) {
            scale_run(in, out, run, scaled->scale[channel_of(map, first, second)]);
            in += run;
            out += run;
        }
    return STATUS_OK;
}

static void release_scaled(struct constant_origin *origin)
{
    constant_unref(origin->source);
    free(origin);
}

/* Heavy ones are scaled when somebody wants them. */
static struct constant *scaled_weights(const struct linear *linear, const struct affine *affine)
{
    struct constant *old = linear->node->in[1]->constant, *made;
    const struct shape *shape = &old->tensor.shape;
    struct scaled_origin *scaled =
        malloc(sizeof(*scaled) + affine->channels * sizeof(*scaled->scale));

    if (scaled == NULL)
        return NULL;
    scaled->origin = (struct constant_origin){
        .restore = scale_weights, .release = release_scaled, .source = old};
    scaled->map = map_channels(linear, shape);
    memcpy(scaled->scale, affine->scale, affine->channels * sizeof(*scaled->scale));
    made = constant_promise(DTYPE_FLOAT, shape, &scaled->origin);
    if (made == NULL) {
        free(scaled);
        return NULL;
    }
    (void)constant_ref(old);
    if (!constant_is_heavy(DTYPE_FLOAT, shape) && constant_restore(made) != STATUS_OK) {
        constant_unref(made);
        return NULL;
    }
    return made;
}

static struct constant *shifted_bias(const struct linear *linear, const struct affine *affine)
{
    const struct node *node = linear->node;
    const struct tensor *old =
        node->inputs == 3 && node->in[2] != NULL ? &node->in[2]->constant->tensor : NULL;
    size_t step = old == NULL || shape_count(&old->shape) == 1 ? 0 : 1;
    int64_t dim = (int64_t)affine->channels;
    struct shape shape = shape_make(1, &dim);
    struct constant *made = constant_allocate(DTYPE_FLOAT, &shape);
    float *to;

    if (made == NULL)
        return NULL;
    to = (float *)(uintptr_t)made->tensor.data;
    for (size_t i = 0; i < affine->channels; i++) {
        double bias = old == NULL ? 0 : linear->beta * tensor_float(old, i * step);

        to[i] = (float)(bias * affine->scale[i] + affine->shift[i]);
    }
    return made;
}

static enum status rewrite(struct graph *graph, const struct linear *linear, struct node *node,
                           const struct affine *affine)
{
    struct value *out = node->out[0];
    struct constant *weights = scaled_weights(linear, affine);
    struct constant *bias = shifted_bias(linear, affine);
    struct value *weights_value, *bias_value;

    if (weights == NULL || bias == NULL) {
        constant_unref(weights);
        constant_unref(bias);
        return STATUS_NO_MEMORY;
    }
    weights_value = graph_add_constant(graph, linear->node->in[1]->name, weights);
    bias_value = graph_add_constant(graph, "", bias);
    if (weights_value == NULL || bias_value == NULL ||
        node_grow_inputs(graph, linear->node, 3) != STATUS_OK)
        return STATUS_NO_MEMORY;
    node_set_input(linear->node, 1, weights_value);
    node_set_input(linear->node, 2, bias_value);
    (void)node_set_float(linear->node, "beta", 1);
    graph_remove_node(graph, node);
    node_set_output(linear->node, 0, out);
    return STATUS_OK;
}

/* Takes the step behind `node` into it; *out_folded: there was one. */
static enum status fold_next(struct graph *graph, struct node *node, bool *out_folded)
{
    struct node *next = node->outputs == 1 ? graph_single_user(graph, node->out[0]) : NULL;
    enum status status = STATUS_OK;
    struct affine affine;
    struct linear linear;

    *out_folded = false;
    if (next == NULL || next->outputs != 1 || !read_linear(node, &linear))
        return STATUS_OK;
    if (!affine_init(&affine, linear.channels))
        return STATUS_NO_MEMORY;
    if (read_affine(&linear, next, &affine)) {
        status = rewrite(graph, &linear, next, &affine);
        *out_folded = status == STATUS_OK;
    }
    free(affine.scale);
    return status;
}

/* --- factors behind a product and its bias ------------------------------------------------------
 */

/* Numbers along the last axis, or one for all: a row of so many, or a scalar. */
static bool is_columns(const struct value *value, size_t channels)
{
    const struct shape *shape = value->constant != NULL ? &value->constant->tensor.shape : NULL;

    return is_float_constant(value) && shape->rank <= 1 &&
           (shape_count(shape) == 1 || shape_count(shape) == (int64_t)channels);
}

/* The bias of an Add behind a product: its place, or -1. */
static int bias_place(const struct node *add, const struct value *product, size_t channels)
{
    for (int i = 0; node_is(add, "Add") && i < 2; i++)
        if (add->in[1 - i] == product && is_columns(add->in[i], channels))
            return i;
    return -1;
}

static struct constant *scaled_bias(const struct constant *old, const struct affine *affine)
{
    const size_t step = shape_count(&old->tensor.shape) == 1 ? 0 : 1;
    const int64_t dim = (int64_t)affine->channels;
    struct shape shape = shape_make(1, &dim);
    struct constant *made = constant_allocate(DTYPE_FLOAT, &shape);

    for (size_t i = 0; made != NULL && i < affine->channels; i++)
        ((float *)(uintptr_t)made->tensor.data)[i] =
            (float)(tensor_float(&old->tensor, i * step) * affine->scale[i]);
    return made;
}

static enum status scale_product(struct graph *graph, const struct linear *linear, struct node *add,
                                 size_t place, struct node *scaling, const struct affine *affine)
{
    struct constant *weights = scaled_weights(linear, affine);
    struct constant *bias = scaled_bias(add->in[place]->constant, affine);
    struct value *weights_value, *bias_value, *out = scaling->out[0];

    if (weights == NULL || bias == NULL) {
        constant_unref(weights);
        constant_unref(bias);
        return STATUS_NO_MEMORY;
    }
    weights_value = graph_add_constant(graph, linear->node->in[1]->name, weights);
    bias_value = graph_add_constant(graph, "", bias);
    if (weights_value == NULL || bias_value == NULL)
        return STATUS_NO_MEMORY;
    node_set_input(linear->node, 1, weights_value);
    node_set_input(add, place, bias_value);
    graph_remove_node(graph, scaling);
    node_set_output(add, 0, out);
    return STATUS_OK;
}

/* A product of constant weights, its bias and a factor: a gain for each column, as ConvNeXt has one
 * behind each block, or half of it, as Conformer takes it. */
static enum status fold_gain(struct graph *graph, struct node *node)
{
    struct node *add, *scaling;
    struct linear linear = {.node = node, .rank = 2};
    struct affine affine;
    enum status status = STATUS_OK;
    int place;

    if (!node_is(node, "MatMul") || node->inputs != 2 || node->out[0] == NULL ||
        !is_float_constant(node->in[1]) || node->in[1]->constant->tensor.shape.rank != 2)
        return STATUS_OK;
    linear.channels = (size_t)node->in[1]->constant->tensor.shape.dims[1];
    add = graph_single_user(graph, node->out[0]);
    if (add == NULL || (place = bias_place(add, node->out[0], linear.channels)) < 0)
        return STATUS_OK;
    scaling = graph_single_user(graph, add->out[0]);
    if ((!node_is(scaling, "Mul") && !node_is(scaling, "Div")) ||
        !is_columns(scaling->in[scaling->in[0] == add->out[0]], linear.channels))
        return STATUS_OK;
    if (!affine_init(&affine, linear.channels))
        return STATUS_NO_MEMORY;
    linear.node = add; /* for the operand that is none of the constants */
    if (read_arithmetic(&linear, scaling, &affine)) {
        linear.node = node;
        status = scale_product(graph, &linear, add, (size_t)place, scaling, &affine);
    }
    free(affine.scale);
    return status;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    (void)context;
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        bool folded;

        if (fold_gain(graph, node) != STATUS_OK)
            return pass_no_memory(err);
        do {
            if (fold_next(graph, node, &folded) != STATUS_OK)
                return pass_no_memory(err);
        } while (folded);
        link = node->link.next;
    }
    return STATUS_OK;
}

const struct pass pass_fold_affine = {.name = "fold_affine", .stage = PASS_MODEL, .run = run};
