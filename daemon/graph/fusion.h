/* What the fusing passes and the engine know about nodes that can do more than one thing. */
#ifndef GRAPH_FUSION_H
#define GRAPH_FUSION_H

#include "graph/graph.h"
#include "ops/epilogue.h"

/* The epilogue of a Conv, ConvTranspose, MatMul or Gemm; NULL for other nodes. */
struct epilogue *node_epilogue(const struct node *node);
/* The input that its residual is, or SIZE_MAX when it has none. */
size_t node_residual_index(const struct node *node);

#endif
