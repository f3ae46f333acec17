/* Pieces of work: running, copying, letting go. */
#include "copy.h"
#include "event.h"
#include "graph.h"
#include "launch.h"
#include "pool.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

void work_run(const struct work *work)
{
    switch (work->kind) {
    case WORK_KERNEL:
        kernel_run(&work->kernel);
        break;
    case WORK_COPY:
        copy_run(&work->copy);
        break;
    case WORK_SET:
        set_run(&work->set);
        break;
    case WORK_RECORD:
        event_run(work->record.event, work->record.generation);
        break;
    case WORK_HOST: /* as a node of a graph; it may wait for a thread that calls us */
        exec_unlock();
        work->host.fn(work->host.arg);
        exec_lock();
        break;
    case WORK_NATIVE:
        work->native.fn(work->native.arg);
        break;
    case WORK_GRAPH:
        graph_run(work->graph);
        break;
    case WORK_FREE:
        pool_free_run(work->freed);
        break;
    case WORK_WAIT:
    case WORK_EMPTY:
        break;
    }
}

void work_release(struct work *work)
{
    if (work->kind == WORK_KERNEL)
        free(work->kernel.parameters);
    if (work->kind == WORK_NATIVE)
        free(work->native.arg);
    if (work->kind == WORK_COPY)
        free(work->copy.staged);
    if (work->kind == WORK_GRAPH)
        graph_exec_unref(work->graph);
}

struct work work_copy(const struct work *work)
{
    struct work copy = *work;

    if (work->kind == WORK_KERNEL)
        copy.kernel.parameters = kernel_parameters_copy(&work->kernel);
    if (work->kind == WORK_NATIVE) {
        copy.native.arg = malloc(work->native.bytes + 1);
        memcpy(copy.native.arg, work->native.arg, work->native.bytes);
    }
    if (work->kind == WORK_GRAPH)
        work->graph->references++;
    return copy;
}
