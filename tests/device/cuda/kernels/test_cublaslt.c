/* Products on the simulated device go through the simulated cuBLASLt, whatever lies around them,
 * and its failures are theirs. */
#include "ops/matmul.h"
#include "support/cpu_cases.h"

#include "sim_library.h"

static void sums(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct matmul_attrs *attrs = test->attrs;
    struct matmul_geometry g;

    assert_int_equal(
        matmul_resolve(&in[0].shape, &in[1].shape, attrs->trans_a, attrs->trans_b, &g, NULL),
        STATUS_OK);
    for (int64_t i = 0; i < g.batches * g.m * g.n; i++) {
        int64_t column = i % g.n, row = i / g.n % g.m, index = i / g.n / g.m;
        const double *a = in[0].values + matmul_operand_index(&g, &in[0].shape, index) * g.m * g.k;
        const double *b = in[1].values + matmul_operand_index(&g, &in[1].shape, index) * g.k * g.n;

        out->values[i] = 0;
        for (int64_t k = 0; k < g.k; k++)
            out->values[i] += a[row * g.k + k] * b[k * g.n + column];
    }
}

static void multiply(enum dtype dtype, struct shape a, struct shape b, bool rows)
{
    struct matmul_attrs attrs = {0};
    struct op_test test = {.op = "MatMul",
                           .attrs = &attrs,
                           .inputs = 2,
                           .in = {{.dtype = dtype, .shape = a, .low = -1, .high = 1},
                                  {.dtype = dtype, .shape = b, .low = -1, .high = 1}},
                           .reference = sums,
                           .relative = dtype == DTYPE_FLOAT ? 2e-6 : 2e-2,
                           .absolute = dtype == DTYPE_FLOAT ? 8e-5 : 2e-2,
                           .rows = rows};

    op_test_run(tester, &test);
}

static void the_library_multiplies_every_type_it_is_for(void **state)
{
    static const enum dtype types[] = {DTYPE_FLOAT, DTYPE_FLOAT16, DTYPE_BFLOAT16};

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        unsigned long before = count_calls("cublasLtMatmul");

        multiply(types[i], (struct shape)SHAPE(5, 24), (struct shape)SHAPE(24, 8), true);
        multiply(types[i], (struct shape)SHAPE(3, 2, 7), (struct shape)SHAPE(7, 3), true);
        assert_true(count_calls("cublasLtMatmul") >= before + 4);
    }
}

/* The simulated heuristic chooses by the number of rows, and its algorithms add in other orders:
 * the size of a batch must not be what is asked with. */
static void rows_have_the_same_bits_in_batches_of_every_size(void **state)
{
    (void)state;
    for (int64_t rows = 2; rows < 600; rows *= 3) {
        multiply(DTYPE_FLOAT, (struct shape)SHAPE(rows, 37), (struct shape)SHAPE(37, 5), true);
        multiply(DTYPE_FLOAT, (struct shape)SHAPE(rows, 2, 3, 37),
                 (struct shape)SHAPE(rows, 2, 37, 5), true);
    }
}

static void what_it_is_not_for_goes_to_the_own_kernel(void **state)
{
    unsigned long before = count_calls("cublasLtMatmul");

    (void)state;
    multiply(DTYPE_DOUBLE, (struct shape)SHAPE(3, 4), (struct shape)SHAPE(4, 5), false);
    multiply(DTYPE_FLOAT, (struct shape)SHAPE(2, 1, 3, 4), (struct shape)SHAPE(1, 3, 4, 5), false);
    multiply(DTYPE_FLOAT, (struct shape)SHAPE(3, 0), (struct shape)SHAPE(0, 5), false);
    assert_int_equal(count_calls("cublasLtMatmul"), before);
}

static void a_product_that_the_library_has_no_algorithm_for_goes_to_the_own_kernel(void **state)
{
    enum { NOT_SUPPORTED = 15 };
    unsigned long before = count_calls("cublasLtMatmul");

    (void)state;
    fail_call("cublasLtMatmulAlgoGetHeuristic", 1, NOT_SUPPORTED);
    multiply(DTYPE_FLOAT, (struct shape)SHAPE(3, 4), (struct shape)SHAPE(4, 5), false);
    assert_int_equal(count_calls("cublasLtMatmul"), before);
    multiply(DTYPE_FLOAT, (struct shape)SHAPE(3, 4), (struct shape)SHAPE(4, 5), false);
    assert_int_equal(count_calls("cublasLtMatmul"), before + 1);
}

static void nothing_was_found_wrong_with_any_call(void **state)
{
    (void)state;
    assert_int_equal(count_findings(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_multiplies_every_type_it_is_for),
        cmocka_unit_test(rows_have_the_same_bits_in_batches_of_every_size),
        cmocka_unit_test(what_it_is_not_for_goes_to_the_own_kernel),
        cmocka_unit_test(a_product_that_the_library_has_no_algorithm_for_goes_to_the_own_kernel),
        cmocka_unit_test(nothing_was_found_wrong_with_any_call),
    };

    return run_cases(tests);
}
