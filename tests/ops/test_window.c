/* Windows: sizes of outputs and padding for every attribute, and refusals by name. */
#include "support/unit.h"

#include <string.h>

#include "ops/window.h"

static const struct shape input = {4, {1, 1, 7, 10}};

static struct window resolve(const struct window_attrs *attrs, bool ceil_mode)
{
    struct window window;

    assert_ok(window_resolve(attrs, &input, NULL, ceil_mode, &window, NULL));
    return window;
}

static void refused(const struct window_attrs *attrs, const struct shape *shape, const char *words)
{
    struct window window;
    struct error err;

    assert_int_not_equal(window_resolve(attrs, shape, NULL, false, &window, &err), STATUS_OK);
    assert_non_null(strstr(err.text, words));
}

static void sizes_follow_padding_stride_and_dilation(void **state)
{
    int64_t kernel[] = {3, 2}, strides[] = {2, 3}, dilations[] = {1, 2}, pads[] = {1, 0, 0, 2};
    struct window_attrs attrs = {.kernel_shape = {2, kernel}};
    struct window window = resolve(&attrs, false);

    (void)state;
    assert_int_equal(window.out[0], 5);
    assert_int_equal(window.out[1], 9);
    attrs.strides = (struct ints){2, strides};
    attrs.dilations = (struct ints){2, dilations};
    attrs.pads = (struct ints){4, pads};
    window = resolve(&attrs, false);
    assert_int_equal(window.out[0], 3);
    assert_int_equal(window.out[1], 4);
    assert_int_equal(window.pad_begin[0], 1);
    assert_int_equal(window.pad_end[1], 2);
}

static void ceil_mode_leaves_out_windows_behind_the_end(void **state)
{
    int64_t kernel[] = {1, 2}, strides[] = {4, 3};
    struct window_attrs attrs = {.kernel_shape = {2, kernel}, .strides = {2, strides}};
    struct window window = resolve(&attrs, true);

    (void)state;
    assert_int_equal(window.out[0], 2); /* a third would start at cell 8 of 7 */
    assert_int_equal(window.out[1], 4);
}

static void same_padding_splits_upper_and_lower(void **state)
{
    int64_t kernel[] = {2, 3}, strides[] = {1, 4};
    struct window_attrs attrs = {
        .auto_pad = AUTO_PAD_SAME_UPPER, .kernel_shape = {2, kernel}, .strides = {2, strides}};
    struct window window = resolve(&attrs, false);

    (void)state;
    assert_int_equal(window.out[0], 7);
    assert_int_equal(window.out[1], 3);
    assert_int_equal(window.pad_begin[0], 0);
    assert_int_equal(window.pad_end[0], 1);
    attrs.auto_pad = AUTO_PAD_SAME_LOWER;
    window = resolve(&attrs, false);
    assert_int_equal(window.pad_begin[0], 1);
    assert_int_equal(window.pad_end[0], 0);
}

static void transposed_sizes_invert_the_others(void **state)
{
    int64_t kernel[] = {3, 3}, strides[] = {3, 2}, wanted[] = {25, 20};
    struct window_attrs attrs = {.strides = {2, strides}};
    struct ints none = {0}, output_shape = {2, wanted};
    struct window window;

    (void)state;
    assert_ok(window_resolve_transposed(&attrs, &input, kernel, &none, &none, &window, NULL));
    assert_int_equal(window.out[0], 21);
    assert_int_equal(window.out[1], 21);
    assert_ok(
        window_resolve_transposed(&attrs, &input, kernel, &none, &output_shape, &window, NULL));
    assert_int_equal(window.out[0], 25); /* more than the windows reach: padded with the bias */
    assert_int_equal(window.pad_begin[0], 0);
    assert_int_equal(window.pad_begin[1], 1);
}

/* With strides over the window nobody agrees where windows begin, but for a last cell left over. */
static void same_padding_below_nothing_is_refused(void **state)
{
    int64_t kernel[] = {1, 1}, strides[] = {3, 1};
    struct window_attrs attrs = {.kernel_shape = {2, kernel}, .strides = {2, strides}};
    struct shape nine = {4, {1, 1, 9, 4}}, eight = {4, {1, 1, 8, 4}};
    struct ints none = {0};
    struct window window;

    (void)state;
    for (attrs.auto_pad = AUTO_PAD_SAME_UPPER; attrs.auto_pad <= AUTO_PAD_SAME_LOWER;
         attrs.auto_pad++) {
        refused(&attrs, &nine, "padding would be -2");
        assert_ok(window_resolve(&attrs, &eight, NULL, false, &window, NULL));
        assert_int_equal(window.out[0], 3);
        assert_int_equal(window.pad_begin[0], 0);
        assert_int_equal(window_resolve_transposed(&attrs, &eight, kernel, &none, &none, &window,
                                                   &(struct error){0}),
                         STATUS_UNSUPPORTED);
    }
}

static void bad_numbers_are_refused_by_name(void **state)
{
    int64_t kernel[] = {3, 3}, zero[] = {0, 1}, huge[] = {INT64_MAX, 1}, minus[] = {-1, 0, 0, 0};
    struct window_attrs attrs = {.kernel_shape = {2, kernel}};
    const struct shape flat = {2, {3, 4}}, empty = {4, {1, 1, 0, 4}}, small = {4, {1, 1, 2, 9}};

    (void)state;
    refused(&attrs, &flat, "[3,4]");
    refused(&attrs, &empty, "[1,1,0,4]");
    refused(&attrs, &small, "does not fit");
    attrs.strides = (struct ints){2, zero};
    refused(&attrs, &input, "strides");
    attrs.strides = (struct ints){1, kernel};
    refused(&attrs, &input, "strides");
    attrs.strides = (struct ints){0};
    attrs.dilations = (struct ints){2, huge};
    refused(&attrs, &input, "dilations");
    attrs.dilations = (struct ints){0};
    attrs.pads = (struct ints){4, minus};
    refused(&attrs, &input, "pads");
    attrs.pads = attrs.kernel_shape = (struct ints){0};
    refused(&attrs, &input, "kernel_shape");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_padding_stride_and_dilation),
        cmocka_unit_test(ceil_mode_leaves_out_windows_behind_the_end),
        cmocka_unit_test(same_padding_splits_upper_and_lower),
        cmocka_unit_test(transposed_sizes_invert_the_others),
        cmocka_unit_test(same_padding_below_nothing_is_refused),
        cmocka_unit_test(bad_numbers_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
