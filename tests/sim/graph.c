#include "graph.h"

#include <stdlib.h>
#include <string.h>

void node_set_add(struct node_set *set, unsigned node)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->nodes[i] == node)
            return;
    set->nodes = realloc(set->nodes, (set->count + 1) * sizeof(*set->nodes));
    set->nodes[set->count++] = node;
}

void node_set_join(struct node_set *set, const struct node_set *other)
{
    for (size_t i = 0; other != NULL && i < other->count; i++)
        node_set_add(set, other->nodes[i]);
}

void node_set_only(struct node_set *set, unsigned node)
{
    set->count = 0;
    node_set_add(set, node);
}

void node_set_free(struct node_set *set)
{
    if (set == NULL)
        return;
    free(set->nodes);
    *set = (struct node_set){0};
}

struct CUgraph_st *graph_make(void)
{
    struct CUgraph_st *graph = calloc(1, sizeof(*graph));

    if (graph != NULL)
        graph->magic = GRAPH_MAGIC;
    return graph;
}

void graph_free(struct CUgraph_st *graph)
{
    if (graph == NULL)
        return;
    for (size_t i = 0; i < graph->count; i++) {
        work_release(&graph->nodes[i]->work);
        node_set_free(&graph->nodes[i]->after);
        free(graph->nodes[i]);
    }
    free(graph->nodes);
    graph->magic = 0;
    free(graph);
}

struct CUgraphNode_st *graph_add(struct CUgraph_st *graph, struct work work,
                                 const struct node_set *after)
{
    struct CUgraphNode_st *node = calloc(1, sizeof(*node));

    if (graph->count == graph->room) {
        graph->room = graph->room * 2 + 16;
        graph->nodes = realloc(graph->nodes, graph->room * sizeof(struct CUgraphNode_st *));
    }
    if (node == NULL || graph->nodes == NULL) {
        free(node);
        work_release(&work);
        return NULL;
    }
    node->work = work;
    node->number = (unsigned)graph->count;
    node_set_join(&node->after, after);
    graph->nodes[graph->count++] = node;
    return node;
}

static struct CUgraph_st *graph_copy(const struct CUgraph_st *graph)
{
    struct CUgraph_st *copy = graph_make();

    for (size_t i = 0; i < graph->count; i++)
        graph_add(copy, work_copy(&graph->nodes[i]->work), &graph->nodes[i]->after);
    return copy;
}

void graph_exec_unref(struct graph_exec *exec)
{
    if (--exec->references > 0)
        return;
    graph_free(exec->graph);
    exec->magic = 0;
    free(exec);
}

static bool is_ready(const struct CUgraphNode_st *node, const bool *done)
{
    for (size_t i = 0; i < node->after.count; i++)
        if (!done[node->after.nodes[i]])
            return false;
    return true;
}

/* The next of the nodes that are ready: the first, the last, or one by lot. */
static size_t choose(const struct CUgraph_st *graph, const bool *done, uint64_t *seed)
{
    size_t chosen = graph->count;
    size_t seen = 0;

    for (size_t i = 0; i < graph->count; i++) {
        if (done[i] || !is_ready(graph->nodes[i], done))
            continue;
        seen++;
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        if (chosen == graph->count || sim.order == 1 ||
            (sim.order > 1 && (*seed >> 33) % seen == 0))
            chosen = i;
        if (sim.order == 0)
            break;
    }
    return chosen;
}

void graph_run(const struct graph_exec *exec)
{
    const struct CUgraph_st *graph = exec->graph;
    bool *done = calloc(graph->count + 1, sizeof(*done));
    uint64_t seed = sim.order;

    for (size_t left = graph->count; left > 0 && sim.sticky == cudaSuccess; left--) {
        size_t i = choose(graph, done, &seed);
        work_run(&graph->nodes[i]->work);
        done[i] = true;
    }
    free(done);
}

static struct CUgraph_st *graph_of(cudaGraph_t graph, const char *call)
{
    if (graph != NULL && graph->magic == GRAPH_MAGIC)
        return graph;
    finding("%s: %p is no graph", call, (void *)graph);
    return NULL;
}

static struct graph_exec *exec_of(cudaGraphExec_t handle, const char *call)
{
    struct graph_exec *exec = (struct graph_exec *)handle;

    if (exec != NULL && exec->magic == GRAPH_EXEC_MAGIC && !exec->destroyed)
        return exec;
    finding("%s: %p is no executable graph, or one that was destroyed", call, (void *)handle);
    return NULL;
}

SIM_EXPORT cudaError_t cudaGraphCreate(cudaGraph_t *out, unsigned flags)
{
    BEGIN(cudaGraphCreate);
    if (flags != 0)
        return api_end(cudaErrorInvalidValue);
    *out = graph_make();
    sim_lock();
    open_count(OPEN_GRAPH, 1);
    sim_unlock();
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t handle)
{
    BEGIN_ALIVE(cudaGraphDestroy);
    struct CUgraph_st *graph = graph_of(handle, "cudaGraphDestroy");
    if (graph == NULL)
        return api_end(cudaErrorInvalidValue);
    graph_free(graph);
    sim_lock();
    open_count(OPEN_GRAPH, -1);
    sim_unlock();
    return cudaSuccess;
}

static cudaError_t instantiate(cudaGraphExec_t *out, cudaGraph_t handle)
{
    const struct CUgraph_st *graph = graph_of(handle, "cudaGraphInstantiate");

    if (graph == NULL || out == NULL)
        return cudaErrorInvalidValue;
    struct graph_exec *exec = calloc(1, sizeof(*exec));
    if (exec == NULL)
        return cudaErrorMemoryAllocation;
    *exec = (struct graph_exec){GRAPH_EXEC_MAGIC, 1, false, graph_copy(graph)};
    sim_lock();
    open_count(OPEN_GRAPH_EXEC, 1);
    sim_unlock();
    *out = (cudaGraphExec_t)exec;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                            unsigned long long flags)
{
    BEGIN(cudaGraphInstantiate);
    return api_end(flags == 0 ? instantiate(out, graph) : cudaErrorNotSupported);
}

SIM_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
                                                     unsigned long long flags)
{
    BEGIN(cudaGraphInstantiateWithFlags);
    return api_end(flags == 0 ? instantiate(out, graph) : cudaErrorNotSupported);
}

SIM_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle)
{
    BEGIN_ALIVE(cudaGraphExecDestroy);
    struct graph_exec *exec = exec_of(handle, "cudaGraphExecDestroy");
    if (exec == NULL)
        return api_end(cudaErrorInvalidValue);
    sim_lock();
    exec->destroyed = true;
    open_count(OPEN_GRAPH_EXEC, -1);
    graph_exec_unref(exec);
    sim_unlock();
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t stream)
{
    BEGIN(cudaGraphUpload);
    if (exec_of(handle, "cudaGraphUpload") == NULL || stream_of(stream, "cudaGraphUpload") == NULL)
        return api_end(cudaErrorInvalidValue);
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle)
{
    BEGIN(cudaGraphLaunch);
    struct graph_exec *exec = exec_of(handle, "cudaGraphLaunch");
    struct CUstream_st *stream = stream_of(stream_handle, "cudaGraphLaunch");
    if (exec == NULL || stream == NULL)
        return api_end(cudaErrorInvalidValue);
    struct work work = {.kind = WORK_GRAPH, .graph = exec};
    sim_lock();
    exec->references++;
    sim_unlock();
    return api_end(stream_put(stream, work));
}

/* Whether `to` differs from `from` in what an update may change only. */
static enum cudaGraphExecUpdateResult update_verdict(const struct CUgraph_st *from,
                                                     const struct CUgraph_st *to, size_t *out_node)
{
    if (from->count != to->count)
        return cudaGraphExecUpdateErrorTopologyChanged;
    for (size_t i = 0; i < from->count; i++) {
        const struct CUgraphNode_st *a = from->nodes[i];
        const struct CUgraphNode_st *b = to->nodes[i];
        *out_node = i;
        if (a->work.kind != b->work.kind)
            return cudaGraphExecUpdateErrorNodeTypeChanged;
        if (a->after.count != b->after.count ||
            (a->after.count != 0 &&
             memcmp(a->after.nodes, b->after.nodes, a->after.count * sizeof(unsigned)) != 0))
            return cudaGraphExecUpdateErrorTopologyChanged;
        if (a->work.kind == WORK_NATIVE && a->work.native.fn != b->work.native.fn)
            return cudaGraphExecUpdateErrorFunctionChanged;
        if (a->work.kind == WORK_COPY && a->work.copy.kind != b->work.copy.kind)
            return cudaGraphExecUpdateErrorParametersChanged;
    }
    return cudaGraphExecUpdateSuccess;
}

SIM_EXPORT cudaError_t cudaGraphExecUpdate(cudaGraphExec_t handle, cudaGraph_t graph_handle,
                                           cudaGraphExecUpdateResultInfo *out)
{
    BEGIN(cudaGraphExecUpdate);
    struct graph_exec *exec = exec_of(handle, "cudaGraphExecUpdate");
    struct CUgraph_st *graph = graph_of(graph_handle, "cudaGraphExecUpdate");
    size_t node = 0;
    if (exec == NULL || graph == NULL || out == NULL)
        return api_end(cudaErrorInvalidValue);
    memset(out, 0, sizeof(*out));
    out->result = update_verdict(exec->graph, graph, &node);
    if (out->result != cudaGraphExecUpdateSuccess) {
        out->errorNode = node < graph->count ? graph->nodes[node] : NULL;
        return api_end(cudaErrorGraphExecUpdateFailure);
    }
    /* Launches before this call run the graph as it was. */
    streams_run_all();
    exec_lock();
    graph_free(exec->graph);
    exec->graph = graph_copy(graph);
    exec_unlock();
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *out, size_t *count)
{
    BEGIN(cudaGraphGetNodes);
    struct CUgraph_st *graph = graph_of(handle, "cudaGraphGetNodes");
    if (graph == NULL || count == NULL)
        return api_end(cudaErrorInvalidValue);
    for (size_t i = 0; out != NULL && i < *count; i++)
        out[i] = i < graph->count ? graph->nodes[i] : NULL;
    if (out == NULL || *count > graph->count)
        *count = graph->count;
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *out)
{
    BEGIN(cudaGraphNodeGetType);
    switch (node->work.kind) {
    case WORK_KERNEL:
    case WORK_NATIVE:
        *out = cudaGraphNodeTypeKernel;
        break;
    case WORK_COPY:
        *out = cudaGraphNodeTypeMemcpy;
        break;
    case WORK_SET:
        *out = cudaGraphNodeTypeMemset;
        break;
    case WORK_HOST:
        *out = cudaGraphNodeTypeHost;
        break;
    case WORK_GRAPH:
        *out = cudaGraphNodeTypeGraph;
        break;
    default:
        *out = cudaGraphNodeTypeEmpty;
        break;
    }
    return cudaSuccess;
}
