#include "summary.h"

#include <stdlib.h>
#include <string.h>

#include "support/unit.h"

static const char answer[] =
    "{\"device\":\"cpu: test\",\"stats\":{"
    "\"allocated_bytes\":{\"all\":{\"current\":1048576,\"peak\":786431,\"allocated\":3,\"freed\":4}"
    ","
    "\"weights\":{\"current\":786432,\"peak\":0,\"allocated\":0,\"freed\":0}},"
    "\"num_ooms\":7,\"num_alloc_retries\":8,\"num_device_alloc\":9,\"num_device_free\":10},"
    "\"models\":[{\"name\":\"m/1\",\"stats\":{\"requested_bytes\":"
    "{\"current\":11,\"peak\":12,\"allocated\":13,\"freed\":14}},\"num_ooms\":15}]}";

typedef void (*print_fn)(const json_t *document, FILE *to);

/* To be freed. */
static char *print(print_fn fn, const char *json)
{
    json_t *document = json_loads(json, 0, NULL);
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    assert_non_null(document);
    fn(document, to);
    assert_int_equal(fclose(to), 0);
    json_decref(document);
    return text;
}

static void the_table_has_pytorch_s_layout(void **state)
{
    char *text = print(summary_print, answer);

    (void)state;
    assert_non_null(strstr(text, "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | "
                                 "Tot Freed  |\n"));
    assert_non_null(strstr(text,
                           "| Allocated memory      |   1024 KiB | 786431 B   |      3 B   |  "
                           "    4 B   |\n"));
    assert_non_null(strstr(text, "|       from weights    |    768 KiB |"));
    assert_non_null(strstr(text, "OOMs: 7"));
    assert_non_null(strstr(text, "Device frees: 10"));
    free(text);
}

static void every_line_is_as_wide_as_the_first(void **state)
{
    char *text = print(summary_print, answer);
    size_t width = strcspn(text, "\n");

    (void)state;
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_int_equal(strcspn(line, "\n"), width);
    free(text);
}

static void flat_keys_are_those_of_memory_stats(void **state)
{
    char *text = print(stats_print, answer);

    (void)state;
    assert_non_null(strstr(text, "allocated_bytes.all.current  1048576\n"));
    assert_non_null(strstr(text, "allocated_bytes.weights.freed  0\n"));
    assert_non_null(strstr(text, "\nnum_ooms  7\n"));
    assert_non_null(strstr(text, "m/1: requested_bytes.all.peak  12\n"));
    assert_non_null(strstr(text, "m/1: num_ooms  15\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_has_pytorch_s_layout),
        cmocka_unit_test(every_line_is_as_wide_as_the_first),
        cmocka_unit_test(flat_keys_are_those_of_memory_stats),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
