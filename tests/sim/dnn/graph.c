/* Operation graphs, read from their parts and checked: sizes, types, who makes and who uses what.
 */
#include "part.h"

#include <string.h>

int64_t tensor_count(const struct tensor *tensor)
{
    int64_t count = 1;

    for (size_t i = 0; i < tensor->rank; i++)
        count *= tensor->sizes[i];
    return count;
}

bool tensor_is_plain(const struct tensor *tensor)
{
    int64_t stride = 1;

    for (size_t i = tensor->rank; i-- > 0;) {
        if (tensor->sizes[i] > 1 && tensor->strides[i] != stride)
            return false;
        stride *= tensor->sizes[i];
    }
    return true;
}

static enum element element_of(int64_t type)
{
    switch (type) {
    case CUDNN_DATA_FLOAT:
        return ELEMENT_FLOAT;
    case CUDNN_DATA_HALF:
        return ELEMENT_HALF;
    case CUDNN_DATA_BFLOAT16:
        return ELEMENT_BFLOAT;
    default:
        return ELEMENT_NONE;
    }
}

static void numbers(const struct part *part, cudnnBackendAttributeName_t name, int64_t *out)
{
    const struct attribute *attribute = part_find(part, name);

    memcpy(out, attribute->values, (size_t)attribute->count * sizeof(*out));
}

/* The index of the tensor, which is added when it is new; -1: too many. */
static int tensor_index(struct network *network, const struct part *part)
{
    struct tensor tensor = {.id = part_number(part, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0),
                            .element =
                                element_of(part_number(part, CUDNN_ATTR_TENSOR_DATA_TYPE, -1)),
                            .rank = (size_t)part_count(part, CUDNN_ATTR_TENSOR_DIMENSIONS),
                            .alignment = part_number(part, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1),
                            .inner = part_number(part, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0,
                            .by_value = part_number(part, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0};

    for (size_t i = 0; i < network->tensors; i++)
        if (network->tensor[i].id == tensor.id)
            return (int)i;
    if (network->tensors == DNN_TENSORS)
        return -1;
    numbers(part, CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.sizes);
    numbers(part, CUDNN_ATTR_TENSOR_STRIDES, tensor.strides);
    network->tensor[network->tensors] = tensor;
    return (int)network->tensors++;
}

static void read_operands(struct network *network, struct operation *operation,
                          const struct part *part, cudnnBackendAttributeName_t x,
                          cudnnBackendAttributeName_t w, cudnnBackendAttributeName_t y)
{
    const struct part *second = part_child(part, w, 0);

    operation->x = (unsigned)tensor_index(network, part_child(part, x, 0));
    operation->w = second == NULL ? 0 : (unsigned)tensor_index(network, second);
    operation->y = (unsigned)tensor_index(network, part_child(part, y, 0));
}

static void read_convolution(struct network *network, struct operation *operation,
                             const struct part *part, bool back)
{
    const struct part *how = part_child(part,
                                        back ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC
                                             : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                        0);

    operation->kind = back ? CONVOLVE_BACK : CONVOLVE;
    if (back)
        read_operands(network, operation, part, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
    else
        read_operands(network, operation, part, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
    numbers(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, operation->pad_begin);
    numbers(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, operation->pad_end);
    numbers(how, CUDNN_ATTR_CONVOLUTION_DILATIONS, operation->dilation);
    numbers(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, operation->stride);
    for (size_t i = 0; i < DNN_RANK - 2; i++)
        operation->window[i] = network->tensor[operation->w].sizes[i + 2];
}

static void read_pool(struct network *network, struct operation *operation, const struct part *part)
{
    const struct part *how = part_child(part, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, 0);

    switch (part_number(how, CUDNN_ATTR_RESAMPLE_MODE, -1)) {
    case CUDNN_RESAMPLE_MAXPOOL:
        operation->kind = POOL_MAX;
        break;
    case CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING:
        operation->kind = POOL_AVERAGE_PADDED;
        break;
    default:
        operation->kind = POOL_AVERAGE;
    }
    read_operands(network, operation, part, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC,
                  CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC,
                  CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC);
    numbers(how, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, operation->pad_begin);
    numbers(how, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, operation->pad_end);
    numbers(how, CUDNN_ATTR_RESAMPLE_STRIDES, operation->stride);
    numbers(how, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, operation->window);
    for (size_t i = 0; i < DNN_RANK; i++)
        operation->dilation[i] = 1;
}

enum operation_kind activation_of(int64_t mode)
{
    switch (mode) {
    case CUDNN_POINTWISE_RELU_FWD:
        return RELU;
    case CUDNN_POINTWISE_SIGMOID_FWD:
        return SIGMOID;
    case CUDNN_POINTWISE_TANH_FWD:
        return TANH;
    case CUDNN_POINTWISE_SWISH_FWD:
        return SWISH;
    case CUDNN_POINTWISE_GELU_FWD:
        return GELU;
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD:
        return GELU_TANH;
    default:
        return ADD;
    }
}

static const char *read_operation(struct network *network, const struct part *part)
{
    struct operation operation = {0};
    const struct part *how;

    switch (part->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        read_convolution(network, &operation, part, false);
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        read_convolution(network, &operation, part, true);
        break;
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
        read_pool(network, &operation, part);
        break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        how = part_child(part, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0);
        operation.kind = activation_of(part_number(how, CUDNN_ATTR_POINTWISE_MODE, -1));
        read_operands(network, &operation, part, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                      CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
        break;
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
        operation.kind = ATTEND;
        read_operands(network, &operation, part, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC,
                      CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC);
        operation.v = (unsigned)tensor_index(
            network, part_child(part, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, 0));
        operation.scale = (unsigned)tensor_index(
            network, part_child(part, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, 0));
        break;
    default:
        return "something in the graph is no operation";
    }
    network->operation[network->operations++] = operation;
    return NULL;
}

/* ---- checks ---- */

static bool same_sizes(const struct tensor *a, const struct tensor *b)
{
    return a->rank == b->rank && memcmp(a->sizes, b->sizes, a->rank * sizeof(a->sizes[0])) == 0;
}

static bool broadcasts(const struct tensor *from, const struct tensor *to)
{
    if (from->rank != to->rank)
        return false;
    for (size_t i = 0; i < to->rank; i++)
        if (from->sizes[i] != 1 && from->sizes[i] != to->sizes[i])
            return false;
    return true;
}

static const char *check_windows(const struct operation *operation, const struct tensor *wide,
                                 const struct tensor *narrow)
{
    if (wide->rank != narrow->rank || wide->sizes[0] != narrow->sizes[0])
        return "images of different numbers";
    for (size_t i = 0; i + 2 < wide->rank; i++) {
        int64_t extent = (operation->window[i] - 1) * operation->dilation[i] + 1;
        int64_t room = wide->sizes[i + 2] + operation->pad_begin[i] + operation->pad_end[i];

        if (operation->pad_begin[i] < 0 || operation->pad_end[i] < 0 || operation->stride[i] < 1 ||
            operation->dilation[i] < 1)
            return "a stride, dilation or padding that is not allowed";
        if (room < extent || (room - extent) / operation->stride[i] + 1 != narrow->sizes[i + 2])
            return "is_valid_spatial_dim: as many places as the window has";
    }
    return NULL;
}

/* q [b h s d], k [b h l d], v [b h l e], out [b h s e]. */
static const char *check_attention(const struct network *network, const struct operation *operation)
{
    const struct tensor *q = &network->tensor[operation->x], *k = &network->tensor[operation->w];
    const struct tensor *v = &network->tensor[operation->v], *y = &network->tensor[operation->y];
    const struct tensor *scale = &network->tensor[operation->scale];
    const struct tensor *all[] = {q, k, v, y};

    for (size_t i = 0; i < 4; i++) {
        if (all[i]->rank != 4 || all[i]->sizes[0] != q->sizes[0] || all[i]->sizes[1] != q->sizes[1])
            return "sequences and heads that do not go together";
        if (all[i]->element != q->element || all[i]->element == ELEMENT_FLOAT || all[i]->inner)
            return "attention of another type than 16 bits";
        if (all[i]->strides[3] != 1 || all[i]->strides[2] % 8 != 0 || all[i]->alignment < 16)
            return "rows that are not read 16 bytes at a time";
    }
    if (k->sizes[3] != q->sizes[3] || v->sizes[2] != k->sizes[2] || y->sizes[2] != q->sizes[2] ||
        y->sizes[3] != v->sizes[3])
        return "matrices that do not go together";
    return scale->by_value && scale->element == ELEMENT_FLOAT && tensor_count(scale) == 1
               ? NULL
               : "a scale that is no float of the host";
}

static const char *check_operation(const struct network *network, const struct operation *operation)
{
    const struct tensor *x = &network->tensor[operation->x], *y = &network->tensor[operation->y];
    const struct tensor *w = &network->tensor[operation->w];
    bool back = operation->kind == CONVOLVE_BACK;
    const struct tensor *wide = back ? y : x, *narrow = back ? x : y;

    switch (operation->kind) {
    case ATTEND:
        return check_attention(network, operation);
    case RELU:
    case SIGMOID:
    case TANH:
    case SWISH:
    case GELU:
    case GELU_TANH:
        return same_sizes(x, y) ? NULL : "an activation that changes sizes";
    case ADD:
        return same_sizes(x, y) && broadcasts(w, y) ? NULL : "operands that do not broadcast";
    case CONVOLVE:
    case CONVOLVE_BACK:
        if (w->rank != x->rank || wide->sizes[1] % w->sizes[1] != 0 ||
            narrow->sizes[1] != w->sizes[0] || w->sizes[0] % (wide->sizes[1] / w->sizes[1]) != 0)
            return "channels that do not go together";
        if (x->element != w->element)
            return "weights of another type";
        break;
    default:
        if (wide->sizes[1] != narrow->sizes[1])
            return "a pool that changes channels";
    }
    return check_windows(operation, wide, narrow);
}

/* Inner tensors are made in the graph before they are used; others are made at most at its end. */
static const char *check_flow(const struct network *network)
{
    bool made[DNN_TENSORS] = {false}, used[DNN_TENSORS] = {false};

    for (size_t i = 0; i < network->operations; i++) {
        const struct operation *operation = &network->operation[i];

        if (network->tensor[operation->x].inner && !made[operation->x])
            return "an inner tensor is used before it is made";
        used[operation->x] = true;
        if (operation->kind <= ADD || operation->kind == ATTEND)
            used[operation->w] = true;
        if (operation->kind == ATTEND)
            used[operation->v] = used[operation->scale] = true;
        if (made[operation->y])
            return "a tensor is made twice";
        made[operation->y] = true;
    }
    for (size_t i = 0; i < network->tensors; i++) {
        if (network->tensor[i].element == ELEMENT_NONE)
            return "a type that is not simulated";
        if (network->tensor[i].inner && !used[i])
            return "an inner tensor that nothing uses";
        if (!network->tensor[i].inner && made[i] && used[i])
            return "a tensor in memory between operations";
    }
    return NULL;
}

const char *network_read(const struct part *graph, struct network *out_network)
{
    struct network network = {0};
    const char *wrong = NULL;

    for (int64_t i = 0; i < part_count(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS) && wrong == NULL; i++)
        wrong = read_operation(&network, part_child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i));
    for (size_t i = 0; i < network.operations && wrong == NULL; i++)
        wrong = check_operation(&network, &network.operation[i]);
    if (wrong == NULL)
        wrong = check_flow(&network);
    *out_network = network;
    return wrong;
}
