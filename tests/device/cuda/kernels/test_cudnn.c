/* Convolutions and pools on the simulated device go through the simulated cuDNN, with engines that
 * keep the rules, and its failures are theirs.  That they are right is tests/device/cpu's to say,
 * which run here, too. */
#include "device/cpu/conv_cases.h"
#include "ops/pool.h"
#include "support/cpu_cases.h"

#include "sim_library.h"

static const int64_t no_pads[4], pads_all_round[] = {1, 1, 1, 1}, pads_behind[] = {0, 0, 2, 1};

static void convolve(enum dtype dtype, int64_t images, int64_t groups, const int64_t pads[4],
                     bool rows)
{
    struct conv_attrs attrs = {.window.pads = {4, pads}, .group = groups};
    struct op_test test = {
        .op = "Conv",
        .attrs = &attrs,
        .inputs = 2,
        .in = {{dtype, SHAPE(images, 6, 5, 7), .low = -1, .high = 1},
               {dtype, SHAPE(12, 6 / groups, 3, 2), .low = -1, .high = 1, .constant = true}},
        .reference = reference_conv,
        .relative = dtype == DTYPE_FLOAT ? 1e-5 : 2e-2,
        .absolute = dtype == DTYPE_FLOAT ? 1e-4 : 3e-2,
        .rows = rows};

    op_test_run(tester, &test);
}

static unsigned long failed_creations; /* as ordered */

static void the_library_convolves_every_type_it_is_for(void **state)
{
    static const enum dtype types[] = {DTYPE_FLOAT, DTYPE_FLOAT16, DTYPE_BFLOAT16};

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        unsigned long before = count_calls("cudnnBackendExecute");

        convolve(types[i], 2, 1, pads_all_round, true);
        convolve(types[i], 2, 6, pads_behind, true);
        assert_true(count_calls("cudnnBackendExecute") >= before + 8); /* two layouts */
    }
}

static void add_residuals(bool refused)
{
    static const enum dtype types[] = {DTYPE_FLOAT, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    enum { NOT_SUPPORTED = 3000 };

    for (unsigned i = 0; i < 12; i++) {
        enum dtype dtype = types[i / 4];
        struct conv_attrs attrs = {.window.pads = {4, pads_all_round},
                                   .group = 1,
                                   .epilogue = {.act = i % 2 == 0 ? ACT_SILU : ACT_RELU,
                                                .a = 1,
                                                .has_residual = true,
                                                .residual_after = i / 2 % 2 == 1}};
        struct op_test test = {
            .op = "Conv",
            .attrs = &attrs,
            .inputs = 4,
            .in = {{dtype, SHAPE(2, 6, 5, 7), .low = -1, .high = 1},
                   {dtype, SHAPE(12, 6, 3, 2), .low = -1, .high = 1, .constant = true},
                   {.dtype = DTYPE_NONE},
                   {dtype, SHAPE(2, 12, 5, 8), .low = -2, .high = 2}},
            .reference = reference_conv,
            .relative = dtype == DTYPE_FLOAT ? 1e-5 : 2e-2,
            .absolute = dtype == DTYPE_FLOAT ? 1e-4 : 3e-2,
            .rows = !refused};

        if (refused)
            fail_call("cudnnBackendFinalize", 1, NOT_SUPPORTED);
        op_test_run(tester, &test);
    }
    fail_call("cudnnBackendFinalize", 0, 0);
}

static void residuals_before_and_behind_activations_go_through_the_library(void **state)
{
    unsigned long before = count_calls("cudnnBackendExecute");

    (void)state;
    add_residuals(false);
    /* Of each, two layouts and a row alone. */
    assert_true(count_calls("cudnnBackendExecute") >= before + 12 * 4);
    add_residuals(true); /* the own kernel's are right as well */
}

/* The library's ReLU is asked once whether it keeps NaN, for batches of all sizes, and left out
 * where it does not. */
static void a_relu_that_loses_nan_is_left_to_a_pass_of_our_own(void **state)
{
    unsigned long launches[2];

    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        const int64_t channels = 4 + kept; /* another problem */
        struct conv_attrs attrs = {.window.pads = {4, no_pads}, .group = 1};
        struct op_test test = {.op = "Conv",
                               .attrs = &attrs,
                               .inputs = 2,
                               .in = {{DTYPE_FLOAT, SHAPE(1, channels, 5, 7), .low = -1, .high = 1},
                                      {DTYPE_FLOAT, SHAPE(12, channels, 3, 2), .low = -1, .high = 1,
                                       .constant = true}},
                               .reference = reference_conv};
        unsigned long asked;

        attrs.epilogue.act = ACT_RELU;
        keep_nan(kept == 1);
        op_test_run(tester, &test);
        launches[kept] = count_calls("cudaLaunchKernel");
        asked = count_calls("cudnnBackendExecute");
        for (int64_t images = 2; images < 12; images += 3) {
            test.in[0].shape.dims[0] = images;
            op_test_run(tester, &test);
        }
        launches[kept] = count_calls("cudaLaunchKernel") - launches[kept];
        assert_int_equal(count_calls("cudnnBackendExecute") - asked, 2 * 4); /* two layouts */
    }
    assert_true(launches[0] >= launches[1] + 2 * 4);
    keep_nan(false);
}

/* The simulated heuristic chooses by the number of images, and its engines add in other orders. */
static void images_have_the_same_bits_in_batches_of_every_size(void **state)
{
    (void)state;
    for (int64_t images = 2; images < 20; images += 3)
        convolve(DTYPE_FLOAT, images, 2, no_pads, true);
}

static void a_convolution_that_the_library_has_no_engine_for_goes_to_the_own_kernel(void **state)
{
    enum { NOT_SUPPORTED = 3000 };
    unsigned long before = count_calls("cudnnBackendExecute");

    (void)state;
    convolve(DTYPE_DOUBLE, 2, 1, no_pads, false);
    assert_int_equal(count_calls("cudnnBackendExecute"), before);
    for (unsigned call = 1; call < 24; call++) {
        fail_call("cudnnBackendFinalize", call, NOT_SUPPORTED);
        convolve(DTYPE_FLOAT, 2, 1, no_pads, false);
    }
    for (unsigned call = 1; call < 60; call += 5) {
        fail_call("cudnnBackendCreateDescriptor", call, NOT_SUPPORTED);
        failed_creations++;
        convolve(DTYPE_FLOAT, 2, 1, no_pads, false);
    }
    fail_call("cudnnBackendFinalize", 0, 0);
    fail_call("cudnnBackendCreateDescriptor", 0, 0);
}

static double pool_of(const struct pool_attrs *attrs, const struct test_array *in, int64_t plane,
                      int64_t y, int64_t x)
{
    double sum = 0;

    (void)attrs;
    for (int64_t i = 0; i < 2; i++)
        for (int64_t k = 0; k < 2; k++)
            sum += in->values[(plane * 6 + y * 2 + i) * 4 + x * 2 + k];
    return sum / 4;
}

static void reference_pool(const struct op_test *test, const struct test_array *in,
                           struct test_array *out)
{
    for (int64_t i = 0; i < shape_count(&out->shape); i++)
        out->values[i] = pool_of(test->attrs, in, i / 6, i / 2 % 3, i % 2);
}

static void the_library_pools_plain_images(void **state)
{
    static const int64_t two[] = {2, 2};
    struct pool_attrs attrs = {.window = {.kernel_shape = {2, two}, .strides = {2, two}}};
    struct op_test test = {.op = "AveragePool",
                           .attrs = &attrs,
                           .inputs = 1,
                           .in = {{DTYPE_FLOAT, SHAPE(2, 3, 6, 4)}},
                           .reference = reference_pool,
                           .rows = true};
    unsigned long before = count_calls("cudnnBackendExecute");

    (void)state;
    op_test_run(tester, &test);
    assert_int_equal(count_calls("cudnnBackendExecute"), before + 2); /* with one row alone */
}

/* Plans that could not be made, too. */
static void every_descriptor_was_given_back(void **state)
{
    (void)state;
    assert_int_equal(count_calls("cudnnBackendCreateDescriptor") - failed_creations,
                     count_calls("cudnnBackendDestroyDescriptor"));
}

static void nothing_was_found_wrong_with_any_call(void **state)
{
    (void)state;
    assert_int_equal(count_findings(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_convolves_every_type_it_is_for),
        cmocka_unit_test(residuals_before_and_behind_activations_go_through_the_library),
        cmocka_unit_test(a_relu_that_loses_nan_is_left_to_a_pass_of_our_own),
        cmocka_unit_test(images_have_the_same_bits_in_batches_of_every_size),
        cmocka_unit_test(a_convolution_that_the_library_has_no_engine_for_goes_to_the_own_kernel),
        cmocka_unit_test(the_library_pools_plain_images),
        cmocka_unit_test(every_descriptor_was_given_back),
        cmocka_unit_test(nothing_was_found_wrong_with_any_call),
    };

    return run_cases(tests);
}
