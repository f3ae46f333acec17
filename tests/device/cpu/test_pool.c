/* Pools and LRN of every kernel, layout and instruction set against plain loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/conv_reference.h"
#include "device/cpu/cpu.h"
#include "ops/lrn.h"
#include "ops/pool.h"
#include "support/cpu_cases.h"

static bool behind_padding(const struct tap_walk *walk)
{
    const struct window *w = walk->window;
    int64_t rest = walk->tap;

    for (size_t i = w->spatial; i-- > 0; rest /= w->kernel[i])
        if (walk->out[i] * w->stride[i] - w->pad_begin[i] + rest % w->kernel[i] * w->dilation[i] >=
            w->in[i] + w->pad_end[i])
            return true;
    return false;
}

static void reference_pool(const struct op_test *test, const struct test_array *in,
                           struct test_array *out)
{
    const struct pool_attrs *attrs = test->attrs;
    const bool is_max = strcmp(test->op, "MaxPool") == 0, is_lp = strcmp(test->op, "LpPool") == 0;
    struct window w;

    assert_int_equal(pool_resolve(attrs, &in[0].shape, &w, NULL), STATUS_OK);
    const int64_t places = window_places(&w, true), cells = window_places(&w, false);

    for (int64_t i = 0; i < shape_count(&out[0].shape); i++) {
        double sum = 0, best = -INFINITY, count = 0;
        int64_t best_at = 0;
        struct tap_walk walk;

        tap_walk_start(&walk, &w, i % places);
        while (tap_walk_next(&walk)) {
            double x = walk.inside ? in[0].values[i / places * cells + walk.at] : 0;

            if (walk.inside && x > best) {
                best = x;
                best_at = i / places * cells + walk.at;
            }
            sum += is_lp ? pow(fabs(x), (double)attrs->p) : x;
            count += walk.inside || (attrs->count_include_pad != 0 && !behind_padding(&walk));
        }
        out[0].values[i] = is_max ? best : is_lp ? pow(sum, 1.0 / (double)attrs->p) : sum / count;
        if (test->outputs == 2)
            out[1].values[i] = (double)best_at;
    }
}

static void windows_of_every_form_are_right(void **state)
{
    static const char *const ops[] = {"MaxPool", "AveragePool", "LpPool"};

    (void)state;
    for (int code = 0; code < 3 * 40; code++) {
        struct pool_attrs attrs = {.p = 2};
        int64_t kernel[3], strides[3], dilations[3], pads[6];
        const size_t spatial = 1 + (size_t)code / 3 % 3;
        struct op_test test = {.op = ops[code % 3],
                               .attrs = &attrs,
                               .inputs = 1,
                               .reference = reference_pool,
                               .rows = true};

        test.in[0] = (struct op_input){DTYPE_FLOAT, test_random_shape(2 + spatial, 5, 12)};
        test.in[0].shape.dims[0] = 2;
        test.in[0].shape.dims[1] = test_random_int(1, 40);
        for (size_t i = 0; i < spatial; i++) {
            kernel[i] = test_random_int(1, 3);
            dilations[i] = kernel[i] == 2 ? test_random_int(1, 2) : 1;
            strides[i] = test_random_int(1, code % 7 == 0 ? (kernel[i] - 1) * dilations[i] + 1 : 3);
            pads[i] = test_random_int(0, kernel[i] - 1);
            pads[spatial + i] = test_random_int(0, kernel[i] - 1);
        }
        attrs.window = (struct window_attrs){.kernel_shape = {spatial, kernel},
                                             .strides = {spatial, strides},
                                             .dilations = {spatial, dilations},
                                             .pads = {2 * spatial, pads}};
        attrs.ceil_mode = test_random_int(0, 1);
        attrs.count_include_pad = code % 3 == 1 ? test_random_int(0, 1) : 0;
        attrs.window.auto_pad = code % 7 == 0 ? AUTO_PAD_SAME_UPPER : AUTO_PAD_NOTSET;
        op_test_run(tester, &test);
        if (code % 3 == 0) {
            test.outputs = 2;
            test.rows = false; /* indices count from the first row */
            op_test_run(tester, &test);
        }
    }
}

/* In windows of all kinds: beside numbers, before and behind the largest, and alone. */
static void a_maximum_passes_over_nan(void **state)
{
    enum { CELLS = 2 * 17 * 7 * 21 };
    static double values[CELLS];
    int64_t kernel[] = {3, 3}, strides[] = {1, 1}, pads[] = {1, 1, 1, 1};

    (void)state;
    for (int i = 0; i < CELLS; i++)
        values[i] = i % 3 == 0 || i % 49 < 12 ? (double)NAN : (double)(i * 37 % 101 - 50);
    for (int64_t stride = 1; stride <= 2; stride++) {
        struct pool_attrs attrs = {
            .window = {.kernel_shape = {2, kernel}, .strides = {2, strides}, .pads = {4, pads}}};
        struct op_test test = {.op = "MaxPool",
                               .attrs = &attrs,
                               .inputs = 1,
                               .in = {{DTYPE_FLOAT, SHAPE(2, 17, 7, 21)}},
                               .reference = reference_pool,
                               .rows = true};

        strides[0] = strides[1] = stride;
        test.in[0].values = values;
        op_test_run(tester, &test);
    }
}

/* Rows that are taken in pieces, and windows too wide for that. */
static void long_rows_are_right(void **state)
{
    static const int64_t forms[][4] = {/* cells, kernel, stride, pad */
                                       {9001, 2, 1, 1},
                                       {9001, 5, 3, 2},
                                       {2600, 300, 1, 200},
                                       {2600, 2100, 7, 0},
                                       {20, 3, 9, 0}};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(forms) / sizeof(forms[0]); i++) {
        const int64_t *f = forms[i / 2];
        int64_t kernel[] = {2, f[1]}, strides[] = {1, f[2]}, pads[] = {0, f[3], 1, f[3]};
        struct pool_attrs attrs = {
            .window = {.kernel_shape = {2, kernel}, .strides = {2, strides}, .pads = {4, pads}}};
        struct op_test test = {.op = i % 2 == 0 ? "MaxPool" : "AveragePool",
                               .attrs = &attrs,
                               .inputs = 1,
                               .in = {{DTYPE_FLOAT, SHAPE(2, 2, 2, f[0])}},
                               .reference = reference_pool,
                               .rows = true};

        op_test_run(tester, &test);
    }
}

static void reference_global(const struct op_test *test, const struct test_array *in,
                             struct test_array *out)
{
    const int64_t cells = shape_product(&in[0].shape, 2, in[0].shape.rank);

    for (int64_t i = 0; i < shape_count(&out[0].shape); i++) {
        double sum = 0, best = -INFINITY;

        for (int64_t k = 0; k < cells; k++) {
            sum += in[0].values[i * cells + k];
            best = fmax(best, in[0].values[i * cells + k]);
        }
        out[0].values[i] = strcmp(test->op, "GlobalMaxPool") == 0 ? best : sum / (double)cells;
    }
}

static void global_pools_are_right(void **state)
{
    static const enum dtype types[] = {DTYPE_FLOAT, DTYPE_DOUBLE, DTYPE_FLOAT16};

    (void)state;
    for (int code = 0; code < 24; code++) {
        struct op_test test = {.op = code % 2 ? "GlobalMaxPool" : "GlobalAveragePool",
                               .inputs = 1,
                               .in = {{types[code / 8], test_random_shape(3 + code % 3, 1, 19)}},
                               .reference = reference_global,
                               .rows = true};

        op_test_run(tester, &test);
    }
}

/* Of planes of any size: in whole vectors, behind them, and alone. */
static void a_global_maximum_passes_over_nan(void **state)
{
    enum { CELLS = 2 * 5 * 67 };
    static double values[CELLS];

    (void)state;
    for (int64_t cells = 1; cells <= 67; cells += 6) {
        struct op_test test = {.op = "GlobalMaxPool",
                               .inputs = 1,
                               .in = {{DTYPE_FLOAT, SHAPE(2, 5, 1, cells)}},
                               .reference = reference_global,
                               .rows = true};

        for (int i = 0; i < CELLS; i++)
            values[i] = i % 3 != 1 || i / cells == 4 ? (double)NAN : (double)(i * 37 % 101 - 50);
        test.in[0].values = values;
        op_test_run(tester, &test);
    }
}

static void reference_lrn(const struct op_test *test, const struct test_array *in,
                          struct test_array *out)
{
    const struct lrn_attrs *attrs = test->attrs;
    const int64_t channels = in[0].shape.dims[1], cells = shape_product(&in[0].shape, 2, 4);

    for (int64_t i = 0; i < shape_count(&in[0].shape); i++) {
        const int64_t c = i / cells % channels, image = i / cells / channels;
        double sum = 0;

        for (int64_t k = c - (attrs->size - 1) / 2; k <= c + attrs->size / 2; k++)
            if (k >= 0 && k < channels) {
                double x = in[0].values[(image * channels + k) * cells + i % cells];

                sum += x * x;
            }
        out[0].values[i] = in[0].values[i] / pow((double)attrs->bias + (double)attrs->alpha * sum /
                                                                           (double)attrs->size,
                                                 (double)attrs->beta);
    }
}

static void lrn_is_right(void **state)
{
    (void)state;
    for (int64_t size = 1; size < 8; size++) {
        struct lrn_attrs attrs = {.alpha = 0.3f, .beta = 0.75f, .bias = 1, .size = size};
        struct op_test test = {.op = "LRN",
                               .attrs = &attrs,
                               .inputs = 1,
                               .in = {{DTYPE_FLOAT, test_random_shape(4, 2, 20)}},
                               .reference = reference_lrn,
                               .rows = true};

        op_test_run(tester, &test);
    }
}

static void windows_that_do_not_fit_are_refused(void **state)
{
    int64_t kernel[] = {9, 9};
    struct pool_attrs attrs = {.window.kernel_shape = {2, kernel}};
    struct op_test test = {.op = "MaxPool",
                           .attrs = &attrs,
                           .inputs = 1,
                           .in = {{DTYPE_FLOAT, SHAPE(1, 2, 8, 20)}},
                           .reference = reference_pool};

    (void)state;
    assert_non_null(strstr(op_test_refused(tester, &test), "does not fit"));
    attrs.window.kernel_shape.count = 1;
    assert_non_null(strstr(op_test_refused(tester, &test), "kernel_shape"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_of_every_form_are_right),
        cmocka_unit_test(a_maximum_passes_over_nan),
        cmocka_unit_test(long_rows_are_right),
        cmocka_unit_test(global_pools_are_right),
        cmocka_unit_test(a_global_maximum_passes_over_nan),
        cmocka_unit_test(lrn_is_right),
        cmocka_unit_test(windows_that_do_not_fit_are_refused),
    };

    return run_cases_on_each_isa(tests);
}
