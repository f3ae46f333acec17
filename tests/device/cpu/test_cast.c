#include <math.h>
#include <string.h>

#include "ops/elementwise.h"
#include "support/cpu_cases.h"

static void as_it_is(const struct op_test *test, const struct test_array *in,
                     struct test_array *out)
{
    (void)test;
    for (int64_t i = 0; i < shape_count(&out->shape); i++)
        out->values[i] = dtype_is_float(out->dtype) ? in->values[i]
                         : out->dtype == DTYPE_BOOL ? in->values[i] != 0
                                                    : trunc(in->values[i]);
}

static void every_number_becomes_every_other(void **state)
{
    for (int from = 1; from < DTYPE_COUNT; from++)
        for (int to = 1; to < DTYPE_COUNT; to++) {
            struct cast_attrs attrs = {.to = to, .saturate = 1};
            struct op_test test = {
                .op = "Cast", .attrs = &attrs, .inputs = 1, .reference = as_it_is};
            bool number = ((DTYPE_NUMBERS | DTYPE_BIT(BOOL)) >> from & 1) != 0 &&
                          ((DTYPE_NUMBERS | DTYPE_BIT(BOOL)) >> to & 1) != 0;

            test.in[0] =
                (struct op_input){(enum dtype)from, test_random_shape(4, 1, 9), NULL,
                                  from == DTYPE_BOOL ? 0 : 0.5, from == DTYPE_BOOL ? 2 : 100};
            if (number)
                op_test_run(*state, &test);
        }
}

static void cast_like_takes_the_type_of_its_second_input(void **state)
{
    struct op_test test = {.op = "CastLike",
                           .inputs = 2,
                           .in = {{DTYPE_FLOAT, SHAPE(3, 4)}, {DTYPE_INT16, SHAPE(1)}},
                           .reference = as_it_is};

    op_test_run(*state, &test);
}

static struct tensor cast(void **state, const struct tensor *in, enum dtype to)
{
    struct cast_attrs attrs = {.to = to, .saturate = 1};
    const struct tensor *ins[] = {in};
    struct tensor out = {DTYPE_NONE};

    assert_int_equal(op_tester_eval(*state, NULL, "Cast", &attrs, 1, ins, false, 1, &out, NULL),
                     STATUS_OK);
    return out;
}

static void text_is_written_as_numpy_writes_it(void **state)
{
    const float numbers[] = {1, -0.5f, 0.1f, 1e-5f, 3e20f, NAN, INFINITY, -INFINITY, 123456.7f, 0};
    const char *const texts[] = {"1.0", "-0.5", "0.1",  "1e-05",    "3e+20",
                                 "NaN", "INF",  "-INF", "123456.7", "0.0"};
    const int8_t integers[] = {-128, 7};
    struct tensor in = {DTYPE_FLOAT, SHAPE(10), numbers}, out = cast(state, &in, DTYPE_STRING);

    for (size_t i = 0; i < 10; i++) {
        const struct bytes *text = (const struct bytes *)out.data + i;

        assert_int_equal(text->size, strlen(texts[i]));
        assert_memory_equal(text->data, texts[i], text->size);
    }
    op_tester_free(&out);
    in = (struct tensor){DTYPE_INT8, SHAPE(2), integers};
    out = cast(state, &in, DTYPE_STRING);
    assert_memory_equal(((const struct bytes *)out.data)[0].data, "-128", 4);
    op_tester_free(&out);
}

static void text_is_read_as_numbers(void **state)
{
    const struct bytes texts[] = {{"3.5", 3}, {"-1e3", 4}, {"INF", 3}, {"NaN", 3}};
    const struct bytes integers[] = {{"12", 2}, {"-7", 2}}, wrong[] = {{"12x", 3}};
    struct cast_attrs attrs = {.to = DTYPE_INT32};
    struct tensor in = {DTYPE_STRING, SHAPE(4), texts}, out = cast(state, &in, DTYPE_FLOAT);
    const struct tensor *ins[] = {&in};

    assert_true(((const float *)out.data)[0] == 3.5f && ((const float *)out.data)[1] == -1000);
    assert_true(isinf(((const float *)out.data)[2]) && isnan(((const float *)out.data)[3]));
    op_tester_free(&out);
    in = (struct tensor){DTYPE_STRING, SHAPE(2), integers};
    out = cast(state, &in, DTYPE_INT32);
    assert_int_equal(((const int32_t *)out.data)[1], -7);
    op_tester_free(&out);
    in = (struct tensor){DTYPE_STRING, SHAPE(1), wrong};
    assert_int_equal(op_tester_eval(*state, NULL, "Cast", &attrs, 1, ins, false, 1, &out, NULL),
                     STATUS_INVALID);
}

static void numbers_out_of_range_have_a_result(void **state)
{
    const float numbers[] = {NAN, INFINITY, 1e30f, -1e30f, 300};
    struct tensor in = {DTYPE_FLOAT, SHAPE(5), numbers}, out;

    for (int to = 1; to < DTYPE_COUNT; to++)
        if ((DTYPE_INTS >> to & 1) != 0) {
            out = cast(state, &in, (enum dtype)to);
            op_tester_free(&out);
        }
}

static void doubles_are_rounded_to_half_once(void **state)
{
    const double numbers[] = {1 + 0x1p-11 + 0x1p-40}; /* a float would be a tie, to even: 1 */
    struct tensor in = {DTYPE_DOUBLE, SHAPE(1), numbers}, out = cast(state, &in, DTYPE_FLOAT16);

    assert_int_equal(((const uint16_t *)out.data)[0], 0x3C01);
    op_tester_free(&out);
}

/* ---- what passes through ---- */

static double itself(double x)
{
    return x;
}

static void identity_and_dropout_pass_their_input(void **state)
{
    struct op_test identity = {
        .op = "Identity", .inputs = 1, .in = {{DTYPE_INT16, SHAPE(2, 9, 3)}}, .scalar = itself};
    struct op_test dropout = {
        .op = "Dropout", .inputs = 1, .in = {{DTYPE_FLOAT, SHAPE(2, 9, 3)}}, .scalar = itself};

    op_test_run(*state, &identity);
    op_test_run(*state, &dropout);
}

static void keep_all(const struct op_test *test, const struct test_array *in,
                     struct test_array *out)
{
    (void)test;
    for (int64_t i = 0; i < shape_count(&in->shape); i++) {
        out[0].values[i] = in->values[i];
        out[1].values[i] = 1;
    }
}

static void dropout_masks_nothing_and_does_not_train(void **state)
{
    static const double ratio[] = {0.5}, yes[] = {1};
    struct op_test test = {
        .op = "Dropout",
        .inputs = 3,
        .in = {{DTYPE_FLOAT, SHAPE(2, 9, 3)}, {DTYPE_FLOAT, SHAPE_SCALAR, ratio}, {DTYPE_NONE}},
        .outputs = 2,
        .reference = keep_all};

    op_test_run(*state, &test);
    test.in[2] = (struct op_input){DTYPE_BOOL, SHAPE_SCALAR, yes, .constant = true};
    assert_non_null(strstr(op_test_refused(*state, &test), "training_mode"));
}

static void within(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    for (int64_t i = 0; i < shape_count(&in->shape); i++) {
        double x = in->values[i];

        if (in[1].dtype != DTYPE_NONE)
            x = fmax(x, in[1].values[0]);
        if (test->inputs > 2)
            x = fmin(x, in[2].values[0]);
        out->values[i] = x;
    }
}

static void clip_keeps_within_its_bounds(void **state)
{
    static const double low[] = {3}, high[] = {9};

    for (int dtype = 1; dtype < DTYPE_COUNT; dtype++)
        for (int k = 0; k < 4 && (DTYPE_NUMBERS >> dtype & 1) != 0; k++) {
            struct op_test test = {.op = "Clip", .inputs = k % 2 == 0 ? 3 : 2, .reference = within};

            test.in[0] = (struct op_input){(enum dtype)dtype, SHAPE(2, 11, 3, 2), NULL, 0, 15};
            test.in[1] = (struct op_input){k > 1 ? DTYPE_NONE : (enum dtype)dtype, SHAPE_SCALAR,
                                           low, .constant = true};
            test.in[2] =
                (struct op_input){(enum dtype)dtype, SHAPE_SCALAR, high, .constant = k == 0};
            op_test_run(*state, &test);
        }
}

static void special(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct is_inf_attrs *attrs = test->attrs;

    for (int64_t i = 0; i < shape_count(&in->shape); i++) {
        double x = in->values[i];

        if (strcmp(test->op, "IsNaN") == 0)
            out->values[i] = isnan(x) != 0;
        else
            out->values[i] = isinf(x) && (x > 0 ? attrs->detect_positive : attrs->detect_negative);
    }
}

static void special_numbers_are_found(void **state)
{
    static const double numbers[] = {NAN, INFINITY, -INFINITY, 0, -1, 1};
    static const enum dtype dtypes[] = {DTYPE_FLOAT, DTYPE_DOUBLE, DTYPE_FLOAT16, DTYPE_BFLOAT16};

    for (int64_t k = 0; k < 4; k++)
        for (size_t d = 0; d < 4; d++) {
            struct is_inf_attrs attrs = {k & 1, k >> 1};
            struct op_test test = {.op = "IsInf",
                                   .attrs = &attrs,
                                   .inputs = 1,
                                   .in = {{dtypes[d], SHAPE(1, 6, 1), numbers}},
                                   .reference = special};

            op_test_run(*state, &test);
            test.op = "IsNaN";
            test.attrs = NULL;
            op_test_run(*state, &test);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_becomes_every_other),
        cmocka_unit_test(cast_like_takes_the_type_of_its_second_input),
        cmocka_unit_test(text_is_written_as_numpy_writes_it),
        cmocka_unit_test(text_is_read_as_numbers),
        cmocka_unit_test(numbers_out_of_range_have_a_result),
        cmocka_unit_test(doubles_are_rounded_to_half_once),
        cmocka_unit_test(identity_and_dropout_pass_their_input),
        cmocka_unit_test(dropout_masks_nothing_and_does_not_train),
        cmocka_unit_test(clip_keeps_within_its_bounds),
        cmocka_unit_test(special_numbers_are_found),
    };

    return cmocka_run_group_tests(tests, open_tester, close_tester);
}
