/* A convolution and the pool behind it as one step, of every layout and instruction set, against
 * plain loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/cpu/conv_reference.h"
#include "device/cpu/cpu.h"
#include "device/cpu/epilogue.h"
#include "ops/conv_pool.h"
#include "support/cpu_cases.h"

/* One channel of one image: what the pool sees. */
static void convolve(const struct op_test *test, const struct conv_geometry *g,
                     const struct test_array *in, int64_t n, int64_t o, double *between)
{
    const struct conv_attrs *attrs = test->attrs;
    const int64_t places = window_places(&g->window, true);
    const int64_t cells = window_places(&g->window, false), taps = window_taps(&g->window);

    for (int64_t place = 0; place < places; place++) {
        double sum = test->inputs > CONV_BIAS ? in[CONV_BIAS].values[o] : 0;
        struct tap_walk walk;

        tap_walk_start(&walk, &g->window, place);
        while (tap_walk_next(&walk))
            for (int64_t c = 0; walk.inside && c < g->in_channels; c++)
                sum += in[CONV_X].values[(n * g->in_channels + c) * cells + walk.at] *
                       in[CONV_W].values[(o * g->in_channels + c) * taps + walk.tap];
        between[place] = epilogue_activate(&attrs->epilogue, sum);
    }
}

static double pool_place(const struct window *w, bool average, const double *between, int64_t place)
{
    double best = -INFINITY, sum = 0, count = 0;
    struct tap_walk walk;

    tap_walk_start(&walk, w, place);
    while (tap_walk_next(&walk)) {
        if (!walk.inside)
            continue;
        best = fmax(best, between[walk.at]);
        sum += between[walk.at];
        count++;
    }
    return average ? sum / count : best;
}

static void reference(const struct op_test *test, const struct test_array *in,
                      struct test_array *out)
{
    const struct conv_pool_attrs *attrs = test->attrs;
    struct conv_geometry g;
    struct window w;
    double *between;

    assert_ok(conv_pool_resolve(attrs, &in[CONV_X].shape, &in[CONV_W].shape, &g, &w, NULL));
    const int64_t places = window_places(&w, true);

    between = calloc((size_t)window_places(&w, false), sizeof(*between));
    assert_non_null(between);
    for (int64_t i = 0; i < g.batch * g.out_channels; i++) {
        convolve(test, &g, in, i / g.out_channels, i % g.out_channels, between);
        for (int64_t k = 0; k < places; k++)
            out[0].values[i * places + k] = pool_place(&w, attrs->average, between, k);
    }
    free(between);
}

struct form {
    int64_t n, c, h, w, m, k, stride, pad;
    int64_t window, step, border, ceil; /* of the pool */
};

struct numbers {
    int64_t strides[2], pads[4], kernel[2], steps[2], borders[4];
};

static void pools_behind_convolutions_of_odd_shapes_are_right(void **state)
{
    static const struct form forms[] = {
        {1, 3, 40, 37, 20, 3, 2, 0, 3, 2, 0, 0}, /* as SqueezeNet begins */
        {2, 3, 61, 45, 64, 7, 2, 3, 3, 2, 1, 0}, /* … ResNet */
        {3, 1, 28, 28, 10, 5, 1, 0, 2, 2, 0, 0},   {1, 3, 23, 19, 40, 3, 1, 1, 2, 2, 0, 0},
        {1, 8, 17, 33, 33, 3, 1, 1, 3, 3, 1, 1},   {2, 20, 19, 21, 48, 3, 2, 1, 3, 2, 1, 1},
        {1, 40, 14, 9, 17, 5, 1, 2, 2, 2, 0, 1},   {5, 16, 6, 5, 70, 3, 2, 1, 2, 2, 1, 0},
        {1, 3, 300, 260, 34, 3, 1, 1, 3, 2, 1, 0}, /* many tiles */
        {1, 2, 9, 8, 16, 3, 1, 1, 4, 5, 2, 1},     /* steps over cells */
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(forms) / sizeof(forms[0]); i++) {
        const struct form *f = &forms[i / 2];
        struct numbers n = {{f->stride, f->stride},
                            {f->pad, f->pad, f->pad, f->pad},
                            {f->window, f->window},
                            {f->step, f->step},
                            {f->border, f->border, f->border, f->border}};
        struct conv_pool_attrs attrs = {
            .conv = {.window = {.strides = {2, n.strides}, .pads = {4, n.pads}}, .group = 1},
            .pool = {.window = {.kernel_shape = {2, n.kernel},
                                .strides = {2, n.steps},
                                .pads = {4, n.borders}},
                     .ceil_mode = f->ceil},
            .average = i % 2 == 1};

        attrs.conv.epilogue.act = i % 4 < 2 ? ACT_RELU : ACT_SIGMOID;
        op_test_run(tester,
                    &(struct op_test){
                        .op = "ConvPool",
                        .domain = "sluice",
                        .attrs = &attrs,
                        .inputs = i % 3 == 0 ? 2 : 3,
                        .in = {{DTYPE_FLOAT, SHAPE(f->n, f->c, f->h, f->w), .low = -1, .high = 1},
                               {DTYPE_FLOAT, SHAPE(f->m, f->c, f->k, f->k), .constant = true,
                                .low = -1, .high = 1},
                               {DTYPE_FLOAT, SHAPE(f->m), .constant = true}},
                        .reference = reference,
                        .relative = 1e-5,
                        .absolute = 1.5e-4,
                        .rows = true,
                        .any_kernel = true, /* the baseline has none, and wants none */
                    });
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_behind_convolutions_of_odd_shapes_are_right),
    };

    return run_cases_on_each_isa(tests);
}
