/* Gemm: out = alpha A' B' + beta C, as kernels and passes see it.
 *
 * Inputs: A, B, C (broadcast to [m,n]) or none, residual or none; the residual is always input
 * GEMM_RESIDUAL and only there when epilogue.has_residual says so. */
#ifndef OPS_GEMM_H
#define OPS_GEMM_H

#include "ops/epilogue.h"
#include "ops/op.h"

enum { GEMM_A, GEMM_B, GEMM_C, GEMM_RESIDUAL };

struct gemm_attrs {
    float alpha;
    float beta;
    int64_t transA;
    int64_t transB;
    struct epilogue epilogue; /* set by passes */
};

#endif
