/* Products of quantised numbers of every kernel and instruction set against plain loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/conv_reference.h"
#include "device/cpu/cpu.h"
#include "ops/quantized.h"
#include "support/cpu_cases.h"

/* Element i of a parameter: one for all, one for each, or left out. */
static double parameter(const struct op_test *test, const struct test_array *in, size_t index,
                        int64_t i)
{
    if (index >= test->inputs || in[index].dtype == DTYPE_NONE)
        return 0;
    return in[index].values[shape_count(&in[index].shape) > 1 ? i : 0];
}

static double requantize(const struct op_test *test, const struct test_array *in, double sum,
                         int64_t row, int64_t column)
{
    float scale = (float)parameter(test, in, QLINEAR_A_SCALE, row) *
                  (float)parameter(test, in, QLINEAR_B_SCALE, column) /
                  (float)parameter(test, in, QLINEAR_Y_SCALE, 0);

    float real = (float)sum * scale;

    /* a fused ReLU or Clip, in units of the result's scale */
    if (test->attrs != NULL && strcmp(test->op, "QLinearConv") == 0) {
        const struct epilogue *epilogue = &((const struct conv_attrs *)test->attrs)->epilogue;
        const float y = (float)parameter(test, in, QLINEAR_Y_SCALE, 0);

        if (epilogue->act == ACT_RELU)
            real = fmaxf(real, 0);
        if (epilogue->act == ACT_CLIP)
            real = fminf(fmaxf(real, epilogue->a / y), epilogue->b / y);
    }
    return (double)nearbyintf(real) + parameter(test, in, QLINEAR_Y_ZERO, 0);
}

static void reference_matmul(const struct op_test *test, const struct test_array *in,
                             struct test_array *out)
{
    const bool qlinear = strcmp(test->op, "QLinearMatMul") == 0;
    const size_t b = qlinear ? QLINEAR_B : MATMUL_INTEGER_B;
    const size_t a_zero = qlinear ? QLINEAR_A_ZERO : MATMUL_INTEGER_A_ZERO;
    const size_t b_zero = qlinear ? QLINEAR_B_ZERO : MATMUL_INTEGER_B_ZERO;
    struct matmul_geometry g;

    assert_int_equal(matmul_resolve(&in[0].shape, &in[b].shape, false, false, &g, NULL), STATUS_OK);
    for (int64_t i = 0; i < g.batches * g.m * g.n; i++) {
        int64_t column = i % g.n, row = i / g.n % g.m, index = i / g.n / g.m;
        const double *left =
            in[0].values + matmul_operand_index(&g, &in[0].shape, index) * g.m * g.k + row * g.k;
        const double *right =
            in[b].values + matmul_operand_index(&g, &in[b].shape, index) * g.k * g.n + column;
        double sum = 0;

        for (int64_t k = 0; k < g.k; k++)
            sum += (left[k] - parameter(test, in, a_zero, row)) *
                   (right[k * g.n] - parameter(test, in, b_zero, column));
        out[0].values[i] = qlinear ? requantize(test, in, sum, row, column) : sum;
    }
}

static void reference_conv(const struct op_test *test, const struct test_array *in,
                           struct test_array *out)
{
    const bool qlinear = strcmp(test->op, "QLinearConv") == 0;
    const size_t w = qlinear ? QLINEAR_B : CONV_INTEGER_W;
    const size_t x_zero = qlinear ? QLINEAR_A_ZERO : CONV_INTEGER_X_ZERO;
    const size_t w_zero = qlinear ? QLINEAR_B_ZERO : CONV_INTEGER_W_ZERO;
    struct conv_geometry g;

    assert_int_equal(conv_resolve(test->attrs, &in[0].shape, &in[w].shape, &g, NULL), STATUS_OK);
    const int64_t places = window_places(&g.window, true), cells = window_places(&g.window, false);
    const int64_t taps = window_taps(&g.window), per = g.in_channels / g.groups;

    for (int64_t i = 0; i < g.batch * g.out_channels * places; i++) {
        int64_t o = i / places % g.out_channels, n = i / places / g.out_channels;
        int64_t group = o / (g.out_channels / g.groups);
        double sum = qlinear ? parameter(test, in, QLINEAR_BIAS, o) : 0;
        struct tap_walk walk;

        tap_walk_start(&walk, &g.window, i % places);
        while (tap_walk_next(&walk))
            for (int64_t c = 0; walk.inside && c < per; c++)
                sum += (in[0].values[(n * g.in_channels + group * per + c) * cells + walk.at] -
                        parameter(test, in, x_zero, 0)) *
                       (in[w].values[(o * per + c) * taps + walk.tap] -
                        parameter(test, in, w_zero, o));
        out[0].values[i] = qlinear ? requantize(test, in, sum, 0, o) : sum;
    }
}

static enum dtype byte_type(int bit)
{
    return bit ? DTYPE_INT8 : DTYPE_UINT8;
}

static struct op_input bytes(enum dtype dtype, struct shape shape, bool constant)
{
    return (struct op_input){.dtype = dtype,
                             .shape = shape,
                             .low = dtype == DTYPE_INT8 ? -128 : 0,
                             .high = dtype == DTYPE_INT8 ? 128 : 256,
                             .constant = constant};
}

static struct op_input scale(struct shape shape, double low, bool constant)
{
    return (struct op_input){
        .dtype = DTYPE_FLOAT, .shape = shape, .low = low, .high = low * 4, .constant = constant};
}

static void whole_products_are_exact(void **state)
{
    static const int64_t sizes[][3] = {{1, 1, 1},    {3, 7, 5},      {17, 64, 33}, {5, 129, 70},
                                       {40, 33, 32}, {29, 200, 150}, {2, 0, 3}};

    (void)state;
    for (int code = 0; code < 7 * 16; code++) {
        const int64_t *size = sizes[code / 16];
        const enum dtype a = byte_type(code & 1), b = byte_type(code & 2);
        const bool constant = (code & 8) != 0;
        struct op_test test = {.op = "MatMulInteger",
                               .inputs = (code & 4) != 0 ? 4 : 2,
                               .reference = reference_matmul};

        test.in[0] = bytes(a, (struct shape)SHAPE(2, size[0], size[1]), false);
        test.in[1] = bytes(b, (struct shape)SHAPE(size[1], size[2]), constant);
        test.in[2] = bytes(a, (struct shape)SHAPE_SCALAR, constant);
        test.in[3] = code % 3 ? bytes(b, (struct shape)SHAPE(size[2]), constant)
                              : bytes(b, (struct shape)SHAPE(1), constant);
        test.rows = size[1] > 0;
        op_test_run(tester, &test);
    }
}

static void scaled_products_round_like_the_standard(void **state)
{
    (void)state;
    for (int code = 0; code < 16; code++) {
        const enum dtype a = byte_type(code & 1), b = byte_type(code & 2), y = byte_type(code & 4);
        const bool constant = (code & 8) != 0;
        struct op_test test = {
            .op = "QLinearMatMul", .inputs = 8, .reference = reference_matmul, .absolute = 0.25};

        test.in[QLINEAR_A] = bytes(a, (struct shape)SHAPE(3, 6, 20), false);
        test.in[QLINEAR_A_SCALE] = scale((struct shape)SHAPE_SCALAR, 0.01, constant);
        test.in[QLINEAR_A_ZERO] = bytes(a, (struct shape)SHAPE_SCALAR, constant);
        test.in[QLINEAR_B] = bytes(b, (struct shape)SHAPE(20, 37), constant);
        test.in[QLINEAR_B_SCALE] = scale((struct shape)SHAPE(37), 0.02, constant);
        test.in[QLINEAR_B_ZERO] = bytes(b, (struct shape)SHAPE(37), constant);
        test.in[QLINEAR_Y_SCALE] = scale((struct shape)SHAPE_SCALAR, 0.2, constant);
        test.in[QLINEAR_Y_ZERO] = bytes(y, (struct shape)SHAPE_SCALAR, constant);
        op_test_run(tester, &test);
    }
}

static void convolutions_of_bytes_are_right(void **state)
{
    int64_t pads[] = {1, 1, 0, 1}, strides[] = {2, 1};

    (void)state;
    for (int code = 0; code < 32; code++) {
        const enum dtype x = byte_type(code & 1), w = byte_type(code & 2), y = byte_type(code & 4);
        struct conv_attrs attrs = {.group = code & 8 ? 2 : 1};
        struct op_test test = {.attrs = &attrs, .reference = reference_conv, .rows = true};
        const struct shape shape = SHAPE(2, 4, 7, 6), kernel = SHAPE(6, 4 / attrs.group, 3, 2);

        attrs.window.pads = (struct ints){4, pads};
        attrs.window.strides = (struct ints){2, strides};
        if (code & 16) {
            test.op = "QLinearConv";
            test.inputs = 9;
            test.absolute = 0.25;
            test.in[QLINEAR_A] = bytes(x, shape, false);
            test.in[QLINEAR_A_SCALE] = scale((struct shape)SHAPE_SCALAR, 0.01, true);
            test.in[QLINEAR_A_ZERO] = bytes(x, (struct shape)SHAPE_SCALAR, true);
            test.in[QLINEAR_B] = bytes(w, kernel, true);
            test.in[QLINEAR_B_SCALE] = scale((struct shape)SHAPE(6), 0.02, true);
            test.in[QLINEAR_B_ZERO] = bytes(w, (struct shape)SHAPE(1), true);
            test.in[QLINEAR_Y_SCALE] = scale((struct shape)SHAPE_SCALAR, 0.2, true);
            test.in[QLINEAR_Y_ZERO] = bytes(y, (struct shape)SHAPE_SCALAR, true);
            test.in[QLINEAR_BIAS] = (struct op_input){.dtype = DTYPE_INT32,
                                                      .shape = SHAPE(6),
                                                      .low = -999,
                                                      .high = 999,
                                                      .constant = true};
        } else {
            test.op = "ConvInteger";
            test.inputs = 4;
            test.in[CONV_INTEGER_X] = bytes(x, shape, false);
            test.in[CONV_INTEGER_W] = bytes(w, kernel, true);
            test.in[CONV_INTEGER_X_ZERO] = bytes(x, (struct shape)SHAPE_SCALAR, true);
            test.in[CONV_INTEGER_W_ZERO] = bytes(w, (struct shape)SHAPE(6), true);
        }
        op_test_run(tester, &test);
        if (code % 4 == 3) { /* weights that a run computes */
            for (size_t i = 1; i < test.inputs; i++)
                test.in[i].constant = false;
            op_test_run(tester, &test);
        }
    }
}

static void wide_and_depthwise_convolutions_of_bytes_are_right(void **state)
{
    static const int64_t forms[][5] = {{70, 130, 1, 1, 1}, {33, 33, 33, 3, 1}, {20, 70, 1, 3, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const int64_t *f = forms[i];
        int64_t pads[] = {1, 1, 1, 1}, dilations[] = {f[4], f[4]};
        struct conv_attrs attrs = {.group = f[2]};
        struct op_test test = {.op = "ConvInteger",
                               .attrs = &attrs,
                               .inputs = 4,
                               .reference = reference_conv,
                               .rows = true};

        attrs.window.pads = (struct ints){4, pads};
        attrs.window.dilations = (struct ints){2, dilations};
        test.in[CONV_INTEGER_X] = bytes(DTYPE_UINT8, (struct shape)SHAPE(2, f[0], 9, 8), false);
        test.in[CONV_INTEGER_W] =
            bytes(DTYPE_INT8, (struct shape)SHAPE(f[1], f[0] / f[2], f[3], f[3]), true);
        test.in[CONV_INTEGER_X_ZERO] = bytes(DTYPE_UINT8, (struct shape)SHAPE_SCALAR, false);
        test.in[CONV_INTEGER_W_ZERO] = bytes(DTYPE_INT8, (struct shape)SHAPE(f[1]), true);
        op_test_run(tester, &test);
    }
}

/* With channels last: lines of the window as segments, tiles, strides, groups, one place of few. */
static void convolutions_of_every_shape_become_bytes_again(void **state)
{
    /* in, out, groups, kernel, stride, dilation, pad, height, width */
    static const int64_t forms[][9] = {
        {64, 70, 1, 1, 1, 1, 0, 13, 11},  {64, 33, 1, 1, 2, 1, 0, 13, 11},
        {16, 130, 1, 3, 1, 1, 1, 9, 40},  {3, 20, 1, 7, 2, 1, 3, 30, 30},
        {24, 16, 1, 3, 1, 2, 2, 12, 10},  {12, 24, 3, 3, 1, 1, 1, 8, 9},
        {16, 24, 2, 1, 1, 1, 0, 6, 5},    {70, 70, 70, 3, 1, 1, 1, 9, 8},
        {33, 33, 33, 3, 2, 1, 1, 12, 20}, {20, 20, 20, 5, 1, 2, 4, 10, 9},
        {16, 16, 16, 2, 1, 1, 0, 4, 4},   {8, 300, 1, 1, 1, 1, 0, 2, 2},
        {4, 4, 1, 3, 1, 1, 1, 40, 200},   {4, 700, 1, 1, 1, 1, 0, 8, 8},
    };

    (void)state;
    for (int code = 0; code < 14 * 4; code++) {
        const int64_t *f = forms[code / 4];
        const enum dtype x = byte_type(code & 1), y = byte_type(code & 2);
        const enum dtype w = byte_type(code % 3 != 0);
        int64_t pads[] = {f[6], f[6], f[6], f[6]}, strides[] = {f[4], f[4]};
        int64_t dilations[] = {f[5], f[5]};
        struct conv_attrs attrs = {.group = f[2]};
        struct op_test test = {.op = "QLinearConv",
                               .attrs = &attrs,
                               .inputs = 9,
                               .reference = reference_conv,
                               .rows = true,
                               .absolute = 0.25};

        attrs.window.pads = (struct ints){4, pads};
        attrs.window.strides = (struct ints){2, strides};
        attrs.window.dilations = (struct ints){2, dilations};
        if (code % 4 == 1)
            attrs.epilogue.act = ACT_RELU;
        if (code % 4 == 2)
            attrs.epilogue = (struct epilogue){.act = ACT_CLIP, .a = 0.3F, .b = 6};
        test.in[QLINEAR_A] = bytes(x, (struct shape)SHAPE(2, f[0], f[7], f[8]), false);
        test.in[QLINEAR_A_SCALE] = scale((struct shape)SHAPE_SCALAR, 0.01, true);
        test.in[QLINEAR_A_ZERO] = bytes(x, (struct shape)SHAPE_SCALAR, true);
        test.in[QLINEAR_B] = bytes(w, (struct shape)SHAPE(f[1], f[0] / f[2], f[3], f[3]), true);
        test.in[QLINEAR_B_SCALE] = scale((struct shape)SHAPE(f[1]), 0.02, true);
        test.in[QLINEAR_B_ZERO] =
            code % 5 ? bytes(w, (struct shape)SHAPE(f[1]), true)
                     : (struct op_input){.dtype = w,
                                         .shape = SHAPE_SCALAR,
                                         .values = (double[]){w == DTYPE_INT8 ? 0 : 128},
                                         .constant = true};
        test.in[QLINEAR_Y_SCALE] = scale((struct shape)SHAPE_SCALAR, 0.2, true);
        test.in[QLINEAR_Y_ZERO] = bytes(y, (struct shape)SHAPE_SCALAR, true);
        test.in[QLINEAR_BIAS] = (struct op_input){
            .dtype = DTYPE_INT32, .shape = SHAPE(f[1]), .low = -999, .high = 999, .constant = true};
        op_test_run(tester, &test);
    }
}

/* Three by three with zero points that leave differences of 8 bits: groups of every width, columns
 * that are shared by all, by two or by no windows, parameters that only the run knows. */
static void depthwise_convolutions_go_over_the_bytes(void **state)
{
    /* channels, stride, dilation, pad, height, width */
    static const int64_t forms[][6] = {
        {64, 1, 1, 1, 9, 8},   {100, 1, 1, 1, 7, 33}, {24, 2, 1, 1, 12, 20}, {40, 1, 2, 2, 10, 9},
        {150, 2, 1, 0, 11, 7}, {13, 3, 1, 1, 10, 10}, {32, 2, 2, 2, 9, 9},   {96, 1, 1, 1, 3, 3},
    };

    (void)state;
    for (int code = 0; code < 8 * 4; code++) {
        const int64_t *f = forms[code / 4];
        const enum dtype x = byte_type(code & 1), w = byte_type(code & 2);
        int64_t pads[] = {f[3], f[3], f[3], f[3]}, strides[] = {f[1], f[1]};
        int64_t dilations[] = {f[2], f[2]};
        const bool constant = code % 3 != 0;
        struct conv_attrs attrs = {.group = f[0]};
        struct op_test test = {.op = "QLinearConv",
                               .attrs = &attrs,
                               .inputs = 9,
                               .reference = reference_conv,
                               .rows = true,
                               .absolute = 0.25};

        attrs.window.pads = (struct ints){4, pads};
        attrs.window.strides = (struct ints){2, strides};
        attrs.window.dilations = (struct ints){2, dilations};
        if (code % 4 == 1)
            attrs.epilogue.act = ACT_RELU;
        test.in[QLINEAR_A] = bytes(x, (struct shape)SHAPE(2, f[0], f[4], f[5]), false);
        test.in[QLINEAR_A_SCALE] = scale((struct shape)SHAPE_SCALAR, 0.01, constant);
        test.in[QLINEAR_A_ZERO] = bytes(x, (struct shape)SHAPE_SCALAR, constant);
        test.in[QLINEAR_B] = bytes(w, (struct shape)SHAPE(f[0], 1, 3, 3), true);
        test.in[QLINEAR_B_SCALE] = scale((struct shape)SHAPE(f[0]), 0.02, constant);
        test.in[QLINEAR_B_ZERO] = (struct op_input){.dtype = w,
                                                    .shape = SHAPE_SCALAR,
                                                    .values = (double[]){w == DTYPE_INT8 ? 0 : 128},
                                                    .constant = true};
        test.in[QLINEAR_Y_SCALE] = scale((struct shape)SHAPE_SCALAR, 0.2, constant);
        test.in[QLINEAR_Y_ZERO] = bytes(x, (struct shape)SHAPE_SCALAR, constant);
        test.in[QLINEAR_BIAS] = (struct op_input){.dtype = DTYPE_INT32,
                                                  .shape = SHAPE(f[0]),
                                                  .low = -999,
                                                  .high = 999,
                                                  .constant = constant};
        op_test_run(tester, &test);
    }
}

static void reference_float(const struct op_test *test, const struct test_array *in,
                            struct test_array *out)
{
    struct matmul_geometry g;

    assert_int_equal(matmul_resolve(&in[0].shape, &in[1].shape, false, false, &g, NULL), STATUS_OK);
    for (int64_t i = 0; i < g.batches * g.m * g.n; i++) {
        const int64_t row = i / g.n, column = i % g.n;
        float scale_of = (float)parameter(test, in, MATMUL_FLOAT_A_SCALE, 0) *
                         (float)parameter(test, in, MATMUL_FLOAT_B_SCALE, column);
        volatile float product;
        double sum = 0;

        for (int64_t k = 0; k < g.k; k++)
            sum +=
                (in[0].values[row * g.k + k] - parameter(test, in, MATMUL_FLOAT_A_ZERO, 0)) *
                (in[1].values[k * g.n + column] - parameter(test, in, MATMUL_FLOAT_B_ZERO, column));
        product = (float)sum * scale_of;
        out[0].values[i] =
            (double)(product + (float)parameter(test, in, MATMUL_FLOAT_BIAS, column));
    }
}

static void scaled_floats_are_those_of_separate_steps(void **state)
{
    (void)state;
    for (int code = 0; code < 16; code++) {
        const enum dtype a = byte_type(code & 1), b = byte_type(code & 2);
        const int64_t m = code & 4 ? 37 : 1, n = code & 8 ? 130 : 21;
        struct op_test test = {.op = "MatMulIntegerToFloat",
                               .domain = "com.microsoft",
                               .inputs = 7,
                               .reference = reference_float,
                               .relative = 1e-30};

        test.in[MATMUL_FLOAT_A] = bytes(a, (struct shape)SHAPE(2, m, 45), false);
        test.in[MATMUL_FLOAT_B] = bytes(b, (struct shape)SHAPE(45, n), code % 3 != 0);
        test.in[MATMUL_FLOAT_A_SCALE] = scale((struct shape)SHAPE_SCALAR, 0.01, false);
        test.in[MATMUL_FLOAT_B_SCALE] = scale((struct shape)SHAPE(n), 0.02, true);
        test.in[MATMUL_FLOAT_A_ZERO] = bytes(a, (struct shape)SHAPE_SCALAR, false);
        test.in[MATMUL_FLOAT_B_ZERO] = bytes(b, (struct shape)SHAPE(n), code % 3 != 0);
        test.in[MATMUL_FLOAT_BIAS] =
            (struct op_input){.dtype = DTYPE_FLOAT, .shape = SHAPE(n), .constant = true};
        op_test_run(tester, &test);
    }
}

static void other_types_are_refused(void **state)
{
    struct op_test test = {.op = "MatMulInteger",
                           .inputs = 2,
                           .in = {{DTYPE_FLOAT, SHAPE(2, 2)}, {DTYPE_INT8, SHAPE(2, 2)}},
                           .reference = reference_matmul};

    (void)state;
    assert_non_null(strstr(op_test_refused(tester, &test), "int8 and uint8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_products_are_exact),
        cmocka_unit_test(scaled_products_round_like_the_standard),
        cmocka_unit_test(convolutions_of_bytes_are_right),
        cmocka_unit_test(wide_and_depthwise_convolutions_of_bytes_are_right),
        cmocka_unit_test(depthwise_convolutions_go_over_the_bytes),
        cmocka_unit_test(convolutions_of_every_shape_become_bytes_again),
        cmocka_unit_test(scaled_floats_are_those_of_separate_steps),
        cmocka_unit_test(other_types_are_refused),
    };

    return run_cases_on_each_isa(tests);
}
