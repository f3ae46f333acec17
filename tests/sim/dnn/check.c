/* What must hold when a descriptor becomes final. */
#include "part.h"

static const char *check_tensor(const struct part *part)
{
    const struct attribute *sizes = part_find(part, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const struct attribute *strides = part_find(part, CUDNN_ATTR_TENSOR_STRIDES);
    int64_t alignment = part_number(part, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    int64_t bytes = part_number(part, CUDNN_ATTR_TENSOR_DATA_TYPE, 0) == CUDNN_DATA_FLOAT ? 4 : 2;

    if (sizes->count != strides->count || sizes->count < 3)
        return "a tensor with other strides than sizes";
    for (int64_t i = 0; i < sizes->count; i++)
        if (((const int64_t *)sizes->values)[i] < 1 || ((const int64_t *)strides->values)[i] < 1)
            return "a size or a stride below 1";
    if (alignment < bytes || (alignment & (alignment - 1)) != 0)
        return "an alignment that is no power of two, or below the element";
    return NULL;
}

static const char *check_counts(const struct part *part, cudnnBackendAttributeName_t spatial,
                                const cudnnBackendAttributeName_t lists[4])
{
    for (size_t i = 0; i < 4; i++)
        if (part_count(part, lists[i]) != part_number(part, spatial, 0))
            return "a list that does not have a number for each dimension of space";
    return NULL;
}

static const char *check_convolution(const struct part *part)
{
    static const cudnnBackendAttributeName_t lists[] = {
        CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
        CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES};

    if (part_number(part, CUDNN_ATTR_CONVOLUTION_CONV_MODE, -1) != CUDNN_CROSS_CORRELATION ||
        part_number(part, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, -1) != CUDNN_DATA_FLOAT)
        return "a convolution that is not simulated";
    return check_counts(part, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, lists);
}

static const char *check_resample(const struct part *part)
{
    static const cudnnBackendAttributeName_t lists[] = {
        CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_ATTR_RESAMPLE_POST_PADDINGS,
        CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS};
    bool is_max = part_number(part, CUDNN_ATTR_RESAMPLE_MODE, -1) == CUDNN_RESAMPLE_MAXPOOL;

    if (part_number(part, CUDNN_ATTR_RESAMPLE_PADDING_MODE, -1) !=
        (is_max ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD))
        return "a pool with a padding that is not its own";
    return check_counts(part, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, lists);
}

static const char *check_pointwise(const struct part *part)
{
    const struct part *how = part_child(part, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0);
    int64_t mode = part_number(how, CUDNN_ATTR_POINTWISE_MODE, -1);
    bool has_second = part_find(part, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) != NULL;

    if (mode != CUDNN_POINTWISE_ADD && activation_of(mode) == ADD)
        return "a pointwise mode that is not simulated";
    return has_second == (mode == CUDNN_POINTWISE_ADD) ? NULL : "too many operands, or too few";
}

/* An engine's configuration, or the text of a plan that was made before. */
static const char *check_plan(const struct part *part)
{
    const struct attribute *text = part_find(part, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    bool has_config = part_find(part, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) != NULL;
    struct network network;
    struct engine engine;

    if (has_config == (text != NULL))
        return "a plan of both a configuration and a text, or of none";
    if (text != NULL && !plan_read(text->values, (size_t)text->count, &network, &engine))
        return "a plan's text that is damaged: the real library reads outside of it";
    return NULL;
}

static const char *check_engine(const struct part *part)
{
    struct network network;
    struct engine engine;

    (void)network_read(part_child(part, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0), &network);
    return engine_find(&network, part_number(part, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1), &engine)
               ? NULL
               : "an engine that the graph does not have";
}

static const char *check_pack(const struct part *part)
{
    return part_count(part, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) ==
                   part_count(part, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
               ? NULL
               : "other numbers than addresses";
}

const char *part_check(const struct part *part)
{
    struct network network;

    switch (part->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return check_tensor(part);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return check_convolution(part);
    case CUDNN_BACKEND_RESAMPLE_DESCRIPTOR:
        return check_resample(part);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return check_pointwise(part);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return network_read(part, &network);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return check_engine(part);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return check_plan(part);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return check_pack(part);
    default:
        return NULL;
    }
}
