/* Channels in another order, as a step of its own and as part of a convolution. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/conv_cases.h"
#include "ops/movement.h"
#include "support/cpu_cases.h"

/* ---- MixChannels ---- */

enum { MOST_CHANNELS = 90 };

static void mix(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct ints *from = &((const struct mix_channels_attrs *)test->attrs)->from;
    const int64_t cells = shape_product(&out->shape, 2, out->shape.rank);

    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        const int64_t cell = i % cells, n = i / cells / out->shape.dims[1];
        int64_t c = from->values[i / cells % out->shape.dims[1]];
        size_t input = 0;

        for (; c >= in[input].shape.dims[1]; input++)
            c -= in[input].shape.dims[1];
        out->values[i] = in[input].values[(n * in[input].shape.dims[1] + c) * cells + cell];
    }
}

static void run_mix(size_t inputs, const struct shape *shapes, size_t count, const int64_t *order)
{
    const struct mix_channels_attrs attrs = {.from = {count, order}};
    struct op_test test = {.op = "MixChannels",
                           .domain = "sluice",
                           .attrs = &attrs,
                           .inputs = inputs,
                           .reference = mix,
                           .rows = true};

    for (size_t i = 0; i < inputs; i++)
        test.in[i] = (struct op_input){DTYPE_FLOAT, shapes[i]};
    op_test_run(tester, &test);
}

static void channels_come_from_anywhere(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        const size_t inputs = (size_t)test_random_int(1, 3);
        const size_t rank = (size_t)test_random_int(3, 5);
        const size_t count = (size_t)test_random_int(1, MOST_CHANNELS);
        struct shape shapes[3] = {test_random_shape(rank, 1, 7)};
        int64_t order[MOST_CHANNELS], all = 0;

        for (size_t i = 0; i < inputs; i++) {
            shapes[i] = shapes[0];
            shapes[i].dims[1] = test_random_int(1, 50);
            all += shapes[i].dims[1];
        }
        for (size_t c = 0; c < count; c++)
            order[c] = test_random_int(0, all - 1);
        run_mix(inputs, shapes, count, order);
    }
}

static void a_shuffle_of_two_values_is_right(void **state)
{
    static const int64_t halves[] = {8, 16, 24, 29, 45};

    (void)state;
    for (size_t i = 0; i < sizeof(halves) / sizeof(halves[0]); i++) {
        const struct shape shape = {4, {2, halves[i], 14, 15}}, shapes[] = {shape, shape};
        int64_t order[MOST_CHANNELS];

        for (int64_t c = 0; c < 2 * halves[i]; c++)
            order[c] = shuffled_channel(c, 2 * halves[i], 2);
        run_mix(2, shapes, 2 * (size_t)halves[i], order);
        run_mix(2, shapes, (size_t)halves[i], order + halves[i]);
    }
}

static void concat(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const int64_t cells = shape_product(&out->shape, 2, out->shape.rank);

    for (int64_t n = 0, at = 0; n < out->shape.dims[0]; n++)
        for (size_t i = 0; i < test->inputs; i++) {
            const int64_t count = in[i].shape.dims[1] * cells;

            for (int64_t k = 0; k < count; k++)
                out->values[at++] = in[i].values[n * count + k];
        }
}

static void channels_that_do_not_fill_blocks_are_joined(void **state)
{
    const struct concat_attrs attrs = {1};

    (void)state;
    for (int round = 0; round < 20; round++) {
        struct op_test test = {.op = "Concat",
                               .attrs = &attrs,
                               .inputs = (size_t)test_random_int(2, 4),
                               .reference = concat,
                               .rows = true};
        const struct shape shape = test_random_shape((size_t)test_random_int(3, 5), 1, 7);

        for (size_t i = 0; i < test.inputs; i++) {
            test.in[i] = (struct op_input){DTYPE_FLOAT, shape};
            test.in[i].shape.dims[1] = test_random_int(1, 40);
        }
        op_test_run(tester, &test);
    }
}

static void a_channel_that_is_not_there_is_refused(void **state)
{
    const int64_t order[] = {0, 6};
    const struct mix_channels_attrs attrs = {.from = {2, order}};
    const struct op_test test = {
        .op = "MixChannels",
        .domain = "sluice",
        .attrs = &attrs,
        .inputs = 2,
        .in = {{DTYPE_FLOAT, SHAPE(1, 3, 4)}, {DTYPE_FLOAT, SHAPE(1, 3, 4)}}};

    (void)state;
    assert_non_null(strstr(op_test_refused(tester, &test), "channel 1 comes from none"));
}

/* ---- convolutions ---- */

struct shuffle_form {
    int64_t n, c, h, w, m, k, stride, groups, x_shuffle, filter_shuffle;
};

/* There nobody asks for convolutions of shuffled channels, and not all have a kernel. */
static bool is_baseline(void)
{
    const char *isa = getenv("SLUICE_CPU");

    return isa != NULL && strcmp(isa, "baseline") == 0;
}

static void run_conv(const struct shuffle_form *form, bool residual, bool bias)
{
    int64_t strides[] = {form->stride, form->stride}, pad = form->k / 2;
    int64_t pads[] = {pad, pad, pad, pad};
    const struct conv_attrs attrs = {
        .window = {.strides = {2, strides}, .pads = {4, pads}},
        .group = form->groups,
        .epilogue = {.act = residual ? ACT_RELU : ACT_NONE, .has_residual = residual},
        .x_shuffle = form->x_shuffle,
        .filter_shuffle = form->filter_shuffle};
    struct op_test test = {
        .op = "Conv",
        .attrs = &attrs,
        .inputs = residual ? 4 : 3,
        .in = {{DTYPE_FLOAT, SHAPE(form->n, form->c, form->h, form->w), .low = -1, .high = 1},
               {DTYPE_FLOAT, SHAPE(form->m, form->c / form->groups, form->k, form->k),
                .constant = true, .low = -1, .high = 1},
               {DTYPE_FLOAT, SHAPE(form->m), .constant = true}},
        .reference = reference_conv,
        .relative = 1e-5,
        .absolute = 1e-4,
        .rows = true,
        .any_kernel = (form->x_shuffle | form->filter_shuffle) != 0 && is_baseline(),
    };
    struct conv_geometry g;

    if (!bias)
        test.in[CONV_BIAS].dtype = DTYPE_NONE;
    assert_int_equal(conv_resolve(&attrs, &test.in[0].shape, &test.in[1].shape, &g, NULL),
                     STATUS_OK);
    test.in[CONV_RESIDUAL] = (struct op_input){DTYPE_FLOAT, conv_output_shape(&g)};
    op_test_run(tester, &test);
}

static void a_convolution_reads_its_channels_in_a_shuffle(void **state)
{
    static const struct shuffle_form forms[] = {
        {2, 112, 9, 7, 136, 1, 1, 4, 4, 0},  {1, 136, 5, 6, 112, 1, 1, 4, 4, 0},
        {3, 60, 6, 5, 84, 1, 2, 3, 3, 0},    {2, 27, 11, 9, 24, 1, 1, 1, 3, 0},
        {1, 272, 14, 14, 68, 1, 1, 2, 4, 0}, {1, 33, 8, 8, 40, 3, 1, 1, 11, 0},
        {2, 64, 4, 33, 64, 1, 1, 2, 32, 0},
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(forms) / sizeof(forms[0]); i++)
        run_conv(&forms[i / 2], i % 2 == 0, i % 3 != 0);
}

static void filters_are_taken_in_a_shuffle(void **state)
{
    static const struct shuffle_form forms[] = {
        {2, 24, 9, 7, 112, 1, 1, 1, 0, 4}, {1, 40, 6, 6, 33, 1, 2, 1, 0, 3},
        {2, 48, 9, 9, 48, 3, 1, 48, 0, 4}, {2, 34, 15, 11, 34, 3, 2, 34, 0, 17},
        {1, 30, 6, 6, 30, 1, 1, 1, 5, 6},
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(forms) / sizeof(forms[0]); i++)
        run_conv(&forms[i / 2], i % 2 == 0, i % 3 != 0);
}

/* Blocks of the result that meet two groups, some as panels of their own. */
static void groups_across_blocks_are_right(void **state)
{
    static const struct shuffle_form forms[] = {
        {1, 68, 7, 6, 68, 1, 1, 2, 0, 0},   {2, 136, 8, 3, 136, 1, 1, 4, 0, 0},
        {1, 112, 5, 5, 272, 1, 1, 4, 0, 0}, {2, 40, 9, 8, 52, 3, 1, 4, 0, 0},
        {1, 45, 13, 7, 63, 3, 2, 3, 0, 0},  {1, 544, 3, 3, 544, 1, 1, 4, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(forms) / sizeof(forms[0]); i++)
        run_conv(&forms[i / 2], i % 2 == 0, i % 3 != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels_come_from_anywhere),
        cmocka_unit_test(a_shuffle_of_two_values_is_right),
        cmocka_unit_test(channels_that_do_not_fill_blocks_are_joined),
        cmocka_unit_test(a_channel_that_is_not_there_is_refused),
        cmocka_unit_test(a_convolution_reads_its_channels_in_a_shuffle),
        cmocka_unit_test(filters_are_taken_in_a_shuffle),
        cmocka_unit_test(groups_across_blocks_are_right),
    };

    return run_cases_on_each_isa(tests);
}
