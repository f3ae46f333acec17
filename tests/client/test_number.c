#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

#include "number.h"

/* What a number of the type is printed as; NULL: refused. */
static const char *through(const char *text, const char *datatype)
{
    static char printed[64];
    char bytes[8] = {0};
    const char *end;
    FILE *to = fmemopen(printed, sizeof(printed), "w");

    assert_non_null(to);
    if (!number_read(text, datatype, bytes, &end) || *end != '\0') {
        (void)fclose(to);
        return NULL;
    }
    number_print(to, datatype, bytes);
    (void)fclose(to);
    return printed;
}

static void numbers_come_back_the_same(void **state)
{
    static const struct {
        const char *datatype, *text;
    } rows[] = {{"INT64", "9007199254740993"},
                {"INT64", "-9223372036854775808"},
                {"UINT64", "18446744073709551615"},
                {"INT8", "-128"},
                {"UINT8", "255"},
                {"BOOL", "1"},
                {"FP64", "0.10000000000000001"},
                {"FP32", "3.40282347e+38"},
                {"BF16", "1.5"},
                {"BF16", "-2"},
                {"FP16", "65504"}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(through(rows[i].text, rows[i].datatype), rows[i].text);
    assert_string_equal(through("nan", "FP16"), "NaN");
    assert_string_equal(through("-inf", "FP32"), "-Infinity");
    assert_string_equal(through("1.01", "BF16"), "1.0078125");
    assert_string_equal(through("1.006", "BF16"), "1.0078125"); /* rounded, not cut */
}

static void what_a_type_cannot_hold_is_refused(void **state)
{
    static const struct {
        const char *datatype, *text;
    } rows[] = {{"INT8", "128"},   {"INT8", "-129"},  {"UINT8", "-1"},
                {"UINT8", "256"},  {"INT32", "1.5"},  {"INT64", "9223372036854775808"},
                {"INT64", "1e3"},  {"INT64", "nan"},  {"UINT64", "18446744073709551616"},
                {"BOOL", "2"},     {"FP16", "65520"}, {"FP32", "3.5e38"},
                {"FP32", "1e400"}, {"FP64", "1e400"}, {"BF16", "3.4e38"},
                {"FP32", ""},      {"FP32", "x"},     {"FP32", " 1"},
                {"UINT64", "-1"}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_null(through(rows[i].text, rows[i].datatype));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_back_the_same),
        cmocka_unit_test(what_a_type_cannot_hold_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
