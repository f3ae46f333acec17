#include "device/cuda/dnn/attention.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/dnn/compiled.h"
#include "device/cuda/dnn/operands.h"
#include "device/cuda/kernels/rows.h"
#include "ops/attention.h"

enum { LEAST_CAPABILITY = 80, MOST_COLUMNS = 128, COLUMNS_UNIT = 8 };

/* ---- from the operator to the graph ---- */

/* One operand; false where its rows are not what the library's kernels read 16 bytes at a time. */
static bool describe_matrix(struct dnn_matrix *matrix, const struct attention_geometry *geometry,
                            const struct attention_view *view, int64_t rows, int64_t columns)
{
    const size_t lead = geometry->lead.rank;

    matrix->sizes[2] = rows;
    matrix->sizes[3] = columns;
    matrix->strides[2] = view->row;
    matrix->strides[3] = 1;
    for (size_t i = 0; i < 2; i++) {
        bool is_there = i < lead;

        matrix->sizes[i] = is_there ? geometry->lead.dims[i] : 1;
        matrix->strides[i] = is_there ? view->lead[i] : rows * columns;
        if (matrix->sizes[i] > 1 && matrix->strides[i] == 0)
            return false; /* one matrix for several heads */
        if (matrix->strides[i] == 0)
            matrix->strides[i] = rows * view->row;
        if (matrix->strides[i] % COLUMNS_UNIT != 0)
            return false;
    }
    return view->column == 1 && view->row % COLUMNS_UNIT == 0 && columns % COLUMNS_UNIT == 0 &&
           columns <= MOST_COLUMNS;
}

/* NULL, and the graph, or why not. */
static const char *describe(const struct attention_attrs *attrs, enum dtype dtype,
                            const struct shape *const *shapes, struct dnn_graph *graph)
{
    const struct shape *masks[2] = {shapes[ATTENTION_MASK], shapes[ATTENTION_MASK_2]};
    struct attention_view views[DNN_MATRICES];
    struct attention_geometry g;
    struct shape out;

    if (!dtype_is_narrow(dtype))
        return "cuDNN's attention is for 16-bit types";
    if (masks[0] != NULL || masks[1] != NULL || attrs->is_causal)
        return "cuDNN's attention takes no mask";
    if (attention_resolve(attrs, shapes[ATTENTION_Q], shapes[ATTENTION_K], shapes[ATTENTION_V],
                          masks, &g, NULL) != STATUS_OK ||
        g.lead.rank > 2 || g.lead.rank < 1)
        return "other dimensions than sequences and heads";
    out = attention_output_shape(attrs, &g);
    views[DNN_Q] = attention_view(shapes[ATTENTION_Q], &attrs->q);
    views[DNN_K] = attention_view(shapes[ATTENTION_K], &attrs->k);
    views[DNN_V] = attention_view(shapes[ATTENTION_V], &attrs->v);
    views[DNN_OUT] = attention_view(&out, &attrs->out);
    *graph = (struct dnn_graph){
        .kind = DNN_ATTENTION, .compiled = true, .dtype = dtype, .alignment = DNN_ALIGNMENT};
    if (!describe_matrix(&graph->matrix[DNN_Q], &g, &views[DNN_Q], g.queries, g.depth) ||
        !describe_matrix(&graph->matrix[DNN_K], &g, &views[DNN_K], g.keys, g.depth) ||
        !describe_matrix(&graph->matrix[DNN_V], &g, &views[DNN_V], g.keys, g.width) ||
        !describe_matrix(&graph->matrix[DNN_OUT], &g, &views[DNN_OUT], g.queries, g.width))
        return "heads of more than 128, or not of eights";
    return NULL;
}

/* NULL, and the graph and the library, or why not. */
static const char *find(struct cuda_device *cuda, const struct attention_attrs *attrs,
                        enum dtype dtype, const struct shape *const *shapes,
                        struct dnn_graph *graph, const struct dnn **out_dnn)
{
    const char *why = cuda->capability < LEAST_CAPABILITY ? "a capability below 8.0"
                                                          : describe(attrs, dtype, shapes, graph);

    if (why == NULL)
        *out_dnn = dnn_get(cuda, &why);
    return why;
}

bool dnn_may_take_attention(struct device *device, const struct attention_attrs *attrs,
                            enum dtype dtype, const struct shape *const *shapes)
{
    const struct dnn *dnn = NULL;
    struct dnn_graph graph;

    return find(cuda_device_of(device), attrs, dtype, shapes, &graph, &dnn) == NULL;
}

bool dnn_takes_attention(struct device *device, const struct attention_attrs *attrs,
                         enum dtype dtype, const struct shape *const *shapes)
{
    struct cuda_device *cuda = cuda_device_of(device);
    struct dnn_plan plan = {.dnn = NULL};
    const struct dnn *dnn = NULL;
    struct dnn_graph graph;
    struct error ignored;

    if (find(cuda, attrs, dtype, shapes, &graph, &dnn) != NULL ||
        cudaSetDevice(cuda->ordinal) != cudaSuccess ||
        dnn_compiled_make(cuda, dnn, &graph, &plan, &ignored) != STATUS_OK)
        return false;
    dnn_plan_free(&plan);
    return true;
}

/* ---- the row ---- */

struct attention_state {
    struct dnn_plan plan;
    float scale;
};

static void find_shapes(const struct kernel_call *call, const struct shape *shapes[])
{
    for (size_t i = 0; i < ATTENTION_INPUTS; i++)
        shapes[i] = call_input(call, i) != NULL ? &call->in[i]->shape : NULL;
}

static const char *refuses(const struct kernel_call *call)
{
    const struct shape *shapes[ATTENTION_INPUTS];
    const struct dnn *dnn = NULL;
    struct dnn_graph graph;

    find_shapes(call, shapes);
    return find(cuda_device_of(call->device), call->attrs, call->in[ATTENTION_Q]->dtype, shapes,
                &graph, &dnn);
}

static void release(void *prepared)
{
    struct attention_state *state = prepared;

    dnn_row_drop(&state->plan);
    free(state);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct cuda_device *cuda = cuda_device_of(call->device);
    const struct attention_attrs *attrs = call->attrs;
    const struct shape *shapes[ATTENTION_INPUTS];
    struct attention_state *state;
    const struct dnn *dnn = NULL;
    struct dnn_graph graph;
    enum status status;
    const char *why;

    find_shapes(call, shapes);
    why = find(cuda, attrs, call->in[ATTENTION_Q]->dtype, shapes, &graph, &dnn);
    if (why != NULL)
        return error_set(err, STATUS_UNSUPPORTED, "%s", why);
    CU_TRY(cudaSetDevice(cuda->ordinal));
    state = prepare_state(prepare, sizeof(*state), err);
    if (state == NULL)
        return STATUS_NO_MEMORY;
    state->scale = attrs->scale;
    cuda_fixed_begin(&cuda->fixed);
    status = dnn_compiled_make(cuda, dnn, &graph, &state->plan, err);
    cuda_fixed_end(&cuda->fixed);
    if (status != STATUS_OK) {
        release(state);
        prepare->state = NULL;
        return status;
    }
    prepare->scratch_bytes = (size_t)state->plan.workspace_bytes;
    prepare->host_bytes = sizeof(*state);
    prepare->batch_inexact = state->plan.inexact;
    (void)snprintf(prepare->note, sizeof(prepare->note), "%s engine %lld, compiled",
                   dtype_name(graph.dtype), (long long)state->plan.engine);
    return STATUS_OK;
}

static enum status run(const void *prepared, const struct kernel_call *call,
                       const struct kernel_run *run)
{
    const struct attention_state *state = prepared;
    const struct dnn_operands operands = {.x = run->in[ATTENTION_Q],
                                          .w = run->in[ATTENTION_K],
                                          .bias = run->in[ATTENTION_V],
                                          .z = &state->scale,
                                          .y = run->out[0]};

    /* Its kernels read 16 bytes at a time; nothing of a plan begins elsewhere (view_alignment). */
    if (((uintptr_t)operands.x | (uintptr_t)operands.w | (uintptr_t)operands.bias |
         (uintptr_t)operands.y) %
            DNN_ALIGNMENT !=
        0)
        return STATUS_INTERNAL;
    (void)call;
    return dnn_plan_run(&state->plan, &operands, run->scratch, run->lane->index, cuda_stream(run));
}

const struct kernel kernel_attention_dnn = {
    .name = "cuda:cudnn",
    .refuses = refuses,
    .prepare = prepare,
    .enqueue = run,
    .release = release,
};
