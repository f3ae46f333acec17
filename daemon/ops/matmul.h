/* MatMul and Gemm, as kernels and passes see them. */
#ifndef OPS_MATMUL_H
#define OPS_MATMUL_H

#include "ops/epilogue.h"
#include "ops/op.h"

/* Inputs of matmul: A, B, bias [n] or none, residual or none.  Bias and residual are put there by
 * passes only; they are always at these places and only there when the attributes say so. */
enum { MATMUL_A, MATMUL_B, MATMUL_BIAS, MATMUL_RESIDUAL };

struct matmul_attrs {
    bool trans_a; /* of the last two dimensions; set by passes */
    bool trans_b;
    bool has_bias; /* in[MATMUL_BIAS] of shape [n] is added before the activation */
    bool has_scale;
    float scale; /* with has_scale: multiplies A B, before bias */
    struct epilogue epilogue;
};

/* out[b…] = A[b…] (m x k) times B[b…] (k x n), with broadcast of the leading dimensions. */
struct matmul_geometry {
    int64_t m, k, n;
    struct shape batch; /* leading dimensions of the output, without those that a vector lacks */
    int64_t batches;    /* their product */
    bool a_is_vector, b_is_vector; /* rank 1: the dimension is not in the output */
};
MUST_CHECK enum status matmul_resolve(const struct shape *a, const struct shape *b, bool trans_a,
                                      bool trans_b, struct matmul_geometry *out_geometry,
                                      struct error *err);
/* Of a product that fills `out`, over `k` terms each. */
uint64_t matmul_flops(const struct shape *out, int64_t k);
struct shape matmul_output_shape(const struct matmul_geometry *geometry);
/* Which matrix of an operand (its shape without the last two dimensions broadcast to the batch)
 * product `index` of the batch uses. */
int64_t matmul_operand_index(const struct matmul_geometry *geometry, const struct shape *operand,
                             int64_t index);

#endif
