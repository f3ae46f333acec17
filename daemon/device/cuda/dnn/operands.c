#include "device/cuda/dnn/operands.h"

#include "device/cuda/kernels/rows.h"

void dnn_graph_sizes(const struct shape *shape, int64_t sizes[DNN_RANK])
{
    size_t skip = shape->rank == 3 ? 1 : 0;

    for (size_t i = 0; i < DNN_RANK; i++)
        sizes[i] = 1;
    for (size_t i = 0; i < shape->rank; i++)
        sizes[i < 2 ? i : i + skip] = shape->dims[i];
}

void dnn_graph_window(struct dnn_graph *graph, const struct window *window)
{
    size_t skip = window->spatial == 1 ? 1 : 0;

    graph->spatial = window->spatial + skip;
    graph->stride[0] = graph->dilation[0] = graph->window[0] = 1;
    for (size_t i = 0; i < window->spatial; i++) {
        graph->stride[i + skip] = window->stride[i];
        graph->dilation[i + skip] = window->dilation[i];
        graph->window[i + skip] = window->kernel[i];
        graph->pad_begin[i + skip] = window->pad_begin[i];
        graph->pad_end[i + skip] = window->pad_end[i];
    }
}

const char *dnn_graph_tensors(struct dnn_graph *graph, const struct kernel_call *call)
{
    const struct operand *x = call->in[0], *y = call->out[0];

    if (x->dtype != DTYPE_FLOAT && !dtype_is_narrow(x->dtype))
        return "cuDNN is asked for float32, float16 and bfloat16 only";
    if (shape_count(&x->shape) == 0 || shape_count(&y->shape) == 0)
        return "nothing to do";
    if (shape_count(&x->shape) > INT32_MAX || shape_count(&y->shape) > INT32_MAX)
        return "2^31 elements or more";
    dnn_graph_sizes(&x->shape, graph->x);
    dnn_graph_sizes(&y->shape, graph->y);
    graph->channels_last = x->layout == LAYOUT_NHWC;
    graph->dtype = x->dtype;
    graph->precision = cuda_device_of(call->device)->precision;
    graph->alignment = DNN_ALIGNMENT;
    for (size_t i = 0; i < graph->spatial; i++)
        if (graph->pad_begin[i] < 0 || graph->pad_end[i] < 0)
            return "padding that cuts";
    return NULL;
}

bool dnn_graph_fits(const struct dnn_graph *graph)
{
    const int64_t *wide = graph->kind == DNN_TRANSPOSED ? graph->y : graph->x;
    const int64_t *narrow = graph->kind == DNN_TRANSPOSED ? graph->x : graph->y;

    for (size_t i = 0; i < graph->spatial; i++) {
        int64_t extent = (graph->window[i] - 1) * graph->dilation[i] + 1;
        int64_t rest = wide[i + 2] + graph->pad_begin[i] + graph->pad_end[i] - extent;

        if (rest < 0 || rest / graph->stride[i] + 1 != narrow[i + 2])
            return false;
    }
    return true;
}

const char *dnn_row_refuses(const struct dnn_row *row, const struct kernel_call *call)
{
    struct dnn_graph graph;
    const char *why = row->describe(call, &graph);

    if (why == NULL)
        (void)dnn_get(cuda_device_of(call->device), &why);
    return why;
}

void dnn_row_drop(struct dnn_plan *plan)
{
    struct cuda_fixed *fixed = plan->dnn != NULL ? &plan->dnn->cuda->fixed : NULL;

    if (fixed != NULL)
        cuda_fixed_begin(fixed);
    dnn_plan_free(plan);
    if (fixed != NULL)
        cuda_fixed_end(fixed);
}

enum status dnn_row_prepare(const struct dnn_row *row, struct kernel_prepare *prepare,
                            struct error *err)
{
    struct cuda_device *cuda = cuda_device_of(prepare->call.device);
    struct dnn_graph graph;
    const char *why = row->describe(&prepare->call, &graph);
    const struct dnn *dnn = why == NULL ? dnn_get(cuda, &why) : NULL;
    enum status status;
    void *state;

    if (dnn == NULL)
        return error_set(err, STATUS_UNSUPPORTED, "%s", why);
    CU_TRY(cudaSetDevice(cuda->ordinal));
    state = prepare_state(prepare, row->state_bytes, err);
    if (state == NULL)
        return STATUS_NO_MEMORY;
    prepare->host_bytes = row->state_bytes;
    cuda_fixed_begin(&cuda->fixed);
    status = row->fill(prepare, state, &graph, dnn, err);
    cuda_fixed_end(&cuda->fixed);
    if (status != STATUS_OK) {
        row->release(state);
        prepare->state = NULL;
    }
    return status;
}
