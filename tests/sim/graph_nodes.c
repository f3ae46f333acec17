/* Nodes of graphs that programs add, read and change one by one. */
#include "graph.h"
#include "launch.h"

#include <stdlib.h>
#include <string.h>

static struct CUgraphNode_st *node_in(struct graph_exec *exec, const struct CUgraphNode_st *node)
{
    struct CUgraph_st *graph = exec->graph;

    return node->number < graph->count ? graph->nodes[node->number] : NULL;
}

/* The work of a launch with these parameters; false when the device does not take it. */
static cudaError_t kernel_node_work(const struct cudaKernelNodeParams *params, struct work *out)
{
    struct kernel *kernel = kernel_of(params->func);

    if (kernel == NULL || params->extra != NULL)
        return cudaErrorInvalidDeviceFunction;
    return kernel_work_make(kernel, params->gridDim, params->blockDim, params->kernelParams,
                            params->sharedMemBytes, out);
}

static struct node_set after_of(const cudaGraphNode_t *after, size_t count)
{
    struct node_set set = {0};

    for (size_t i = 0; i < count; i++)
        node_set_add(&set, after[i]->number);
    return set;
}

SIM_EXPORT cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *out, cudaGraph_t graph,
                                              const cudaGraphNode_t *after, size_t count,
                                              const struct cudaKernelNodeParams *params)
{
    BEGIN(cudaGraphAddKernelNode);
    struct work work;
    if (graph == NULL || graph->magic != GRAPH_MAGIC)
        return api_end(cudaErrorInvalidValue);
    struct node_set set = after_of(after, count);
    cudaError_t error = kernel_node_work(params, &work);
    if (error == cudaSuccess) {
        *out = graph_add(graph, work, &set);
        error = *out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
    }
    node_set_free(&set);
    return api_end(error);
}

SIM_EXPORT cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *out, cudaGraph_t graph,
                                             const cudaGraphNode_t *after, size_t count)
{
    BEGIN(cudaGraphAddEmptyNode);
    if (graph == NULL || graph->magic != GRAPH_MAGIC)
        return api_end(cudaErrorInvalidValue);
    struct node_set set = after_of(after, count);
    *out = graph_add(graph, (struct work){.kind = WORK_EMPTY}, &set);
    node_set_free(&set);
    return api_end(*out != NULL ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* Other values for a kernel of a graph that is already instantiated. */
SIM_EXPORT cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t handle,
                                                        cudaGraphNode_t node,
                                                        const struct cudaKernelNodeParams *params)
{
    BEGIN(cudaGraphExecKernelNodeSetParams);
    struct graph_exec *exec = (struct graph_exec *)handle;
    struct CUgraphNode_st *own = exec != NULL && exec->magic == GRAPH_EXEC_MAGIC && node != NULL
                                     ? node_in(exec, node)
                                     : NULL;
    struct work work;
    if (own == NULL || own->work.kind != WORK_KERNEL)
        return api_end(cudaErrorInvalidValue);
    cudaError_t error = kernel_node_work(params, &work);
    if (error != cudaSuccess)
        return api_end(error);
    streams_run_all(); /* launches before this call run the old values */
    exec_lock();
    work_release(&own->work);
    own->work = work;
    exec_unlock();
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t handle,
                                                          cudaGraphNode_t node, void *to,
                                                          const void *from, size_t bytes,
                                                          enum cudaMemcpyKind kind)
{
    BEGIN(cudaGraphExecMemcpyNodeSetParams1D);
    struct graph_exec *exec = (struct graph_exec *)handle;
    struct CUgraphNode_st *own = exec != NULL && exec->magic == GRAPH_EXEC_MAGIC && node != NULL
                                     ? node_in(exec, node)
                                     : NULL;
    if (own == NULL || own->work.kind != WORK_COPY || own->work.copy.kind != kind)
        return api_end(cudaErrorInvalidValue);
    streams_run_all();
    exec_lock();
    own->work.copy = (struct copy_work){to, from, bytes, bytes, bytes, 1, kind, NULL};
    exec_unlock();
    return cudaSuccess;
}

SIM_EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *out,
                                                    cudaGraphEdgeData *edges, size_t *count)
{
    BEGIN(cudaGraphNodeGetDependencies);
    if (node == NULL || count == NULL || edges != NULL || out != NULL)
        return api_end(cudaErrorNotSupported); /* how many, and no more */
    *count = node->after.count;
    return cudaSuccess;
}
