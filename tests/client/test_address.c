#include "support/unit.h"

#include <string.h>

#include <sluice/sluice.h>

static void takes_tcp_and_unix_addresses(void **state)
{
    static const char *const good[] = {"127.0.0.1:8001", "[::1]:8001", "localhost:80",
                                       "unix:/run/x.sock", "unix:///run/x.sock"};

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct sluice_client *client;

        assert_int_equal(sluice_open(good[i], &client, NULL), SLUICE_OK);
        sluice_close(client);
    }
}

static void refuses_other_addresses_with_a_sentence(void **state)
{
    static const char *const bad[] = {
        "",           "localhost", ":80",    "host:",  "unix:", "host:http",
        "host:70000", "host:-1",   "[::1:1", "::1:80", "[]:80", "host:123456"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct sluice_client *client = NULL;
        struct sluice_error error;

        assert_int_equal(sluice_open(bad[i], &client, &error), SLUICE_INVALID_ARGUMENT);
        assert_null(client);
        assert_true(strlen(error.message) > 10);
    }
}

static void says_where_nobody_listens(void **state)
{
    struct sluice_client *client;
    struct sluice_error error;
    void *reply;
    size_t bytes;

    (void)state;
    assert_int_equal(sluice_open("unix:/nonexistent/sluice.sock", &client, &error), SLUICE_OK);
    assert_int_equal(sluice_call(client, "/x/Y", NULL, 0, 1000000, &reply, &bytes, &error),
                     SLUICE_UNAVAILABLE);
    assert_non_null(strstr(error.message, "/nonexistent/sluice.sock"));
    sluice_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_tcp_and_unix_addresses),
        cmocka_unit_test(refuses_other_addresses_with_a_sentence),
        cmocka_unit_test(says_where_nobody_listens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
