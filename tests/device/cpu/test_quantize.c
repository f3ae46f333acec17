#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/quantize.h"
#include "support/cpu_cases.h"

/* Where scale and zero point of element `index` lie. */
static int64_t parameter(const struct op_test *test, const struct test_array *in, int64_t index)
{
    struct quantize_geometry g;
    int64_t place, outer;

    assert_int_equal(quantize_geometry(test->attrs, &in[0].shape, &in[1].shape, &g, NULL),
                     STATUS_OK);
    place = index / g.inner % g.count;
    outer = index / g.inner / g.count;
    if (g.by == QUANTIZE_TENSOR)
        return 0;
    if (g.by == QUANTIZE_AXIS)
        return place;
    return (outer * ((g.count + g.block - 1) / g.block) + place / g.block) * g.inner +
           index % g.inner;
}

static void quantize(const struct op_test *test, const struct test_array *in,
                     struct test_array *out)
{
    for (int64_t i = 0; i < shape_count(&in->shape); i++) {
        int64_t p = parameter(test, in, i);
        double zero = test->inputs > 2 ? in[2].values[p] : 0;

        if (strcmp(test->op, "QuantizeLinear") == 0)
            out->values[i] = (double)rintf((float)in->values[i] / (float)in[1].values[p]) + zero;
        else
            out->values[i] = (in->values[i] - zero) * in[1].values[p];
    }
}

/* Per tensor, along an axis, in blocks. */
static const struct shape scales[] = {SHAPE_SCALAR, SHAPE(6), SHAPE(4, 2, 5)};
static const int64_t blocks[] = {0, 0, 3};

static void reals_become_integers_and_back(void **state)
{
    static const enum dtype quantised[] = {DTYPE_INT8, DTYPE_UINT8, DTYPE_INT16, DTYPE_UINT16};

    for (size_t k = 0; k < 3; k++)
        for (size_t d = 0; d < 4; d++) {
            struct quantize_attrs attrs = {.axis = k == 1 ? -2 : 1, .block_size = blocks[k]};
            struct op_test test = {.op = "QuantizeLinear",
                                   .attrs = &attrs,
                                   .inputs = 3,
                                   .in = {{DTYPE_FLOAT, SHAPE(4, 6, 5), NULL, -30, 300},
                                          {DTYPE_FLOAT, scales[k], NULL, 0.1, 1},
                                          {quantised[d], scales[k], NULL, 0, 9}},
                                   .reference = quantize};

            op_test_run(*state, &test);
            test.op = "DequantizeLinear";
            test.in[0] = (struct op_input){quantised[d], SHAPE(4, 6, 5), NULL, 0, 100};
            op_test_run(*state, &test);
        }
}

static void scales_that_do_not_fit_are_refused(void **state)
{
    struct quantize_attrs attrs = {.axis = 1};
    struct op_test test = {.op = "QuantizeLinear",
                           .attrs = &attrs,
                           .inputs = 2,
                           .in = {{DTYPE_FLOAT, SHAPE(4, 6, 5)}, {DTYPE_FLOAT, SHAPE(5)}},
                           .reference = quantize};

    assert_non_null(strstr(op_test_refused(*state, &test), "[5]"));
    attrs.output_dtype = 17; /* an 8-bit float */
    test.in[1].shape = (struct shape)SHAPE(6);
    assert_non_null(strstr(op_test_refused(*state, &test), "17"));
}

static void dynamic(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    double low = 0, high = 0, zero;
    float scale;

    (void)test;
    for (int64_t i = 0; i < shape_count(&in->shape); i++) {
        low = fmin(low, in->values[i]);
        high = fmax(high, in->values[i]);
    }
    scale = ((float)high - (float)low) / 255;
    zero = (double)fminf(255, fmaxf(0, rintf(-(float)low / scale)));
    for (int64_t i = 0; i < shape_count(&in->shape); i++)
        out[0].values[i] = (double)rintf((float)in->values[i] / scale) + zero;
    out[1].values[0] = (double)scale;
    out[2].values[0] = zero;
}

static void the_range_is_found_when_it_runs(void **state)
{
    const double ranges[][2] = {{-3, 5}, {1, 4}, {-8, -2}};

    for (size_t i = 0; i < 3; i++) {
        struct op_test test = {
            .op = "DynamicQuantizeLinear",
            .inputs = 1,
            .outputs = 3,
            .in = {{DTYPE_FLOAT, SHAPE(3, 41), NULL, ranges[i][0], ranges[i][1]}},
            .reference = dynamic};

        op_test_run(*state, &test);
    }
}

/* Large enough for threads to share it; the largest number is the last member's. */
static void threads_find_one_range_together(void **state)
{
    enum { COUNT = 200003 };
    double *values = calloc(COUNT, sizeof(*values));
    struct op_test test = {.op = "DynamicQuantizeLinear",
                           .inputs = 1,
                           .outputs = 3,
                           .in = {{DTYPE_FLOAT, SHAPE(COUNT), values}},
                           .reference = dynamic};

    assert_non_null(values);
    for (int i = 0; i < COUNT; i++)
        values[i] = (double)(float)sin(i * 0.7);
    values[3] = -2.5;
    values[COUNT - 1] = 7.25;
    op_test_run(*state, &test);
    free(values);
}

/* Numbers in the middle of two bytes, and their neighbours, fall where the quotient says. */
static void numbers_near_a_half_fall_where_the_quotient_does(void **state)
{
    static const double scale_values[] = {0.0371, 1.0 / 3, 3e-31, 2e-45, 5e35};
    static const double zero_values[] = {0, 7, 128, 255};
    struct quantize_attrs attrs = {.axis = 1};
    double values[3 * 300];

    for (size_t s = 0; s < 5; s++)
        for (size_t z = 0; z < 4; z++) {
            const float scale = (float)scale_values[s];
            const double one = (double)scale;
            struct op_test test = {.op = "QuantizeLinear",
                                   .attrs = &attrs,
                                   .inputs = 3,
                                   .in = {{DTYPE_FLOAT, SHAPE(3, 300), values},
                                          {DTYPE_FLOAT, SHAPE_SCALAR, &one},
                                          {DTYPE_UINT8, SHAPE_SCALAR, &zero_values[z]}},
                                   .reference = quantize,
                                   .relative = 1e-12,
                                   .absolute = 1e-12};

            for (int i = 0; i < 300; i++) {
                const float middle = (float)((i - (int)zero_values[z] + 0.5) * one);

                values[3 * i] = (double)middle;
                values[3 * i + 1] = (double)nextafterf(middle, 1e30f);
                values[3 * i + 2] = (double)nextafterf(middle, -1e30f);
            }
            op_test_run(*state, &test);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reals_become_integers_and_back),
        cmocka_unit_test(scales_that_do_not_fit_are_refused),
        cmocka_unit_test(the_range_is_found_when_it_runs),
        cmocka_unit_test(threads_find_one_range_together),
        cmocka_unit_test(numbers_near_a_half_fall_where_the_quotient_does),
    };

    return cmocka_run_group_tests(tests, open_tester, close_tester);
}
