#include <math.h>
#include <string.h>

#include "ops/normalize.h"
#include "ops/softmax.h"
#include "support/cpu_cases.h"

static const enum dtype floats[] = {DTYPE_FLOAT, DTYPE_DOUBLE, DTYPE_FLOAT16, DTYPE_BFLOAT16};
enum { FLOATS = sizeof(floats) / sizeof(floats[0]) };

static void set_tolerance(struct op_test *test, enum dtype dtype)
{
    static const double errors[] = {[DTYPE_FLOAT] = 1e-5,
                                    [DTYPE_DOUBLE] = 1e-11,
                                    [DTYPE_FLOAT16] = 4e-3,
                                    [DTYPE_BFLOAT16] = 3e-2};

    test->relative = errors[dtype];
    test->absolute = errors[dtype];
}

/* ---- along one axis ---- */

static void one_line(const struct op_test *test, const double *x, double *y, int64_t count,
                     int64_t step)
{
    double top = -INFINITY, sum = 0, norm = 0;
    int64_t best = 0;

    for (int64_t i = 0; i < count; i++) {
        best = x[i * step] > top ? i : best;
        top = fmax(top, x[i * step]);
    }
    for (int64_t i = 0; i < count; i++) {
        double value = x[i * step];

        sum += exp(value - top);
        norm += strcmp(test->op, "LpNormalization") == 0 &&
                        ((const struct lp_attrs *)test->attrs)->p == 1
                    ? fabs(value)
                    : value * value;
    }
    for (int64_t i = 0; i < count; i++) {
        double value = x[i * step];

        if (strcmp(test->op, "Softmax") == 0)
            y[i * step] = exp(value - top) / sum;
        else if (strcmp(test->op, "LogSoftmax") == 0)
            y[i * step] = value - top - log(sum);
        else if (strcmp(test->op, "Hardmax") == 0)
            y[i * step] = i == best;
        else
            y[i * step] =
                value / (((const struct lp_attrs *)test->attrs)->p == 1 ? norm : sqrt(norm));
    }
}

static void along_axis(const struct op_test *test, const struct test_array *in,
                       struct test_array *out)
{
    const struct softmax_attrs *attrs = test->attrs;
    size_t axis = shape_axis(&in->shape, attrs->axis);
    int64_t inner = shape_product(&in->shape, axis + 1, in->shape.rank);
    int64_t count = in->shape.dims[axis];

    for (int64_t i = 0; i < shape_count(&in->shape) / count; i++) {
        int64_t at = i / inner * count * inner + i % inner;

        one_line(test, in->values + at, out->values + at, count, inner);
    }
}

static void softmax_and_kin_work_along_any_axis(void **state)
{
    static const char *const ops[] = {"Softmax", "LogSoftmax", "Hardmax", "LpNormalization"};

    for (size_t o = 0; o < 4; o++)
        for (size_t d = 0; d < FLOATS; d++)
            for (int k = 0; k < 20; k++) {
                struct shape shape = test_random_shape((size_t)test_random_int(1, 4), 1, 40);
                struct lp_attrs attrs = {
                    test_random_int(-(int64_t)shape.rank, (int64_t)shape.rank - 1),
                    test_random_int(1, 2)};
                struct op_test test = {.op = ops[o],
                                       .attrs = &attrs,
                                       .inputs = 1,
                                       .in = {{floats[d], shape, NULL, -8, 8}},
                                       .reference = along_axis};

                set_tolerance(&test, floats[d]);
                op_test_run(*state, &test);
            }
}

static void large_scores_do_not_overflow(void **state)
{
    static const double scores[] = {1000, 999, -1000, 1000};
    struct softmax_attrs attrs = {-1};
    struct op_test test = {.op = "Softmax",
                           .attrs = &attrs,
                           .inputs = 1,
                           .in = {{DTYPE_FLOAT, SHAPE(1, 4), scores}},
                           .reference = along_axis};

    op_test_run(*state, &test);
    test.op = "LogSoftmax";
    op_test_run(*state, &test);
}

/* ---- layer, RMS ---- */

/* Element of a smaller tensor that broadcasts to the last dimensions of `shape`. */
static double spread(const struct test_array *array, const struct shape *shape, int64_t index)
{
    int64_t offset = 0, stride = 1;

    for (size_t i = 0; i < array->shape.rank; i++) {
        int64_t dim = array->shape.dims[array->shape.rank - 1 - i];
        int64_t whole = shape->dims[shape->rank - 1 - i];

        offset += dim > 1 ? index % whole * stride : 0;
        stride *= dim;
        index /= whole;
    }
    return array->values[offset];
}

static void moments(const double *x, int64_t count, double *mean, double *variance)
{
    *mean = *variance = 0;
    for (int64_t i = 0; i < count; i++)
        *mean += x[i] / (double)count;
    for (int64_t i = 0; i < count; i++)
        *variance += (x[i] - *mean) * (x[i] - *mean) / (double)count;
}

static void layer(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct layer_norm_attrs *attrs = test->attrs;
    const struct shape *shape = &in->shape;
    size_t axis = shape_axis(shape, attrs->axis);
    int64_t count = shape_product(shape, axis, shape->rank);
    bool rms = strcmp(test->op, "RMSNormalization") == 0;

    for (int64_t g = 0; g < shape_count(shape) / count; g++) {
        const double *x = in->values + g * count;
        double mean, variance, factor;

        moments(x, count, &mean, &variance);
        if (rms) {
            variance += mean * mean;
            mean = 0;
        }
        factor = 1 / sqrt(variance + (double)attrs->epsilon);
        for (int64_t i = 0; i < count; i++)
            out->values[g * count + i] =
                (x[i] - mean) * factor * spread(&in[1], shape, i) +
                (test->inputs > 2 && in[2].dtype != DTYPE_NONE ? spread(&in[2], shape, i) : 0);
        if (test->outputs > 2) {
            out[1].values[g] = mean;
            out[2].values[g] = factor;
        }
    }
}

static void layer_normalization_takes_any_axis_and_scale(void **state)
{
    for (size_t d = 0; d < FLOATS; d++)
        for (int k = 0; k < 40; k++) {
            struct shape shape = test_random_shape((size_t)test_random_int(1, 4), 1, 20), part;
            struct layer_norm_attrs attrs = {.axis = test_random_int(0, (int64_t)shape.rank - 1),
                                             .epsilon = 1e-3f};
            bool rms = k % 4 == 3;
            struct op_test test = {.op = rms ? "RMSNormalization" : "LayerNormalization",
                                   .attrs = &attrs,
                                   .inputs = rms ? 2 : 3,
                                   .outputs = !rms && k % 4 == 1 ? 3 : 1,
                                   .reference = layer};

            part = shape_make(shape.rank - (size_t)attrs.axis, shape.dims + attrs.axis);
            if (k % 5 == 0)
                part.dims[test_random_int(0, (int64_t)part.rank - 1)] = 1;
            test.in[0] = (struct op_input){floats[d], shape, NULL, -1, 4};
            test.in[1] = (struct op_input){floats[d], part, .constant = true};
            test.in[2] = (struct op_input){k % 3 == 0 || rms ? DTYPE_NONE : floats[d], part};
            set_tolerance(&test, floats[d]);
            test.absolute *= 4;
            op_test_run(*state, &test);
        }
}

static void a_scale_that_does_not_broadcast_is_refused(void **state)
{
    struct layer_norm_attrs attrs = {.axis = -1, .epsilon = 1e-5f};
    struct op_test test = {.op = "LayerNormalization",
                           .attrs = &attrs,
                           .inputs = 2,
                           .in = {{DTYPE_FLOAT, SHAPE(3, 8)}, {DTYPE_FLOAT, SHAPE(7)}},
                           .reference = layer};

    assert_non_null(strstr(op_test_refused(*state, &test), "[7]"));
    test.in[1].shape = (struct shape)SHAPE(3, 8);
    assert_non_null(strstr(op_test_refused(*state, &test), "[3,8]"));
}

/* ---- by channel ---- */

static void by_groups(const struct op_test *test, const struct test_array *in,
                      struct test_array *out)
{
    const struct shape *shape = &in->shape;
    bool instance = strcmp(test->op, "InstanceNormalization") == 0;
    int64_t channels = shape->dims[1], places = shape_product(shape, 2, shape->rank);
    int64_t groups =
        instance ? channels : ((const struct group_norm_attrs *)test->attrs)->num_groups;
    double epsilon = (double)*(const float *)test->attrs; /* first in both */
    int64_t size = channels / groups * places;

    for (int64_t i = 0; i < shape_count(shape); i++) {
        double mean, variance;

        moments(in->values + i / size * size, size, &mean, &variance);
        out->values[i] = (in->values[i] - mean) / sqrt(variance + epsilon) *
                             in[1].values[i / places % channels] +
                         in[2].values[i / places % channels];
    }
}

static void instance_and_group_normalization_go_by_channel(void **state)
{
    for (size_t d = 0; d < FLOATS; d++)
        for (int k = 0; k < 8; k++) {
            struct shape shape = test_random_shape((size_t)test_random_int(3, 4), 2, 9);
            struct group_norm_attrs attrs = {.epsilon = 1e-2f, .num_groups = 2};
            struct op_test test = {.attrs = &attrs, .inputs = 3, .reference = by_groups};

            test.op = k % 2 == 0 ? "InstanceNormalization" : "GroupNormalization";
            shape.dims[1] = 6;
            test.in[0] = (struct op_input){floats[d], shape};
            test.in[1] = (struct op_input){floats[d], SHAPE(6), .constant = true};
            test.in[2] = (struct op_input){floats[d], SHAPE(6)};
            set_tolerance(&test, floats[d]);
            test.absolute *= 4;
            op_test_run(*state, &test);
        }
}

static void by_batch(const struct op_test *test, const struct test_array *in,
                     struct test_array *out)
{
    const struct batch_norm_attrs *attrs = test->attrs;
    const struct shape *shape = &in->shape;
    int64_t channels = shape->rank > 1 ? shape->dims[1] : 1;
    int64_t places = shape->rank > 1 ? shape_product(shape, 2, shape->rank) : 1;

    for (int64_t i = 0; i < shape_count(shape); i++) {
        int64_t c = i / places % channels;

        out->values[i] = (in->values[i] - in[3].values[c]) /
                             sqrt(in[4].values[c] + (double)attrs->epsilon) * in[1].values[c] +
                         in[2].values[c];
    }
}

static void batch_normalization_works_in_both_layouts(void **state)
{
    struct batch_norm_attrs attrs = {.epsilon = 1e-3f};

    for (size_t d = 0; d < FLOATS; d++)
        for (int k = 0; k < 12; k++) {
            struct shape shape = test_random_shape((size_t)test_random_int(2, 5), 1, 19);
            struct op_test test = {
                .op = "BatchNormalization", .attrs = &attrs, .inputs = 5, .reference = by_batch};

            test.in[0] = (struct op_input){floats[d], shape};
            for (size_t i = 1; i < 5; i++)
                test.in[i] =
                    (struct op_input){floats[d], SHAPE(shape.dims[1]), NULL, 0.5, 2, k % 2 == 0};
            set_tolerance(&test, floats[d]);
            op_test_run(*state, &test);
        }
}

static void training_is_refused(void **state)
{
    struct batch_norm_attrs attrs = {.epsilon = 1e-3f, .training_mode = 1};
    struct op_test test = {.op = "BatchNormalization",
                           .attrs = &attrs,
                           .inputs = 5,
                           .in = {{DTYPE_FLOAT, SHAPE(2, 3)},
                                  {DTYPE_FLOAT, SHAPE(3)},
                                  {DTYPE_FLOAT, SHAPE(3)},
                                  {DTYPE_FLOAT, SHAPE(3)},
                                  {DTYPE_FLOAT, SHAPE(3)}},
                           .reference = by_batch};

    assert_non_null(strstr(op_test_refused(*state, &test), "training_mode"));
}

static void whole_channels(const struct op_test *test, const struct test_array *in,
                           struct test_array *out)
{
    const struct shape *shape = &in->shape;
    int64_t channels = shape->dims[1], places = shape->dims[2] * shape->dims[3];

    (void)test;
    for (int64_t c = 0; c < channels; c++) {
        double x[2000], mean, variance;
        int64_t count = 0;

        for (int64_t i = 0; i < shape_count(shape); i++)
            if (i / places % channels == c)
                x[count++] = in->values[i];
        moments(x, count, &mean, &variance);
        for (int64_t i = 0; i < shape_count(shape); i++)
            if (i / places % channels == c)
                out->values[i] = (in->values[i] - mean) / (sqrt(variance) + 1e-9);
    }
}

static void mean_and_variance_go_over_all_but_channels(void **state)
{
    struct op_test test = {.op = "MeanVarianceNormalization",
                           .inputs = 1,
                           .in = {{DTYPE_FLOAT, SHAPE(3, 5, 4, 7)}},
                           .reference = whole_channels};

    for (size_t d = 0; d < FLOATS; d++) {
        test.in[0].dtype = floats[d];
        set_tolerance(&test, floats[d]);
        op_test_run(*state, &test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_and_kin_work_along_any_axis),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(layer_normalization_takes_any_axis_and_scale),
        cmocka_unit_test(a_scale_that_does_not_broadcast_is_refused),
        cmocka_unit_test(instance_and_group_normalization_go_by_channel),
        cmocka_unit_test(batch_normalization_works_in_both_layouts),
        cmocka_unit_test(training_is_refused),
        cmocka_unit_test(mean_and_variance_go_over_all_but_channels),
    };

    return cmocka_run_group_tests(tests, open_tester, close_tester);
}
