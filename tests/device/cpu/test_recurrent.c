#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "ops/recurrent.h"
#include "support/cpu_cases.h"

/* ---- the reference: ONNX's formulas, one number at a time ---- */

enum { MAX_HIDDEN = 80 };

struct reference {
    const struct recurrent_attrs *attrs;
    int gates;
    int64_t times, batch, input, hidden, directions;
    const struct test_array *in;
    size_t inputs;
    struct recurrent_function functions[6];
};

static double apply(const struct reference *ref, int64_t direction, int index, double x)
{
    static const int each[] = {0, 1, 0, 2, 3};
    const struct recurrent_function *f = &ref->functions[direction * each[ref->gates] + index];
    double a = (double)f->alpha, b = (double)f->beta;

    switch (f->activation) {
    case RECURRENT_SIGMOID:
        return 1 / (1 + exp(-x));
    case RECURRENT_TANH:
        return tanh(x);
    case RECURRENT_RELU:
        return x > 0 ? x : 0;
    case RECURRENT_AFFINE:
        return a * x + b;
    case RECURRENT_LEAKY_RELU:
        return x < 0 ? a * x : x;
    case RECURRENT_THRESHOLDED_RELU:
        return x >= a ? x : 0;
    case RECURRENT_SCALED_TANH:
        return a * tanh(b * x);
    case RECURRENT_HARD_SIGMOID:
        return fmin(1, fmax(0, a * x + b));
    case RECURRENT_ELU:
        return x < 0 ? a * (exp(x) - 1) : x;
    case RECURRENT_SOFTSIGN:
        return x / (1 + fabs(x));
    case RECURRENT_SOFTPLUS:
        return log1p(exp(x));
    }
    return 0;
}

static double clipped(const struct reference *ref, double x)
{
    double clip = (double)ref->attrs->clip;

    return clip > 0 ? fmin(clip, fmax(-clip, x)) : x;
}

static bool has(const struct reference *ref, size_t index)
{
    return index < ref->inputs && ref->in[index].dtype != DTYPE_NONE;
}

static double bias_of(const struct reference *ref, int64_t d, bool of_state, int64_t gate,
                      int64_t i)
{
    int64_t all = ref->gates * ref->hidden;

    if (!has(ref, RECURRENT_BIAS))
        return 0;
    return ref->in[RECURRENT_BIAS].values[(2 * d + of_state) * all + gate * ref->hidden + i];
}

/* Product of a vector with the weights of one gate. */
static double dot(const struct reference *ref, enum recurrent_input weights, int64_t d,
                  int64_t gate, int64_t i, const double *x, int64_t count)
{
    const double *w = ref->in[weights].values + ((d * ref->gates + gate) * ref->hidden + i) * count;
    double sum = 0;

    for (int64_t k = 0; k < count; k++)
        sum += w[k] * x[k];
    return sum;
}

static double sum_of(const struct reference *ref, int64_t d, int64_t gate, int64_t i,
                     const double *x, const double *h)
{
    return dot(ref, RECURRENT_W, d, gate, i, x, ref->input) +
           dot(ref, RECURRENT_R, d, gate, i, h, ref->hidden) + bias_of(ref, d, false, gate, i) +
           bias_of(ref, d, true, gate, i);
}

static double peep(const struct reference *ref, int64_t d, int64_t which, int64_t i, double c)
{
    if (!has(ref, RECURRENT_P))
        return 0;
    return ref->in[RECURRENT_P].values[(d * 3 + which) * ref->hidden + i] * c;
}

static void step_lstm(const struct reference *ref, int64_t d, const double *x, double *h, double *c)
{
    double before[MAX_HIDDEN];

    memcpy(before, h, (size_t)ref->hidden * sizeof(*h));
    for (int64_t i = 0; i < ref->hidden; i++) {
        double in = sum_of(ref, d, 0, i, x, before) + peep(ref, d, 0, i, c[i]);
        double forget = sum_of(ref, d, 2, i, x, before) + peep(ref, d, 2, i, c[i]);
        double new = apply(ref, d, 1, clipped(ref, sum_of(ref, d, 3, i, x, before)));
        double out;

        in = apply(ref, d, 0, clipped(ref, in));
        forget = ref->attrs->input_forget ? 1 - in : apply(ref, d, 0, clipped(ref, forget));
        c[i] = forget * c[i] + in * new;
        out = sum_of(ref, d, 1, i, x, before) + peep(ref, d, 1, i, c[i]);
        h[i] = apply(ref, d, 0, clipped(ref, out)) * apply(ref, d, 2, c[i]);
    }
}

static void step_gru(const struct reference *ref, int64_t d, const double *x, double *h)
{
    double before[MAX_HIDDEN], reset[MAX_HIDDEN], r[MAX_HIDDEN];

    memcpy(before, h, (size_t)ref->hidden * sizeof(*h));
    for (int64_t i = 0; i < ref->hidden; i++) {
        r[i] = apply(ref, d, 0, clipped(ref, sum_of(ref, d, 1, i, x, before)));
        reset[i] = r[i] * before[i];
    }
    for (int64_t i = 0; i < ref->hidden; i++) {
        double z = apply(ref, d, 0, clipped(ref, sum_of(ref, d, 0, i, x, before)));
        double new = sum_of(ref, d, 2, i, x, reset);

        if (ref->attrs->linear_before_reset)
            new = dot(ref, RECURRENT_W, d, 2, i, x, ref->input) + bias_of(ref, d, false, 2, i) +
                  r[i] * (dot(ref, RECURRENT_R, d, 2, i, before, ref->hidden) +
                          bias_of(ref, d, true, 2, i));
        new = apply(ref, d, 1, clipped(ref, new));
        h[i] = (1 - z) * new + z *before[i];
    }
}

static void step_rnn(const struct reference *ref, int64_t d, const double *x, double *h)
{
    double before[MAX_HIDDEN];

    memcpy(before, h, (size_t)ref->hidden * sizeof(*h));
    for (int64_t i = 0; i < ref->hidden; i++)
        h[i] = apply(ref, d, 0, clipped(ref, sum_of(ref, d, 0, i, x, before)));
}

/* One sequence in one direction. */
static void run_sequence(const struct reference *ref, int64_t d, int64_t row,
                         struct test_array *out)
{
    bool batch_first = ref->attrs->layout != 0;
    bool reverse = ref->attrs->direction == RECURRENT_REVERSE || d == 1;
    int64_t length =
        has(ref, RECURRENT_LENGTHS) ? (int64_t)ref->in[RECURRENT_LENGTHS].values[row] : ref->times;
    int64_t place = (batch_first ? row * ref->directions + d : d * ref->batch + row) * ref->hidden;
    double h[MAX_HIDDEN] = {0}, c[MAX_HIDDEN] = {0};

    for (int64_t i = 0; i < ref->hidden; i++) {
        h[i] = length > 0 && has(ref, RECURRENT_H) ? ref->in[RECURRENT_H].values[place + i] : 0;
        c[i] = length > 0 && has(ref, RECURRENT_C) ? ref->in[RECURRENT_C].values[place + i] : 0;
    }
    for (int64_t step = 0; step < length; step++) {
        int64_t t = reverse ? length - 1 - step : step;
        const double *x = ref->in[0].values +
                          (batch_first ? row * ref->times + t : t * ref->batch + row) * ref->input;
        int64_t y = batch_first ? (row * ref->times + t) * ref->directions + d
                                : (t * ref->directions + d) * ref->batch + row;

        if (ref->gates == 4)
            step_lstm(ref, d, x, h, c);
        else if (ref->gates == 3)
            step_gru(ref, d, x, h);
        else
            step_rnn(ref, d, x, h);
        memcpy(out[0].values + y * ref->hidden, h, (size_t)ref->hidden * sizeof(*h));
    }
    memcpy(out[1].values + place, h, (size_t)ref->hidden * sizeof(*h));
    if (ref->gates == 4)
        memcpy(out[2].values + place, c, (size_t)ref->hidden * sizeof(*h));
}

static void recurrent(const struct op_test *test, const struct test_array *in,
                      struct test_array *out)
{
    struct reference ref = {.attrs = test->attrs, .in = in, .inputs = test->inputs};
    const enum recurrent_activation *standard = recurrent_rnn_functions;
    size_t each = 1;

    ref.gates = strcmp(test->op, "LSTM") == 0 ? 4 : strcmp(test->op, "GRU") == 0 ? 3 : 1;
    if (ref.gates == 4) {
        each = 3;
        standard = recurrent_lstm_functions;
    } else if (ref.gates == 3) {
        each = 2;
        standard = recurrent_gru_functions;
    }
    ref.directions = (int64_t)recurrent_directions(ref.attrs);
    ref.times = in[0].shape.dims[ref.attrs->layout ? 1 : 0];
    ref.batch = in[0].shape.dims[ref.attrs->layout ? 0 : 1];
    ref.input = in[0].shape.dims[2];
    ref.hidden = in[2].shape.dims[2];
    assert_int_equal(recurrent_functions(ref.attrs, each, standard, ref.functions, NULL),
                     STATUS_OK);
    memset(out[0].values, 0, (size_t)shape_count(&out[0].shape) * sizeof(double));
    for (int64_t d = 0; d < ref.directions; d++)
        for (int64_t row = 0; row < ref.batch; row++)
            run_sequence(&ref, d, row, out);
}

/* ---- the tests ---- */

struct lengths {
    int64_t times, batch, input, hidden;
};

static struct op_input made(int64_t a, int64_t b, int64_t c, bool constant)
{
    struct op_input in = {DTYPE_FLOAT, SHAPE(a, b, c), .low = -0.6, .high = 0.6};

    in.constant = constant;
    in.shape.rank = c > 0 ? 3 : 2;
    return in;
}

/* Every optional input is there or not by the bits of `optional`. */
static void check(const char *op, int gates, const struct recurrent_attrs *attrs, struct lengths n,
                  unsigned optional)
{
    int64_t d = (int64_t)recurrent_directions(attrs);
    bool constant = (optional & 1) != 0, batch_first = attrs->layout != 0;
    double lengths[16];
    struct op_test test = {.op = op,
                           .attrs = attrs,
                           .inputs = gates == 4 ? 8 : 6,
                           .outputs = gates == 4 ? 3 : 2,
                           .reference = recurrent,
                           .relative = 1e-4,
                           .absolute = 2e-5};

    test.in[0] = batch_first ? made(n.batch, n.times, n.input, false)
                             : made(n.times, n.batch, n.input, false);
    test.in[1] = made(d, gates * n.hidden, n.input, constant);
    test.in[2] = made(d, gates * n.hidden, n.hidden, constant);
    /* Small enough for long sequences to forget: else rounding grows with every step. */
    test.in[2].high = fmin(0.6, 1.5 / sqrt((double)n.hidden));
    test.in[2].low = -test.in[2].high;
    if ((optional & 2) != 0)
        test.in[3] = made(d, 2 * gates * n.hidden, 0, constant);
    for (int64_t i = 0; i < n.batch; i++)
        lengths[i] = i > 0 && i + 1 == n.batch ? 0 : (double)test_random_int(0, n.times);
    if ((optional & 4) != 0)
        test.in[4] = (struct op_input){DTYPE_INT32, SHAPE(n.batch), .values = lengths};
    if ((optional & 8) != 0) {
        test.in[5] =
            batch_first ? made(n.batch, d, n.hidden, false) : made(d, n.batch, n.hidden, false);
        if (gates == 4)
            test.in[6] = test.in[5];
    }
    if ((optional & 16) != 0 && gates == 4)
        test.in[7] = made(d, 3 * n.hidden, 0, constant);
    op_test_run(tester, &test);
}

static void check_all(const char *op, int gates)
{
    for (unsigned optional = 0; optional < 32; optional++) {
        struct recurrent_attrs attrs = {
            .direction = (int)test_random_int(0, 2),
            .layout = test_random_int(0, 1),
            .clip = optional % 3 == 0 ? 0.4f : 0,
            .input_forget = gates == 4 && optional % 5 == 0,
            .linear_before_reset = gates == 3 && optional % 2 == 0,
        };

        check(op, gates, &attrs,
              (struct lengths){test_random_int(1, 7), test_random_int(1, 6), test_random_int(1, 20),
                               test_random_int(1, 40)},
              optional);
    }
}

static void lstm_agrees_with_the_formulas(void **state)
{
    (void)state;
    check_all("LSTM", 4);
}

static void gru_agrees_with_the_formulas(void **state)
{
    (void)state;
    check_all("GRU", 3);
}

static void rnn_agrees_with_the_formulas(void **state)
{
    (void)state;
    check_all("RNN", 1);
}

static void every_activation_is_known_by_name(void **state)
{
    static const char *const names[] = {"Relu",        "tanh",       "SIGMOID",        "Affine",
                                        "LeakyRelu",   "Elu",        "Softsign",       "Softplus",
                                        "HardSigmoid", "ScaledTanh", "ThresholdedRelu"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct bytes name = {names[i], strlen(names[i])};
        struct recurrent_attrs attrs = {.activations = {1, &name}};

        check("RNN", 1, &attrs, (struct lengths){4, 2, 5, 19}, 11);
    }
}

static void an_unknown_activation_is_refused_by_name(void **state)
{
    struct bytes name = {"Swish", 5};
    struct recurrent_attrs attrs = {.activations = {1, &name}};
    struct op_test test = {.op = "RNN", .attrs = &attrs, .inputs = 3, .reference = recurrent};

    (void)state;
    test.in[0] = made(2, 1, 3, false);
    test.in[1] = made(1, 4, 3, true);
    test.in[2] = made(1, 4, 4, true);
    assert_non_null(strstr(op_test_refused(tester, &test), "Swish"));
}

static void long_sequences_go_chunk_by_chunk(void **state)
{
    struct recurrent_attrs attrs = {.direction = RECURRENT_BIDIRECTIONAL};

    (void)state;
    check("LSTM", 4, &attrs, (struct lengths){900, 8, 3, 64}, 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lstm_agrees_with_the_formulas),
        cmocka_unit_test(gru_agrees_with_the_formulas),
        cmocka_unit_test(rnn_agrees_with_the_formulas),
        cmocka_unit_test(every_activation_is_known_by_name),
        cmocka_unit_test(an_unknown_activation_is_refused_by_name),
        cmocka_unit_test(long_sequences_go_chunk_by_chunk),
    };

    return run_cases(tests);
}
