/* Descriptors of cuDNN's backend, made one behind the other: the first failure stays and makes all
 * later steps do nothing, so that only the end is looked at. */
#ifndef DEVICE_CUDA_DNN_GRAPH_H
#define DEVICE_CUDA_DNN_GRAPH_H

#include "device/cuda/dnn/plan.h"

typedef cudnnBackendDescriptor_t dnn_part;

struct dnn_builder {
    struct dnn_plan *plan; /* takes the parts */
    cudnnStatus_t status;
};

enum { DNN_OPERATIONS = 4 }; /* in a graph, at most */
enum dnn_tensor { DNN_X = 1, DNN_W, DNN_BIAS, DNN_Z, DNN_Y, DNN_INNER };

/* An empty descriptor; NULL after a failure. */
dnn_part dnn_make(struct dnn_builder *builder, cudnnBackendDescriptorType_t type);
void dnn_set(struct dnn_builder *builder, dnn_part part, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t count, const void *values);
void dnn_finalize(struct dnn_builder *builder, dnn_part part);
/* The number of values; 0 after a failure. */
int64_t dnn_ask(struct dnn_builder *builder, dnn_part part, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t room, void *values);

/* The operation graph, finalized, with `images` instead of the graph's own number. */
dnn_part dnn_operations(struct dnn_builder *builder, const struct dnn_graph *graph, int64_t images);

#endif
