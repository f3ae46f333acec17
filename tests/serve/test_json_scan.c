/* The JSON scanner: strictness, exact numbers, tensors of every type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/codec/json_scan.h"

static char text[1 << 16];

static struct json_scan over(const char *json)
{
    (void)snprintf(text, sizeof(text), "%s", json);
    return scan_over(text, strlen(text));
}

static bool skips(const char *json)
{
    struct json_scan scan = over(json);

    return scan_skip(&scan) && scan_finish(&scan);
}

static void documents_are_taken_or_refused(void **state)
{
    static const char *const good[] = {"{}",         "[]",          " [ 1 , 2.5e-3 , \"a\" ] ",
                                       "{\"a\":{}}", "[[[]]]",      "[null,true,false]",
                                       "[NaN]",      "[-Infinity]", "\"\\ud83d\\ude00\""};
    static const char *const bad[] = {
        "",         "{",     "[1,]",  "{\"a\"}", "{\"a\":1,}", "[1 2]",   "[01]",        "[1.]",
        "[.5]",     "[1e]",  "[-]",   "[+1]",    "\"a",        "\"\\x\"", "\"\\ud83d\"", "\"\x01\"",
        "\"\xff\"", "{1:2}", "[tru]", "[] []",   "{\"a\" 1}",  "[1",      "\"\\u12\"",   "[Inf]"};

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (!skips(good[i]))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (skips(bad[i]))
            fail_msg("taken: %s", bad[i]);
}

static bool takes_depth(int depth)
{
    char json[512] = {0};

    memset(json, '[', (size_t)depth);
    memset(json + depth, ']', (size_t)depth);
    return skips(json);
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    assert_true(takes_depth(JSON_DEPTH_MAX));
    assert_false(takes_depth(JSON_DEPTH_MAX + 1));
}

static void strings_are_unescaped_in_place(void **state)
{
    struct json_scan scan = over("\"a\\n\\\"\\u00e9\\ud83d\\ude00\\/\"");
    struct slice slice;

    (void)state;
    assert_true(scan_string(&scan, &slice));
    assert_int_equal(10, slice.size);
    assert_memory_equal("a\n\"\xC3\xA9\xF0\x9F\x98\x80/", slice.data, slice.size);
}

static void skipped_strings_stay_as_they_are(void **state)
{
    static const char json[] = "{\"a\\nb\":\"\\u0041\"}";
    struct json_scan scan = over(json);

    (void)state;
    assert_true(scan_skip(&scan));
    assert_string_equal(json, text);
}

static void numbers_are_those_of_strtod(void **state)
{
    static const char *const numbers[] = {"0",
                                          "-0",
                                          "1",
                                          "0.1",
                                          "1e22",
                                          "1e23",
                                          "123456789012345678",
                                          "1.7976931348623157e308",
                                          "5e-324",
                                          "2.2250738585072014e-308",
                                          "9007199254740993",
                                          "0.3",
                                          "1e-7",
                                          "3.4028235e38",
                                          "100000000000000000000000",
                                          "0.000000000000000000000000000012345678901234567890",
                                          "1.00000000000000000000000000000000000001",
                                          "123456.789e-10",
                                          "4.9e-324",
                                          "8.5e15"};

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char json[128];
        struct json_scan scan;
        double value = 0, expected = strtod(numbers[i], NULL);
        size_t count = 0;

        (void)snprintf(json, sizeof(json), "[%s]", numbers[i]);
        scan = over(json);
        assert_true(scan_tensor(&scan, DTYPE_DOUBLE, &value, 1, &count));
        assert_int_equal(1, count);
        if (memcmp(&value, &expected, sizeof(value)) != 0)
            fail_msg("%s: %.17g, not %.17g", numbers[i], value, expected);
    }
}

static void random_numbers_are_those_of_strtod(void **state)
{
    uint64_t seed = 42;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        char json[64];
        struct json_scan scan;
        double value = 0, expected;
        size_t count = 0;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        (void)snprintf(json, sizeof(json), "[%.*g]", (int)(seed >> 60) + 3,
                       (double)(int64_t)seed / (double)(1 + (seed >> 20 & 0xFFFFF)));
        expected = strtod(json + 1, NULL);
        scan = over(json);
        assert_true(scan_tensor(&scan, DTYPE_DOUBLE, &value, 1, &count));
        if (value != expected)
            fail_msg("%s: %.17g, not %.17g (round %d)", json, value, expected, i);
    }
}

static void tensors_may_be_nested_or_flat(void **state)
{
    static const char *const forms[] = {"[1,2,3,4]", "[[1,2],[3,4]]", "[[[1],[2]],[[3],[4]]]"};
    static const int32_t expected[] = {1, 2, 3, 4};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct json_scan scan = over(forms[i]);
        int32_t values[4] = {0};
        size_t count = 0;

        assert_true(scan_tensor(&scan, DTYPE_INT32, values, 4, &count));
        assert_true(scan_finish(&scan));
        assert_int_equal(4, count);
        assert_memory_equal(expected, values, sizeof(values));
    }
}

static void surplus_elements_are_counted_and_not_stored(void **state)
{
    struct json_scan scan = over("[1,2,3]");
    int8_t values[3] = {9, 9, 9};
    size_t count = 0;

    (void)state;
    assert_true(scan_tensor(&scan, DTYPE_INT8, values, 2, &count));
    assert_int_equal(3, count);
    assert_int_equal(9, values[2]);
}

static bool reads(enum dtype dtype, const char *json)
{
    struct json_scan scan = over(json);
    uint64_t values[8];
    size_t count;

    return scan_tensor(&scan, dtype, values, 4, &count);
}

static void integers_outside_their_type_are_refused(void **state)
{
    (void)state;
    assert_true(reads(DTYPE_INT8, "[-128,127]"));
    assert_false(reads(DTYPE_INT8, "[128]"));
    assert_false(reads(DTYPE_INT8, "[-129]"));
    assert_true(reads(DTYPE_UINT8, "[255,0]"));
    assert_false(reads(DTYPE_UINT8, "[-1]"));
    assert_false(reads(DTYPE_UINT8, "[1.0]"));
    assert_true(reads(DTYPE_INT64, "[-9223372036854775808,9223372036854775807]"));
    assert_false(reads(DTYPE_INT64, "[9223372036854775808]"));
    assert_true(reads(DTYPE_UINT64, "[18446744073709551615]"));
    assert_false(reads(DTYPE_UINT64, "[18446744073709551616]"));
    assert_false(reads(DTYPE_FLOAT, "[1e39]"));
    assert_false(reads(DTYPE_FLOAT, "[1e400]"));
    assert_false(reads(DTYPE_DOUBLE, "[-1e400]"));
    assert_true(reads(DTYPE_FLOAT, "[-Infinity]"));
    assert_true(reads(DTYPE_FLOAT, "[3.4028235e38]"));
    assert_false(reads(DTYPE_FLOAT16, "[70000]"));
    assert_true(reads(DTYPE_FLOAT16, "[65504]"));
    assert_true(reads(DTYPE_BOOL, "[true,false,1,0]"));
    assert_false(reads(DTYPE_BOOL, "[2]"));
    assert_false(reads(DTYPE_FLOAT, "[\"1\"]"));
    assert_false(reads(DTYPE_STRING, "[1]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_taken_or_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(strings_are_unescaped_in_place),
        cmocka_unit_test(skipped_strings_stay_as_they_are),
        cmocka_unit_test(numbers_are_those_of_strtod),
        cmocka_unit_test(random_numbers_are_those_of_strtod),
        cmocka_unit_test(tensors_may_be_nested_or_flat),
        cmocka_unit_test(surplus_elements_are_counted_and_not_stored),
        cmocka_unit_test(integers_outside_their_type_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
