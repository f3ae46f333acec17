/* A simulated libcublasLt.so.13: handles, algorithms and products.
 *
 * Its heuristic looks at all sizes, as the real one does, and algorithms add in different orders:
 * who lets the size of a batch choose the algorithm gets other bits for the same row.
 */
#include "blas.h"
#include "descriptor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_A_TILE = 512, COLUMNS_A_TILE = 64 };

SIM_EXPORT size_t cublasLtGetVersion(void)
{
    return 130000;
}

SIM_EXPORT const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
        return "CUBLAS_STATUS_INVALID_VALUE";
    }
}

/* ---- handles ---- */

SIM_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *out_handle)
{
    int failure = sim_library_call("cublasLtCreate");
    uint32_t *handle;

    if (failure != 0)
        return (cublasStatus_t)failure;
    handle = calloc(1, sizeof(*handle));
    if (handle == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *handle = BLAS_HANDLE;
    *out_handle = (cublasLtHandle_t)handle;
    return CUBLAS_STATUS_SUCCESS;
}

SIM_EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (handle == NULL || *(uint32_t *)handle != BLAS_HANDLE)
        return blas_wrong(__func__, "not a handle");
    *(uint32_t *)handle = 0;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- algorithms ---- */

uint32_t blas_kind(const struct blas_problem *problem)
{
    const struct blas_operation *operation = problem->operation;

    return (uint32_t)problem->element | (uint32_t)operation->a << 4 | (uint32_t)operation->b << 5 |
           (uint32_t)operation->epilogue << 8 | (uint32_t)operation->compute << 16;
}

uint32_t blas_alignment(const struct blas_problem *p, uint32_t wanted)
{
    const struct blas_layout *all[] = {p->a, p->b, p->c, p->d};
    size_t steps = 0, size = element_bytes(p->factors);

    for (size_t i = 0; i < 4; i++) {
        const size_t bytes = element_bytes(i < 2 ? p->factors : p->element);

        steps |=
            (size_t)all[i]->ld * bytes | (all[i]->batch > 1 ? (size_t)all[i]->next * bytes : 0);
    }
    while (wanted > size && steps % wanted != 0)
        wanted /= 2;
    return wanted;
}

/* Algorithms with an odd number want room by the size of the result. */
size_t blas_workspace(const struct blas_problem *problem, const struct blas_algo *algo)
{
    if (algo->id % 2 == 0)
        return 0;
    return (problem->n / COLUMNS_A_TILE + 1) * BYTES_A_TILE;
}

/* Algorithm i of those offered has numbers from 20 + 10 i on. */
enum { FIRST_ID = 20, IDS_AN_OFFER = 10 };

static double offered_ms[SIM_BLAS_OFFERS];
static int offered, last_used;

void sim_blas_offer(int count, const double *milliseconds)
{
    offered = count;
    for (int i = 0; i < count; i++)
        offered_ms[i] = milliseconds[i];
}

int sim_blas_last(void)
{
    return last_used;
}

static int number_of(const struct blas_algo *algo)
{
    return (algo->id - FIRST_ID) / IDS_AN_OFFER;
}

static struct blas_algo choose(const struct blas_problem *problem, uint32_t alignment)
{
    uint32_t size = 0;
    uint64_t results = problem->n * (uint64_t)problem->d->batch;

    while (size < 3 && results >> (2 * size + 3) != 0)
        size++;
    return (struct blas_algo){.magic = BLAS_ALGO,
                              .id = (int32_t)(FIRST_ID + size),
                              .tile = 15 + size,
                              .chunk = 4u << size,
                              .alignment = alignment,
                              .kind = blas_kind(problem)};
}

static void answer(const struct blas_problem *problem, const struct blas_algo *algo,
                   cublasLtMatmulHeuristicResult_t *result)
{
    memset(result, 0, sizeof(*result));
    memcpy(&result->algo, algo, sizeof(*algo));
    result->workspaceSize = blas_workspace(problem, algo);
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1;
}

SIM_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t opaque, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int *out_count)
{
    const struct blas_preference *preference = (const struct blas_preference *)opaque;
    struct blas_problem problem;
    struct blas_algo algo;
    uint32_t alignment = 256;
    int failure = sim_library_call("cublasLtMatmulAlgoGetHeuristic");
    cublasStatus_t status;

    if (failure != 0)
        return (cublasStatus_t)failure;
    if (handle == NULL || *(uint32_t *)handle != BLAS_HANDLE || wanted < 1 ||
        preference->magic != BLAS_PREFERENCE)
        return blas_wrong(__func__, "a wrong handle, preference or count");
    status = blas_problem_read(__func__, operation, a, b, c, d, &problem);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    for (size_t i = 0; i < 4; i++)
        if (preference->alignment[i] < alignment)
            alignment = preference->alignment[i];
    if (problem.factors == ELEMENT_BYTE && alignment < 4)
        return blas_wrong(__func__, "int8 at addresses that are no multiples of 4");
    algo = choose(&problem, blas_alignment(&problem, alignment));
    if (blas_workspace(&problem, &algo) > preference->workspace)
        algo.id++;
    *out_count = 0;
    do {
        answer(&problem, &algo, &results[(*out_count)++]);
        algo.id += IDS_AN_OFFER;
        algo.chunk *= 2;
    } while (*out_count < offered && *out_count < wanted);
    return CUBLAS_STATUS_SUCCESS;
}

/* Whether the algorithm is one for the problem. */
static cublasStatus_t fits(const struct blas_problem *problem, const struct blas_algo *algo)
{
    if (algo->magic != BLAS_ALGO)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algo->kind != blas_kind(problem) ||
        blas_alignment(problem, algo->alignment) != algo->alignment)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

SIM_EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t *opaque, cublasLtMatmulHeuristicResult_t *result)
{
    struct blas_problem problem;
    struct blas_algo algo;
    cublasStatus_t status = blas_problem_read(__func__, operation, a, b, c, d, &problem);

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (handle == NULL || *(uint32_t *)handle != BLAS_HANDLE)
        return blas_wrong(__func__, "not a handle");
    memcpy(&algo, opaque, sizeof(algo));
    status = fits(&problem, &algo);
    if (status == CUBLAS_STATUS_SUCCESS)
        answer(&problem, &algo, result);
    return status;
}

SIM_EXPORT cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t *opaque, cublasLtMatmulAlgoConfigAttributes_t attr, void *buf,
    size_t bytes, size_t *written)
{
    struct blas_algo algo;

    memcpy(&algo, opaque, sizeof(algo));
    if (algo.magic != BLAS_ALGO || bytes != 4 ||
        (attr != CUBLASLT_ALGO_CONFIG_ID && attr != CUBLASLT_ALGO_CONFIG_TILE_ID))
        return blas_wrong(__func__, "no algorithm, or an attribute that is not simulated");
    memcpy(buf, attr == CUBLASLT_ALGO_CONFIG_ID ? (const void *)&algo.id : (const void *)&algo.tile,
           4);
    *written = 4;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---- */

struct job {
    struct blas_operation operation;
    struct blas_layout a, b, c, d;
    struct blas_algo algo;
    uint64_t m, n, k;
    enum element element, factors;
    float alpha, beta;
    int32_t whole_alpha, whole_beta; /* of whole numbers */
    const void *a_at, *b_at, *c_at;
    void *d_at;
    void *workspace;
    size_t workspace_bytes;
};

static void *view(const struct job *job, const struct blas_layout *layout, const void *at,
                  int32_t index, bool write)
{
    const bool is_factor = layout == &job->a || layout == &job->b;
    size_t size = element_bytes(is_factor ? job->factors : job->element);
    size_t elements = (layout->columns - 1) * (size_t)layout->ld + layout->rows;

    /* A result with gaps between its columns is written column by column. */
    return sim_view((const char *)at + (size_t)(index * layout->next) * size, elements * size,
                    write);
}

static float factor(const struct job *job, const void *data, int64_t index)
{
    float value = element_get(job->element, data, index);

    return job->operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? element_to_tf32(value) : value;
}

static float sum_of(const struct job *job, const void *a, const void *b, uint64_t row,
                    uint64_t column)
{
    bool a_turned = job->operation.a == CUBLAS_OP_T, b_turned = job->operation.b == CUBLAS_OP_T;
    int64_t a_step = a_turned ? 1 : job->a.ld, b_step = b_turned ? job->b.ld : 1;
    int64_t a_at = (int64_t)row * (a_turned ? job->a.ld : 1);
    int64_t b_at = (int64_t)column * (b_turned ? 1 : job->b.ld);
    float sum = 0;

    for (uint64_t k = 0; k < job->k;) {
        float part = 0;

        for (uint32_t i = 0; i < job->algo.chunk && k < job->k; i++, k++)
            part += factor(job, a, a_at + (int64_t)k * a_step) *
                    factor(job, b, b_at + (int64_t)k * b_step);
        sum += part;
    }
    return sum;
}

static uint32_t whole_sum_of(const struct job *job, const int8_t *a, const int8_t *b, uint64_t row,
                             uint64_t column)
{
    uint32_t sum = 0; /* wraps */

    for (uint64_t k = 0; k < job->k; k++)
        sum += (uint32_t)(a[(int64_t)row * job->a.ld + (int64_t)k] *
                          b[(int64_t)column * job->b.ld + (int64_t)k]);
    return sum;
}

/* Of int8 to int32, A turned. */
static void multiply_whole(const struct job *job, int32_t index)
{
    const int8_t *a = view(job, &job->a, job->a_at, index, false);
    const int8_t *b = view(job, &job->b, job->b_at, index, false);
    const uint32_t *c = job->whole_beta != 0 ? view(job, &job->c, job->c_at, index, false) : NULL;
    uint32_t *d = view(job, &job->d, job->d_at, index, true);

    if (a == NULL || b == NULL || d == NULL || (job->whole_beta != 0 && c == NULL))
        return;
    for (uint64_t column = 0; column < job->n; column++)
        for (uint64_t row = 0; row < job->m; row++) {
            uint32_t x = (uint32_t)job->whole_alpha * whole_sum_of(job, a, b, row, column);

            if (c != NULL)
                x += (uint32_t)job->whole_beta * c[column * (uint64_t)job->c.ld + row];
            d[column * (uint64_t)job->d.ld + row] = x;
        }
}

static void multiply(const struct job *job, int32_t index, const void *bias)
{
    const void *a = view(job, &job->a, job->a_at, index, false);
    const void *b = view(job, &job->b, job->b_at, index, false);
    const void *c = job->beta != 0 ? view(job, &job->c, job->c_at, index, false) : NULL;
    void *d = view(job, &job->d, job->d_at, index, true);

    if (a == NULL || b == NULL || d == NULL || (job->beta != 0 && c == NULL))
        return;
    for (uint64_t column = 0; column < job->n; column++)
        for (uint64_t row = 0; row < job->m; row++) {
            float x = job->alpha * sum_of(job, a, b, row, column);

            if (c != NULL)
                x += job->beta *
                     element_get(job->element, c, (int64_t)(column * (uint64_t)job->c.ld + row));
            if (bias != NULL)
                x += element_get(job->element, bias, (int64_t)row);
            if ((job->operation.epilogue & CUBLASLT_EPILOGUE_RELU) != 0 && !(x > 0) &&
                !(isnan(x) && sim_nan_is_kept()))
                x = 0;
            element_put(job->element, d, (int64_t)(column * (uint64_t)job->d.ld + row), x);
        }
}

static void run(void *argument)
{
    const struct job *job = argument;
    const void *bias = NULL;

    if (job->workspace_bytes > 0) {
        void *workspace = sim_view(job->workspace, job->workspace_bytes, true);

        if (workspace == NULL)
            return;
        memset(workspace, 0xA5, job->workspace_bytes);
    }
    if ((job->operation.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
        bias = sim_view(job->operation.bias, job->m * element_bytes(job->element), false);
        if (bias == NULL)
            return;
    }
    for (int32_t i = 0; i < job->d.batch; i++) {
        if (job->factors == ELEMENT_BYTE)
            multiply_whole(job, i);
        else
            multiply(job, i, bias);
    }
    last_used = number_of(&job->algo);
    if (offered > 0)
        sim_take_time(offered_ms[last_used]);
}

static cublasStatus_t check_addresses(const struct job *job, size_t given)
{
    uintptr_t bias = (job->operation.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0
                         ? (uintptr_t)job->operation.bias
                         : 0;
    uintptr_t all =
        (uintptr_t)job->a_at | (uintptr_t)job->b_at | (uintptr_t)job->c_at | (uintptr_t)job->d_at;

    if (job->a_at == NULL || job->b_at == NULL || job->c_at == NULL || job->d_at == NULL)
        return blas_wrong("cublasLtMatmul", "a matrix without an address");
    if (all % job->algo.alignment != 0 || bias % element_bytes(job->element) != 0)
        return blas_wrong("cublasLtMatmul", "an address that the algorithm is not for");
    if (job->c_at == job->d_at && (job->c.ld != job->d.ld || job->c.next != job->d.next))
        return blas_wrong("cublasLtMatmul", "C in place of D with another layout");
    if (job->workspace_bytes > given ||
        (job->workspace_bytes > 0 && (uintptr_t)job->workspace % 16 != 0))
        return blas_wrong("cublasLtMatmul", "a workspace too small or out of line");
    return CUBLAS_STATUS_SUCCESS;
}

SIM_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                         const void *alpha, const void *a_at,
                                         cublasLtMatrixLayout_t a, const void *b_at,
                                         cublasLtMatrixLayout_t b, const void *beta,
                                         const void *c_at, cublasLtMatrixLayout_t c, void *d_at,
                                         cublasLtMatrixLayout_t d,
                                         const cublasLtMatmulAlgo_t *opaque, void *workspace,
                                         size_t workspace_bytes, cudaStream_t stream)
{
    struct blas_problem p;
    struct job job = {0};
    int failure = sim_library_call("cublasLtMatmul");
    cublasStatus_t status;

    if (failure != 0)
        return (cublasStatus_t)failure;
    if (handle == NULL || *(uint32_t *)handle != BLAS_HANDLE || opaque == NULL)
        return blas_wrong(__func__, "a wrong handle, or no algorithm");
    status = blas_problem_read(__func__, operation, a, b, c, d, &p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    job = (struct job){*p.operation,
                       *p.a,
                       *p.b,
                       *p.c,
                       *p.d,
                       {0},
                       p.m,
                       p.n,
                       p.k,
                       p.element,
                       p.factors,
                       *(const float *)alpha,
                       *(const float *)beta,
                       *(const int32_t *)alpha,
                       *(const int32_t *)beta,
                       a_at,
                       b_at,
                       c_at,
                       d_at,
                       workspace,
                       0};
    memcpy(&job.algo, opaque, sizeof(job.algo));
    if (fits(&p, &job.algo) != CUBLAS_STATUS_SUCCESS)
        return blas_wrong(__func__, "an algorithm that is for another problem");
    job.workspace_bytes = blas_workspace(&p, &job.algo);
    status = check_addresses(&job, workspace_bytes);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    return sim_enqueue(stream, "cublasLtMatmul", run, &job, sizeof(job)) == 0
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
