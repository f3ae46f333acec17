#include "device/cuda/blas/problem.h"

#include <stdio.h>
#include <string.h>

#include "device/cuda/blas/choose.h"

/* Bytes that an algorithm may ask for: cuBLAS's own advice by generation. */
enum { WORKSPACE_HOPPER = 32 << 20, WORKSPACE = 4 << 20, HOPPER = 90 };
enum { MOST_ROWS = 4096 }; /* that a product of bytes is asked for with */

/* ---- from the operator to the problem ---- */

static int64_t matrices_of(const struct shape *operand)
{
    return operand->rank > 2 ? shape_product(operand, 0, operand->rank - 2) : 1;
}

static void set_dimension_0(struct lt_problem *problem, const struct matmul_geometry *g,
                            bool folded)
{
    if (g->batch.rank > 0) {
        problem->dimension_0 = g->batch.dims[0];
        problem->at = folded ? LT_DIMENSION_0_M : LT_DIMENSION_0_BATCH;
    } else {
        problem->dimension_0 = g->m;
        problem->at = g->a_is_vector ? LT_DIMENSION_0_ELSEWHERE : LT_DIMENSION_0_M;
    }
    /* Then the number of rows decides how far rows lie apart: no other can stand for it. */
    if (problem->at == LT_DIMENSION_0_M && problem->trans_a)
        problem->at = LT_DIMENSION_0_ELSEWHERE;
}

const char *lt_problem_matrices(const struct shape *a, const struct shape *b, bool trans_a,
                                bool trans_b, struct lt_problem *out_problem)
{
    struct lt_problem problem = {.trans_a = trans_a, .trans_b = trans_b};
    int64_t a_count = matrices_of(a), b_count = matrices_of(b);
    struct matmul_geometry g;
    bool folded;

    if (matmul_resolve(a, b, trans_a, trans_b, &g, NULL) != STATUS_OK)
        return "shapes do not fit";
    if (g.batches == 0 || g.m == 0 || g.n == 0 || g.k == 0)
        return "nothing to multiply";
    if ((a_count != 1 && a_count != g.batches) || (b_count != 1 && b_count != g.batches))
        return "matrices of both operands are used again";
    folded = b_count == 1 && (!trans_a || g.batches == 1);
    problem.m = folded ? g.batches * g.m : g.m;
    problem.n = g.n;
    problem.k = g.k;
    problem.batch = folded ? 1 : g.batches;
    problem.a_next = folded || a_count == 1 ? 0 : g.m * g.k;
    problem.b_next = b_count == 1 ? 0 : g.k * g.n;
    if (problem.m > INT32_MAX || problem.n > INT32_MAX || problem.k > INT32_MAX ||
        problem.batch > INT32_MAX)
        return "2^31 rows or more";
    set_dimension_0(&problem, &g, folded);
    *out_problem = problem;
    return NULL;
}

void lt_problem_format(const struct lt_problem *p, char text[LT_WORDS])
{
    (void)snprintf(text, LT_WORDS, "%lld %lld %lld x%lld a%lld%s b%lld%s %s %d%s%s%s %a %a",
                   (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->batch,
                   (long long)p->a_next, p->trans_a ? "t" : "", (long long)p->b_next,
                   p->trans_b ? "t" : "", dtype_name(p->dtype), (int)p->precision,
                   p->has_bias ? " bias" : "", p->has_c ? " c" : "", p->relu ? " relu" : "",
                   (double)p->alpha, (double)p->beta);
}

/* ---- descriptors ---- */

static cudaDataType_t type_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_FLOAT16:
        return CUDA_R_16F;
    case DTYPE_BFLOAT16:
        return CUDA_R_16BF;
    case DTYPE_INT8:
        return CUDA_R_8I;
    case DTYPE_INT32:
        return CUDA_R_32I;
    default:
        return CUDA_R_32F;
    }
}

static cublasStatus_t first_failure(const cublasStatus_t *results, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (results[i] != CUBLAS_STATUS_SUCCESS)
            return results[i];
    return CUBLAS_STATUS_SUCCESS;
}
#define ALL(...)                                                                                   \
    first_failure((cublasStatus_t[]){__VA_ARGS__},                                                 \
                  sizeof((cublasStatus_t[]){__VA_ARGS__}) / sizeof(cublasStatus_t))

static cublasStatus_t init_layout(const struct lt *lt, cublasLtMatrixLayoutOpaque_t *out,
                                  enum dtype dtype, int64_t rows, int64_t columns, int64_t batch,
                                  int64_t next)
{
    int32_t count = (int32_t)batch;
    cublasStatus_t status = lt->cublasLtMatrixLayoutInit_internal(
        out, sizeof(*out), type_of(dtype), (uint64_t)rows, (uint64_t)columns, rows);

    if (status != CUBLAS_STATUS_SUCCESS || batch == 1)
        return status;
    status = lt->cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                  sizeof(count));
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return lt->cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &next, sizeof(next));
}

/* The three matrices, columns first. */
static cublasStatus_t init_layouts(const struct lt *lt, const struct lt_problem *p,
                                   struct lt_product *product)
{
    cublasStatus_t status = init_layout(lt, &product->first, p->dtype, p->trans_b ? p->k : p->n,
                                        p->trans_b ? p->n : p->k, p->batch, p->b_next);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = init_layout(lt, &product->second, p->dtype, p->trans_a ? p->m : p->k,
                             p->trans_a ? p->k : p->m, p->batch, p->a_next);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = init_layout(lt, &product->result, lt_result_dtype(p), p->n, p->m, p->batch,
                             p->m * p->n);
    return status;
}

static cublasComputeType_t compute_type(const struct lt_problem *problem)
{
    if (problem->dtype == DTYPE_INT8)
        return CUBLAS_COMPUTE_32I;
    if (problem->dtype == DTYPE_FLOAT && problem->precision == CUDA_TF32)
        return CUBLAS_COMPUTE_32F_FAST_TF32;
    return CUBLAS_COMPUTE_32F;
}

static cublasLtEpilogue_t epilogue_of(const struct lt_problem *problem)
{
    if (problem->has_bias)
        return problem->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    return problem->relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

/* On the caller's stack: the bias's address is part of it. */
static cublasStatus_t init_operation(const struct lt *lt, const struct lt_problem *problem,
                                     const void *bias, cublasLtMatmulDescOpaque_t *operation)
{
    cublasOperation_t first = problem->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = problem->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(problem);
    cublasStatus_t status =
        lt->cublasLtMatmulDescInit_internal(operation, sizeof(*operation), compute_type(problem),
                                            problem->dtype == DTYPE_INT8 ? CUDA_R_32I : CUDA_R_32F);

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    status = ALL(lt->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                                    sizeof(first)),
                 lt->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                                    sizeof(second)),
                 lt->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                    &epilogue, sizeof(epilogue)));
    if (status != CUBLAS_STATUS_SUCCESS || !problem->has_bias)
        return status;
    return lt->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                              sizeof(bias));
}

/* ---- the algorithm ---- */

/* The problem that stands for this one whatever its dimension 0. */
static struct lt_problem canonical(const struct lt_problem *problem)
{
    struct lt_problem other = *problem;

    if (problem->dtype == DTYPE_INT8) {
        for (other.m = LT_ROWS; other.m < problem->m && other.m < MOST_ROWS;)
            other.m *= 2;
        other.dimension_0 = other.m;
        return other;
    }
    if (problem->at != LT_DIMENSION_0_ELSEWHERE)
        other.dimension_0 = LT_ROWS;
    if (problem->at == LT_DIMENSION_0_M)
        other.m = problem->m / problem->dimension_0 * LT_ROWS;
    if (problem->at == LT_DIMENSION_0_BATCH)
        other.batch = problem->batch / problem->dimension_0 * LT_ROWS;
    return other;
}

static cublasStatus_t init_preference(const struct lt *lt, size_t workspace, uint32_t alignment,
                                      cublasLtMatmulPreferenceOpaque_t *preference)
{
    static const cublasLtMatmulPreferenceAttributes_t operands[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint32_t whole = CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasStatus_t status =
        lt->cublasLtMatmulPreferenceInit_internal(preference, sizeof(*preference));

    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &whole, sizeof(whole));
    for (size_t i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = lt->cublasLtMatmulPreferenceSetAttribute(preference, operands[i], &alignment,
                                                          sizeof(alignment));
    return status;
}

/* What the library offers for the canonical sizes, at most `room`. */
static cublasStatus_t ask_heuristic(const struct lt *lt, const struct lt_problem *canonical_problem,
                                    size_t workspace, uint32_t alignment, int room,
                                    struct lt_trial *trial)
{
    struct lt_product *product = &trial->canonical;
    const void *bias = (const void *)(uintptr_t)alignment; /* looked at for its alignment only */
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulDescOpaque_t operation;
    cublasStatus_t status = init_operation(lt, canonical_problem, bias, &operation);

    *product = (struct lt_product){.lt = lt, .problem = *canonical_problem};
    trial->count = 0;
    if (status == CUBLAS_STATUS_SUCCESS)
        status = init_layouts(lt, canonical_problem, product);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = init_preference(lt, workspace, alignment, &preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->cublasLtMatmulAlgoGetHeuristic(
            lt->handle, &operation, &product->first, &product->second, &product->result,
            &product->result, &preference, room, trial->offered, &trial->count);
    if (status == CUBLAS_STATUS_SUCCESS && trial->count == 0)
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    return status;
}

/* Whether it takes the real sizes, and what room it then wants. */
static cublasStatus_t check_algorithm(struct lt_product *product, size_t workspace,
                                      uint32_t alignment, const cublasLtMatmulAlgo_t *algo)
{
    const struct lt *lt = product->lt;
    const void *bias = (const void *)(uintptr_t)alignment;
    cublasLtMatmulHeuristicResult_t found;
    cublasLtMatmulDescOpaque_t operation;
    cublasStatus_t status = init_operation(lt, &product->problem, bias, &operation);

    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            lt->cublasLtMatmulAlgoCheck(lt->handle, &operation, &product->first, &product->second,
                                        &product->result, &product->result, algo, &found);
    if (status == CUBLAS_STATUS_SUCCESS && found.workspaceSize > workspace)
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_SUCCESS && found.workspaceSize > product->workspace_bytes)
        product->workspace_bytes = found.workspaceSize;
    return status;
}

/* algo[0]: the fastest for aligned addresses. */
static cublasStatus_t find_fastest(struct lt_product *product, size_t workspace,
                                   struct weights_cache *weights)
{
    const struct lt_problem problem = canonical(&product->problem);
    struct lt_trial trial;
    cublasStatus_t status = ask_heuristic(product->lt, &problem, workspace, LT_ALIGNMENT,
                                          weights != NULL ? LT_CANDIDATES : 1, &trial);

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    product->offered = trial.count;
    product->number = lt_choose(&trial, weights);
    product->algo[0] = trial.offered[product->number].algo;
    return check_algorithm(product, workspace, LT_ALIGNMENT, &product->algo[0]);
}

/* algo[1]: for views into other tensors, which are few.  Bytes never come so. */
static cublasStatus_t find_unaligned(struct lt_product *product, size_t workspace)
{
    const struct lt_problem problem = canonical(&product->problem);
    uint32_t alignment = (uint32_t)dtype_bytes(problem.dtype);
    struct lt_trial trial;
    cublasStatus_t status;

    if (problem.dtype == DTYPE_INT8)
        return CUBLAS_STATUS_SUCCESS;
    status = ask_heuristic(product->lt, &problem, workspace, alignment, 1, &trial);

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    product->algo[1] = trial.offered[0].algo;
    return check_algorithm(product, workspace, alignment, &product->algo[1]);
}

enum status lt_product_init(struct lt_product *product, const struct lt *lt,
                            const struct lt_problem *problem, int capability,
                            struct weights_cache *weights, struct error *err)
{
    size_t workspace = capability >= HOPPER ? WORKSPACE_HOPPER : WORKSPACE;
    cublasStatus_t status;

    *product = (struct lt_product){.lt = lt, .problem = *problem};
    status = init_layouts(lt, problem, product);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = find_fastest(product, workspace, weights);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = find_unaligned(product, workspace);
    if (status == CUBLAS_STATUS_SUCCESS)
        return STATUS_OK;
    return error_set(err, lt_status(status), "cuBLASLt has no algorithm: %s",
                     lt->cublasLtGetStatusString(status));
}

/* ---- NaN ---- */

static enum status run_trial(const struct nan_trial *trial, const void *in, void *out,
                             void *workspace, cudaStream_t stream)
{
    const struct lt_operands operands = {.a = in, .b = in, .bias = in, .c = in, .out = out};

    return lt_product_run(trial->plan, &operands, workspace, stream);
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

bool lt_product_keeps_nan(const struct lt_product *product, struct weights_cache *weights)
{
    const struct lt_problem *p = &product->problem, words_of = canonical(p);
    const size_t element = dtype_bytes(p->dtype);
    const size_t a = (size_t)(p->a_next * (p->batch - 1) + p->m * p->k);
    const size_t b = (size_t)(p->b_next * (p->batch - 1) + p->k * p->n);
    const size_t out = (size_t)(p->batch * p->m * p->n);
    char words[LT_WORDS], key[LT_WORDS + 32];
    bool kept = true;

    lt_problem_format(&words_of, words);
    for (size_t i = 0; i < 2 && kept; i++) { /* the second is for addresses out of line */
        const struct nan_trial trial = {.key = key,
                                        .plan = product,
                                        .in_bytes = most(most(a, b), out) * element,
                                        .out_bytes = out * element,
                                        .workspace_bytes = product->workspace_bytes,
                                        .shift = i * element,
                                        .dtype = p->dtype,
                                        .run = run_trial};

        (void)snprintf(key, sizeof(key), "cublaslt %s%s", words, i > 0 ? ", out of line" : "");
        kept = nan_is_kept(product->lt->nan, &trial, weights);
    }
    return kept;
}

void lt_product_describe(const struct lt_product *product, char *text, size_t room)
{
    const struct lt_problem *problem = &product->problem;
    const char *type =
        compute_type(problem) == CUBLAS_COMPUTE_32F_FAST_TF32 ? "tf32" : dtype_name(problem->dtype);
    int32_t id = -1;
    uint32_t tile = 0;
    size_t written;

    (void)product->lt->cublasLtMatmulAlgoConfigGetAttribute(
        &product->algo[0], CUBLASLT_ALGO_CONFIG_ID, &id, sizeof(id), &written);
    (void)product->lt->cublasLtMatmulAlgoConfigGetAttribute(
        &product->algo[0], CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof(tile), &written);
    if (product->offered > 1)
        (void)snprintf(text, room, "%s algo %d tile %u, number %d of %d", type, id, tile,
                       product->number + 1, product->offered);
    else
        (void)snprintf(text, room, "%s algo %d tile %u", type, id, tile);
}

static bool in_line(const struct lt_operands *operands)
{
    uintptr_t all = (uintptr_t)operands->a | (uintptr_t)operands->b | (uintptr_t)operands->bias |
                    (uintptr_t)operands->c | (uintptr_t)operands->out;

    return all % LT_ALIGNMENT == 0;
}

/* The library takes what it only reads without const. */
static cublasLtMatrixLayout_t layout(const cublasLtMatrixLayoutOpaque_t *read_only)
{
    return (cublasLtMatrixLayout_t)(uintptr_t)read_only;
}

enum status lt_product_run(const struct lt_product *product, const struct lt_operands *operands,
                           void *workspace, cudaStream_t stream)
{
    const struct lt *lt = product->lt;
    const bool whole = product->problem.dtype == DTYPE_INT8;
    const float alpha = product->problem.alpha;
    const float beta = product->problem.has_c ? product->problem.beta : 0;
    const int32_t one = 1, zero = 0;
    const void *c = product->problem.has_c ? operands->c : operands->out;
    cublasLtMatmulDescOpaque_t operation;
    cublasStatus_t status = init_operation(lt, &product->problem, operands->bias, &operation);

    if (status != CUBLAS_STATUS_SUCCESS)
        return lt_status(status);
    return lt_status(lt->cublasLtMatmul(
        lt->handle, &operation, whole ? (const void *)&one : &alpha, operands->b,
        layout(&product->first), operands->a, layout(&product->second),
        whole ? (const void *)&zero : &beta, c, layout(&product->result), operands->out,
        layout(&product->result), &product->algo[in_line(operands) ? 0 : 1], workspace,
        product->workspace_bytes, stream));
}
