#include "pickle.h"

#include <stdlib.h>
#include <string.h>

#include "support/unit.h"

/* The pickle of a JSON text must be these bytes. */
static void check(const char *json, const char *tuple_key, const void *expected, size_t size)
{
    json_t *document = json_loads(json, JSON_DECODE_ANY, NULL);
    char *bytes = NULL;
    size_t written = 0;
    FILE *to = open_memstream(&bytes, &written);

    assert_non_null(document);
    assert_true(pickle_write(document, tuple_key, to));
    assert_int_equal(fclose(to), 0);
    assert_int_equal(written, size);
    assert_memory_equal(bytes, expected, size);
    free(bytes);
    json_decref(document);
}

#define CHECK(json, bytes)              check(json, NULL, bytes, sizeof(bytes) - 1)
#define CHECK_TUPLE(json, tuple, bytes) check(json, tuple, bytes, sizeof(bytes) - 1)

/* Expected bytes: pickletools.dis of Python reads them; opcodes as pickle.dumps(…, protocol=2) has
 * them, but for the memo. */
static void numbers_take_the_shortest_form(void **state)
{
    (void)state;
    CHECK("0", "\x80\x02K\x00.");
    CHECK("255", "\x80\x02K\xff.");
    CHECK("256", "\x80\x02M\x00\x01.");
    CHECK("65536", "\x80\x02J\x00\x00\x01\x00.");
    CHECK("-1", "\x80\x02J\xff\xff\xff\xff.");
    CHECK("2147483648", "\x80\x02\x8a\x08\x00\x00\x00\x80\x00\x00\x00\x00.");
    CHECK("-2147483649", "\x80\x02\x8a\x08\xff\xff\xff\x7f\xff\xff\xff\xff.");
    CHECK("1.5", "\x80\x02G\x3f\xf8\x00\x00\x00\x00\x00\x00.");
}

static void words_and_texts(void **state)
{
    (void)state;
    CHECK("true", "\x80\x02\x88.");
    CHECK("false", "\x80\x02\x89.");
    CHECK("null", "\x80\x02N.");
    CHECK("\"\\u00e9a\"", "\x80\x02X\x03\x00\x00\x00\xc3\xa9"
                          "a.");
}

static void lists_and_dicts_nest(void **state)
{
    (void)state;
    CHECK("[]", "\x80\x02](e.");
    CHECK("[1,[2]]", "\x80\x02](K\x01](K\x02"
                     "ee.");
    CHECK("{}", "\x80\x02}(u.");
    CHECK("{\"a\":[1]}", "\x80\x02}(X\x01\x00\x00\x00"
                         "a](K\x01"
                         "eu.");
}

static void a_pair_under_the_key_becomes_a_tuple(void **state)
{
    (void)state;
    CHECK_TUPLE("{\"a\":[1,2]}", "a",
                "\x80\x02}(X\x01\x00\x00\x00"
                "aK\x01K\x02\x86u.");
    CHECK_TUPLE("{\"b\":[1,2]}", "a",
                "\x80\x02}(X\x01\x00\x00\x00"
                "b](K\x01K\x02"
                "eu.");
}

static void a_stream_that_fails_is_told(void **state)
{
    json_t *document = json_pack("[s]", "text");
    FILE *to = fopen("/dev/full", "w");

    (void)state;
    assert_non_null(to);
    setbuf(to, NULL);
    assert_false(pickle_write(document, NULL, to));
    (void)fclose(to);
    json_decref(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_take_the_shortest_form),
        cmocka_unit_test(words_and_texts),
        cmocka_unit_test(lists_and_dicts_nest),
        cmocka_unit_test(a_pair_under_the_key_becomes_a_tuple),
        cmocka_unit_test(a_stream_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
