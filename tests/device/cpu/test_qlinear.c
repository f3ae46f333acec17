/* Quantised operators beside the products: the very bytes of DequantizeLinear, the operator and
 * QuantizeLinear in float. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "ops/matmul_bytes.h"
#include "ops/pool.h"
#include "ops/quantized.h"
#include "support/cpu_cases.h"

static double number(const struct op_test *test, const struct test_array *in, size_t index)
{
    return index < test->inputs && in[index].dtype != DTYPE_NONE ? in[index].values[0] : 0;
}

static double saturated(double q, enum dtype dtype)
{
    const double low = dtype == DTYPE_INT8 ? -128 : 0;

    return fmin(low + 255, fmax(low, q));
}

/* Element of an operand that is broadcast to the output's shape. */
static int64_t broadcast_index(const struct shape *out, const struct shape *in, int64_t index)
{
    int64_t at = 0, unit = 1;

    for (size_t i = out->rank; i-- > 0; index /= out->dims[i]) {
        const int64_t here = index % out->dims[i];

        if (i + in->rank < out->rank)
            continue;
        const size_t axis = i + in->rank - out->rank;

        at += in->dims[axis] == 1 ? 0 : here * unit;
        unit *= in->dims[axis];
    }
    return at;
}

static void reference_pair(const struct op_test *test, const struct test_array *in,
                           struct test_array *out)
{
    for (int64_t i = 0; i < shape_count(&out[0].shape); i++) {
        const double qa =
            in[QLINEAR_PAIR_A].values[broadcast_index(&out[0].shape, &in[QLINEAR_PAIR_A].shape, i)];
        const double qb =
            in[QLINEAR_PAIR_B].values[broadcast_index(&out[0].shape, &in[QLINEAR_PAIR_B].shape, i)];
        volatile float a = (float)(qa - number(test, in, QLINEAR_PAIR_A_ZERO)) *
                           (float)number(test, in, QLINEAR_PAIR_A_SCALE);
        volatile float b = (float)(qb - number(test, in, QLINEAR_PAIR_B_ZERO)) *
                           (float)number(test, in, QLINEAR_PAIR_B_SCALE);
        volatile float y = strcmp(test->op, "QLinearAdd") == 0 ? a + b : a * b;

        out[0].values[i] =
            saturated((double)rintf(y / (float)number(test, in, QLINEAR_PAIR_Y_SCALE)) +
                          number(test, in, QLINEAR_PAIR_Y_ZERO),
                      out[0].dtype);
    }
}

static enum dtype byte_type(int bit)
{
    return bit ? DTYPE_INT8 : DTYPE_UINT8;
}

static struct op_input bytes(enum dtype dtype, struct shape shape)
{
    return (struct op_input){.dtype = dtype,
                             .shape = shape,
                             .low = dtype == DTYPE_INT8 ? -128 : 0,
                             .high = dtype == DTYPE_INT8 ? 128 : 256};
}

static struct op_input scale(double low)
{
    return (struct op_input){
        .dtype = DTYPE_FLOAT, .shape = SHAPE_SCALAR, .low = low, .high = low * 4, .constant = true};
}

static struct op_input zero(enum dtype dtype)
{
    struct op_input input = bytes(dtype, (struct shape)SHAPE_SCALAR);

    input.constant = true;
    return input;
}

static void sums_and_products_of_bytes_are_those_of_floats(void **state)
{
    static const struct shape shapes[][2] = {{SHAPE(2, 5, 3, 7), SHAPE(2, 5, 3, 7)},
                                             {SHAPE(2, 3, 33), SHAPE(33)},
                                             {SHAPE(2, 40), SHAPE(2, 1)},
                                             {SHAPE(1, 70, 4, 4), SHAPE(1, 70, 4, 4)}};

    (void)state;
    for (int code = 0; code < 4 * 16; code++) {
        struct op_test test = {.op = code & 8 ? "QLinearAdd" : "QLinearMul",
                               .domain = "com.microsoft",
                               .inputs = 8,
                               .reference = reference_pair,
                               .absolute = 0.25};
        const enum dtype a = byte_type(code & 1), b = byte_type(code & 2), y = byte_type(code & 4);

        test.in[QLINEAR_PAIR_A] = bytes(a, shapes[code / 16][0]);
        test.in[QLINEAR_PAIR_A_SCALE] = scale(0.01);
        test.in[QLINEAR_PAIR_A_ZERO] = zero(a);
        test.in[QLINEAR_PAIR_B] = bytes(b, shapes[code / 16][1]);
        test.in[QLINEAR_PAIR_B_SCALE] = scale(0.02);
        test.in[QLINEAR_PAIR_B_ZERO] = zero(b);
        test.in[QLINEAR_PAIR_Y_SCALE] = scale(0.03);
        test.in[QLINEAR_PAIR_Y_ZERO] = zero(y);
        op_test_run(tester, &test);
    }
}

/* Every quotient is a half or a quarter: where a product with the reciprocal would not do. */
static void sums_of_bytes_round_halves_as_floats_do(void **state)
{
    static const double y_scales[] = {2, 4, 3}, one = 1;

    (void)state;
    for (size_t i = 0; i < sizeof(y_scales) / sizeof(y_scales[0]); i++) {
        struct op_test test = {.op = "QLinearAdd",
                               .domain = "com.microsoft",
                               .inputs = 8,
                               .reference = reference_pair,
                               .absolute = 0.25};
        const struct op_input fixed = {
            .dtype = DTYPE_FLOAT, .shape = SHAPE_SCALAR, .values = &one, .constant = true};

        test.in[QLINEAR_PAIR_A] = test.in[QLINEAR_PAIR_B] =
            bytes(DTYPE_UINT8, (struct shape)SHAPE(3, 333));
        test.in[QLINEAR_PAIR_A_SCALE] = test.in[QLINEAR_PAIR_B_SCALE] = fixed;
        test.in[QLINEAR_PAIR_Y_SCALE] = fixed;
        test.in[QLINEAR_PAIR_Y_SCALE].values = &y_scales[i];
        test.in[QLINEAR_PAIR_A_ZERO] = test.in[QLINEAR_PAIR_B_ZERO] = test.in[QLINEAR_PAIR_Y_ZERO] =
            zero(DTYPE_UINT8);
        op_test_run(tester, &test);
    }
}

static void reference_average(const struct op_test *test, const struct test_array *in,
                              struct test_array *out)
{
    const struct shape *x = &in[0].shape;
    const int64_t cells = shape_product(x, 2, x->rank);

    for (int64_t i = 0; i < shape_count(&out[0].shape); i++) {
        double sum = 0;

        for (int64_t k = 0; k < cells; k++)
            sum += in[0].values[i * cells + k] - number(test, in, QLINEAR_POOL_X_ZERO);
        out[0].values[i] =
            saturated(rint(sum * (number(test, in, QLINEAR_POOL_X_SCALE) / (double)cells /
                                  number(test, in, QLINEAR_POOL_Y_SCALE))) +
                          number(test, in, QLINEAR_POOL_Y_ZERO),
                      out[0].dtype);
    }
}

static void averages_of_bytes_are_exact_sums_scaled_once(void **state)
{
    (void)state;
    for (int code = 0; code < 4; code++) {
        struct op_test test = {.op = "QLinearGlobalAveragePool",
                               .domain = "com.microsoft",
                               .inputs = 5,
                               .reference = reference_average,
                               .absolute = 0.25};

        test.in[QLINEAR_POOL_X] = bytes(byte_type(code & 1), (struct shape)SHAPE(2, 37, 5, 3));
        test.in[QLINEAR_POOL_X_SCALE] = scale(0.01);
        test.in[QLINEAR_POOL_X_ZERO] = zero(byte_type(code & 1));
        test.in[QLINEAR_POOL_Y_SCALE] = scale(0.01);
        test.in[QLINEAR_POOL_Y_ZERO] = zero(byte_type(code & 2));
        op_test_run(tester, &test);
    }
}

static void reference_table(const struct op_test *test, const struct test_array *in,
                            struct test_array *out)
{
    (void)test;
    for (int64_t i = 0; i < shape_count(&out[0].shape); i++)
        out[0].values[i] = in[1].values[(uint8_t)(int)in[0].values[i]];
}

static void tables_are_read_by_the_bits_of_a_byte(void **state)
{
    (void)state;
    for (int code = 0; code < 4; code++) {
        struct op_test test = {
            .op = "ByteTable", .domain = "sluice", .inputs = 2, .reference = reference_table};

        test.in[0] = bytes(byte_type(code & 1), (struct shape)SHAPE(2, 17, 3, 5));
        test.in[1] = bytes(byte_type(code & 2), (struct shape)SHAPE(256));
        test.in[1].constant = true;
        op_test_run(tester, &test);
    }
}

static void reference_max(const struct op_test *test, const struct test_array *in,
                          struct test_array *out)
{
    struct window w;

    assert_int_equal(pool_resolve(test->attrs, &in[0].shape, &w, NULL), STATUS_OK);
    for (int64_t i = 0; i < shape_count(&out[0].shape); i++) {
        const int64_t y = i / w.out[1] % w.out[0], x = i % w.out[1];
        const int64_t plane = i / w.out[1] / w.out[0];
        double most = -128;

        for (int64_t k = 0; k < w.kernel[0] * w.kernel[1]; k++) {
            const int64_t h = y * w.stride[0] - w.pad_begin[0] + k / w.kernel[1] * w.dilation[0];
            const int64_t v = x * w.stride[1] - w.pad_begin[1] + k % w.kernel[1] * w.dilation[1];

            if (h >= 0 && h < w.in[0] && v >= 0 && v < w.in[1])
                most = fmax(most, in[0].values[(plane * w.in[0] + h) * w.in[1] + v]);
        }
        out[0].values[i] = most;
    }
}

static void pools_take_the_largest_byte(void **state)
{
    int64_t kernel[] = {3, 2}, strides[] = {2, 1}, pads[] = {1, 0, 1, 1}, dilations[] = {1, 1};

    (void)state;
    for (int code = 0; code < 8; code++) {
        struct pool_attrs attrs = {.window = {.kernel_shape = {2, kernel},
                                              .strides = {2, strides},
                                              .pads = {4, pads},
                                              .dilations = {2, dilations}}};
        struct op_test test = {.op = "MaxPool",
                               .attrs = &attrs,
                               .inputs = 1,
                               .reference = reference_max,
                               .rows = true};

        dilations[0] = code & 4 ? 3 : 1;
        dilations[1] = code & 4 ? 2 : 1;
        test.in[0] = bytes(byte_type(code & 1), (struct shape)SHAPE(2, code & 2 ? 130 : 3, 9, 7));
        op_test_run(tester, &test);
    }
}

static void reference_weights(const struct op_test *test, const struct test_array *in,
                              struct test_array *out)
{
    const struct matmul_attrs *attrs = test->attrs;
    const int64_t k = in[0].shape.dims[in[0].shape.rank - 1];
    const int64_t n = out[0].shape.dims[out[0].shape.rank - 1];

    for (int64_t i = 0; i < shape_count(&out[0].shape); i++) {
        const int64_t row = i / n, j = i % n;
        const double zero = number(test, in, MATMUL_BYTES_ZERO);
        double sum = attrs->has_bias ? in[MATMUL_BIAS].values[j] : 0;

        for (int64_t s = 0; s < k; s++)
            sum += in[0].values[row * k + s] *
                   (double)((float)(in[1].values[attrs->trans_b ? j * k + s : s * n + j] - zero) *
                            (float)in[MATMUL_BYTES_SCALE].values[j]);
        if (attrs->epilogue.has_residual)
            sum += in[MATMUL_RESIDUAL].values[i];
        out[0].values[i] = attrs->epilogue.act == ACT_RELU ? fmax(sum, 0) : sum;
    }
}

/* A row alone goes from bytes to registers, among others by packed floats: the same bits. */
static void weights_of_bytes_give_what_floats_give(void **state)
{
    (void)state;
    for (int code = 0; code < 16; code++) {
        const enum dtype b = byte_type(code & 1);
        const int64_t n = code & 4 ? 130 : 19, k = code & 8 ? 900 : 33;
        struct matmul_attrs attrs = {.trans_b = (code & 2) != 0, .has_bias = code % 3 != 0};
        struct op_test test = {.op = "MatMulBytes",
                               .domain = "sluice",
                               .attrs = &attrs,
                               .inputs = MATMUL_BYTES_INPUTS,
                               .reference = reference_weights,
                               .rows = true,
                               .relative = 1e-5,
                               /* partial sums of up to 100 lose 6e-6 a step */
                               .absolute = 1e-4 + 1e-6 * (double)k};

        attrs.epilogue.act = code % 5 == 1 ? ACT_RELU : ACT_NONE;
        attrs.epilogue.has_residual = code % 5 == 2;
        test.in[0] = (struct op_input){.dtype = DTYPE_FLOAT, .shape = SHAPE(3, 5, k)};
        test.in[1] =
            bytes(b, attrs.trans_b ? (struct shape)SHAPE(n, k) : (struct shape)SHAPE(k, n));
        test.in[1].constant = true;
        if (attrs.has_bias)
            test.in[MATMUL_BIAS] =
                (struct op_input){.dtype = DTYPE_FLOAT, .shape = SHAPE(n), .constant = true};
        if (attrs.epilogue.has_residual)
            test.in[MATMUL_RESIDUAL] =
                (struct op_input){.dtype = DTYPE_FLOAT, .shape = SHAPE(3, 5, n)};
        test.in[MATMUL_BYTES_SCALE] = (struct op_input){
            .dtype = DTYPE_FLOAT, .shape = SHAPE(n), .low = 0.001, .high = 0.01, .constant = true};
        test.in[MATMUL_BYTES_ZERO] = zero(b);
        op_test_run(tester, &test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_products_of_bytes_are_those_of_floats),
        cmocka_unit_test(sums_of_bytes_round_halves_as_floats_do),
        cmocka_unit_test(averages_of_bytes_are_exact_sums_scaled_once),
        cmocka_unit_test(tables_are_read_by_the_bits_of_a_byte),
        cmocka_unit_test(pools_take_the_largest_byte),
        cmocka_unit_test(weights_of_bytes_give_what_floats_give),
    };

    return run_cases_on_each_isa(tests);
}
