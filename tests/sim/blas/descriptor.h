/* What the simulated cuBLASLt keeps in the library's opaque structs.  All zero means "not made". */
#ifndef SLUICE_TESTS_SIM_BLAS_DESCRIPTOR_H
#define SLUICE_TESTS_SIM_BLAS_DESCRIPTOR_H

#include <cublasLt.h>
#include <stdbool.h>

#include "element.h"
#include "sim.h"

struct blas_layout {
    uint32_t magic;
    int32_t batch;
    cudaDataType_t type;
    uint32_t order;
    uint64_t rows, columns;
    int64_t ld;
    int64_t next; /* elements to the next matrix of a batch */
};

struct blas_operation {
    uint32_t magic;
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t a, b, c;
    cublasLtEpilogue_t epilogue;
    cublasLtPointerMode_t pointers;
    const void *bias;
    int64_t bias_next;
    cudaDataType_t bias_type; /* -1: that of D */
};

struct blas_preference {
    uint32_t magic;
    uint32_t reductions;
    size_t workspace;
    uint32_t alignment[4]; /* A, B, C, D */
};

/* An algorithm is good for one operation on types, and addresses of one alignment.  `chunk` is how
 * many products it adds up before it adds them to the sum: what makes bits differ. */
struct blas_algo {
    uint32_t magic;
    int32_t id;
    uint32_t tile;
    uint32_t chunk;
    uint32_t alignment;
    uint32_t kind; /* of operation and types, see blas_kind() */
};

_Static_assert(sizeof(struct blas_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
_Static_assert(sizeof(struct blas_operation) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
_Static_assert(sizeof(struct blas_preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
_Static_assert(sizeof(struct blas_algo) <= sizeof(cublasLtMatmulAlgo_t), "fits");

enum {
    BLAS_LAYOUT = 0x6C61796F,
    BLAS_OPERATION = 0x6F706572,
    BLAS_PREFERENCE = 0x70726566,
    BLAS_ALGO = 0x616C676F,
    BLAS_HANDLE = 0x68616E64
};

/* One call's descriptors, seen and found to agree. */
struct blas_problem {
    const struct blas_operation *operation;
    const struct blas_layout *a, *b, *c, *d;
    uint64_t m, n, k;     /* of the column-first product */
    enum element element; /* of C and D */
    enum element factors; /* of A and B */
};

/* Finds what is wrong with them, as a finding and a status. */
cublasStatus_t blas_problem_read(const char *call, cublasLtMatmulDesc_t operation,
                                 cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                 struct blas_problem *out_problem);
cublasStatus_t blas_wrong(const char *call, const char *what);
uint32_t blas_kind(const struct blas_problem *problem);
/* The most that strides and leading dimensions keep addresses aligned to, up to `wanted`. */
uint32_t blas_alignment(const struct blas_problem *problem, uint32_t wanted);
size_t blas_workspace(const struct blas_problem *problem, const struct blas_algo *algo);
bool blas_has_bias(const struct blas_problem *problem);

#endif
