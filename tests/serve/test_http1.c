/* The HTTP/1.1 head parser: what it takes, what it refuses and by which status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "serve/http1.h"

static int parse(const char *text, struct http1_head *head)
{
    const char *why = NULL;
    int refusal = http1_parse_head(text, strlen(text), head, &why);

    assert_true((refusal == 0) == (why == NULL));
    return refusal;
}

static void a_plain_head_is_taken(void **state)
{
    struct http1_head head;

    (void)state;
    assert_int_equal(0, parse("POST /v2/models/m/infer?a=1 HTTP/1.1\r\nHost: x\r\n"
                              "Content-Length: 12\r\nInference-Header-Content-Length: 7\r\n"
                              "Accept-Encoding: br, gzip;q=0.5, deflate;q=0\r\n"
                              "Content-Encoding: gzip\r\n\r\n",
                              &head));
    assert_int_equal(HTTP1_POST, head.method);
    assert_memory_equal("/v2/models/m/infer", head.path.data, head.path.size);
    assert_memory_equal("a=1", head.query.data, head.query.size);
    assert_int_equal(12, head.content_length);
    assert_true(head.has_json_length);
    assert_int_equal(7, head.json_length);
    assert_true(head.keep_alive);
    assert_true(head.accepts_gzip);
    assert_false(head.accepts_deflate);
    assert_int_equal(CODING_GZIP, head.coding);
}

static void a_whole_address_means_its_path(void **state)
{
    static const char *const targets[] = {"http://host/v2/x", "HTTP://h:80/v2/x", "/v2/x"};
    struct http1_head head;
    char text[128];

    (void)state;
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        (void)snprintf(text, sizeof(text), "GET %s?a HTTP/1.1\r\nHost: x\r\n\r\n", targets[i]);
        assert_int_equal(0, parse(text, &head));
        assert_true(slice_is(head.path, "/v2/x"));
        assert_true(slice_is(head.query, "a"));
    }
    assert_int_equal(0, parse("GET http://host HTTP/1.1\r\nHost: x\r\n\r\n", &head));
    assert_true(slice_is(head.path, "http://host")); /* no path of ours */
}

static void an_old_client_is_not_told_to_continue(void **state)
{
    struct http1_head head;

    (void)state;
    assert_int_equal(0, parse("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", &head));
    assert_true(head.expects_continue);
    assert_int_equal(0, parse("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", &head));
    assert_false(head.expects_continue);
}

static void connection_options_decide_whether_it_stays_open(void **state)
{
    struct http1_head head;

    (void)state;
    assert_int_equal(0,
                     parse("GET / HTTP/1.1\r\nHost: x\r\nConnection: foo, Close\r\n\r\n", &head));
    assert_false(head.keep_alive);
    assert_int_equal(0, parse("GET / HTTP/1.0\r\n\r\n", &head));
    assert_false(head.keep_alive);
    assert_int_equal(0, parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &head));
    assert_true(head.keep_alive);
}

static void what_could_be_read_two_ways_is_refused(void **state)
{
    static const struct {
        const char *text;
        int refusal;
    } cases[] = {
        {"GET / HTTP/1.1\r\n\r\n", 400},                       /* no Host */
        {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400}, /* two */
        {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},           /* space */
        {"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400},      /* obs-fold */
        {"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400},      /* bare LF */
        {"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", 400}, /* control */
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1,1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
         400},
        {"GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", 417},
        {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 400},
        {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n: a\r\n\r\n", 400},
        {"\r\n\r\n", 400},
    };
    struct http1_head head;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (parse(cases[i].text, &head) != cases[i].refusal)
            fail_msg("case %zu: %s", i, cases[i].text);
    }
}

static void a_nul_in_a_value_is_refused(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n";
    const char *why = NULL;
    struct http1_head head;

    (void)state;
    assert_int_equal(400, http1_parse_head(text, sizeof(text) - 1, &head, &why));
}

static void too_many_fields_are_refused(void **state)
{
    char text[4096] = "GET / HTTP/1.1\r\nHost: a\r\n";
    struct http1_head head;

    (void)state;
    for (int i = 0; i < HTTP1_FIELDS_MAX; i++)
        (void)strcat(text, "X: y\r\n");
    (void)strcat(text, "\r\n");
    assert_int_equal(431, parse(text, &head));
}

static void chunk_sizes_are_hex_digits_and_nothing_else(void **state)
{
    uint64_t size = 0;

    (void)state;
    assert_true(http1_parse_chunk_size("1aF", 3, &size));
    assert_int_equal(0x1af, size);
    assert_true(http1_parse_chunk_size("0;ext=1", 7, &size));
    assert_int_equal(0, size);
    assert_true(http1_parse_chunk_size("5 \t;a", 5, &size));
    assert_true(http1_parse_chunk_size("5 ", 2, &size));
    assert_int_equal(5, size);
    assert_false(http1_parse_chunk_size("5 6", 3, &size));
    assert_false(http1_parse_chunk_size(" 5", 2, &size));
    assert_false(http1_parse_chunk_size("", 0, &size));
    assert_false(http1_parse_chunk_size("0x6", 3, &size));
    assert_false(http1_parse_chunk_size("+6", 2, &size));
    assert_false(http1_parse_chunk_size("123456789", 9, &size));
}

static void a_head_that_can_never_end_is_known_by_its_start(void **state)
{
    static const struct {
        const char *start, *why;
    } cases[] = {
        {"\x16\x03\x01\x02", "TLS"},
        {"\x80.\x01", "not an HTTP request"},
        {"GET / HTTP/1.1\n", "LF without CR"},
        {"GET / HTTP/1.1\r\nHost: x\n", "LF without CR"},
        {"GET / HTTP/1.1\r\nHost: x\r\n", NULL},
        {"GET / HTTP/1.1\r", NULL},
        {"\r", NULL},
        {"G", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *why = http1_find_hopeless(cases[i].start, strlen(cases[i].start));

        assert_true((why == NULL) == (cases[i].why == NULL));
        if (why != NULL)
            assert_non_null(strstr(why, cases[i].why));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_head_is_taken),
        cmocka_unit_test(a_whole_address_means_its_path),
        cmocka_unit_test(an_old_client_is_not_told_to_continue),
        cmocka_unit_test(connection_options_decide_whether_it_stays_open),
        cmocka_unit_test(what_could_be_read_two_ways_is_refused),
        cmocka_unit_test(a_nul_in_a_value_is_refused),
        cmocka_unit_test(too_many_fields_are_refused),
        cmocka_unit_test(a_head_that_can_never_end_is_known_by_its_start),
        cmocka_unit_test(chunk_sizes_are_hex_digits_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
