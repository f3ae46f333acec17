#include "graph/fusion.h"

#include "ops/conv.h"
#include "ops/gemm.h"
#include "ops/matmul_bytes.h"
#include "ops/separable_conv.h"

struct epilogue *node_epilogue(const struct node *node)
{
    if (node->op == &op_conv)
        return &((struct conv_attrs *)node->attrs)->epilogue;
    if (node->op == &op_separable_conv)
        return &((struct separable_conv_attrs *)node->attrs)->project.epilogue;
    if (node->op == &op_conv_transpose)
        return &((struct conv_transpose_attrs *)node->attrs)->epilogue;
    if (node->op == &op_matmul || node->op == &op_matmul_bytes)
        return &((struct matmul_attrs *)node->attrs)->epilogue;
    if (node->op == &op_gemm)
        return &((struct gemm_attrs *)node->attrs)->epilogue;
    return NULL;
}

size_t node_residual_index(const struct node *node)
{
    const struct epilogue *epilogue = node_epilogue(node);

    if (epilogue == NULL || !epilogue->has_residual)
        return SIZE_MAX;
    if (conv_has_prelude(node->op, node->attrs))
        return CONV_RESIDUAL;
    return node->op == &op_matmul_bytes ? MATMUL_RESIDUAL : node->inputs - 1;
}
