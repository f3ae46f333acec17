/* From operators to graphs: what convolutions and pools share. */
#ifndef DEVICE_CUDA_DNN_OPERANDS_H
#define DEVICE_CUDA_DNN_OPERANDS_H

#include "device/cuda/dnn/plan.h"
#include "ops/window.h"

/* Strides, dilations, padding and the window's own sizes; also graph->spatial. */
void dnn_graph_window(struct dnn_graph *graph, const struct window *window);
/* Input 0 and output 0 of the call, types and precision, behind dnn_graph_window(); why not. */
const char *dnn_graph_tensors(struct dnn_graph *graph, const struct kernel_call *call);
/* One tensor's sizes, missing ones 1: of three dimensions the last is the last of space. */
void dnn_graph_sizes(const struct shape *shape, int64_t sizes[DNN_RANK]);
/* Whether cuDNN counts as many places of the window as the operator has: ONNX may round up. */
bool dnn_graph_fits(const struct dnn_graph *graph);

/* A row of kernels.def that is a graph of cuDNN's. */
struct dnn_row {
    /* NULL, and the graph, or why not. */
    const char *(*describe)(const struct kernel_call *call, struct dnn_graph *out_graph);
    size_t state_bytes;
    /* Plans, and what else the row keeps, in zeroed state; what to tell of it, in `prepare`. */
    enum status (*fill)(struct kernel_prepare *prepare, void *state, struct dnn_graph *graph,
                        const struct dnn *dnn, struct error *err);
    void (*release)(void *state); /* also of state that fill() left half made */
};
const char *dnn_row_refuses(const struct dnn_row *row, const struct kernel_call *call);
enum status dnn_row_prepare(const struct dnn_row *row, struct kernel_prepare *prepare,
                            struct error *err);
/* Frees a row's plan, and sees what the library held for it (fixed.h).  Zeroed is fine. */
void dnn_row_drop(struct dnn_plan *plan);

#endif
