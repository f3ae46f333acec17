#include <math.h>
#include <string.h>

#include "ops/elementwise.h"
#include "support/cpu_cases.h"

enum { F = DTYPE_FLOATS, N = DTYPE_NUMBERS, B = DTYPE_BIT(BOOL), U = DTYPE_UNSIGNED };

/* The element of `array` that broadcasts to element `index` of `shape`. */
static double at(const struct test_array *array, const struct shape *shape, int64_t index)
{
    int64_t offset = 0, stride = 1;

    for (size_t i = 0; i < array->shape.rank; i++) {
        int64_t dim = array->shape.dims[array->shape.rank - 1 - i];
        int64_t whole = shape->dims[shape->rank - 1 - i];

        if (dim > 1)
            offset += index % whole * stride;
        stride *= dim;
        index /= whole;
    }
    return array->values[offset];
}

typedef double (*binary_fn)(double x, double y);

static void fold(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const binary_fn *fn = test->arg;

    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        double result = at(&in[0], &out->shape, i);

        for (size_t k = 1; k < test->inputs; k++)
            result = (*fn)(result, at(&in[k], &out->shape, i));
        out->values[i] = strcmp(test->op, "Mean") == 0 ? result / (double)test->inputs : result;
    }
}

static double f_add(double x, double y)
{
    return x + y;
}
static double f_sub(double x, double y)
{
    return x - y;
}
static double f_mul(double x, double y)
{
    return x * y;
}
static double f_div(double x, double y)
{
    return x / y;
}
static double f_int_div(double x, double y)
{
    return y == 0 ? 0 : trunc(x / y);
}
static double f_max(double x, double y)
{
    return x > y ? x : y;
}
static double f_min(double x, double y)
{
    return x < y ? x : y;
}
static double f_floor_mod(double x, double y)
{
    return y == 0 ? 0 : x - floor(x / y) * y;
}
static double f_fmod(double x, double y)
{
    return y == 0 ? 0 : fmod(x, y);
}
static double f_prelu(double x, double y)
{
    return x < 0 ? x * y : x;
}
static double f_and(double x, double y)
{
    return x != 0 && y != 0;
}
static double f_or(double x, double y)
{
    return x != 0 || y != 0;
}
static double f_xor(double x, double y)
{
    return (x != 0) != (y != 0);
}
static double f_equal(double x, double y)
{
    return x == y;
}
static double f_less(double x, double y)
{
    return x < y;
}
static double f_less_or_equal(double x, double y)
{
    return x <= y;
}
static double f_greater(double x, double y)
{
    return x > y;
}
static double f_greater_or_equal(double x, double y)
{
    return x >= y;
}
static double f_left(double x, double y)
{
    return x * pow(2, y);
}
static double f_right(double x, double y)
{
    return floor(x / pow(2, y));
}
static double f_bits_and(double x, double y)
{
    return (double)((int64_t)x & (int64_t)y);
}
static double f_bits_or(double x, double y)
{
    return (double)((int64_t)x | (int64_t)y);
}
static double f_bits_xor(double x, double y)
{
    return (double)((int64_t)x ^ (int64_t)y);
}
static double f_pow(double x, double y)
{
    return pow(x, y);
}

static const struct mod_attrs c_mod = {.fmod = 1};
static const struct bit_shift_attrs left = {SHIFT_LEFT}, right = {SHIFT_RIGHT};

static const struct row {
    const char *op;
    binary_fn fn;
    uint32_t dtypes;
    double low, high;
    const void *attrs;
    size_t most; /* operands; 0: two */
} rows[] = {
    {"Add", f_add, F | DTYPE_SIGNED},
    {"Add", f_add, U, 0, 100},
    {"Sub", f_sub, F | DTYPE_SIGNED},
    {"Mul", f_mul, F, 0, 0},
    {"Mul", f_mul, DTYPE_INTS, 0, 11},
    {"Div", f_div, F, 0.5, 4},
    {"Div", f_int_div, DTYPE_INTS, 0, 0},
    {"Max", f_max, N, 0, 0, NULL, 4},
    {"Min", f_min, N, 0, 0, NULL, 4},
    {"Sum", f_add, DTYPE_BIT(FLOAT) | DTYPE_BIT(DOUBLE), 0, 0, NULL, 4},
    {"Mean", f_add, DTYPE_BIT(FLOAT) | DTYPE_BIT(DOUBLE), 0, 0, NULL, 4},
    {"Mod", f_floor_mod, DTYPE_INTS},
    {"Mod", f_fmod, DTYPE_INTS | DTYPE_BIT(FLOAT) | DTYPE_BIT(DOUBLE), 0, 0, &c_mod},
    {"And", f_and, B},
    {"Or", f_or, B},
    {"Xor", f_xor, B},
    {"Equal", f_equal, N | B, 0, 4},
    {"Less", f_less, N},
    {"LessOrEqual", f_less_or_equal, N, 0, 4},
    {"Greater", f_greater, N},
    {"GreaterOrEqual", f_greater_or_equal, N, 0, 4},
    {"BitShift", f_left, U, 0, 5, &left},
    {"BitShift", f_right, U, 0, 8, &right},
    {"BitwiseAnd", f_bits_and, DTYPE_INTS},
    {"BitwiseOr", f_bits_or, DTYPE_INTS},
    {"BitwiseXor", f_bits_xor, DTYPE_INTS},
    {"Pow", f_pow, F, 0.5, 3},
    {"Pow", f_pow, DTYPE_BIT(INT32) | DTYPE_BIT(INT64), 0, 6},
};

/* A shape that broadcasts to `whole`: some dimensions are 1, leading ones may be missing. */
static struct shape smaller(const struct shape *whole, bool may_drop)
{
    size_t dropped =
        may_drop && whole->rank > 0 ? (size_t)test_random_int(0, (int64_t)whole->rank) : 0;
    struct shape shape = {.rank = whole->rank - dropped};

    for (size_t i = 0; i < shape.rank; i++)
        shape.dims[i] = test_random_int(0, 1) != 0 ? whole->dims[i + dropped] : 1;
    return shape;
}

static void try_row(struct op_tester *on, const struct row *row, enum dtype dtype)
{
    struct shape whole = test_random_shape((size_t)test_random_int(0, 5), 1, 18);
    struct op_test test = {.op = row->op,
                           .attrs = row->attrs,
                           .inputs =
                               (size_t)test_random_int(2, row->most > 0 ? (int64_t)row->most : 2),
                           .reference = fold,
                           .arg = &row->fn};

    for (size_t i = 0; i < test.inputs; i++) {
        bool constant = test_random_int(0, 2) == 0;

        test.in[i] = (struct op_input){
            dtype, i == 0 ? whole : smaller(&whole, true), NULL, row->low, row->high, constant};
    }
    op_test_run(on, &test);
}

static void every_function_has_its_values_in_every_type_and_shape(void **state)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int dtype = 1; dtype < DTYPE_COUNT; dtype++)
            if ((rows[i].dtypes >> dtype & 1) != 0)
                for (int k = 0; k < 12; k++)
                    try_row(*state, &rows[i], (enum dtype)dtype);
}

static void the_first_operand_may_be_the_smaller_one(void **state)
{
    static const binary_fn fn = f_sub;

    for (int k = 0; k < 100; k++) {
        struct shape whole = test_random_shape((size_t)test_random_int(1, 5), 1, 18);
        struct op_test test = {.op = "Sub",
                               .inputs = 2,
                               .in = {{DTYPE_FLOAT, smaller(&whole, true)}, {DTYPE_FLOAT, whole}},
                               .reference = fold,
                               .arg = &fn};

        test.in[0].constant = k % 2 == 0;
        op_test_run(*state, &test);
    }
}

/* Squeeze-and-excitation, bias, and spatial attention, with channels that fill blocks and do not.
 */
static void usual_broadcasts_work_in_blocked_layout(void **state)
{
    static const binary_fn fn = f_div;

    for (int64_t channels = 1; channels < 40; channels += 3) {
        const struct shape others[] = {SHAPE(1, channels, 1, 1),
                                       SHAPE(2, channels, 1, 1),
                                       SHAPE(channels, 1, 1),
                                       SHAPE(2, 1, 5, 7),
                                       SHAPE(1, 1, 1, 1),
                                       SHAPE(7),
                                       SHAPE_SCALAR};

        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
            for (int constant = 0; constant < 2; constant++) {
                struct op_test test = {
                    .op = "Div",
                    .inputs = 2,
                    .in = {{DTYPE_FLOAT, SHAPE(2, channels, 5, 7)},
                           {DTYPE_FLOAT, others[i], NULL, 0.5, 2, constant != 0}},
                    .reference = fold,
                    .arg = &fn};

                op_test_run(*state, &test);
            }
    }
}

static void prelu_takes_a_slope_per_channel(void **state)
{
    static const binary_fn fn = f_prelu;
    struct op_test test = {
        .op = "PRelu",
        .inputs = 2,
        .in = {{DTYPE_FLOAT, SHAPE(2, 19, 4, 5)}, {DTYPE_FLOAT, SHAPE(19, 1, 1), .constant = true}},
        .reference = fold,
        .arg = &fn};

    op_test_run(*state, &test);
    test.in[0].shape = (struct shape)SHAPE(19, 1, 1);
    test.in[1].shape = (struct shape)SHAPE(2, 19, 4, 5);
    op_test_refused(*state, &test);
}

static void powers_of_other_types_are_converted(void **state)
{
    static const binary_fn fn = f_pow;
    struct op_test test = {.op = "Pow",
                           .inputs = 2,
                           .in = {{DTYPE_FLOAT, SHAPE(3, 7)}, {DTYPE_INT64, SHAPE(7), NULL, -3, 4}},
                           .reference = fold,
                           .arg = &fn};

    op_test_run(*state, &test);
    test.in[0] = (struct op_input){DTYPE_INT32, SHAPE(5), NULL, 1, 9};
    test.in[1] = (struct op_input){DTYPE_FLOAT, SHAPE(5, 5), NULL, 0, 4};
    op_test_run(*state, &test);
}

static void choose(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    (void)test;
    for (int64_t i = 0; i < shape_count(&out->shape); i++)
        out->values[i] = at(&in[0], &out->shape, i) != 0 ? at(&in[1], &out->shape, i)
                                                         : at(&in[2], &out->shape, i);
}

static void where_chooses_elements_of_any_type(void **state)
{
    for (int dtype = 1; dtype < DTYPE_COUNT; dtype++)
        for (int k = 0; k < 20 && (DTYPE_NUMBERS >> dtype & 1) != 0; k++) {
            struct shape whole = test_random_shape((size_t)test_random_int(0, 5), 1, 12);
            struct op_test test = {.op = "Where",
                                   .inputs = 3,
                                   .in = {{DTYPE_BOOL, smaller(&whole, true)},
                                          {(enum dtype)dtype, smaller(&whole, true)},
                                          {(enum dtype)dtype, smaller(&whole, true)}},
                                   .reference = choose};

            test.in[test_random_int(0, 2)].shape = whole;
            test.in[test_random_int(0, 2)].constant = true;
            op_test_run(*state, &test);
        }
}

static void nan_survives_minimum_and_maximum(void **state)
{
    static const double x[] = {NAN, 1, 2, NAN}, y[] = {1, NAN, 3, NAN};
    const char *const ops[] = {"Max", "Min"};

    for (int i = 0; i < 2; i++) {
        float a[4], b[4];
        struct tensor ta = {DTYPE_FLOAT, SHAPE(4), a}, tb = {DTYPE_FLOAT, SHAPE(4), b}, out;
        const struct tensor *in[] = {&ta, &tb};

        for (int k = 0; k < 4; k++) {
            a[k] = (float)x[k];
            b[k] = (float)y[k];
        }
        assert_int_equal(op_tester_eval(*state, NULL, ops[i], NULL, 2, in, false, 1, &out, NULL),
                         STATUS_OK);
        assert_true(isnan(((const float *)out.data)[0]));
        assert_true(isnan(((const float *)out.data)[1]));
        assert_false(isnan(((const float *)out.data)[2]));
        op_tester_free(&out);
    }
}

static void strings_are_compared_by_their_bytes(void **state)
{
    const struct bytes a[] = {{"one", 3}, {"two", 3}, {NULL, 0}},
                       b[] = {{"one", 3}, {"tw", 2}, {"", 0}};
    struct tensor ta = {DTYPE_STRING, SHAPE(3), a}, tb = {DTYPE_STRING, SHAPE(3), b}, out;
    const struct tensor *in[] = {&ta, &tb};

    assert_int_equal(op_tester_eval(*state, NULL, "Equal", NULL, 2, in, false, 1, &out, NULL),
                     STATUS_OK);
    assert_memory_equal(out.data, "\1\0\1", 3);
    op_tester_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_has_its_values_in_every_type_and_shape),
        cmocka_unit_test(the_first_operand_may_be_the_smaller_one),
        cmocka_unit_test(usual_broadcasts_work_in_blocked_layout),
        cmocka_unit_test(prelu_takes_a_slope_per_channel),
        cmocka_unit_test(powers_of_other_types_are_converted),
        cmocka_unit_test(where_chooses_elements_of_any_type),
        cmocka_unit_test(nan_survives_minimum_and_maximum),
        cmocka_unit_test(strings_are_compared_by_their_bytes),
    };

    return cmocka_run_group_tests(tests, open_tester, close_tester);
}
