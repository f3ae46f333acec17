/* MatMul and Gemm of every kernel and instruction set against plain loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "device/cpu/epilogue.h"
#include "ops/gemm.h"
#include "ops/matmul.h"
#include "support/cpu_cases.h"

static double finish(const struct epilogue *epilogue, double x, const struct test_array *residual,
                     int64_t at)
{
    double r = epilogue->has_residual ? residual->values[at] : 0;

    return epilogue->residual_after ? epilogue_activate(epilogue, x) + r
                                    : epilogue_activate(epilogue, x + r);
}

static double dot(const double *a, bool trans_a, const double *b, bool trans_b,
                  const struct matmul_geometry *g, int64_t row, int64_t column)
{
    double sum = 0;

    for (int64_t i = 0; i < g->k; i++)
        sum += a[trans_a ? i * g->m + row : row * g->k + i] *
               b[trans_b ? column * g->k + i : i * g->n + column];
    return sum;
}

static void reference_matmul(const struct op_test *test, const struct test_array *in,
                             struct test_array *out)
{
    const struct matmul_attrs *attrs = test->attrs;
    struct matmul_geometry g;

    assert_int_equal(
        matmul_resolve(&in[0].shape, &in[1].shape, attrs->trans_a, attrs->trans_b, &g, NULL),
        STATUS_OK);
    for (int64_t i = 0; i < g.batches * g.m * g.n; i++) {
        int64_t column = i % g.n, row = i / g.n % g.m, index = i / g.n / g.m;
        const double *a = in[0].values + matmul_operand_index(&g, &in[0].shape, index) * g.m * g.k;
        const double *b = in[1].values + matmul_operand_index(&g, &in[1].shape, index) * g.k * g.n;
        double sum = dot(a, attrs->trans_a, b, attrs->trans_b, &g, row, column);

        sum *= attrs->has_scale ? (double)attrs->scale : 1;
        sum += attrs->has_bias ? in[MATMUL_BIAS].values[column] : 0;
        out[0].values[i] = finish(&attrs->epilogue, sum, &in[MATMUL_RESIDUAL], i);
    }
}

static void reference_gemm(const struct op_test *test, const struct test_array *in,
                           struct test_array *out)
{
    const struct gemm_attrs *attrs = test->attrs;
    struct matmul_geometry g;

    assert_int_equal(
        matmul_resolve(&in[0].shape, &in[1].shape, attrs->transA, attrs->transB, &g, NULL),
        STATUS_OK);
    for (int64_t i = 0; i < g.m * g.n; i++) {
        int64_t column = i % g.n, row = i / g.n;
        double sum = (double)attrs->alpha *
                     dot(in[0].values, attrs->transA, in[1].values, attrs->transB, &g, row, column);

        if (test->inputs > GEMM_C && in[GEMM_C].dtype != DTYPE_NONE) {
            const struct shape *c = &in[GEMM_C].shape;
            int64_t columns = c->rank > 0 ? c->dims[c->rank - 1] : 1;
            int64_t rows = c->rank > 1 ? c->dims[0] : 1;

            sum += (double)attrs->beta *
                   in[GEMM_C].values[(rows > 1 ? row * columns : 0) + (columns > 1 ? column : 0)];
        }
        out[0].values[i] = finish(&attrs->epilogue, sum, &in[GEMM_RESIDUAL], i);
    }
}

static void set_test(struct op_test *test, const char *op, const void *attrs,
                     op_reference_fn reference)
{
    memset(test, 0, sizeof(*test));
    test->op = op;
    test->attrs = attrs;
    test->inputs = 2;
    test->reference = reference;
    test->relative = 2e-6;
    test->absolute = 8e-5;
    test->in[0] = (struct op_input){.dtype = DTYPE_FLOAT, .low = -1, .high = 1};
    test->in[1] = (struct op_input){.dtype = DTYPE_FLOAT, .low = -1, .high = 1};
}

static void weights_of_every_size_are_right(void **state)
{
    static const int64_t sizes[][3] = {
        {1, 5, 3},     {1, 100, 50},    {3, 800, 330}, {2, 33, 25},   {5, 784, 10},
        {7, 800, 100}, {130, 1000, 77}, {300, 64, 24}, {900, 30, 20}, {17, 1600, 49},
        {3, 8, 97},    {1, 1, 1},       {4, 17, 16}};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int trans = 0; trans < 2; trans++) {
            struct matmul_attrs attrs = {.trans_b = trans == 1, .has_scale = i % 2, .scale = 0.5f};
            const int64_t m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
            struct op_test test;

            set_test(&test, "MatMul", &attrs, reference_matmul);
            test.in[0].shape = (struct shape)SHAPE(m, k);
            test.in[1].shape = trans ? (struct shape)SHAPE(n, k) : (struct shape)SHAPE(k, n);
            test.in[1].constant = true;
            test.rows = true;
            op_test_run(tester, &test);
            test.in[1].constant = false;
            op_test_run(tester, &test);
        }
}

static void bias_activation_and_residual_are_right(void **state)
{
    (void)state;
    for (int code = 0; code < ACT_COUNT * 6; code++) {
        struct matmul_attrs attrs = {.has_bias = code % 2};
        const int64_t rows = code / 6 % 2 == 0 ? 5 : 1; /* alone: several panels at a time */
        struct op_test test;

        attrs.epilogue.act = (enum activation)(code / 6);
        attrs.epilogue.a = attrs.epilogue.act == ACT_CLIP ? -0.5f : 0.25f;
        attrs.epilogue.b = attrs.epilogue.act == ACT_CLIP ? 2 : 0.5f;
        attrs.epilogue.has_residual = code / 2 % 3 > 0;
        attrs.epilogue.residual_after = code / 2 % 3 == 2;
        set_test(&test, "MatMul", &attrs, reference_matmul);
        test.inputs = attrs.epilogue.has_residual ? 4 : attrs.has_bias ? 3 : 2;
        test.in[0].shape = (struct shape)SHAPE(3, rows, 20);
        test.in[1].shape = (struct shape)SHAPE(20, 200);
        test.in[1].constant = true;
        test.in[2].shape = (struct shape)SHAPE(200);
        test.in[2].dtype = attrs.has_bias ? DTYPE_FLOAT : DTYPE_NONE;
        test.in[2].constant = code % 4 < 2;
        test.in[3] = (struct op_input){.dtype = DTYPE_FLOAT, .shape = SHAPE(3, rows, 200)};
        test.rows = true;
        op_test_run(tester, &test);
    }
}

static void batches_broadcast(void **state)
{
    static const struct shape pairs[][2] = {
        {SHAPE(2, 3, 5, 7), SHAPE(2, 3, 7, 4)},
        {SHAPE(2, 1, 5, 70), SHAPE(3, 70, 90)},
        {SHAPE(7), SHAPE(7)},
        {SHAPE(7), SHAPE(3, 7, 5)},
        {SHAPE(3, 4, 7), SHAPE(7)},
        {SHAPE(1, 4, 9), SHAPE(6, 9, 33)},
        {SHAPE(12, 33, 32), SHAPE(12, 32, 50)},
        {SHAPE(2, 0, 4), SHAPE(4, 3)},
        {SHAPE(2, 3, 0), SHAPE(2, 0, 4)},
        {SHAPE(200, 40), SHAPE(40, 300)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct matmul_attrs attrs = {0};
        struct op_test test;

        set_test(&test, "MatMul", &attrs, reference_matmul);
        test.in[0].shape = pairs[i][0];
        test.in[1].shape = pairs[i][1];
        op_test_run(tester, &test);
        test.in[1].constant = true;
        op_test_run(tester, &test);
    }
}

static void transposed_operands_are_right(void **state)
{
    (void)state;
    for (int code = 0; code < 4; code++) {
        struct matmul_attrs attrs = {
            .trans_a = code % 2, .trans_b = code / 2, .has_scale = true, .scale = 0.125f};
        struct op_test test;

        set_test(&test, "MatMul", &attrs, reference_matmul);
        test.in[0].shape =
            attrs.trans_a ? (struct shape)SHAPE(2, 3, 33, 21) : (struct shape)SHAPE(2, 3, 21, 33);
        test.in[1].shape =
            attrs.trans_b ? (struct shape)SHAPE(2, 3, 67, 33) : (struct shape)SHAPE(2, 3, 33, 67);
        test.rows = true;
        op_test_run(tester, &test);
    }
}

static void integers_wrap_and_other_floats_are_right(void **state)
{
    static const enum dtype types[] = {DTYPE_INT32,  DTYPE_INT64,   DTYPE_UINT32,  DTYPE_UINT64,
                                       DTYPE_DOUBLE, DTYPE_FLOAT16, DTYPE_BFLOAT16};

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct matmul_attrs attrs = {0};
        struct op_test test;

        set_test(&test, "MatMul", &attrs, reference_matmul);
        test.in[0] = (struct op_input){.dtype = types[i], .shape = SHAPE(3, 9)};
        test.in[1] = (struct op_input){.dtype = types[i], .shape = SHAPE(9, 4)};
        test.relative = test.absolute = 0;
        op_test_run(tester, &test);
    }
}

static void gemm_takes_every_form_of_c(void **state)
{
    static const struct shape forms[] = {SHAPE(50), SHAPE(1, 50), SHAPE(6, 50), SHAPE(6, 1),
                                         SHAPE(1),  SHAPE_SCALAR, SHAPE(1, 1)};

    (void)state;
    for (size_t i = 0; i < 7 * 8; i++) {
        struct gemm_attrs attrs = {.alpha = i % 2 ? 1 : 0.5f, .beta = i % 2 ? 1 : -2};
        struct op_test test;

        attrs.transA = i / 2 % 2;
        attrs.transB = i / 4 % 2;
        set_test(&test, "Gemm", &attrs, reference_gemm);
        test.inputs = 3;
        test.in[0].shape = attrs.transA ? (struct shape)SHAPE(17, 6) : (struct shape)SHAPE(6, 17);
        test.in[1].shape = attrs.transB ? (struct shape)SHAPE(50, 17) : (struct shape)SHAPE(17, 50);
        test.in[2] = (struct op_input){.dtype = DTYPE_FLOAT, .shape = forms[i / 8]};
        op_test_run(tester, &test);
        test.in[1].constant = test.in[2].constant = true;
        op_test_run(tester, &test);
        attrs.epilogue = (struct epilogue){.act = ACT_RELU, .has_residual = true};
        test.inputs = 4;
        test.in[3] = (struct op_input){.dtype = DTYPE_FLOAT, .shape = SHAPE(6, 50)};
        op_test_run(tester, &test);
    }
}

/* Alone, a computed row cannot be told from a matrix of the result's size. */
static void a_computed_row_is_added_alike_in_every_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct gemm_attrs attrs = {.alpha = 1, .beta = 1};
        struct op_test test;

        set_test(&test, "Gemm", &attrs, reference_gemm);
        test.inputs = 3;
        test.rows = true;
        test.in[0].shape = (struct shape)SHAPE(6, 17);
        test.in[1].shape = (struct shape)SHAPE(17, 50);
        test.in[1].constant = i % 2 == 0;
        test.in[2] =
            (struct op_input){.dtype = DTYPE_FLOAT, .shape = SHAPE(1, 50), .low = -1, .high = 1};
        attrs.epilogue.act = i / 2 == 0 ? ACT_NONE : ACT_RELU;
        op_test_run(tester, &test);
    }
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
    struct matmul_attrs attrs = {0};
    struct op_test test;

    (void)state;
    set_test(&test, "MatMul", &attrs, reference_matmul);
    test.in[0].shape = (struct shape)SHAPE(3, 4);
    test.in[1].shape = (struct shape)SHAPE(5, 6);
    assert_non_null(strstr(op_test_refused(tester, &test), "[5,6]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_every_size_are_right),
        cmocka_unit_test(bias_activation_and_residual_are_right),
        cmocka_unit_test(batches_broadcast),
        cmocka_unit_test(transposed_operands_are_right),
        cmocka_unit_test(integers_wrap_and_other_floats_are_right),
        cmocka_unit_test(gemm_takes_every_form_of_c),
        cmocka_unit_test(a_computed_row_is_added_alike_in_every_batch),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
    };

    return run_cases_on_each_isa(tests);
}
