#include <math.h>
#include <string.h>

#include "ops/elementwise.h"
#include "support/cpu_cases.h"

#define F  DTYPE_FLOATS
#define SG (DTYPE_FLOATS | DTYPE_SIGNED)
#define N  DTYPE_NUMBERS

static double f_abs(double x)
{
    return fabs(x);
}
static double f_neg(double x)
{
    return -x;
}
static double f_sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}
static double f_reciprocal(double x)
{
    return 1 / x;
}
static double f_relu(double x)
{
    return x < 0 ? 0 : x;
}
static double f_leaky(double x)
{
    return x < 0 ? (double)0.01f * x : x;
}
static double f_elu(double x)
{
    return x < 0 ? expm1(x) : x;
}
static double f_elu_half(double x)
{
    return x < 0 ? 0.5 * expm1(x) : x;
}
static double f_celu_half(double x)
{
    return fmax(0, x) + fmin(0, 0.5 * expm1(x / 0.5));
}
static double f_selu(double x)
{
    return (double)1.05070102214813232421875f *
           (x < 0 ? (double)1.67326319217681884765625f * expm1(x) : x);
}
static double f_thresholded(double x)
{
    return x > 1 ? x : 0;
}
static double f_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double f_hard_sigmoid(double x)
{
    return isnan(x) ? x : fmax(0, fmin(1, (double)0.2f * x + 0.5));
}
static double f_hard_swish(double x)
{
    return x * fmax(0, fmin(1, x / 6 + 0.5));
}
static double f_softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}
static double f_softsign(double x)
{
    return x / (1 + fabs(x));
}
static double f_mish(double x)
{
    return x * tanh(f_softplus(x));
}
static double f_gelu(double x)
{
    return x / 2 * erfc(-x / M_SQRT2);
}
static double f_gelu_tanh(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double f_silu(double x)
{
    return x / (1 + exp(-x));
}
static double f_swish_third(double x)
{
    return x / (1 + exp(-(double)0.3f * x));
}
static double f_quick_gelu(double x)
{
    return x / (1 + exp(-(double)1.702f * x));
}
static double f_shrink(double x)
{
    return x < -0.5 ? x + 0.25 : x > 0.5 ? x - 0.25 : 0;
}
static double f_not(double x)
{
    return x == 0;
}
static double f_bitwise_not(double x)
{
    return -x - 1;
}

static const struct alpha_attrs half = {.alpha = 0.5f}, third = {.alpha = 0.3f};
static const struct shrink_attrs quarter = {.bias = 0.25f, .lambd = 0.5f};
static const struct gelu_attrs by_tanh = {.approximate = GELU_TANH};

static const struct row {
    const char *op;
    double (*scalar)(double);
    uint32_t dtypes;
    double low, high; /* 0, 0: the tester's */
    double relative;  /* of float; 0: the tester's */
    const void *attrs;
    const char *domain;
} rows[] = {
    {"Abs", f_abs, N},
    {"Acos", acos, F, -1, 1},
    {"Acosh", acosh, F, 1, 20},
    {"Asin", asin, F, -1, 1},
    {"Asinh", asinh, F},
    {"Atan", atan, F},
    {"Atanh", atanh, F, -0.99, 0.99, 4e-6},
    {"BitwiseNot", f_bitwise_not, DTYPE_SIGNED},
    {"Ceil", ceil, F},
    {"Celu", f_celu_half, F, -6, 6, 0, &half},
    {"Cos", cos, F},
    {"Cosh", cosh, F},
    {"Elu", f_elu, F},
    {"Elu", f_elu_half, F, -90, 10, 0, &half},
    {"Erf", erf, F, -5, 5},
    {"Erf", erf, F, -0.1, 0.1},
    {"Exp", exp, F, -5, 5},
    {"Exp", exp, DTYPE_BIT(FLOAT), -110, 95, 1e-6},
    {"Floor", floor, F},
    {"Gelu", f_gelu, F, -6, 6},
    {"Gelu", f_gelu_tanh, F, -6, 6, 0, &by_tanh},
    {"HardSigmoid", f_hard_sigmoid, F, -6, 6},
    {"HardSwish", f_hard_swish, F, -6, 6},
    {"LeakyRelu", f_leaky, F},
    {"Log", log, F, 0.001, 20},
    {"Log", log, DTYPE_BIT(FLOAT), 0, 1e-38},
    {"Log", log, DTYPE_BIT(FLOAT), 0, 1e38},
    {"Log", log, DTYPE_BIT(FLOAT), -1, 1},
    {"Mish", f_mish, F, -20, 30},
    {"Neg", f_neg, SG},
    {"Not", f_not, DTYPE_BIT(BOOL)},
    {"Reciprocal", f_reciprocal, F},
    {"Relu", f_relu, SG},
    {"Round", rint, F, -100, 100},
    {"Selu", f_selu, F},
    {"Shrink", f_shrink, F, 0, 0, 0, &quarter},
    {"Sigmoid", f_sigmoid, F, -30, 30},
    {"Sign", f_sign, N},
    {"Sin", sin, F, -100, 100},
    {"Sinh", sinh, F},
    {"Softplus", f_softplus, F, -30, 30},
    {"Softplus", f_softplus, F, -200, 200},
    {"Softsign", f_softsign, F},
    {"Sqrt", sqrt, F, 0, 100},
    {"Swish", f_silu, F, -30, 30},
    {"Swish", f_swish_third, F, -30, 30, 0, &third},
    {"QuickGelu", f_quick_gelu, F, -30, 30, 0, NULL, "com.microsoft"},
    {"Tan", tan, F, -1.5, 1.5},
    {"Tanh", tanh, F, -10, 10},
    {"Tanh", tanh, F, -0.1, 0.1},
    {"ThresholdedRelu", f_thresholded, F},
};

static void try_row(struct op_tester *on, const struct row *row, enum dtype dtype, size_t rank)
{
    struct op_test test = {.op = row->op,
                           .domain = row->domain,
                           .attrs = row->attrs,
                           .inputs = 1,
                           .scalar = row->scalar};

    test.in[0].dtype = dtype;
    test.in[0].shape = test_random_shape(rank, 1, rank < 2 ? 700 : 19);
    test.in[0].low = row->low;
    test.in[0].high = row->high;
    if (dtype == DTYPE_FLOAT && row->relative > 0) {
        test.relative = row->relative;
        test.absolute = 0x1p-148; /* denormals are rounded too */
    }
    op_test_run(on, &test);
}

static void every_function_has_its_values_in_every_type_and_layout(void **state)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int dtype = 1; dtype < DTYPE_COUNT; dtype++)
            if ((rows[i].dtypes >> dtype & 1) != 0)
                for (size_t rank = 0; rank <= 5; rank++)
                    try_row(*state, &rows[i], (enum dtype)dtype, rank);
}

static void large_tensors_are_cut_among_threads(void **state)
{
    struct op_test test = {.op = "Sigmoid",
                           .inputs = 1,
                           .in = {{DTYPE_FLOAT, SHAPE(3, 21, 64, 65)}},
                           .scalar = f_sigmoid};
#ifdef OP_TEST_IS_SLOW
    test.in[0].shape.dims[2] = 8;
#endif

    op_test_run(*state, &test);
}

/* x * 0 is NaN where x is infinite: so are SiLU, HardSwish, Mish and GELU of -inf, as in ONNX's
 * own reference.  Of large negative numbers they are 0. */
static void special_values_stay_what_they_are(void **state)
{
    static const double specials[] = {INFINITY, -INFINITY, NAN,  0.0,   -0.0, 1e-40, -1e-40,
                                      3e38,     -3e38,     -1e6, -87.5, -200, 200,   -1e30};
    static const struct {
        const char *op;
        double (*scalar)(double);
        const void *attrs;
        const char *domain;
    } some[] = {{"Exp", exp},
                {"Log", log},
                {"Relu", f_relu},
                {"Sigmoid", f_sigmoid},
                {"Tanh", tanh},
                {"Erf", erf},
                {"Abs", f_abs},
                {"Sqrt", sqrt},
                {"Softplus", f_softplus},
                {"Floor", floor},
                {"Ceil", ceil},
                {"Round", rint},
                {"Sign", f_sign},
                {"Elu", f_elu},
                {"Swish", f_silu},
                {"Mish", f_mish},
                {"Gelu", f_gelu},
                {"Gelu", f_gelu_tanh, &by_tanh},
                {"HardSwish", f_hard_swish},
                {"HardSigmoid", f_hard_sigmoid},
                {"Swish", f_swish_third, &third},
                {"LeakyRelu", f_leaky},
                {"Selu", f_selu},
                {"QuickGelu", f_quick_gelu, NULL, "com.microsoft"}};

    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
        struct op_test test = {.op = some[i].op,
                               .domain = some[i].domain,
                               .attrs = some[i].attrs,
                               .inputs = 1,
                               .in = {{DTYPE_FLOAT, SHAPE(14), .values = specials}},
                               .scalar = some[i].scalar,
                               .relative = 1e-5,
                               .absolute = 2e-36};

        op_test_run(*state, &test);
    }
}

static void types_outside_the_operator_are_refused(void **state)
{
    struct op_test test = {
        .op = "Sigmoid", .inputs = 1, .in = {{DTYPE_INT32, SHAPE(3)}}, .scalar = f_sigmoid};
    struct op_test celu = {.op = "Celu",
                           .attrs = &(struct alpha_attrs){.alpha = -1},
                           .inputs = 1,
                           .in = {{DTYPE_FLOAT, SHAPE(3)}},
                           .scalar = f_elu};

    assert_non_null(strstr(op_test_refused(*state, &test), "int32"));
    assert_non_null(strstr(op_test_refused(*state, &celu), "alpha"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_has_its_values_in_every_type_and_layout),
        cmocka_unit_test(large_tensors_are_cut_among_threads),
        cmocka_unit_test(special_values_stay_what_they_are),
        cmocka_unit_test(types_outside_the_operator_are_refused),
    };

    return cmocka_run_group_tests(tests, open_tester, close_tester);
}
