#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/reduce.h"
#include "support/cpu_cases.h"

/* What a test reduces over; op_test.arg. */
struct setting {
    bool reduced[SHAPE_MAX_RANK];
    const char *op;
};

static double finish(const char *op, double sum, double count)
{
    if (strcmp(op, "ReduceMean") == 0)
        return sum / count;
    if (strcmp(op, "ReduceL2") == 0)
        return sqrt(sum);
    if (strcmp(op, "ReduceLogSum") == 0 || strcmp(op, "ReduceLogSumExp") == 0)
        return log(sum);
    return sum;
}

static double take(const char *op, double total, double x)
{
    if (strcmp(op, "ReduceL1") == 0)
        return total + fabs(x);
    if (strcmp(op, "ReduceL2") == 0 || strcmp(op, "ReduceSumSquare") == 0)
        return total + x * x;
    if (strcmp(op, "ReduceLogSumExp") == 0)
        return total + exp(x);
    if (strcmp(op, "ReduceProd") == 0)
        return total * x;
    if (strcmp(op, "ReduceMax") == 0)
        return fmax(total, x);
    if (strcmp(op, "ReduceMin") == 0)
        return fmin(total, x);
    return total + x;
}

static double neutral(const char *op)
{
    if (strcmp(op, "ReduceProd") == 0)
        return 1;
    if (strcmp(op, "ReduceMax") == 0)
        return -INFINITY;
    return strcmp(op, "ReduceMin") == 0 ? INFINITY : 0;
}

static int64_t result_index(const struct shape *shape, const bool *reduced, int64_t index)
{
    int64_t result = 0, stride = 1;

    for (size_t i = shape->rank; i-- > 0;) {
        if (!reduced[i]) {
            result += index % shape->dims[i] * stride;
            stride *= shape->dims[i];
        }
        index /= shape->dims[i];
    }
    return result;
}

static void reduce(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct setting *setting = test->arg;
    int64_t count = shape_count(&in[0].shape), results = shape_count(&out->shape);

    for (int64_t i = 0; i < results; i++)
        out->values[i] = neutral(test->op);
    for (int64_t i = 0; i < count; i++) {
        double *total = &out->values[result_index(&in[0].shape, setting->reduced, i)];

        *total = take(test->op, *total, in[0].values[i]);
    }
    for (int64_t i = 0; i < results; i++) {
        out->values[i] = finish(test->op, out->values[i], (double)count / (double)results);
        if (!dtype_is_float(out->dtype))
            out->values[i] = trunc(out->values[i]);
    }
}

enum {
    WIDE =
        DTYPE_FLOATS | DTYPE_BIT(INT32) | DTYPE_BIT(INT64) | DTYPE_BIT(UINT32) | DTYPE_BIT(UINT64),
    ORDERED = WIDE | DTYPE_BIT(INT8) | DTYPE_BIT(UINT8)
};

static const struct row {
    const char *op;
    uint32_t dtypes;
    double low, high;
} rows[] = {
    {"ReduceSum", WIDE},
    {"ReduceMean", WIDE},
    {"ReduceL1", WIDE},
    {"ReduceL2", WIDE},
    {"ReduceSumSquare", WIDE},
    {"ReduceLogSum", WIDE, 1, 3},
    {"ReduceLogSumExp", DTYPE_FLOATS, -3, 3},
    {"ReduceMax", ORDERED},
    {"ReduceMin", ORDERED},
    {"ReduceProd", DTYPE_FLOATS, 0.98, 1.02},
    {"ReduceProd", DTYPE_BIT(INT32) | DTYPE_BIT(INT64), 1, 2},
};

static void set_tolerance(struct op_test *test, enum dtype dtype, double elements)
{
    if (dtype == DTYPE_FLOAT) {
        test->relative = 1e-5;
        test->absolute = 2e-6 * sqrt(elements);
    } else if (dtype == DTYPE_DOUBLE) {
        test->relative = 1e-11;
        test->absolute = 1e-11 * sqrt(elements);
    } else if (dtype_is_float(dtype)) {
        test->relative = 0.02;
        test->absolute = 0.02;
    }
}

static void try_row(struct op_tester *on, const struct row *row, enum dtype dtype, int64_t most)
{
    struct reduce_attrs attrs = {.keepdims = test_random_int(0, 1)};
    struct setting setting = {.op = row->op};
    double axes[SHAPE_MAX_RANK];
    int64_t count = 0;
    struct shape shape = test_random_shape((size_t)test_random_int(0, 5), 1, most);
    struct op_test test = {.op = row->op,
                           .attrs = &attrs,
                           .inputs = 2,
                           .in = {{dtype, shape, NULL, row->low, row->high}},
                           .reference = reduce,
                           .arg = &setting};

    for (size_t i = 0; i < shape.rank; i++) {
        setting.reduced[i] = test_random_int(0, 1) != 0;
        if (setting.reduced[i])
            axes[count++] = test_random_int(0, 1) != 0 ? (double)i : (double)i - (double)shape.rank;
    }
    if (count == 0)
        for (size_t i = 0; i < shape.rank; i++)
            setting.reduced[i] = true;
    test.in[1] = (struct op_input){DTYPE_INT64, SHAPE(count), axes, .constant = true};
    set_tolerance(&test, dtype, (double)shape_count(&shape));
    op_test_run(on, &test);
}

static void every_reduction_has_its_values_over_any_axes(void **state)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int dtype = 1; dtype < DTYPE_COUNT; dtype++)
            if ((rows[i].dtypes >> dtype & 1) != 0)
                for (int k = 0; k < 15; k++)
                    try_row(*state, &rows[i], (enum dtype)dtype, k < 12 ? 9 : 21);
}

static void long_sums_lose_nothing(void **state)
{
    static const double rows_axis[] = {1}, columns_axis[] = {0};

    for (int k = 0; k < 2; k++) {
        struct setting setting = {.reduced = {k == 1, k == 0}};
        struct op_test test = {
            .op = "ReduceSum",
            .inputs = 2,
            .in = {{DTYPE_FLOAT, SHAPE(k == 0 ? 3 : 300001, k == 0 ? 300001 : 3), NULL, 0.5, 1.5},
                   {DTYPE_INT64, SHAPE(1), k == 0 ? rows_axis : columns_axis, .constant = true}},
            .reference = reduce,
            .arg = &setting,
            .relative = 4e-6};

        op_test_run(*state, &test);
    }
}

static void short_rows_are_right_alone_and_among_others(void **state)
{
    static const double last[] = {-1};
    static const char *const ops[] = {"ReduceSum",  "ReduceMax", "ReduceProd",
                                      "ReduceMean", "ReduceL2",  "ReduceLogSum"};

    for (size_t op = 0; op < sizeof(ops) / sizeof(ops[0]); op++)
        for (int64_t length = 2; length < 10; length++)
            for (int64_t results = 1; results < 600; results += 298) {
                struct reduce_attrs attrs = {.keepdims = 0};
                struct setting setting = {.op = ops[op], .reduced = {false, false, true}};
                struct op_test test = {
                    .op = ops[op],
                    .attrs = &attrs,
                    .inputs = 2,
                    .in = {{DTYPE_FLOAT, SHAPE(2, results, length), NULL, 0.5, 1.5},
                           {DTYPE_INT64, SHAPE(1), last, .constant = true}},
                    .reference = reduce,
                    .arg = &setting,
                    .relative = 1e-5,
                    .absolute = 1e-6,
                    .rows = true};

                op_test_run(*state, &test);
            }
}

static void spatial_means_work_in_blocked_layout(void **state)
{
    static const double axes[] = {2, 3};

    for (int64_t channels = 1; channels < 40; channels += 5)
        for (int64_t keep = 0; keep < 2; keep++) {
            struct reduce_attrs attrs = {.keepdims = keep};
            struct setting setting = {.reduced = {false, false, true, true}};
            struct op_test test = {.op = "ReduceMean",
                                   .attrs = &attrs,
                                   .inputs = 2,
                                   .in = {{DTYPE_FLOAT, SHAPE(3, channels, 7, 7)},
                                          {DTYPE_INT64, SHAPE(2), axes, .constant = true}},
                                   .reference = reduce,
                                   .arg = &setting,
                                   .relative = 1e-5,
                                   .absolute = 1e-5};

            op_test_run(*state, &test);
        }
}

static void nothing_reduced_still_maps_each_element(void **state)
{
    struct reduce_attrs attrs = {.keepdims = 1, .noop_with_empty_axes = 1};
    struct setting setting = {.op = "ReduceSumSquare"};
    struct op_test test = {.op = "ReduceSumSquare",
                           .attrs = &attrs,
                           .inputs = 1,
                           .in = {{DTYPE_FLOAT, SHAPE(3, 5)}},
                           .reference = reduce,
                           .arg = &setting};

    op_test_run(*state, &test);
}

static void axes_outside_the_rank_are_refused(void **state)
{
    static const double outside[] = {2}, twice[] = {1, -1};
    struct op_test test = {
        .op = "ReduceSum",
        .inputs = 2,
        .in = {{DTYPE_FLOAT, SHAPE(3, 5)}, {DTYPE_INT64, SHAPE(1), outside, .constant = true}},
        .reference = reduce};

    assert_non_null(strstr(op_test_refused(*state, &test), "outside rank 2"));
    test.in[1] = (struct op_input){DTYPE_INT64, SHAPE(2), twice, .constant = true};
    assert_non_null(strstr(op_test_refused(*state, &test), "twice"));
}

static void place_of_extreme(const struct op_test *test, const struct test_array *in,
                             struct test_array *out)
{
    const struct arg_attrs *attrs = test->attrs;
    const struct shape *shape = &in->shape;
    size_t axis = shape_axis(shape, attrs->axis);
    int64_t inner = shape_product(shape, axis + 1, shape->rank), count = shape->dims[axis];
    double sign = strcmp(test->op, "ArgMax") == 0 ? 1 : -1;

    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        const double *x = in->values + i / inner * count * inner + i % inner;
        int64_t best = 0;

        for (int64_t k = 1; k < count; k++)
            if (sign * x[k * inner] > sign * x[best * inner] ||
                (attrs->select_last_index != 0 && x[k * inner] == x[best * inner]))
                best = k;
        out->values[i] = (double)best;
    }
}

static void the_place_of_an_extreme_is_found(void **state)
{
    for (int dtype = 1; dtype < DTYPE_COUNT; dtype++)
        for (int k = 0; k < 12 && (DTYPE_NUMBERS >> dtype & 1) != 0; k++) {
            struct shape shape = test_random_shape((size_t)test_random_int(1, 4), 1, 11);
            struct arg_attrs attrs = {
                .axis = test_random_int(-(int64_t)shape.rank, (int64_t)shape.rank - 1),
                .keepdims = k % 2,
                .select_last_index = test_random_int(0, 1)};
            struct op_test test = {.op = k % 3 == 0 ? "ArgMin" : "ArgMax",
                                   .attrs = &attrs,
                                   .inputs = 1,
                                   .in = {{(enum dtype)dtype, shape, NULL, 0, 6}},
                                   .reference = place_of_extreme};

            op_test_run(*state, &test);
        }
}

static void running_sums(const struct op_test *test, const struct test_array *in,
                         struct test_array *out)
{
    const struct cumsum_attrs *attrs = test->attrs;
    const struct shape *shape = &in->shape;
    struct shape whole = *shape;
    size_t axis = (size_t)in[1].values[0];
    int64_t inner = shape_product(shape, axis + 1, shape->rank), count = shape->dims[axis];

    (void)whole;
    for (int64_t i = 0; i < shape_count(shape); i++) {
        int64_t place = i / inner % count, base = i - place * inner;

        out->values[i] = 0;
        for (int64_t k = 0; k < count; k++) {
            bool before = attrs->reverse != 0 ? k > place : k < place;

            if (before || (k == place && attrs->exclusive == 0))
                out->values[i] += in->values[base + k * inner];
        }
    }
}

static void running_sums_go_both_ways(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_FLOAT, DTYPE_DOUBLE, DTYPE_INT32,
                                        DTYPE_INT64, DTYPE_UINT32, DTYPE_FLOAT16};

    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
        for (int k = 0; k < 12; k++) {
            const double axis[] = {k % 3};
            struct cumsum_attrs attrs = {.exclusive = k & 1, .reverse = k >> 1 & 1};
            struct op_test test = {
                .op = "CumSum",
                .attrs = &attrs,
                .inputs = 2,
                .in = {{dtypes[d], SHAPE(3, 4, 5)},
                       {DTYPE_INT32, SHAPE_SCALAR, axis, .constant = k % 4 != 3}},
                .reference = running_sums};

            op_test_run(*state, &test);
        }
}

/* Several threads of a device share such a line, in parts that need not fill up. */
static void long_running_sums_begin_each_part_with_those_before(void **state)
{
    static const struct {
        struct shape shape;
        double axis;
    } cases[] = {{SHAPE(3, 301), 1},   {SHAPE(2, 77, 3), 1}, {SHAPE(130, 5), 0},
                 {SHAPE(1, 1030), 1},  {SHAPE(40, 17), 1},   {SHAPE(2, 9, 61), 2},
                 {SHAPE(2, 259, 2), 1}};

    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        struct cumsum_attrs attrs = {.exclusive = i & 1, .reverse = i >> 1 & 1};
        struct op_test test = {
            .op = "CumSum",
            .attrs = &attrs,
            .inputs = 2,
            .in = {{DTYPE_FLOAT, cases[i / 2].shape, NULL, 0, 1},
                   {DTYPE_INT32, SHAPE_SCALAR, &cases[i / 2].axis, .constant = true}},
            .reference = running_sums};

        op_test_run(*state, &test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reduction_has_its_values_over_any_axes),
        cmocka_unit_test(long_sums_lose_nothing),
        cmocka_unit_test(short_rows_are_right_alone_and_among_others),
        cmocka_unit_test(spatial_means_work_in_blocked_layout),
        cmocka_unit_test(nothing_reduced_still_maps_each_element),
        cmocka_unit_test(axes_outside_the_rank_are_refused),
        cmocka_unit_test(the_place_of_an_extreme_is_found),
        cmocka_unit_test(running_sums_go_both_ways),
        cmocka_unit_test(long_running_sums_begin_each_part_with_those_before),
    };

    return cmocka_run_group_tests(tests, open_tester, close_tester);
}
