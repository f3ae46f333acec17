/* From struct dnn_graph to cuDNN's descriptors. */
#include "device/cuda/dnn/graph.h"

#include <stdlib.h>

/* ---- descriptors ---- */

static bool keep(struct dnn_plan *plan, dnn_part part)
{
    if (plan->count == plan->room) {
        size_t room = plan->room * 2 + 32;
        dnn_part *grown = reallocarray(plan->parts, room, sizeof(*grown));

        if (grown == NULL)
            return false;
        plan->parts = grown;
        plan->room = room;
    }
    plan->parts[plan->count++] = part;
    return true;
}

dnn_part dnn_make(struct dnn_builder *builder, cudnnBackendDescriptorType_t type)
{
    const struct dnn *dnn = builder->plan->dnn;
    dnn_part part = NULL;

    if (builder->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    builder->status = dnn->cudnnBackendCreateDescriptor(type, &part);
    if (builder->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (!keep(builder->plan, part)) {
        (void)dnn->cudnnBackendDestroyDescriptor(part);
        builder->status = CUDNN_STATUS_ALLOC_FAILED;
        return NULL;
    }
    return part;
}

void dnn_set(struct dnn_builder *builder, dnn_part part, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (builder->status == CUDNN_STATUS_SUCCESS)
        builder->status =
            builder->plan->dnn->cudnnBackendSetAttribute(part, name, type, count, values);
}

void dnn_finalize(struct dnn_builder *builder, dnn_part part)
{
    if (builder->status == CUDNN_STATUS_SUCCESS)
        builder->status = builder->plan->dnn->cudnnBackendFinalize(part);
}

int64_t dnn_ask(struct dnn_builder *builder, dnn_part part, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t room, void *values)
{
    int64_t count = 0;

    if (builder->status == CUDNN_STATUS_SUCCESS)
        builder->status =
            builder->plan->dnn->cudnnBackendGetAttribute(part, name, type, room, &count, values);
    return builder->status == CUDNN_STATUS_SUCCESS ? count : 0;
}

static void set_part(struct dnn_builder *builder, dnn_part part, cudnnBackendAttributeName_t name,
                     dnn_part value)
{
    dnn_set(builder, part, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_sizes(struct dnn_builder *builder, dnn_part part, cudnnBackendAttributeName_t name,
                      size_t count, const int64_t *values)
{
    dnn_set(builder, part, name, CUDNN_TYPE_INT64, (int64_t)count, values);
}

/* ---- tensors ---- */

static cudnnDataType_t type_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_FLOAT16:
        return CUDNN_DATA_HALF;
    case DTYPE_BFLOAT16:
        return CUDNN_DATA_BFLOAT16;
    default:
        return CUDNN_DATA_FLOAT;
    }
}

static void fill_strides(const struct dnn_graph *graph, const int64_t *sizes,
                         int64_t strides[DNN_RANK])
{
    int64_t stride = graph->channels_last ? sizes[1] : 1;

    for (size_t i = graph->spatial + 2; i-- > 0;) {
        if (graph->channels_last && i == 1) {
            strides[i] = 1;
            continue;
        }
        strides[i] = stride;
        stride *= sizes[i];
    }
}

/* Inner ones are between operations: in float32, and never in memory. */
static dnn_part tensor(struct dnn_builder *builder, const struct dnn_graph *graph, int64_t id,
                       const int64_t *sizes)
{
    dnn_part part = dnn_make(builder, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    size_t rank = graph->spatial + 2;
    bool inner = id >= DNN_INNER;
    cudnnDataType_t type = inner ? CUDNN_DATA_FLOAT : type_of(graph->dtype);
    int64_t strides[DNN_RANK], alignment = inner ? DNN_ALIGNMENT : graph->alignment;

    fill_strides(graph, sizes, strides);
    dnn_set(builder, part, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_DIMENSIONS, rank, sizes);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_STRIDES, rank, strides);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment);
    dnn_set(builder, part, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
    dnn_finalize(builder, part);
    return part;
}

/* ---- operations ---- */

static dnn_part convolution(struct dnn_builder *builder, const struct dnn_graph *graph)
{
    dnn_part part = dnn_make(builder, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    int64_t spatial = (int64_t)graph->spatial;
    cudnnDataType_t computed = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;

    set_sizes(builder, part, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &spatial);
    dnn_set(builder, part, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computed);
    dnn_set(builder, part, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_sizes(builder, part, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, graph->spatial, graph->pad_begin);
    set_sizes(builder, part, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, graph->spatial, graph->pad_end);
    set_sizes(builder, part, CUDNN_ATTR_CONVOLUTION_DILATIONS, graph->spatial, graph->dilation);
    set_sizes(builder, part, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, graph->spatial, graph->stride);
    dnn_finalize(builder, part);
    return part;
}

/* Names of the two convolutions' attributes: from, weights, to, descriptor, alpha, beta. */
static const struct conv_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t from, weights, to, how, alpha, beta;
} conv_names[] = {[DNN_CONV] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
                  [DNN_TRANSPOSED] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA}};

static dnn_part convolve(struct dnn_builder *builder, const struct dnn_graph *graph, dnn_part x,
                         dnn_part w, dnn_part y)
{
    const struct conv_names *names = &conv_names[graph->kind];
    dnn_part how = convolution(builder, graph);
    dnn_part part = dnn_make(builder, names->type);
    const float alpha = 1, beta = 0;

    set_part(builder, part, names->from, x);
    set_part(builder, part, names->weights, w);
    set_part(builder, part, names->to, y);
    set_part(builder, part, names->how, how);
    dnn_set(builder, part, names->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    dnn_set(builder, part, names->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    dnn_finalize(builder, part);
    return part;
}

/* y = mode(x, b); b may be NULL. */
static dnn_part pointwise(struct dnn_builder *builder, cudnnPointwiseMode_t mode, dnn_part x,
                          dnn_part b, dnn_part y)
{
    dnn_part how = dnn_make(builder, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    dnn_part part = dnn_make(builder, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    cudnnDataType_t computed = CUDNN_DATA_FLOAT;

    dnn_set(builder, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    dnn_set(builder, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &computed);
    dnn_finalize(builder, how);
    set_part(builder, part, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_part(builder, part, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != NULL)
        set_part(builder, part, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_part(builder, part, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    dnn_finalize(builder, part);
    return part;
}

/* Pools have their own way to say sizes of windows: whole numbers all the same. */
static dnn_part resample(struct dnn_builder *builder, const struct dnn_graph *graph, dnn_part x,
                         dnn_part y)
{
    static const cudnnResampleMode_t modes[] = {
        [DNN_AVERAGE_POOL] = CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING,
        [DNN_AVERAGE_POOL_PADDED] = CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING};
    dnn_part how = dnn_make(builder, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    dnn_part part = dnn_make(builder, CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    cudnnPaddingMode_t padding = CUDNN_ZERO_PAD;
    cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    cudnnDataType_t computed = CUDNN_DATA_FLOAT;
    int64_t spatial = (int64_t)graph->spatial;

    dnn_set(builder, how, CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, 1,
            &modes[graph->kind]);
    dnn_set(builder, how, CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computed);
    dnn_set(builder, how, CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    dnn_set(builder, how, CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, 1, &padding);
    set_sizes(builder, how, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 1, &spatial);
    set_sizes(builder, how, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, graph->spatial, graph->window);
    set_sizes(builder, how, CUDNN_ATTR_RESAMPLE_STRIDES, graph->spatial, graph->stride);
    set_sizes(builder, how, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, graph->spatial, graph->pad_begin);
    set_sizes(builder, how, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, graph->spatial, graph->pad_end);
    dnn_finalize(builder, how);
    set_part(builder, part, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, how);
    set_part(builder, part, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x);
    set_part(builder, part, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y);
    dnn_finalize(builder, part);
    return part;
}

static const struct {
    bool is_known;
    cudnnPointwiseMode_t mode;
} activations[ACT_COUNT] = {[ACT_RELU] = {true, CUDNN_POINTWISE_RELU_FWD},
                            [ACT_SIGMOID] = {true, CUDNN_POINTWISE_SIGMOID_FWD},
                            [ACT_TANH] = {true, CUDNN_POINTWISE_TANH_FWD},
                            [ACT_SILU] = {true, CUDNN_POINTWISE_SWISH_FWD},
                            [ACT_GELU_ERF] = {true, CUDNN_POINTWISE_GELU_FWD},
                            [ACT_GELU_TANH] = {true, CUDNN_POINTWISE_GELU_APPROX_TANH_FWD}};

bool dnn_knows_activation(enum activation act, float a)
{
    return activations[act].is_known && (act != ACT_SILU || a == 1);
}

/* conv [+ z] + bias [activation] [+ z]: the order in which engines for it are precompiled, as far
 * as there are such.  A step each, the last one makes y. */
static int64_t fused(struct dnn_builder *builder, const struct dnn_graph *graph, dnn_part x,
                     dnn_part y, const int64_t *y_sizes, dnn_part operations[DNN_OPERATIONS])
{
    const enum activation act = graph->relu ? ACT_RELU : graph->act;
    const struct step {
        cudnnPointwiseMode_t mode;
        int64_t other; /* 0: one operand */
    } add_z = {CUDNN_POINTWISE_ADD, DNN_Z}, add_bias = {CUDNN_POINTWISE_ADD, DNN_BIAS};
    const int64_t row[DNN_RANK] = {1, y_sizes[1], 1, 1, 1};
    struct step steps[DNN_OPERATIONS - 1];
    int64_t id = DNN_INNER, count = 0;
    dnn_part w = tensor(builder, graph, DNN_W, graph->w),
             made = tensor(builder, graph, id++, y_sizes);

    if (graph->has_z && !graph->z_behind)
        steps[count++] = add_z;
    steps[count++] = add_bias;
    if (act != ACT_NONE)
        steps[count++] = (struct step){activations[act].mode, 0};
    if (graph->has_z && graph->z_behind)
        steps[count++] = add_z;
    operations[0] = convolve(builder, graph, x, w, made);
    for (int64_t i = 0; i < count; i++) {
        dnn_part other = NULL, next = y;

        if (steps[i].other != 0)
            other =
                tensor(builder, graph, steps[i].other, steps[i].other == DNN_BIAS ? row : y_sizes);
        if (i + 1 < count)
            next = tensor(builder, graph, id++, y_sizes);
        operations[i + 1] = pointwise(builder, steps[i].mode, made, other, next);
        made = next;
    }
    return count + 1;
}

/* ---- attention ---- */

static dnn_part matrix(struct dnn_builder *builder, const struct dnn_graph *graph, int64_t id,
                       const struct dnn_matrix *of)
{
    dnn_part part = dnn_make(builder, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    cudnnDataType_t type = type_of(graph->dtype);

    dnn_set(builder, part, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, of->sizes);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_STRIDES, 4, of->strides);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &graph->alignment);
    dnn_finalize(builder, part);
    return part;
}

/* One float that the host has. */
static dnn_part scale(struct dnn_builder *builder)
{
    static const int64_t ones[] = {1, 1, 1, 1}, id = DNN_Z, alignment = sizeof(float);
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const bool by_value = true;
    dnn_part part = dnn_make(builder, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    dnn_set(builder, part, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, ones);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_STRIDES, 4, ones);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    set_sizes(builder, part, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment);
    dnn_set(builder, part, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    dnn_finalize(builder, part);
    return part;
}

static dnn_part attend(struct dnn_builder *builder, const struct dnn_graph *graph, int64_t images)
{
    static const struct {
        cudnnBackendAttributeName_t name;
        int64_t id;
    } rows[DNN_MATRICES] = {[DNN_Q] = {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, DNN_X},
                            [DNN_K] = {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, DNN_W},
                            [DNN_V] = {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, DNN_BIAS},
                            [DNN_OUT] = {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, DNN_Y}};
    dnn_part parts[DNN_MATRICES], factor = scale(builder), part;

    for (size_t i = 0; i < DNN_MATRICES; i++) {
        struct dnn_matrix of = graph->matrix[i];

        of.sizes[0] = images;
        parts[i] = matrix(builder, graph, rows[i].id, &of);
    }
    part = dnn_make(builder, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    for (size_t i = 0; i < DNN_MATRICES; i++)
        set_part(builder, part, rows[i].name, parts[i]);
    set_part(builder, part, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, factor);
    dnn_finalize(builder, part);
    return part;
}

/* ---- the whole ---- */

static int64_t windows(struct dnn_builder *builder, const struct dnn_graph *graph, int64_t images,
                       dnn_part operations[DNN_OPERATIONS])
{
    int64_t x_sizes[DNN_RANK], y_sizes[DNN_RANK];
    dnn_part x, y;

    for (size_t i = 0; i < DNN_RANK; i++) {
        x_sizes[i] = i == 0 ? images : graph->x[i];
        y_sizes[i] = i == 0 ? images : graph->y[i];
    }
    x = tensor(builder, graph, DNN_X, x_sizes);
    y = tensor(builder, graph, DNN_Y, y_sizes);
    if (graph->kind == DNN_CONV)
        return fused(builder, graph, x, y, y_sizes, operations);
    operations[0] = graph->kind == DNN_TRANSPOSED
                        ? convolve(builder, graph, x, tensor(builder, graph, DNN_W, graph->w), y)
                        : resample(builder, graph, x, y);
    return 1;
}

struct dnn_graph dnn_graph_canonical(const struct dnn_graph *graph)
{
    struct dnn_graph canonical = *graph;

    canonical.x[0] = canonical.y[0] = DNN_IMAGES;
    for (size_t i = 0; i < DNN_MATRICES; i++)
        canonical.matrix[i].sizes[0] = DNN_IMAGES;
    return canonical;
}

dnn_part dnn_operations(struct dnn_builder *builder, const struct dnn_graph *graph, int64_t images)
{
    dnn_part operations[DNN_OPERATIONS], part;
    int64_t count = 1;

    if (graph->kind == DNN_ATTENTION)
        operations[0] = attend(builder, graph, images);
    else
        count = windows(builder, graph, images, operations);
    part = dnn_make(builder, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    dnn_set(builder, part, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
            operations);
    if (builder->plan->dnn->properties == NULL)
        dnn_set(builder, part, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                &builder->plan->dnn->maker);
    dnn_finalize(builder, part);
    return part;
}
