/* Asking the device whether an engine keeps NaN. */
#include <stdio.h>

#include "device/cuda/dnn/plan.h"

static enum status run_trial(const struct nan_trial *trial, const void *in, void *out,
                             void *workspace, cudaStream_t stream)
{
    const struct dnn_graph *graph = trial->of;
    const struct dnn_operands operands = {
        .x = in, .w = in, .z = graph->has_z ? in : NULL, .bias = in, .y = out};

    return dnn_plan_try(trial->plan, &operands, workspace, stream);
}

static size_t elements(const int64_t sizes[DNN_RANK], size_t spatial)
{
    size_t count = 1;

    for (size_t i = 0; i < spatial + 2; i++)
        count *= (size_t)sizes[i];
    return count;
}

bool dnn_plan_keeps_nan(const struct dnn_plan *plan, const struct dnn_graph *graph,
                        struct weights_cache *weights)
{
    const struct dnn_graph canonical = dnn_graph_canonical(graph);
    const size_t element = dtype_bytes(graph->dtype);
    const size_t x = elements(graph->x, graph->spatial), w = elements(graph->w, graph->spatial);
    const size_t y = elements(graph->y, graph->spatial), most = x > w ? x : w;
    char words[512], key[sizeof(words) + 64];
    struct nan_trial trial = {.key = key,
                              .plan = plan,
                              .of = graph,
                              .in_bytes = (most > y ? most : y) * element,
                              .out_bytes = y * element,
                              .workspace_bytes = (size_t)plan->workspace_bytes,
                              .dtype = graph->dtype,
                              .run = run_trial};

    if (graph->kind != DNN_CONV || (!graph->relu && graph->act == ACT_NONE))
        return true;
    if (graph->alignment < DNN_ALIGNMENT)
        trial.shift = (size_t)graph->alignment;
    dnn_graph_format(&canonical, words, sizeof(words));
    (void)snprintf(key, sizeof(key), "cudnn %s%s by %lld", words,
                   graph->precision == CUDA_TF32 ? " tf32" : "", (long long)graph->alignment);
    return nan_is_kept(&plan->dnn->cuda->nan, &trial, weights);
}
