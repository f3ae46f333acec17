/* DynamicQuantizeLSTM against its formulas, each sequence quantised by itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/recurrent.h"
#include "support/cpu_cases.h"

enum { MAX_HIDDEN = 80, GATES = 4 };

struct quantised { /* numbers that became bytes */
    double scale, zero;
};

struct reference {
    const struct recurrent_attrs *attrs;
    const struct test_array *in;
    size_t inputs;
    int64_t times, batch, input, hidden, directions;
};

/* ---- the reference ---- */

static bool has(const struct reference *ref, size_t index)
{
    return index < ref->inputs && ref->in[index].dtype != DTYPE_NONE;
}

/* As ONNX's DynamicQuantizeLinear, in floats: a number on the border of two bytes falls on the same
 * side. */
static struct quantised range_of(double low, double high)
{
    float scale = ((float)fmax(0, high) - (float)fmin(0, low)) / 255;
    struct quantised by = {(double)scale, 0};

    if (scale > 0)
        by.zero = fmin(255, fmax(0, (double)rintf(-(float)fmin(0, low) / scale)));
    return by;
}

/* What is left of a number that became a byte. */
static double rounded(const struct quantised *by, double x)
{
    double byte;

    if (by->scale == 0)
        return 0;
    byte = fmin(255, fmax(0, (double)rintf((float)x / (float)by->scale) + by->zero));
    return (byte - by->zero) * by->scale;
}

static double parameter(const struct reference *ref, size_t index, int64_t d, int64_t column)
{
    const struct test_array *all = &ref->in[index];

    return all->values[all->shape.rank == 2 ? d * all->shape.dims[1] + column : d];
}

/* Column of a product of a vector with W or R. */
static double dot(const struct reference *ref, size_t weights, int64_t d, int64_t column,
                  const double *x, int64_t count)
{
    size_t scale = weights == RECURRENT_W ? RECURRENT_W_SCALE : RECURRENT_R_SCALE;
    double sum = 0, zero = parameter(ref, scale + 1, d, column);

    for (int64_t k = 0; k < count; k++)
        sum +=
            x[k] * (ref->in[weights].values[(d * count + k) * GATES * ref->hidden + column] - zero);
    return sum * parameter(ref, scale, d, column);
}

static double sum_of(const struct reference *ref, int64_t d, int64_t gate, int64_t i,
                     const double *x, const double *h)
{
    int64_t column = gate * ref->hidden + i, all = GATES * ref->hidden;
    double sum = dot(ref, RECURRENT_W, d, column, x, ref->input) +
                 dot(ref, RECURRENT_R, d, column, h, ref->hidden);

    if (has(ref, RECURRENT_BIAS))
        sum += ref->in[RECURRENT_BIAS].values[2 * d * all + column] +
               ref->in[RECURRENT_BIAS].values[(2 * d + 1) * all + column];
    return sum;
}

static double peep(const struct reference *ref, int64_t d, int64_t which, int64_t i, double c)
{
    return has(ref, RECURRENT_P)
               ? ref->in[RECURRENT_P].values[(d * 3 + which) * ref->hidden + i] * c
               : 0;
}

static double clipped(const struct reference *ref, double x)
{
    double clip = (double)ref->attrs->clip;

    return clip > 0 ? fmin(clip, fmax(-clip, x)) : x;
}

static double sigmoid(const struct reference *ref, double x)
{
    return 1 / (1 + exp(-clipped(ref, x)));
}

static void step(const struct reference *ref, int64_t d, const double *x, double *h, double *c)
{
    double before[MAX_HIDDEN], low = 0, high = 0;
    struct quantised by;

    for (int64_t i = 0; i < ref->hidden; i++) {
        low = fmin(low, h[i]);
        high = fmax(high, h[i]);
    }
    by = range_of(low, high);
    for (int64_t i = 0; i < ref->hidden; i++)
        before[i] = rounded(&by, h[i]);
    for (int64_t i = 0; i < ref->hidden; i++) {
        double in = sigmoid(ref, sum_of(ref, d, 0, i, x, before) + peep(ref, d, 0, i, c[i]));
        double forget = sigmoid(ref, sum_of(ref, d, 2, i, x, before) + peep(ref, d, 2, i, c[i]));
        double new = tanh(clipped(ref, sum_of(ref, d, 3, i, x, before)));

        forget = ref->attrs->input_forget ? 1 - in : forget;
        c[i] = forget * c[i] + in * new;
        h[i] =
            sigmoid(ref, sum_of(ref, d, 1, i, x, before) + peep(ref, d, 1, i, c[i])) * tanh(c[i]);
    }
}

static const double *x_at(const struct reference *ref, int64_t t, int64_t row)
{
    return ref->in[0].values + (t * ref->batch + row) * ref->input;
}

static struct quantised range_of_inputs(const struct reference *ref, int64_t row, int64_t length)
{
    double low = 0, high = 0;

    for (int64_t t = 0; t < length; t++)
        for (int64_t k = 0; k < ref->input; k++) {
            low = fmin(low, x_at(ref, t, row)[k]);
            high = fmax(high, x_at(ref, t, row)[k]);
        }
    return range_of(low, high);
}

static void run_sequence(const struct reference *ref, int64_t d, int64_t row,
                         struct test_array *out)
{
    bool reverse = ref->attrs->direction == RECURRENT_REVERSE || d == 1;
    int64_t length =
        has(ref, RECURRENT_LENGTHS) ? (int64_t)ref->in[RECURRENT_LENGTHS].values[row] : ref->times;
    int64_t place = (d * ref->batch + row) * ref->hidden;
    double h[MAX_HIDDEN] = {0}, c[MAX_HIDDEN] = {0}, x[MAX_HIDDEN];
    struct quantised by = range_of_inputs(ref, row, length);

    for (int64_t i = 0; i < ref->hidden; i++) {
        h[i] = length > 0 && has(ref, RECURRENT_H) ? ref->in[RECURRENT_H].values[place + i] : 0;
        c[i] = length > 0 && has(ref, RECURRENT_C) ? ref->in[RECURRENT_C].values[place + i] : 0;
    }
    for (int64_t i = 0; i < length; i++) {
        int64_t t = reverse ? length - 1 - i : i;

        for (int64_t k = 0; k < ref->input; k++)
            x[k] = rounded(&by, x_at(ref, t, row)[k]);
        step(ref, d, x, h, c);
        memcpy(out[0].values + ((t * ref->directions + d) * ref->batch + row) * ref->hidden, h,
               (size_t)ref->hidden * sizeof(*h));
    }
    memcpy(out[1].values + place, h, (size_t)ref->hidden * sizeof(*h));
    memcpy(out[2].values + place, c, (size_t)ref->hidden * sizeof(*c));
}

static void dynamic_lstm(const struct op_test *test, const struct test_array *in,
                         struct test_array *out)
{
    const int64_t *x = in[0].shape.dims;
    struct reference ref = {test->attrs, in,   test->inputs,        x[0],
                            x[1],        x[2], in[2].shape.dims[1], 0};

    ref.directions = (int64_t)recurrent_directions(ref.attrs);
    memset(out[0].values, 0, (size_t)shape_count(&out[0].shape) * sizeof(double));
    for (int64_t d = 0; d < ref.directions; d++)
        for (int64_t row = 0; row < ref.batch; row++)
            run_sequence(&ref, d, row, out);
}

/* ---- the tests ---- */

struct lengths {
    int64_t times, batch, input, hidden;
};

static struct op_input bytes_of(enum dtype dtype, struct shape shape, double low, double high)
{
    return (struct op_input){dtype, shape, .low = low, .high = high, .constant = true};
}

static struct op_input numbers(struct shape shape, double most)
{
    return (struct op_input){DTYPE_FLOAT, shape, .low = -most, .high = most};
}

static struct shape shape2(int64_t a, int64_t b)
{
    return (struct shape){.rank = 2, .dims = {a, b}};
}

static struct shape shape3(int64_t a, int64_t b, int64_t c)
{
    return (struct shape){.rank = 3, .dims = {a, b, c}};
}

/* The weights of one matrix: bytes, scale and zero point. */
static void give_weights(struct op_test *test, size_t matrix, size_t scale, struct shape shape,
                         enum dtype dtype, bool per_column)
{
    bool is_signed = dtype == DTYPE_INT8;
    struct shape parameters = per_column ? shape2(shape.dims[0], shape.dims[2])
                                         : (struct shape){.rank = 1, .dims = {shape.dims[0]}};
    double zero = per_column && is_signed ? 0 : is_signed ? 5 : 131;

    test->in[matrix] = bytes_of(dtype, shape, is_signed ? -128 : 0, is_signed ? 128 : 256);
    test->in[scale] = bytes_of(DTYPE_FLOAT, parameters, 0.001, 0.003);
    test->in[scale + 1] = bytes_of(dtype, parameters, zero, zero + 0.5);
}

static struct op_test made(const struct recurrent_attrs *attrs, struct lengths n, enum dtype dtype,
                           bool per_column)
{
    int64_t d = (int64_t)recurrent_directions(attrs), all = GATES * n.hidden;
    struct op_test test = {.op = "DynamicQuantizeLSTM",
                           .domain = "com.microsoft",
                           .attrs = attrs,
                           .inputs = RECURRENT_INPUTS,
                           .outputs = 3,
                           .reference = dynamic_lstm};

    test.in[0] = numbers(shape3(n.times, n.batch, n.input), 1.5);
    give_weights(&test, RECURRENT_W, RECURRENT_W_SCALE, shape3(d, n.input, all), dtype, per_column);
    give_weights(&test, RECURRENT_R, RECURRENT_R_SCALE, shape3(d, n.hidden, all), dtype,
                 per_column);
    return test;
}

/* The optional inputs by the bits of `optional`. */
static void check(const struct recurrent_attrs *attrs, struct lengths n, unsigned optional,
                  double absolute)
{
    struct op_test test =
        made(attrs, n, (optional & 1) != 0 ? DTYPE_INT8 : DTYPE_UINT8, (optional & 2) != 0);
    int64_t d = (int64_t)recurrent_directions(attrs);
    double lengths[16];

    for (int64_t i = 0; i < n.batch; i++)
        lengths[i] = i > 0 && i + 1 == n.batch ? 0 : (double)test_random_int(0, n.times);
    if ((optional & 4) != 0)
        test.in[RECURRENT_BIAS] = numbers(shape2(d, 2 * GATES * n.hidden), 0.6);
    if ((optional & 8) != 0)
        test.in[RECURRENT_LENGTHS] =
            (struct op_input){DTYPE_INT32, SHAPE(n.batch), .values = lengths};
    if ((optional & 16) != 0)
        test.in[RECURRENT_H] = test.in[RECURRENT_C] = numbers(shape3(d, n.batch, n.hidden), 0.9);
    if ((optional & 32) != 0)
        test.in[RECURRENT_P] = numbers(shape2(d, 3 * n.hidden), 0.6);
    test.absolute = absolute;
    test.relative = absolute;
    op_test_run(tester, &test);
}

static struct recurrent_attrs random_attrs(unsigned i)
{
    return (struct recurrent_attrs){.direction = (int)test_random_int(0, 2),
                                    .clip = i % 7 == 0 ? 0.4f : 0,
                                    .input_forget = i % 5 == 0};
}

/* Of one step everything that becomes bytes is given, so nothing falls on another side. */
static void one_step_agrees_with_the_formulas(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 64; i++) {
        struct recurrent_attrs attrs = random_attrs(i);

        check(&attrs,
              (struct lengths){1, test_random_int(1, 6), test_random_int(1, 70),
                               test_random_int(1, 70)},
              i, 2e-5);
    }
}

/* Here a state on the border of two bytes may fall on either side: a 255th of its range, by one
 * weight.  Whatever is wrong shows as more. */
static void many_steps_agree_with_the_formulas(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 64; i++) {
        struct recurrent_attrs attrs = random_attrs(i);

        check(&attrs,
              (struct lengths){test_random_int(2, 40), test_random_int(1, 4),
                               test_random_int(1, 40), test_random_int(1, 40)},
              i, 0.02);
    }
}

static void zeros_stay_zeros(void **state)
{
    struct recurrent_attrs attrs = {0};
    struct op_test test = made(&attrs, (struct lengths){3, 2, 5, 7}, DTYPE_UINT8, false);

    (void)state;
    test.in[0].low = test.in[0].high = 0;
    test.in[0].values = calloc(30, sizeof(double));
    op_test_run(tester, &test);
    free((void *)(uintptr_t)test.in[0].values);
}

/* The second of three sequences, alone and among the others. */
static void a_sequence_has_the_same_bits_in_any_batch(void **state)
{
    enum { TIMES = 6, BATCH = 3, INPUT = 5, HIDDEN = 9, ALL = GATES * HIDDEN };
    static float x[TIMES * BATCH * INPUT], one[TIMES * INPUT];
    static uint8_t w[INPUT * ALL], r[HIDDEN * ALL], zero = 120;
    static const float scale = 0.004f;
    struct tensor in[RECURRENT_INPUTS] = {{0}}, many_out[3] = {{0}}, one_out[3] = {{0}};
    const struct tensor *list[RECURRENT_INPUTS] = {NULL};
    struct recurrent_attrs attrs = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(x) / sizeof(*x); i++)
        x[i] = (float)test_random(-2, 2);
    for (size_t t = 0; t < TIMES; t++)
        memcpy(one + t * INPUT, x + (t * BATCH + 1) * INPUT, INPUT * sizeof(float));
    for (size_t i = 0; i < sizeof(w); i++)
        w[i] = (uint8_t)test_random_int(0, 255);
    for (size_t i = 0; i < sizeof(r); i++)
        r[i] = (uint8_t)test_random_int(0, 255);
    in[RECURRENT_X] = (struct tensor){DTYPE_FLOAT, shape3(TIMES, BATCH, INPUT), x};
    in[RECURRENT_W] = (struct tensor){DTYPE_UINT8, shape3(1, INPUT, ALL), w};
    in[RECURRENT_R] = (struct tensor){DTYPE_UINT8, shape3(1, HIDDEN, ALL), r};
    in[RECURRENT_W_SCALE] = in[RECURRENT_R_SCALE] = (struct tensor){DTYPE_FLOAT, SHAPE(1), &scale};
    in[RECURRENT_W_ZERO] = in[RECURRENT_R_ZERO] = (struct tensor){DTYPE_UINT8, SHAPE(1), &zero};
    for (size_t i = 0; i < RECURRENT_INPUTS; i++)
        list[i] = in[i].data != NULL ? &in[i] : NULL;
    assert_ok(op_tester_eval(tester, "com.microsoft", "DynamicQuantizeLSTM", &attrs,
                             RECURRENT_INPUTS, list, true, 3, many_out, NULL));
    in[RECURRENT_X] = (struct tensor){DTYPE_FLOAT, shape3(TIMES, 1, INPUT), one};
    assert_ok(op_tester_eval(tester, "com.microsoft", "DynamicQuantizeLSTM", &attrs,
                             RECURRENT_INPUTS, list, true, 3, one_out, NULL));
    for (size_t t = 0; t < TIMES; t++)
        assert_memory_equal((const float *)many_out[0].data + (t * BATCH + 1) * HIDDEN,
                            (const float *)one_out[0].data + t * HIDDEN, HIDDEN * sizeof(float));
    for (size_t i = 0; i < 3; i++) {
        op_tester_free(&many_out[i]);
        op_tester_free(&one_out[i]);
    }
}

static void what_is_not_of_its_form_is_refused(void **state)
{
    struct recurrent_attrs attrs = {0};
    struct lengths n = {2, 1, 3, 4};
    struct op_test test = made(&attrs, n, DTYPE_UINT8, false);

    (void)state;
    test.in[RECURRENT_W].shape.dims[1] = 4;
    assert_non_null(strstr(op_test_refused(tester, &test), "W is uint8"));
    test = made(&attrs, n, DTYPE_UINT8, false);
    test.in[RECURRENT_R].dtype = DTYPE_FLOAT;
    assert_non_null(strstr(op_test_refused(tester, &test), "R is float"));
    test = made(&attrs, n, DTYPE_UINT8, false);
    test.in[RECURRENT_W_ZERO].dtype = DTYPE_NONE;
    assert_non_null(strstr(op_test_refused(tester, &test), "zero point"));
    test = made(&attrs, n, DTYPE_UINT8, false);
    test.in[RECURRENT_W_SCALE].shape = shape2(1, 4);
    assert_non_null(strstr(op_test_refused(tester, &test), "scale of W"));
    test = made(&attrs, n, DTYPE_UINT8, false);
    test.in[RECURRENT_R].constant = false;
    assert_non_null(strstr(op_test_refused(tester, &test), "not constant"));
    test = made(&attrs, n, DTYPE_UINT8, true);
    test.in[RECURRENT_W_ZERO].low = 0;
    test.in[RECURRENT_W_ZERO].high = 256;
    assert_non_null(strstr(op_test_refused(tester, &test), "differ from column to column"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_step_agrees_with_the_formulas),
        cmocka_unit_test(many_steps_agree_with_the_formulas),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(a_sequence_has_the_same_bits_in_any_batch),
        cmocka_unit_test(what_is_not_of_its_form_is_refused),
    };

    return run_cases_on_each_isa(tests);
}
