/* What NaN makes of a result: the CPU device's answer, whichever operator, type and place. */
#include <math.h>
#include <string.h>

#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/epilogue.h"
#include "ops/gemm.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/pool.h"
#include "ops/quantize.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "support/cpu_cases.h"

static const enum dtype types[] = {DTYPE_FLOAT, DTYPE_DOUBLE, DTYPE_FLOAT16, DTYPE_BFLOAT16};
enum { TYPES = sizeof(types) / sizeof(types[0]), BYTES = 1 << 15 };

static struct op_tester *cpu;

/* A tensor of one of the types: NaN here and there, in whole lines, and nowhere. */
static struct tensor make(enum dtype dtype, struct shape shape, void *data, int64_t seed)
{
    const int64_t count = shape_count(&shape), line = shape.dims[shape.rank - 1];

    assert_true((size_t)count * dtype_bytes(dtype) <= BYTES);
    for (int64_t i = 0; i < count; i++) {
        const int64_t number = i / line % 6 + seed;
        const bool is_nan = number % 6 == 0   ? i % line == seed
                            : number % 6 == 1 ? i % 3 != 1
                            : number % 6 == 2 ? true
                            : number % 6 == 3 ? i % line + 1 == line
                            : number % 6 == 4 ? i % 7 == 2
                                              : false;

        test_put(dtype, data, i, is_nan ? (double)NAN : (double)((i * 37 + seed) % 23 - 11) / 4);
    }
    return (struct tensor){dtype, shape, data};
}

static void compare(const char *op, const struct tensor *found, const struct tensor *expected)
{
    const double allowed = dtype_bytes(expected->dtype) == 2 ? 2e-2 : 1e-5;

    assert_true(found->dtype == expected->dtype && shape_is_equal(&found->shape, &expected->shape));
    for (int64_t i = 0; i < shape_count(&expected->shape); i++) {
        const double a = test_get(found->dtype, found->data, i);
        const double b = test_get(expected->dtype, expected->data, i);
        const bool same =
            dtype_is_float(expected->dtype)
                ? (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= allowed * (1 + fabs(b))
                : a == b;

        if (!same)
            fail_msg("%s of %s: element %lld is %g, the CPU says %g", op,
                     dtype_name(expected->dtype), (long long)i, a, b);
    }
}

static void both_of(const char *op, const void *attrs, size_t inputs,
                    const struct tensor *const *in, bool constants, size_t outputs)
{
    struct tensor found[2], expected[2];
    struct error err = {.text = ""};

    if (op_tester_eval(cpu, NULL, op, attrs, inputs, in, constants, outputs, expected, &err) !=
            STATUS_OK ||
        op_tester_eval(tester, NULL, op, attrs, inputs, in, constants, outputs, found, &err) !=
            STATUS_OK)
        fail_msg("%s of %s: %s", op, dtype_name(in[0]->dtype), err.text);
    for (size_t i = 0; i < outputs; i++) {
        compare(op, &found[i], &expected[i]);
        op_tester_free(&found[i]);
        op_tester_free(&expected[i]);
    }
}

static void both(const char *op, const void *attrs, size_t inputs, const struct tensor *const *in,
                 size_t outputs)
{
    both_of(op, attrs, inputs, in, true, outputs);
}

static int open_both(void **state)
{
    if (open_tester(state) != 0)
        return -1;
    cpu = op_tester_create("cpu");
    return 0;
}

static int close_both(void **state)
{
    op_tester_destroy(cpu);
    return close_tester(state);
}

static char data[4][BYTES];

static void of_one_operand(void **state)
{
    static const char *const ops[] = {"Relu",
                                      "LeakyRelu",
                                      "Elu",
                                      "Celu",
                                      "Selu",
                                      "ThresholdedRelu",
                                      "Sigmoid",
                                      "Tanh",
                                      "HardSwish",
                                      "HardSigmoid",
                                      "Softplus",
                                      "Softsign",
                                      "Mish",
                                      "Gelu",
                                      "Shrink",
                                      "Sign",
                                      "Abs",
                                      "Neg",
                                      "Floor",
                                      "Ceil",
                                      "Round",
                                      "Sqrt",
                                      "Exp",
                                      "Log",
                                      "Erf",
                                      "Reciprocal",
                                      "IsNaN",
                                      "IsInf",
                                      "Softmax",
                                      "LogSoftmax",
                                      "Hardmax",
                                      "GlobalMaxPool",
                                      "GlobalAveragePool",
                                      "LpNormalization"};

    (void)state;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        for (size_t t = 0; t < TYPES; t++) {
            const struct tensor x = make(types[t], (struct shape)SHAPE(2, 6, 35), data[0], 3);
            const struct tensor *in[] = {&x};

            if (strcmp(ops[i], "GlobalMaxPool") == 0 && types[t] == DTYPE_BFLOAT16)
                continue; /* no type of pools */
            both(ops[i], NULL, 1, in, 1);
        }
}

/* Ends of the types, and where exponentials run over: an activation of such a value is the CPU's,
 * by itself and behind a product. */
static const double ends[] = {(double)INFINITY,
                              3e38,
                              1e30,
                              65504,
                              1000,
                              100,
                              90,
                              88,
                              20,
                              1e-30,
                              0,
                              -0.0,
                              -1e-30,
                              -20,
                              -86,
                              -88,
                              -90,
                              -104,
                              -120,
                              -1000,
                              -65504,
                              -1e30,
                              -3e38,
                              (double)-INFINITY,
                              (double)NAN};
enum { ENDS = sizeof(ends) / sizeof(ends[0]) };

static struct tensor make_ends(enum dtype dtype, struct shape shape, void *at)
{
    for (int64_t i = 0; i < shape_count(&shape); i++)
        test_put(dtype, at, i, ends[i % ENDS]);
    return (struct tensor){dtype, shape, at};
}

static void of_ends_of_the_types(void **state)
{
    static const char *const ops[] = {
        "Relu", "LeakyRelu", "Elu",      "Celu",     "Selu",        "Sigmoid",
        "Tanh", "HardSwish", "Softplus", "Softsign", "Mish",        "Swish",
        "Gelu", "Exp",       "Erf",      "Shrink",   "HardSigmoid", "ThresholdedRelu"};

    (void)state;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        for (size_t t = 0; t < TYPES; t++) {
            const struct tensor x = make_ends(types[t], (struct shape)SHAPE(3, ENDS), data[0]);
            const struct tensor *in[] = {&x};

            both(ops[i], NULL, 1, in, 1);
        }
}

/* A row of ends by a matrix of one element, and an image by one weight: what is left is the
 * activation, by a library's product and (double) by our own. */
static void of_ends_behind_products(void **state)
{
    static const enum dtype wide[] = {DTYPE_FLOAT, DTYPE_DOUBLE};

    (void)state;
    for (int act = ACT_RELU; act < ACT_COUNT; act++)
        for (size_t t = 0; t < 2; t++) {
            const struct epilogue epilogue = {.act = (enum activation)act,
                                              .a = act == ACT_CLIP   ? -2
                                                   : act == ACT_SILU ? 1
                                                                     : 0.2f,
                                              .b = act == ACT_CLIP ? 6 : 0.5f};
            const struct matmul_attrs matmul = {.epilogue = epilogue};
            const struct conv_attrs conv = {.group = 1, .epilogue = epilogue};
            const struct tensor row = make_ends(wide[t], (struct shape)SHAPE(ENDS, 1), data[0]);
            const struct tensor image =
                make_ends(wide[t], (struct shape)SHAPE(1, 1, 2, ENDS), data[1]);
            const struct tensor one = {wide[t], SHAPE(1, 1), data[2]};
            const struct tensor tap = {wide[t], SHAPE(1, 1, 1, 1), data[2]};
            const struct tensor *a[] = {&row, &one}, *b[] = {&image, &tap};

            test_put(wide[t], data[2], 0, 1);
            both_of("MatMul", &matmul, 2, a, false, 1);
            both_of("Conv", &conv, 2, b, false, 1);
        }
}

static void of_two_operands(void **state)
{
    static const char *const ops[] = {"Max", "Min",   "Add",  "Mul",           "PRelu",
                                      "Pow", "Equal", "Less", "GreaterOrEqual"};

    (void)state;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        for (size_t t = 0; t < TYPES; t++) {
            const struct tensor x = make(types[t], (struct shape)SHAPE(6, 35), data[0], 1);
            const struct tensor y = make(types[t], (struct shape)SHAPE(6, 35), data[1], 2);
            const struct tensor *in[] = {&x, &y};

            both(ops[i], NULL, 2, in, 1);
        }
}

static void of_bounds(void **state)
{
    static const double bounds[][2] = {{-1, 1}, {(double)NAN, 1}, {-1, (double)NAN}};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (size_t t = 0; t < TYPES; t++) {
            const struct tensor x = make(types[t], (struct shape)SHAPE(6, 35), data[0], 0);
            const struct tensor low = {types[t], SHAPE_SCALAR, data[1]};
            const struct tensor high = {types[t], SHAPE_SCALAR, data[2]};
            const struct tensor *in[] = {&x, &low, &high};

            test_put(types[t], data[1], 0, bounds[i][0]);
            test_put(types[t], data[2], 0, bounds[i][1]);
            both("Clip", NULL, 3, in, 1);
        }
}

/* Along lines that one thread, a warp and a block have, and along another axis. */
static void of_reductions(void **state)
{
    static const char *const ops[] = {"ReduceMax",  "ReduceMin", "ReduceSum",      "ReduceMean",
                                      "ReduceProd", "ReduceL2",  "ReduceLogSumExp"};
    static const struct shape shapes[] = {SHAPE(6, 3), SHAPE(6, 35), SHAPE(6, 500)};
    const struct reduce_attrs attrs = {.keepdims = 1};

    (void)state;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        for (size_t t = 0; t < 3; t++)
            for (size_t s = 0; s < 6; s++) {
                const struct tensor x = make(types[t], shapes[s / 2], data[0], 1);
                int64_t axis = (int64_t)(s % 2);
                const struct tensor axes = {DTYPE_INT64, SHAPE(1), &axis};
                const struct tensor *in[] = {&x, &axes};

                both(ops[i], &attrs, 2, in, 1);
            }
}

static void of_the_best(void **state)
{
    static const struct shape shapes[] = {SHAPE(6, 35), SHAPE(6, 500)};

    (void)state;
    for (int64_t way = 0; way < 4; way++)
        for (size_t t = 0; t < 3; t++)
            for (size_t s = 0; s < 4; s++) {
                const struct arg_attrs arg = {
                    .axis = (int64_t)(s % 2), .keepdims = 1, .select_last_index = way % 2};
                const struct topk_attrs best = {.axis = 1, .largest = way / 2, .sorted = 1};
                const struct tensor x = make(types[t], shapes[s / 2], data[0], 1);
                int64_t k = 30;
                const struct tensor count = {DTYPE_INT64, SHAPE(1), &k};
                const struct tensor *in[] = {&x, &count};

                both(way / 2 == 0 ? "ArgMax" : "ArgMin", &arg, 1, in, 1);
                both("TopK", &best, 2, in, 2);
            }
}

static void of_windows(void **state)
{
    static const char *const ops[] = {"MaxPool", "AveragePool", "LpPool"};
    int64_t kernel[] = {3, 2}, strides[] = {1, 2}, pads[] = {1, 1, 1, 1};
    const struct pool_attrs pool = {
        .window = {.kernel_shape = {2, kernel}, .strides = {2, strides}, .pads = {4, pads}},
        .p = 2};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (size_t t = 0; t < 3; t++) {
            const struct tensor x = make(types[t], (struct shape)SHAPE(2, 3, 7, 20), data[0], 1);
            const struct tensor *in[] = {&x};

            both(ops[i], &pool, 1, in, 1);
            if (i == 0)
                both(ops[i], &pool, 1, in, 2);
        }
}

/* Libraries have a ReLU of their own behind products; the simulated ones' loses NaN, or with
 * SLUICE_SIM_RELU_NAN=1 does not. */
static void of_activations_behind_products(void **state)
{
    static const enum dtype both_know[] = {DTYPE_FLOAT, DTYPE_FLOAT16, DTYPE_BFLOAT16};

    (void)state;
    for (size_t i = 0; i < 12; i++) {
        const enum dtype dtype = both_know[i / 4];
        const struct epilogue epilogue = {
            .act = ACT_RELU, .has_residual = i % 4 > 1, .residual_after = i % 4 == 3};
        const struct conv_attrs conv = {.group = 1, .epilogue = epilogue};
        const struct matmul_attrs matmul = {.epilogue = epilogue, .has_bias = i % 2 == 1};
        const struct gemm_attrs gemm = {.alpha = 1, .beta = 1, .epilogue = epilogue};
        const struct tensor image = make(dtype, (struct shape)SHAPE(2, 4, 6, 11), data[0], 1);
        const struct tensor taps = {dtype, SHAPE(8, 4, 3, 2), data[1]};
        const struct tensor row = {dtype, SHAPE(8), data[2]};
        const struct tensor like_image = make(dtype, (struct shape)SHAPE(2, 8, 4, 10), data[3], 2);
        const struct tensor *in[] = {&image, &taps, i % 2 == 1 ? &row : NULL, &like_image};

        for (int64_t k = 0; k < 8 * 4 * 6; k++)
            test_put(dtype, data[1], k, (double)(k % 5 - 2) / 4);
        for (int64_t k = 0; k < 8; k++)
            test_put(dtype, data[2], k, (double)(k - 4) / 4);
        both_of("Conv", &conv, epilogue.has_residual ? 4 : 3, in, false, 1);

        const struct tensor rows = make(dtype, (struct shape)SHAPE(13, 16), data[0], 2);
        const struct tensor columns = {dtype, SHAPE(16, 8), data[1]};
        const struct tensor like_rows = make(dtype, (struct shape)SHAPE(13, 8), data[3], 1);
        const struct tensor *operands[] = {&rows, &columns, in[2], &like_rows};

        both_of("MatMul", &matmul, epilogue.has_residual ? 4 : 3, operands, false, 1);
        both_of("Gemm", &gemm, epilogue.has_residual ? 4 : 3, operands, false, 1);
    }
}

static void of_updates(void **state)
{
    static const int reductions[] = {SCATTER_NONE, SCATTER_ADD, SCATTER_MAX, SCATTER_MIN};
    int64_t places[6 * 35];

    (void)state;
    for (int64_t i = 0; i < 6 * 35; i++)
        places[i] = i * 5 % 6;
    for (size_t i = 0; i < 4; i++)
        for (size_t t = 0; t < 3; t++) {
            const struct scatter_attrs attrs = {.axis = 0, .reduction = reductions[i]};
            const struct tensor x = make(types[t], (struct shape)SHAPE(6, 35), data[0], 1);
            const struct tensor index = {DTYPE_INT64, SHAPE(6, 35), places};
            const struct tensor updates = make(types[t], (struct shape)SHAPE(6, 35), data[1], 2);
            const struct tensor *in[] = {&x, &index, &updates};

            both("ScatterElements", &attrs, 3, in, 1);
        }
}

static void of_conversions(void **state)
{
    static const enum dtype to[] = {DTYPE_INT8,   DTYPE_UINT8, DTYPE_INT32, DTYPE_INT64,
                                    DTYPE_UINT64, DTYPE_BOOL,  DTYPE_FLOAT, DTYPE_FLOAT16};

    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
        const struct tensor x = make(types[t], (struct shape)SHAPE(6, 35), data[0], 1);
        const struct tensor *in[] = {&x};

        for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
            const struct cast_attrs attrs = {.to = to[i], .saturate = 1};

            both("Cast", &attrs, 1, in, 1);
        }
    }
    for (int i = 0; i < 2; i++) {
        const struct tensor x = make(DTYPE_FLOAT, (struct shape)SHAPE(6, 35), data[0], 1);
        float step = 0.1f;
        uint8_t zero = 3;
        const struct tensor scale = {DTYPE_FLOAT, SHAPE_SCALAR, &step};
        const struct tensor zeros = {i == 0 ? DTYPE_UINT8 : DTYPE_INT8, SHAPE_SCALAR, &zero};
        const struct tensor *in[] = {&x, &scale, &zeros};

        both("QuantizeLinear", NULL, 3, in, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_one_operand),
        cmocka_unit_test(of_two_operands),
        cmocka_unit_test(of_bounds),
        cmocka_unit_test(of_reductions),
        cmocka_unit_test(of_the_best),
        cmocka_unit_test(of_windows),
        cmocka_unit_test(of_updates),
        cmocka_unit_test(of_conversions),
        cmocka_unit_test(of_activations_behind_products),
        cmocka_unit_test(of_ends_of_the_types),
        cmocka_unit_test(of_ends_behind_products),
    };

    return cmocka_run_group_tests(tests, open_both, close_both);
}
