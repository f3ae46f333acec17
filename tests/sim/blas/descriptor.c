/* Descriptors of the simulated cuBLASLt: made, filled and checked as the header of the real one
 * demands; what is not simulated is refused, never ignored. */
#include "descriptor.h"

#include <string.h>

cublasStatus_t blas_wrong(const char *call, const char *what)
{
    sim_find("%s: %s", call, what);
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t copied(const char *call, void *field, size_t size, const void *buf,
                             size_t bytes)
{
    if (buf == NULL || bytes != size)
        return blas_wrong(call, "an attribute of another size");
    memcpy(field, buf, size);
    return CUBLAS_STATUS_SUCCESS;
}
#define SET(field) return copied(__func__, &(field), sizeof(field), buf, bytes)

/* ---- matrices ---- */

SIM_EXPORT cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t opaque,
                                                            size_t size, cudaDataType type,
                                                            uint64_t rows, uint64_t columns,
                                                            int64_t ld)
{
    struct blas_layout *layout = (struct blas_layout *)opaque;

    if (size < sizeof(*opaque))
        return CUBLAS_STATUS_ALLOC_FAILED;
    memset(opaque, 0, sizeof(*opaque));
    if (rows == 0 || columns == 0 || ld < (int64_t)rows)
        return blas_wrong(__func__, "a matrix without elements, or columns that overlap");
    *layout = (struct blas_layout){.magic = BLAS_LAYOUT,
                                   .batch = 1,
                                   .type = type,
                                   .order = CUBLASLT_ORDER_COL,
                                   .rows = rows,
                                   .columns = columns,
                                   .ld = ld};
    return CUBLAS_STATUS_SUCCESS;
}

SIM_EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t opaque,
                                                           cublasLtMatrixLayoutAttribute_t attr,
                                                           const void *buf, size_t bytes)
{
    struct blas_layout *layout = (struct blas_layout *)opaque;

    if (layout->magic != BLAS_LAYOUT)
        return blas_wrong(__func__, "not a matrix layout");
    switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        SET(layout->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        SET(layout->next);
    default:
        return blas_wrong(__func__, "an attribute that is not simulated");
    }
}

/* ---- operations ---- */

SIM_EXPORT cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t opaque, size_t size,
                                                          cublasComputeType_t compute,
                                                          cudaDataType_t scale)
{
    if (size < sizeof(*opaque))
        return CUBLAS_STATUS_ALLOC_FAILED;
    memset(opaque, 0, sizeof(*opaque));
    *(struct blas_operation *)opaque =
        (struct blas_operation){.magic = BLAS_OPERATION,
                                .compute = compute,
                                .scale = scale,
                                .a = CUBLAS_OP_N,
                                .b = CUBLAS_OP_N,
                                .c = CUBLAS_OP_N,
                                .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                                .bias_type = (cudaDataType_t)-1};
    return CUBLAS_STATUS_SUCCESS;
}

SIM_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque,
                                                         cublasLtMatmulDescAttributes_t attr,
                                                         const void *buf, size_t bytes)
{
    struct blas_operation *operation = (struct blas_operation *)opaque;

    if (operation->magic != BLAS_OPERATION)
        return blas_wrong(__func__, "not an operation");
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        SET(operation->a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        SET(operation->b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        SET(operation->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        SET(operation->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        SET(operation->bias_next);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        SET(operation->bias_type);
    default:
        return blas_wrong(__func__, "an attribute that is not simulated");
    }
}

/* ---- preferences ---- */

SIM_EXPORT cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t opaque,
                                                                size_t size)
{
    if (size < sizeof(*opaque))
        return CUBLAS_STATUS_ALLOC_FAILED;
    memset(opaque, 0, sizeof(*opaque));
    *(struct blas_preference *)opaque =
        (struct blas_preference){.magic = BLAS_PREFERENCE,
                                 .reductions = CUBLASLT_REDUCTION_SCHEME_MASK,
                                 .alignment = {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

SIM_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t opaque, cublasLtMatmulPreferenceAttributes_t attr, const void *buf,
    size_t bytes)
{
    struct blas_preference *preference = (struct blas_preference *)opaque;

    if (preference->magic != BLAS_PREFERENCE)
        return blas_wrong(__func__, "not a preference");
    switch (attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        SET(preference->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        SET(preference->reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        SET(preference->alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        SET(preference->alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        SET(preference->alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        SET(preference->alignment[3]);
    default:
        return blas_wrong(__func__, "an attribute that is not simulated");
    }
}

/* ---- all of a call together ---- */

static enum element element_of(cudaDataType_t type)
{
    switch (type) {
    case CUDA_R_32F:
        return ELEMENT_FLOAT;
    case CUDA_R_16F:
        return ELEMENT_HALF;
    case CUDA_R_16BF:
        return ELEMENT_BFLOAT;
    case CUDA_R_8I:
        return ELEMENT_BYTE;
    case CUDA_R_32I:
        return ELEMENT_WHOLE;
    default:
        return ELEMENT_NONE;
    }
}

bool blas_has_bias(const struct blas_problem *problem)
{
    return (problem->operation->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

/* What the library demands of products of int8 in plain order, on integer tensor cores: sums and
 * their scale in 32-bit integers and no epilogue, A turned and B not, m, k and leading dimensions
 * multiples of four.  NULL: nothing is wrong. */
static const char *wrong_whole(const struct blas_problem *p)
{
    const struct blas_operation *operation = p->operation;

    if (p->factors != ELEMENT_BYTE || p->element != ELEMENT_WHOLE)
        return "types that do not go together, or are not simulated";
    if (operation->compute != CUBLAS_COMPUTE_32I)
        return "a compute type that does not go with the operands";
    if (operation->scale != CUDA_R_32I || operation->pointers != CUBLASLT_POINTER_MODE_HOST)
        return "a scale that does not go with the compute type";
    if (operation->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return "an epilogue behind whole numbers";
    if (operation->a != CUBLAS_OP_T || operation->b != CUBLAS_OP_N || operation->c != CUBLAS_OP_N)
        return "int8 in another form than TN";
    if (p->a->columns % 4 != 0 || p->a->rows % 4 != 0)
        return "int8 with an m or k that is no multiple of 4";
    if ((p->a->ld | p->b->ld | p->c->ld | p->d->ld) % 4 != 0)
        return "int8 with a leading dimension that is no multiple of 4";
    if (p->d->batch > 1 && (p->a->next | p->b->next | p->d->next) % 4 != 0)
        return "int8 with matrices of a batch out of line";
    return NULL;
}

static bool is_whole(const struct blas_problem *p)
{
    return p->factors == ELEMENT_BYTE || p->element == ELEMENT_WHOLE;
}

/* What is wrong with types and epilogue; NULL: nothing. */
static const char *wrong_operation(const struct blas_problem *p)
{
    const struct blas_operation *operation = p->operation;
    bool tf32 = operation->compute == CUBLAS_COMPUTE_32F_FAST_TF32;

    if (p->element == ELEMENT_NONE || p->a->type != p->b->type || p->c->type != p->d->type)
        return "types that do not go together, or are not simulated";
    if (is_whole(p))
        return wrong_whole(p);
    if (p->a->type != p->d->type)
        return "types that do not go together, or are not simulated";
    if (operation->compute != CUBLAS_COMPUTE_32F && !(tf32 && p->element == ELEMENT_FLOAT))
        return "a compute type that does not go with the operands";
    if (operation->scale != CUDA_R_32F || operation->pointers != CUBLASLT_POINTER_MODE_HOST)
        return "a scale that does not go with the compute type";
    if (operation->c != CUBLAS_OP_N || operation->a > CUBLAS_OP_T || operation->b > CUBLAS_OP_T)
        return "an operand turned in a way that is not simulated";
    if (operation->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
        operation->epilogue != CUBLASLT_EPILOGUE_RELU &&
        operation->epilogue != CUBLASLT_EPILOGUE_BIAS &&
        operation->epilogue != CUBLASLT_EPILOGUE_RELU_BIAS)
        return "an epilogue that is not simulated";
    if (blas_has_bias(p) && operation->bias == NULL)
        return "an epilogue with a bias, and no bias";
    if (operation->bias_type != (cudaDataType_t)-1 && operation->bias_type != p->d->type)
        return "a bias of another type";
    return NULL;
}

static const char *wrong_sizes(struct blas_problem *p)
{
    bool a_turned = p->operation->a == CUBLAS_OP_T, b_turned = p->operation->b == CUBLAS_OP_T;

    p->m = a_turned ? p->a->columns : p->a->rows;
    p->k = a_turned ? p->a->rows : p->a->columns;
    p->n = b_turned ? p->b->rows : p->b->columns;
    if (p->k != (b_turned ? p->b->columns : p->b->rows))
        return "A has another k than B";
    if (p->d->rows != p->m || p->d->columns != p->n || p->c->rows != p->m || p->c->columns != p->n)
        return "C or D has another size than the product";
    if (p->a->batch < 1 || p->b->batch != p->a->batch || p->c->batch != p->a->batch ||
        p->d->batch != p->a->batch)
        return "batches of different counts";
    if (p->d->batch > 1 && p->d->next < (int64_t)(p->d->columns - 1) * p->d->ld + (int64_t)p->m)
        return "results of a batch that overlap";
    return NULL;
}

cublasStatus_t blas_problem_read(const char *call, cublasLtMatmulDesc_t operation,
                                 cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                 struct blas_problem *out_problem)
{
    struct blas_problem p = {.operation = (const struct blas_operation *)operation,
                             .a = (const struct blas_layout *)a,
                             .b = (const struct blas_layout *)b,
                             .c = (const struct blas_layout *)c,
                             .d = (const struct blas_layout *)d};
    const char *wrong;

    if (operation == NULL || a == NULL || b == NULL || c == NULL || d == NULL ||
        p.operation->magic != BLAS_OPERATION || p.a->magic != BLAS_LAYOUT ||
        p.b->magic != BLAS_LAYOUT || p.c->magic != BLAS_LAYOUT || p.d->magic != BLAS_LAYOUT)
        return blas_wrong(call, "a descriptor that was never made");
    p.element = element_of(p.d->type);
    p.factors = element_of(p.a->type);
    wrong = wrong_operation(&p);
    if (wrong == NULL)
        wrong = wrong_sizes(&p);
    if (wrong != NULL)
        return blas_wrong(call, wrong);
    *out_problem = p;
    return CUBLAS_STATUS_SUCCESS;
}
