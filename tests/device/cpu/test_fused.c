#include <math.h>
#include <string.h>

#include "ops/fused.h"
#include "support/cpu_cases.h"

static double gelu(double x)
{
    return x / 2 * erfc(-x / M_SQRT2);
}

static double gelu_tanh(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static void biased_gelu(const struct op_test *test, const struct test_array *in,
                        struct test_array *out)
{
    int64_t last = in->shape.dims[in->shape.rank - 1];
    bool fast = strcmp(test->op, "FastGelu") == 0;

    for (int64_t i = 0; i < shape_count(&in->shape); i++) {
        double x = in->values[i] + (test->inputs > 1 ? in[1].values[i % last] : 0);

        out->values[i] = fast ? gelu_tanh(x) : gelu(x);
    }
}

static void gelu_takes_a_bias(void **state)
{
    struct op_test test = {.op = "BiasGelu",
                           .domain = "com.microsoft",
                           .inputs = 2,
                           .in = {{DTYPE_FLOAT, SHAPE(3, 5, 37)}, {DTYPE_FLOAT, SHAPE(37)}},
                           .reference = biased_gelu};

    op_test_run(*state, &test);
    test.op = "FastGelu";
    op_test_run(*state, &test);
    test.inputs = 1;
    op_test_run(*state, &test);
    test.op = "Gelu";
    op_test_run(*state, &test);
    test.op = "BiasGelu";
    test.inputs = 2;
    test.in[1].shape = (struct shape)SHAPE(36);
    assert_non_null(strstr(op_test_refused(*state, &test), "[36]"));
}

static void skip_norm(const struct op_test *test, const struct test_array *in,
                      struct test_array *out)
{
    const struct skip_norm_attrs *attrs = test->attrs;
    int64_t size = in->shape.dims[in->shape.rank - 1];

    for (int64_t g = 0; g < shape_count(&in->shape) / size; g++) {
        double sum[64], mean = 0, variance = 0, factor;

        for (int64_t i = 0; i < size; i++) {
            sum[i] = in[0].values[g * size + i] + in[1].values[g * size + i] +
                     (test->inputs > 4 ? in[4].values[i] : 0);
            mean += sum[i] / (double)size;
        }
        for (int64_t i = 0; i < size; i++)
            variance += (sum[i] - mean) * (sum[i] - mean) / (double)size;
        factor = 1 / sqrt(variance + (double)attrs->epsilon);
        for (int64_t i = 0; i < size; i++) {
            out[0].values[g * size + i] = (sum[i] - mean) * factor * in[2].values[i] +
                                          (test->inputs > 3 ? in[3].values[i] : 0);
            if (test->outputs > 3)
                out[3].values[g * size + i] = sum[i];
        }
        if (test->outputs > 2) {
            out[1].values[g] = mean;
            out[2].values[g] = factor;
        }
    }
}

static void skip_is_added_before_normalising(void **state)
{
    const struct skip_norm_attrs attrs = {.epsilon = 1e-3f};
    static const enum dtype dtypes[] = {DTYPE_FLOAT, DTYPE_FLOAT16};

    for (size_t d = 0; d < 2; d++)
        for (size_t inputs = 3; inputs <= 5; inputs++) {
            struct op_test test = {.op = "SkipLayerNormalization",
                                   .domain = "com.microsoft",
                                   .attrs = &attrs,
                                   .inputs = inputs,
                                   .outputs = inputs == 5 ? 4 : 1,
                                   .reference = skip_norm,
                                   .relative = d == 0 ? 1e-5 : 4e-3,
                                   .absolute = d == 0 ? 2e-5 : 1e-2};

            for (size_t i = 0; i < inputs; i++)
                test.in[i] = (struct op_input){dtypes[d], SHAPE(2, 7, 43)};
            for (size_t i = 2; i < inputs; i++)
                test.in[i].shape = (struct shape)SHAPE(43);
            op_test_run(*state, &test);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_takes_a_bias),
        cmocka_unit_test(skip_is_added_before_normalising),
    };

    return cmocka_run_group_tests(tests, open_tester, close_tester);
}
