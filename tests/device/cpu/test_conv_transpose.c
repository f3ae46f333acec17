/* Transposed convolutions of every kernel, layout and instruction set against plain loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/cpu/conv_cases.h"
#include "device/cpu/cpu.h"
#include "support/cpu_cases.h"

static void reference_transpose(const struct op_test *test, const struct test_array *in,
                                struct test_array *out)
{
    const struct conv_transpose_attrs *attrs = test->attrs;
    struct conv_geometry g;

    assert_int_equal(conv_transpose_resolve(attrs, &in[0].shape, &in[1].shape, &g, NULL),
                     STATUS_OK);
    struct window back = g.window; /* the window that slides over the output */

    for (size_t i = 0; i < back.spatial; i++) {
        back.in[i] = g.window.out[i];
        back.out[i] = g.window.in[i];
    }
    const int64_t places = window_places(&back, false), cells = window_places(&back, true);
    const int64_t taps = window_taps(&back), per_in = g.in_channels / g.groups;
    const int64_t per_out = g.out_channels / g.groups;

    for (int64_t i = 0; i < g.batch * g.out_channels * places; i++)
        out[0].values[i] = test->inputs > CONV_BIAS && in[CONV_BIAS].dtype != DTYPE_NONE
                               ? in[CONV_BIAS].values[i / places % g.out_channels]
                               : 0;
    for (int64_t i = 0; i < g.batch * g.in_channels * cells; i++) {
        int64_t cell = i % cells, c = i / cells % g.in_channels, n = i / cells / g.in_channels;
        int64_t group = c / per_in;
        struct tap_walk walk;

        tap_walk_start(&walk, &back, cell);
        while (tap_walk_next(&walk))
            for (int64_t o = 0; walk.inside && o < per_out; o++)
                out[0].values[(n * g.out_channels + group * per_out + o) * places + walk.at] +=
                    in[0].values[i] * in[1].values[(c * per_out + o) * taps + walk.tap];
    }
    for (int64_t i = 0; i < g.batch * g.out_channels * places; i++)
        out[0].values[i] = finish(&attrs->epilogue, out[0].values[i], &in[CONV_RESIDUAL], i);
}

static void no_transposed_geometry_falls_to_reference_code(void **state)
{
    static const int64_t batches[] = {1, 3};

    (void)state;
    for (size_t i = 0; i < 2 * (size_t)ODD_FORMS; i += CONV_TRANSPOSE_STEP) {
        const struct odd_form *f = &odd_forms[i / 2];
        struct odd_numbers numbers;
        struct conv_transpose_attrs attrs = {.window = odd_window(f, &numbers), .group = f->groups};
        int64_t small[3];

        for (size_t k = 0; k < f->spatial; k++) /* the output is about as large as f->in */
            small[k] = (f->in[k] + f->stride[k] - 1) / f->stride[k] + f->pad[k];
        op_test_run(tester,
                    &(struct op_test){
                        .op = "ConvTranspose",
                        .attrs = &attrs,
                        .inputs = 3,
                        .in = {{DTYPE_FLOAT, odd_shape(f, batches[i % 2], f->c, small)},
                               {DTYPE_FLOAT, odd_shape(f, f->c, f->m / f->groups, f->kernel),
                                .constant = true},
                               {DTYPE_FLOAT, SHAPE(f->m), .constant = true}},
                        .reference = reference_transpose,
                        .relative = 1e-5,
                        .absolute = 3e-4,
                        .rows = true,
                    });
    }
}

static void transposed_convolutions_of_each_phase_are_right(void **state)
{
    enum { FORMS = sizeof(few_forms) / sizeof(few_forms[0]) };

    (void)state;
    for (size_t i = 0; i < 3 * (size_t)FORMS; i += CONV_TRANSPOSE_STEP) {
        const struct odd_form *f = &few_forms[i / 3];
        struct odd_numbers numbers;
        int64_t extras[3] = {0, 0, 0};
        struct conv_transpose_attrs attrs = {.window = odd_window(f, &numbers), .group = f->groups};
        struct op_test test = {
            .op = "ConvTranspose",
            .attrs = &attrs,
            .inputs = 4,
            .in = {{DTYPE_FLOAT, odd_shape(f, 1 + (int64_t)i % 2, f->c, f->in)},
                   {DTYPE_FLOAT, odd_shape(f, f->c, f->m / f->groups, f->kernel), .constant = true},
                   {DTYPE_FLOAT, SHAPE(f->m), .constant = true}},
            .reference = reference_transpose,
            .relative = 1e-5,
            .absolute = 1e-3,
            .rows = true,
        };
        struct conv_geometry g;

        for (size_t k = 0; k < f->spatial; k++)
            extras[k] = i % 3 == 1 ? f->stride[k] - 1 : 0;
        attrs.output_padding = (struct ints){f->spatial, extras};
        assert_int_equal(
            conv_transpose_resolve(&attrs, &test.in[0].shape, &test.in[1].shape, &g, NULL),
            STATUS_OK);
        attrs.epilogue.act = i % 3 == 0 ? ACT_NONE : ACT_SIGMOID;
        attrs.epilogue.has_residual = i % 3 > 0;
        attrs.epilogue.residual_after = i % 3 == 2;
        test.in[CONV_RESIDUAL] = (struct op_input){DTYPE_FLOAT, conv_output_shape(&g)};
        test.inputs = attrs.epilogue.has_residual ? 4 : 3;
        op_test_run(tester, &test);
    }
}

static void transposed_convolutions_are_right(void **state)
{
    static const struct form forms[] = {
        {2, 5, 6, 7, 9, 3, 2, 1, 1, 1},    {1, 16, 5, 5, 32, 2, 2, 0, 1, 1},
        {2, 32, 7, 6, 16, 4, 2, 1, 1, 1},  {1, 8, 4, 4, 8, 3, 1, 1, 2, 2},
        {2, 16, 9, 8, 16, 4, 2, 1, 1, 16},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        for (int64_t extra = 0; extra < 2; extra++) {
            const struct form *f = &forms[i];
            struct conv_transpose_attrs attrs = {.group = f->groups};
            int64_t strides[] = {f->stride, f->stride}, dilations[] = {f->dilation, f->dilation};
            int64_t pads[] = {f->pad, f->pad, f->pad, f->pad}, extras[] = {extra, extra};
            struct op_test test = {
                .op = "ConvTranspose",
                .attrs = &attrs,
                .inputs = 3,
                .in = {{DTYPE_FLOAT, SHAPE(f->n, f->c, f->h, f->w)},
                       {DTYPE_FLOAT, SHAPE(f->c, f->m / f->groups, f->k, f->k), .constant = true},
                       {DTYPE_FLOAT, SHAPE(f->m), .constant = true}},
                .reference = reference_transpose,
                .relative = 1e-5,
                .absolute = 3e-5,
                .rows = true,
            };

            attrs.window = (struct window_attrs){
                .strides = {2, strides}, .dilations = {2, dilations}, .pads = {4, pads}};
            attrs.output_padding = (struct ints){2, extras};
            attrs.epilogue.act = extra ? ACT_SIGMOID : ACT_NONE;
            op_test_run(tester, &test);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_transposed_geometry_falls_to_reference_code),
        cmocka_unit_test(transposed_convolutions_of_each_phase_are_right),
        cmocka_unit_test(transposed_convolutions_are_right),
    };

    return run_cases_on_each_isa(tests);
}
