/* Products on the simulated device go through the simulated cuBLASLt, whatever lies around them,
 * and its failures are theirs. */
#include "ops/quantized.h"
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

/* The first test: a device starts its library once. */
static void a_library_that_finds_no_memory_is_asked_again_by_the_next_load(void **state)
{
    static const int codes[] = {1 /* not initialised */, 3 /* allocation failed */};

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        fail_call("cublasLtCreate", 1, codes[i]);
        multiply(DTYPE_FLOAT, (struct shape)SHAPE(3, 4), (struct shape)SHAPE(4, 5), false);
        assert_int_equal(count_calls("cublasLtMatmul"), 0);
    }
    multiply(DTYPE_FLOAT, (struct shape)SHAPE(3, 4), (struct shape)SHAPE(4, 5), false);
    assert_int_equal(count_calls("cublasLtMatmul"), 1);
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

/* ---- algorithms that are timed ---- */

static void offer(int count, const double *milliseconds)
{
    void (*order)(int, const double *);

    *(void **)&order = library_function("libcublasLt.so.13", "sim_blas_offer");
    assert_non_null(order);
    order(count, milliseconds);
}

static int last_used(void)
{
    int (*ask)(void);

    *(void **)&ask = library_function("libcublasLt.so.13", "sim_blas_last");
    assert_non_null(ask);
    return ask();
}

/* A shape that no other test has: what was chosen stays for the device's life. */
static int chosen_for(int64_t width, int count, const double *milliseconds)
{
    offer(count, milliseconds);
    multiply(DTYPE_FLOAT, (struct shape)SHAPE(3, width), (struct shape)SHAPE(width, 5), false);
    return last_used();
}

static void the_fastest_of_those_offered_is_taken(void **state)
{
    (void)state;
    assert_int_equal(chosen_for(41, 4, (const double[]){5, 3, 1, 2}), 2);
    assert_int_equal(chosen_for(42, 3, (const double[]){1, 2, 3}), 0);
    offer(0, NULL);
}

static void one_that_is_hardly_faster_is_not_taken(void **state)
{
    (void)state;
    assert_int_equal(chosen_for(43, 2, (const double[]){5, 4.95}), 0);
    assert_int_equal(chosen_for(44, 2, (const double[]){5, 4.5}), 1);
    offer(0, NULL);
}

static void a_problem_is_timed_once_and_rows_keep_their_bits_in_every_batch(void **state)
{
    static const double milliseconds[] = {5, 3, 1};
    unsigned long before, once;

    (void)state;
    before = count_calls("cudaEventElapsedTime");
    assert_int_equal(chosen_for(45, 3, milliseconds), 2);
    once = count_calls("cudaEventElapsedTime") - before;
    assert_int_equal(once, 3 * 4);
    for (int64_t rows = 2; rows < 300; rows *= 5) {
        multiply(DTYPE_FLOAT, (struct shape)SHAPE(rows, 45), (struct shape)SHAPE(45, 5), true);
        assert_int_equal(last_used(), 2);
    }
    assert_int_equal(count_calls("cudaEventElapsedTime"), before + once);
    offer(0, NULL);
}

static void no_more_are_tried_when_the_time_for_it_is_spent(void **state)
{
    (void)state;
    assert_int_equal(chosen_for(46, 3, (const double[]){20, 10, 1}), 1);
    assert_int_equal(chosen_for(47, 3, (const double[]){30, 10, 1}), 0);
    offer(0, NULL);
}

static void where_trying_fails_the_first_one_stays_for_good(void **state)
{
    static const double milliseconds[] = {5, 3, 1};
    static const char *const calls[] = {"cudaStreamCreateWithFlags", "cudaEventSynchronize",
                                        "cudaEventElapsedTime"};
    int64_t width = 48;

    (void)state;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++, width++) {
        fail_call(calls[i], 1, 2);
        if (chosen_for(width, 3, milliseconds) != 0)
            fail_msg("%s failed, and another algorithm was taken", calls[i]);
        assert_int_equal(chosen_for(width, 3, milliseconds), 0);
    }
    offer(0, NULL);
}

/* ---- bytes ---- */

static int64_t of_parameter(const struct test_array *array, int64_t column)
{
    return (int64_t)array->values[shape_count(&array->shape) > 1 ? column : 0];
}

static void whole_sums(const struct op_test *test, const struct test_array *in,
                       struct test_array *out)
{
    const struct quantized_matmul_attrs *attrs = test->attrs;
    struct matmul_geometry g;

    assert_int_equal(matmul_resolve(&in[0].shape, &in[1].shape, false, attrs->trans_b, &g, NULL),
                     STATUS_OK);
    for (int64_t i = 0; i < g.batches * g.m * g.n; i++) {
        const int64_t column = i % g.n;
        const double *a = in[0].values + i / g.n * g.k;

        out->values[i] = 0;
        for (int64_t k = 0; k < g.k; k++)
            out->values[i] += (a[k] - (double)of_parameter(&in[2], 0)) *
                              (in[1].values[attrs->trans_b ? column * g.k + k : k * g.n + column] -
                               (double)of_parameter(&in[3], column));
    }
}

static struct op_input bytes_of(enum dtype dtype, struct shape shape, bool constant)
{
    return (struct op_input){.dtype = dtype,
                             .shape = shape,
                             .low = dtype == DTYPE_INT8 ? -128 : 0,
                             .high = dtype == DTYPE_INT8 ? 128 : 256,
                             .constant = constant};
}

/* rows x k times k x n, with a zero point for all of B or one for each column. */
static void multiply_bytes(enum dtype a, enum dtype b, const int64_t size[3], bool trans_b,
                           bool many_zeros, bool constant)
{
    struct quantized_matmul_attrs attrs = {.trans_b = trans_b};
    struct op_test test = {
        .op = "MatMulInteger", .attrs = &attrs, .inputs = 4, .reference = whole_sums, .rows = true};

    test.in[0] = bytes_of(a, (struct shape)SHAPE(size[0], size[1]), false);
    test.in[1] = bytes_of(
        b, trans_b ? (struct shape)SHAPE(size[2], size[1]) : (struct shape)SHAPE(size[1], size[2]),
        constant);
    test.in[2] = bytes_of(a, (struct shape)SHAPE_SCALAR, false);
    test.in[3] = many_zeros ? bytes_of(b, (struct shape)SHAPE(size[2]), constant)
                            : (struct op_input){.dtype = b,
                                                .shape = SHAPE_SCALAR,
                                                .values = (double[]){b == DTYPE_INT8 ? 0 : 128},
                                                .constant = constant};
    op_test_run(tester, &test);
}

/* Sizes beside the groups of 16 that the library wants, and many rows, which go in pieces. */
static void the_library_multiplies_bytes_of_both_kinds_and_all_sizes(void **state)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {3, 16, 16},   {5, 17, 15}, {9, 64, 33},
                                       {300, 3, 7}, {700, 32, 20}, {40, 5, 700}};

    (void)state;
    for (int code = 0; code < 6 * 16; code++) {
        unsigned long before = count_calls("cublasLtMatmul");

        multiply_bytes(code & 1 ? DTYPE_INT8 : DTYPE_UINT8, code & 2 ? DTYPE_INT8 : DTYPE_UINT8,
                       sizes[code / 16], (code & 4) != 0, (code & 8) != 0, true);
        assert_true(count_calls("cublasLtMatmul") > before);
    }
}

static void many_rows_of_bytes_go_in_pieces(void **state)
{
    static const int64_t few[] = {64, 32, 20}, many[] = {640, 32, 20};
    unsigned long before = count_calls("cublasLtMatmul"), once;

    (void)state;
    multiply_bytes(DTYPE_INT8, DTYPE_INT8, few, false, false, true);
    once = count_calls("cublasLtMatmul") - before;
    before += once;
    multiply_bytes(DTYPE_INT8, DTYPE_INT8, many, false, false, true);
    assert_true(count_calls("cublasLtMatmul") - before > 3 * once);
}

static void rows_of_bytes_that_lie_in_line_are_not_laid(void **state)
{
    static const int64_t in_line[] = {8, 48, 20}, beside[] = {8, 49, 20};
    unsigned long launches[3], start = count_calls("cudaLaunchKernel");

    (void)state;
    multiply_bytes(DTYPE_INT8, DTYPE_INT8, in_line, false, false, true);
    launches[0] = count_calls("cudaLaunchKernel") - start;
    start += launches[0];
    multiply_bytes(DTYPE_INT8, DTYPE_INT8, beside, false, false, true);
    launches[1] = count_calls("cudaLaunchKernel") - start;
    start += launches[1];
    multiply_bytes(DTYPE_UINT8, DTYPE_INT8, in_line, false, false, true);
    launches[2] = count_calls("cudaLaunchKernel") - start;
    assert_true(launches[0] < launches[1]);
    assert_int_equal(launches[1], launches[2]);
}

static void weights_that_are_computed_go_to_the_own_integer_kernel(void **state)
{
    static const int64_t size[] = {5, 24, 9};
    unsigned long before = count_calls("cublasLtMatmul");

    (void)state;
    multiply_bytes(DTYPE_INT8, DTYPE_INT8, size, false, false, false);
    assert_int_equal(count_calls("cublasLtMatmul"), before);
}

static void bytes_that_the_library_has_no_algorithm_for_go_to_the_own_integer_kernel(void **state)
{
    enum { NOT_SUPPORTED = 15 };
    static const int64_t size[] = {5, 24, 9};
    unsigned long before = count_calls("cublasLtMatmul");

    (void)state;
    fail_call("cublasLtMatmulAlgoGetHeuristic", 1, NOT_SUPPORTED);
    multiply_bytes(DTYPE_INT8, DTYPE_INT8, size, false, false, true);
    assert_int_equal(count_calls("cublasLtMatmul"), before);
}

static void nothing_was_found_wrong_with_any_call(void **state)
{
    (void)state;
    assert_int_equal(count_findings(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_finds_no_memory_is_asked_again_by_the_next_load),
        cmocka_unit_test(the_library_multiplies_every_type_it_is_for),
        cmocka_unit_test(rows_have_the_same_bits_in_batches_of_every_size),
        cmocka_unit_test(what_it_is_not_for_goes_to_the_own_kernel),
        cmocka_unit_test(a_product_that_the_library_has_no_algorithm_for_goes_to_the_own_kernel),
        cmocka_unit_test(the_fastest_of_those_offered_is_taken),
        cmocka_unit_test(one_that_is_hardly_faster_is_not_taken),
        cmocka_unit_test(a_problem_is_timed_once_and_rows_keep_their_bits_in_every_batch),
        cmocka_unit_test(no_more_are_tried_when_the_time_for_it_is_spent),
        cmocka_unit_test(where_trying_fails_the_first_one_stays_for_good),
        cmocka_unit_test(the_library_multiplies_bytes_of_both_kinds_and_all_sizes),
        cmocka_unit_test(many_rows_of_bytes_go_in_pieces),
        cmocka_unit_test(rows_of_bytes_that_lie_in_line_are_not_laid),
        cmocka_unit_test(weights_that_are_computed_go_to_the_own_integer_kernel),
        cmocka_unit_test(bytes_that_the_library_has_no_algorithm_for_go_to_the_own_integer_kernel),
        cmocka_unit_test(nothing_was_found_wrong_with_any_call),
    };

    return run_cases(tests);
}
