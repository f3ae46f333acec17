/* Chains of element-wise operators in one kernel. */
#include "ops/chain.h"

#include <math.h>

#include "ops/elementwise.h"
#include "support/cpu_cases.h"

/* One element of each input to one of the output. */
typedef double (*chain_fn)(const double *x);

static void chain_reference(const struct op_test *test, const struct test_array *in,
                            struct test_array *out)
{
    const struct shape *shape = &out->shape;
    chain_fn fn = *(const chain_fn *)test->arg;

    for (int64_t i = 0; i < shape_count(shape); i++) {
        double x[CHAIN_INPUTS];

        for (size_t k = 0; k < test->inputs; k++) {
            int64_t rest = i, at = 0, stride = 1;

            for (size_t d = 0; d < in[k].shape.rank; d++) {
                int64_t dim = in[k].shape.dims[in[k].shape.rank - 1 - d];
                int64_t whole = shape->dims[shape->rank - 1 - d];

                at += dim > 1 ? rest % whole * stride : 0;
                stride *= dim;
                rest /= whole;
            }
            x[k] = in[k].values[at];
        }
        out->values[i] = fn(x);
    }
}

static void check(const struct chain_attrs *attrs, size_t inputs, chain_fn fn,
                  const struct shape *shapes, enum dtype dtype)
{
    struct op_test test = {.op = "Chain",
                           .domain = "sluice",
                           .attrs = attrs,
                           .inputs = inputs,
                           .reference = chain_reference,
                           .arg = &fn};

    for (size_t k = 0; k < inputs; k++)
        test.in[k] = (struct op_input){.dtype = dtype, .shape = shapes[k], .low = 0.25, .high = 2};
    if (dtype != DTYPE_FLOAT && dtype != DTYPE_DOUBLE)
        test.relative = test.absolute = dtype == DTYPE_FLOAT16 ? 4e-3 : 3e-2;
    op_test_run(tester, &test);
}

static struct chain_link alone(const struct op_def *op)
{
    return (struct chain_link){.op = op, .operand = CHAIN_ALONE};
}

static struct chain_link with(const struct op_def *op, uint8_t operand, bool turned)
{
    return (struct chain_link){.op = op, .operand = operand, .turned = turned};
}

static double scaled_tanh(const double *x)
{
    return tanh((x[0] + x[1]) * x[2]);
}

static void links_follow_each_other(void **state)
{
    static const enum dtype types[] = {DTYPE_FLOAT, DTYPE_DOUBLE, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    const struct chain_attrs attrs = {
        .count = 3, .links = {with(&op_add, 1, false), with(&op_mul, 2, false), alone(&op_tanh)}};
    const struct shape shapes[] = {SHAPE(2, 3, 5, 8), SHAPE(8), SHAPE(3, 1, 1)};

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        check(&attrs, 3, scaled_tanh, shapes, types[i]);
}

static double swish(const double *x)
{
    return x[0] / (1 + exp(-x[0]));
}

static void what_is_read_twice_is_one_input(void **state)
{
    const struct chain_attrs attrs = {.count = 2,
                                      .links = {alone(&op_sigmoid), with(&op_mul, 0, true)}};
    const struct shape shapes[] = {SHAPE(3, 7, 5)};

    (void)state;
    check(&attrs, 1, swish, shapes, DTYPE_FLOAT);
}

static double turned_both_ways(const double *x)
{
    return x[1] / (x[2] - sqrt(x[0] * x[3]) - 3 * x[2]) - x[1];
}

static void the_result_may_be_the_second_operand(void **state)
{
    const struct chain_attrs attrs = {.count = 8,
                                      .links = {with(&op_mul, 3, false), alone(&op_sqrt),
                                                with(&op_sub, 2, true), with(&op_sub, 2, false),
                                                with(&op_sub, 2, false), with(&op_sub, 2, false),
                                                with(&op_div, 1, true), with(&op_sub, 1, false)}};
    const struct shape shapes[] = {SHAPE(4, 9), SHAPE(4, 9), SHAPE(1, 9), SHAPE(4, 1)};

    (void)state;
    check(&attrs, 4, turned_both_ways, shapes, DTYPE_DOUBLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_follow_each_other),
        cmocka_unit_test(what_is_read_twice_is_one_input),
        cmocka_unit_test(the_result_may_be_the_second_operand),
    };

    return run_cases(tests);
}
