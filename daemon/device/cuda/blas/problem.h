/* One matrix product as cuBLASLt sees it, and the algorithm for it.
 *
 * cuBLASLt counts columns first.  A row-major product out[m][n] = A[m][k] B[k][n] is the
 * column-first product out' = B' A' over the very same memory, so B goes first and no data moves;
 * a bias of n elements then runs along the rows of the library's result, where its epilogue
 * expects it.
 *
 *     out[z] = act(alpha A[z] B[z] + beta C[z] + bias)
 *
 * Same bits: the library's heuristic looks at all sizes, the number of rows too.  The algorithm is
 * therefore asked for with dimension 0 of the result taken as LT_ROWS, whatever it is, and only
 * without splitting k over blocks that add up later; the algorithm so found is checked against and
 * used with the real sizes.  An algorithm fixes tile, stages and the order in which k is summed, so
 * a row has the same bits in every batch.  Whole numbers (int8) have the same sums in every order:
 * there the number of rows is rounded up, so that few sizes are asked for.  Of several that are
 * offered for aligned addresses the fastest is taken (choose.h), again by those sizes alone.  For
 * addresses that are not aligned to 16 bytes (views into other tensors) a second algorithm stands
 * ready, found in the same way.
 */
#ifndef DEVICE_CUDA_BLAS_PROBLEM_H
#define DEVICE_CUDA_BLAS_PROBLEM_H

#include "device/cuda/blas/lt.h"
#include "ops/matmul.h"

enum { LT_ROWS = 64, LT_ALIGNMENT = 16, LT_WORDS = 192 };

enum lt_dimension_0 { LT_DIMENSION_0_M, LT_DIMENSION_0_BATCH, LT_DIMENSION_0_ELSEWHERE };

struct lt_problem {
    int64_t m, n, k;        /* of the row-major product */
    int64_t batch;          /* products */
    int64_t a_next, b_next; /* elements from product to product; 0: the same again */
    bool trans_a, trans_b;  /* stored [k][m], [n][k] */
    int64_t dimension_0;    /* of the result; `m` or `batch` is a multiple of it */
    enum lt_dimension_0 at; /* which */
    enum dtype dtype;       /* of all operands; INT8: of a and b, which are summed to int32 */
    enum cuda_precision precision;
    bool has_bias; /* n elements */
    bool has_c;    /* a matrix like out */
    bool relu;
    float alpha, beta;
};

static inline enum dtype lt_result_dtype(const struct lt_problem *problem)
{
    return problem->dtype == DTYPE_INT8 ? DTYPE_INT32 : problem->dtype;
}

/* All that a problem is, but where its rows end. */
void lt_problem_format(const struct lt_problem *problem, char text[LT_WORDS]);
/* NULL, and sizes, strides and transposes of `out_problem` (the rest is left), or why the library
 * cannot do it. */
const char *lt_problem_matrices(const struct shape *a, const struct shape *b, bool trans_a,
                                bool trans_b, struct lt_problem *out_problem);

struct lt_operands {
    const void *a, *b, *bias, *c; /* bias and c: NULL when the problem has none */
    void *out;                    /* may be c */
};

/* A problem with its algorithms: no pointers to memory of its own, freed as it is. */
struct lt_product {
    const struct lt *lt;
    struct lt_problem problem;
    cublasLtMatrixLayoutOpaque_t first, second, result; /* B, A and out of the problem */
    cublasLtMatmulAlgo_t algo[2];                       /* [1]: for addresses out of line */
    size_t workspace_bytes;
    int number, offered; /* algo[0] was this one, from 0, of those offered */
};

/* STATUS_UNSUPPORTED: no algorithm, said in a sentence.  `weights` lends memory to try algorithms
 * in; NULL: the first one is taken. */
MUST_CHECK enum status lt_product_init(struct lt_product *product, const struct lt *lt,
                                       const struct lt_problem *problem, int capability,
                                       struct weights_cache *weights, struct error *err);
/* Whether the ReLU of its algorithms gives NaN for NaN (nan_trial.h), which the device is asked
 * once for the problem of any number of rows. */
bool lt_product_keeps_nan(const struct lt_product *product, struct weights_cache *weights);
/* "f32 algo 20 tile 24": for people. */
void lt_product_describe(const struct lt_product *product, char *text, size_t room);
/* `workspace` has workspace_bytes.  Nothing is allocated and nothing waits. */
enum status lt_product_run(const struct lt_product *product, const struct lt_operands *operands,
                           void *workspace, cudaStream_t stream);

#endif
