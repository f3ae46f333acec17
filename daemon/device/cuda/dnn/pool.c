/* AveragePool through cuDNN's resampling. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/dnn/operands.h"
#include "device/cuda/kernels/rows.h"
#include "ops/pool.h"

static enum dnn_kind kind_of(const struct kernel_call *call)
{
    const struct pool_attrs *attrs = call->attrs;

    return attrs->count_include_pad != 0 ? DNN_AVERAGE_POOL_PADDED : DNN_AVERAGE_POOL;
}

static const char *describe(const struct kernel_call *call, struct dnn_graph *graph)
{
    struct window window;
    const char *why;

    if (pool_resolve(call->attrs, &call->in[0]->shape, &window, NULL) != STATUS_OK)
        return "shapes do not fit";
    *graph = (struct dnn_graph){.kind = kind_of(call)};
    dnn_graph_window(graph, &window);
    why = dnn_graph_tensors(graph, call);
    if (why != NULL)
        return why;
    for (size_t i = 0; i < graph->spatial; i++) {
        if (graph->dilation[i] != 1)
            return "dilated windows";
        if (graph->pad_begin[i] >= graph->window[i] || graph->pad_end[i] >= graph->window[i])
            return "windows that lie in the padding";
    }
    return dnn_graph_fits(graph) ? NULL : "sizes that cuDNN counts in another way";
}

static void release(void *state)
{
    dnn_row_drop(state);
    free(state);
}

static enum status fill(struct kernel_prepare *prepare, void *state, struct dnn_graph *graph,
                        const struct dnn *dnn, struct error *err)
{
    struct dnn_plan *plan = state;

    graph->alignment = (int64_t)dtype_bytes(graph->dtype); /* one plan for all addresses */
    TRY(dnn_plan_make(dnn, graph, plan, err));
    prepare->scratch_bytes = (size_t)plan->workspace_bytes;
    prepare->batch_inexact = plan->inexact;
    (void)snprintf(prepare->note, sizeof(prepare->note), "engine %lld", (long long)plan->engine);
    return STATUS_OK;
}

static const struct dnn_row row = {
    .describe = describe, .state_bytes = sizeof(struct dnn_plan), .fill = fill, .release = release};

static const char *refuses(const struct kernel_call *call)
{
    return dnn_row_refuses(&row, call);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    return dnn_row_prepare(&row, prepare, err);
}

static enum status run(const void *plan, const struct kernel_call *call,
                       const struct kernel_run *run)
{
    struct dnn_operands operands = {.x = run->in[0], .y = run->out[0]};

    (void)call;
    return dnn_plan_run(plan, &operands, run->scratch, run->lane->index, cuda_stream(run));
}

/* The library has an engine for plain images only.  Its maximum is not used: what a window of
 * nothing but NaN gives is nowhere said. */
const struct kernel kernel_average_pool_dnn = {
    .name = "cuda:cudnn",
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = run,
    .release = release,
};
