/* What NaN makes of a result: the CPU device's answer, whichever operator, type and place. */
#include <math.h>
#include <string.h>

#include "ops/elementwise.h"
#include "ops/indexing.h"
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

static void both(const char *op, const void *attrs, size_t inputs, const struct tensor *const *in,
                 size_t outputs)
{
    struct tensor found[2], expected[2];
    struct error err = {.text = ""};

    if (op_tester_eval(cpu, NULL, op, attrs, inputs, in, true, outputs, expected, &err) !=
            STATUS_OK ||
        op_tester_eval(tester, NULL, op, attrs, inputs, in, true, outputs, found, &err) !=
            STATUS_OK)
        fail_msg("%s of %s: %s", op, dtype_name(in[0]->dtype), err.text);
    for (size_t i = 0; i < outputs; i++) {
        compare(op, &found[i], &expected[i]);
        op_tester_free(&found[i]);
        op_tester_free(&expected[i]);
    }
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
        cmocka_unit_test(of_one_operand), cmocka_unit_test(of_two_operands),
        cmocka_unit_test(of_bounds),      cmocka_unit_test(of_reductions),
        cmocka_unit_test(of_the_best),    cmocka_unit_test(of_windows),
        cmocka_unit_test(of_updates),     cmocka_unit_test(of_conversions),
    };

    return cmocka_run_group_tests(tests, open_both, close_both);
}
