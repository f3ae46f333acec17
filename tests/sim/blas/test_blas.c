/* The simulated cuBLASLt: a right product, and a finding for each kind of mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "sim.h"

enum { M = 3, N = 2, K = 4 }; /* column first */

struct call {
    cublasLtHandle_t handle;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, d;
    cublasLtMatmulHeuristicResult_t found;
    float *memory; /* A, B, D, 16 floats apart */
};

static cublasStatus_t find(struct call *call)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    int count;

    assert_int_equal(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
    return cublasLtMatmulAlgoGetHeuristic(call->handle, &call->operation, &call->a, &call->b,
                                          &call->d, &call->d, &preference, 1, &call->found, &count);
}

static cublasStatus_t multiply(struct call *call, float *out)
{
    const float one = 1, zero = 0;

    return cublasLtMatmul(call->handle, &call->operation, &one, call->memory, &call->a,
                          call->memory + 16, &call->b, &zero, out, &call->d, out, &call->d,
                          &call->found.algo, NULL, 0, NULL);
}

static int open_call(void **state)
{
    static struct call call;
    float numbers[32];

    sim_reset();
    memset(&call, 0, sizeof(call));
    for (int i = 0; i < 32; i++)
        numbers[i] = (float)(i % 7);
    assert_int_equal(cublasLtCreate(&call.handle), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatmulDescInit(&call.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    assert_int_equal(cublasLtMatrixLayoutInit(&call.a, CUDA_R_32F, M, K, M), 0);
    assert_int_equal(cublasLtMatrixLayoutInit(&call.b, CUDA_R_32F, K, N, K), 0);
    assert_int_equal(cublasLtMatrixLayoutInit(&call.d, CUDA_R_32F, M, N, M), 0);
    assert_int_equal(cudaMalloc((void **)&call.memory, 64 * sizeof(float)), 0);
    assert_int_equal(cudaMemcpy(call.memory, numbers, sizeof(numbers), cudaMemcpyHostToDevice), 0);
    *state = &call;
    return 0;
}

static int close_call(void **state)
{
    struct call *call = *state;

    cudaFree(call->memory);
    cublasLtDestroy(call->handle);
    sim_reset();
    return 0;
}

static void a_product_is_right(void **state)
{
    struct call *call = *state;
    float out[M * N];

    assert_int_equal(find(call), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(multiply(call, call->memory + 32), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cudaMemcpy(out, call->memory + 32, sizeof(out), cudaMemcpyDeviceToHost), 0);
    for (int n = 0; n < N; n++)
        for (int m = 0; m < M; m++) {
            float sum = 0;

            for (int k = 0; k < K; k++)
                sum += (float)((k * M + m) % 7) * (float)((16 + n * K + k) % 7);
            assert_true(out[n * M + m] == sum);
        }
    assert_int_equal(sim_findings(), 0);
}

static void expect_finding(cublasStatus_t status, const char *words)
{
    assert_int_not_equal(status, CUBLAS_STATUS_SUCCESS);
    assert_non_null(strstr(sim_last_finding(), words));
}

static void descriptors_that_do_not_agree_are_found(void **state)
{
    struct call *call = *state;
    cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
    int16_t narrow = 1;

    assert_int_equal(cublasLtMatrixLayoutInit(&call->b, CUDA_R_32F, K + 1, N, K + 1), 0);
    expect_finding(find(call), "another k");
    assert_int_equal(cublasLtMatrixLayoutInit(&call->b, CUDA_R_16F, K, N, K), 0);
    expect_finding(find(call), "types");
    assert_int_equal(cublasLtMatrixLayoutInit(&call->b, CUDA_R_32F, K, N, K), 0);
    expect_finding(cublasLtMatrixLayoutInit(&call->a, CUDA_R_32F, M, K, M - 1), "overlap");
    assert_int_equal(cublasLtMatrixLayoutInit(&call->a, CUDA_R_32F, M, K, M), 0);
    expect_finding(cublasLtMatmulDescSetAttribute(&call->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &narrow, sizeof(narrow)),
                   "another size");
    assert_int_equal(cublasLtMatmulDescSetAttribute(&call->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                    &bias, sizeof(bias)),
                     0);
    expect_finding(find(call), "no bias");
}

static void addresses_and_algorithms_of_other_problems_are_found(void **state)
{
    struct call *call = *state;
    cublasOperation_t turned = CUBLAS_OP_T;

    assert_int_equal(find(call), CUBLAS_STATUS_SUCCESS);
    expect_finding(multiply(call, (float *)((char *)call->memory + 130)), "not for");
    expect_finding(multiply(call, NULL), "without an address");
    assert_int_equal(cublasLtMatmulDescSetAttribute(&call->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                    &turned, sizeof(turned)),
                     0);
    assert_int_equal(cublasLtMatrixLayoutInit(&call->a, CUDA_R_32F, K, M, K), 0);
    expect_finding(multiply(call, call->memory + 32), "another problem");
}

static void a_result_outside_of_memory_is_found(void **state)
{
    struct call *call = *state;

    assert_int_equal(find(call), CUBLAS_STATUS_SUCCESS);
    (void)multiply(call, call->memory + 60);
    (void)cudaDeviceSynchronize();
    assert_true(sim_findings() > 0);
}

/* ---- int8 ---- */

enum { WIDE = 8, DEEP = 12 }; /* m and n, k */

/* What the library takes: A turned, all in fours, sums in int32. */
static void lay_bytes(struct call *call)
{
    cublasOperation_t turned = CUBLAS_OP_T;

    assert_int_equal(cublasLtMatmulDescInit(&call->operation, CUBLAS_COMPUTE_32I, CUDA_R_32I), 0);
    assert_int_equal(cublasLtMatmulDescSetAttribute(&call->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                    &turned, sizeof(turned)),
                     0);
    assert_int_equal(cublasLtMatrixLayoutInit(&call->a, CUDA_R_8I, DEEP, WIDE, DEEP), 0);
    assert_int_equal(cublasLtMatrixLayoutInit(&call->b, CUDA_R_8I, DEEP, WIDE, DEEP), 0);
    assert_int_equal(cublasLtMatrixLayoutInit(&call->d, CUDA_R_32I, WIDE, WIDE, WIDE), 0);
}

static void a_product_of_bytes_is_exact(void **state)
{
    struct call *call = *state;
    int8_t numbers[2 * WIDE * DEEP];
    int32_t out[WIDE * WIDE], one = 1, zero = 0;
    char *memory;

    lay_bytes(call);
    for (int i = 0; i < 2 * WIDE * DEEP; i++)
        numbers[i] = (int8_t)(i * 37);
    assert_int_equal(cudaMalloc((void **)&memory, 1024), 0);
    assert_int_equal(cudaMemcpy(memory, numbers, sizeof(numbers), cudaMemcpyHostToDevice), 0);
    assert_int_equal(find(call), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasLtMatmul(call->handle, &call->operation, &one, memory, &call->a,
                                    memory + WIDE * DEEP, &call->b, &zero, memory + 512, &call->d,
                                    memory + 512, &call->d, &call->found.algo, NULL, 0, NULL),
                     CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cudaMemcpy(out, memory + 512, sizeof(out), cudaMemcpyDeviceToHost), 0);
    for (int n = 0; n < WIDE; n++)
        for (int m = 0; m < WIDE; m++) {
            int32_t sum = 0;

            for (int k = 0; k < DEEP; k++)
                sum += numbers[m * DEEP + k] * numbers[(WIDE + n) * DEEP + k];
            assert_int_equal(out[n * WIDE + m], sum);
        }
    assert_int_equal(sim_findings(), 0);
    cudaFree(memory);
}

static void bytes_in_forms_that_the_library_does_not_take_are_found(void **state)
{
    struct call *call = *state;
    cublasOperation_t plain = CUBLAS_OP_N;
    cublasLtEpilogue_t relu = CUBLASLT_EPILOGUE_RELU;

    lay_bytes(call);
    assert_int_equal(cublasLtMatrixLayoutInit(&call->a, CUDA_R_8I, DEEP, WIDE - 2, DEEP), 0);
    assert_int_equal(cublasLtMatrixLayoutInit(&call->d, CUDA_R_32I, WIDE - 2, WIDE, WIDE), 0);
    expect_finding(find(call), "m or k");
    lay_bytes(call);
    assert_int_equal(cublasLtMatrixLayoutInit(&call->b, CUDA_R_8I, DEEP, WIDE, DEEP + 1), 0);
    expect_finding(find(call), "leading dimension");
    lay_bytes(call);
    assert_int_equal(cublasLtMatrixLayoutInit(&call->d, CUDA_R_32F, WIDE, WIDE, WIDE), 0);
    expect_finding(find(call), "types");
    lay_bytes(call);
    assert_int_equal(cublasLtMatmulDescSetAttribute(&call->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                    &plain, sizeof(plain)),
                     0);
    expect_finding(find(call), "TN");
    lay_bytes(call);
    assert_int_equal(cublasLtMatmulDescSetAttribute(&call->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                    &relu, sizeof(relu)),
                     0);
    expect_finding(find(call), "epilogue");
    lay_bytes(call);
    assert_int_equal(cublasLtMatmulDescInit(&call->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    expect_finding(find(call), "compute type");
}

static void bytes_at_addresses_beside_words_are_found(void **state)
{
    struct call *call = *state;
    cublasLtMatmulPreferenceOpaque_t preference;
    uint32_t single = 1;
    int count;

    lay_bytes(call);
    assert_int_equal(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(
        cublasLtMatmulPreferenceSetAttribute(
            &preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &single, sizeof(single)),
        CUBLAS_STATUS_SUCCESS);
    expect_finding(cublasLtMatmulAlgoGetHeuristic(call->handle, &call->operation, &call->a,
                                                  &call->b, &call->d, &call->d, &preference, 1,
                                                  &call->found, &count),
                   "multiples of 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_product_is_right, open_call, close_call),
        cmocka_unit_test_setup_teardown(descriptors_that_do_not_agree_are_found, open_call,
                                        close_call),
        cmocka_unit_test_setup_teardown(addresses_and_algorithms_of_other_problems_are_found,
                                        open_call, close_call),
        cmocka_unit_test_setup_teardown(a_product_of_bytes_is_exact, open_call, close_call),
        cmocka_unit_test_setup_teardown(bytes_in_forms_that_the_library_does_not_take_are_found,
                                        open_call, close_call),
        cmocka_unit_test_setup_teardown(bytes_at_addresses_beside_words_are_found, open_call,
                                        close_call),
        /* last: the device is gone after it */
        cmocka_unit_test_setup_teardown(a_result_outside_of_memory_is_found, open_call, close_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
