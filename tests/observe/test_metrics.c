#include "observe/metrics.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/unit.h"

static char *text;
static size_t bytes;

static FILE *begin(void)
{
    free(text);
    text = NULL;
    return open_memstream(&text, &bytes);
}

static void a_family_has_help_type_and_series(void **state)
{
    FILE *to = begin();

    (void)state;
    metrics_write_head(to, METRIC_MEMORY_LEVEL);
    metrics_write_value(to, METRIC_MEMORY_LEVEL, "", 2);
    metrics_write_value(to, METRIC_MEMORY_BYTES, "kind=\"weights\"", 123456789012345);
    fclose(to);
    assert_string_equal(
        text, "# HELP sluice_memory_level Governor level: 0 normal, 1 trim, 2 reclaim, 3 evict, 4 "
              "reject.\n"
              "# TYPE sluice_memory_level gauge\n"
              "sluice_memory_level 2\n"
              "sluice_memory_bytes{kind=\"weights\"} 123456789012345\n");
}

static void numbers_follow_the_text_format(void **state)
{
    FILE *to = begin();

    (void)state;
    metrics_write_value(to, METRIC_MEMORY_LEVEL, "", NAN);
    metrics_write_value(to, METRIC_MEMORY_LEVEL, "", INFINITY);
    metrics_write_value(to, METRIC_MEMORY_LEVEL, "", -INFINITY);
    metrics_write_value(to, METRIC_MEMORY_LEVEL, "", 0.25);
    metrics_write_value(to, METRIC_MEMORY_LEVEL, "", 1e300);
    fclose(to);
    assert_string_equal(text, "sluice_memory_level NaN\n"
                              "sluice_memory_level +Inf\n"
                              "sluice_memory_level -Inf\n"
                              "sluice_memory_level 0.25\n"
                              "sluice_memory_level 1e+300\n");
}

/* The number behind the first line that begins with `series`. */
static double value_of(const char *series)
{
    const char *at = strstr(text, series);

    assert_non_null(at);
    return strtod(at + strlen(series), NULL);
}

static void a_histogram_is_cumulative_and_ends_in_inf(void **state)
{
    struct histogram histogram;
    FILE *to = begin();

    (void)state;
    histogram_init(&histogram, 1);
    histogram_add(&histogram, 0);
    histogram_add(&histogram, 1);
    histogram_add(&histogram, 1.5);
    histogram_add(&histogram, 2.5);
    histogram_add(&histogram, 1e12); /* behind the last bound */
    metrics_write_histogram(to, METRIC_BATCH_SIZE, "model=\"m\"", &histogram);
    fclose(to);
    assert_true(value_of("sluice_batch_size_bucket{model=\"m\",le=\"1\"} ") == 2);
    assert_true(value_of("sluice_batch_size_bucket{model=\"m\",le=\"2\"} ") == 3);
    assert_true(value_of("sluice_batch_size_bucket{model=\"m\",le=\"4\"} ") == 4);
    assert_true(value_of("sluice_batch_size_bucket{model=\"m\",le=\"4194304\"} ") == 4);
    assert_true(value_of("sluice_batch_size_bucket{model=\"m\",le=\"+Inf\"} ") == 5);
    assert_true(value_of("sluice_batch_size_count{model=\"m\"} ") == 5);
    assert_true(value_of("sluice_batch_size_sum{model=\"m\"} ") == 1000000000005.0);
}

static void a_histogram_without_labels_has_only_le(void **state)
{
    struct histogram histogram;
    FILE *to = begin();

    (void)state;
    histogram_init(&histogram, 1e-4);
    histogram_add(&histogram, 0.00015);
    metrics_write_histogram(to, METRIC_REQUEST_DURATION_SECONDS, "", &histogram);
    fclose(to);
    assert_true(value_of("sluice_request_duration_seconds_bucket{le=\"0.0002\"} ") == 1);
    assert_true(value_of("sluice_request_duration_seconds_count ") == 1);
    assert_true(fabs(value_of("sluice_request_duration_seconds_sum ") - 0.00015) < 1e-9);
}

static void label_values_are_escaped_and_never_cut_in_an_escape(void **state)
{
    char room[16];

    (void)state;
    assert_string_equal(metrics_escape("a\\b\"c\nd", room, sizeof(room)), "a\\\\b\\\"c\\nd");
    assert_string_equal(metrics_escape("abc\"d", room, 5), "abc");
    assert_string_equal(metrics_escape("", room, 1), "");
}

static void every_family_follows_the_naming_rules(void **state)
{
    (void)state;
    for (int i = 0; i < METRIC_COUNT; i++) {
        FILE *to = begin();
        char name[128], type[16];

        metrics_write_head(to, (enum metric)i);
        fclose(to);
        assert_int_equal(sscanf(strstr(text, "# TYPE"), "# TYPE %127s %15s", name, type), 2);
        assert_memory_equal(name, "sluice_", 7);
        for (const char *c = name; *c != '\0'; c++)
            assert_true(islower(*c) || isdigit(*c) || *c == '_');
        assert_int_equal(strcmp(type, "counter") == 0,
                         strcmp(name + strlen(name) - 6, "_total") == 0);
    }
}

static int forget(void **state)
{
    (void)state;
    free(text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_family_has_help_type_and_series),
        cmocka_unit_test(numbers_follow_the_text_format),
        cmocka_unit_test(a_histogram_is_cumulative_and_ends_in_inf),
        cmocka_unit_test(a_histogram_without_labels_has_only_le),
        cmocka_unit_test(label_values_are_escaped_and_never_cut_in_an_escape),
        cmocka_unit_test(every_family_follows_the_naming_rules),
    };

    return cmocka_run_group_tests(tests, NULL, forget);
}
