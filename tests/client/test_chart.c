#include "chart.h"

#include <stdlib.h>
#include <string.h>

#include "support/unit.h"

#define MIB (UINT64_C(1) << 20)

static struct chart plain(void)
{
    struct chart chart = {
        .budget = 100 * MIB, .marks = {75 * MIB, 88 * MIB, 95 * MIB}, .level = "normal"};

    return chart;
}

static void add(struct chart *chart, uint64_t reserved_mib, uint64_t allocated_mib)
{
    const struct chart_sample sample = {.reserved = reserved_mib * MIB,
                                        .allocated = allocated_mib * MIB};

    chart_add(chart, &sample);
}

/* To be freed. */
static char *draw(const struct chart *chart, size_t columns, size_t rows)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    assert_non_null(to);
    chart_draw(chart, columns, rows, to);
    assert_int_equal(fclose(to), 0);
    return text;
}

static void check(const struct chart *chart, size_t columns, size_t rows, const char *expected)
{
    char *text = draw(chart, columns, rows);

    assert_string_equal(text, expected);
    free(text);
}

static void samples_stand_at_the_right_under_the_marks(void **state)
{
    struct chart chart = plain();

    (void)state;
    add(&chart, 10, 10);
    add(&chart, 60, 30);
    add(&chart, 100, 10);
    check(&chart, 24, 11,
          "reserved 100.0 MiB (+), \n"
          " 100.0 MiB |---------+ C\n"
          "           |---------+ H\n"
          "           |---------+ L\n"
          "           |         +\n"
          "           |        ++\n"
          "           |        ++\n"
          "           |        ++\n"
          "           |        #+\n"
          "           |        #+\n"
          "         0 |       ###\n");
}

static void a_small_window_is_drawn_all_the_same(void **state)
{
    struct chart chart = plain();

    (void)state;
    add(&chart, 50, 50);
    check(&chart, 1, 1,
          "reserved 50.0 MiB (+), a\n"
          " 100.0 MiB |---------- C\n"
          "           |---------- L\n"
          "           |         #\n"
          "           |         #\n"
          "         0 |         #\n");
}

static void the_last_events_stand_below_the_oldest_first(void **state)
{
    struct chart chart = plain();
    char *text;

    (void)state;
    for (int i = 0; i < CHART_EVENTS + 2; i++) {
        char event[32];

        (void)snprintf(event, sizeof(event), "event %d", i);
        chart_add_event(&chart, event);
    }
    text = draw(&chart, 40, 20);
    assert_null(strstr(text, "event 1\n"));
    assert_non_null(strstr(text, "event 2\nevent 3\nevent 4\nevent 5\nevent 6\nevent 7\n"));
    free(text);
    text = draw(&chart, 40, 6); /* little room: the newest ones stay */
    assert_non_null(strstr(text, "|\nevent 6\nevent 7\n") == NULL ? strstr(text, "event 7\n")
                                                                  : text);
    assert_null(strstr(text, "event 5\n"));
    free(text);
}

static void more_samples_than_columns_show_the_newest(void **state)
{
    struct chart chart = plain();
    char *text;

    (void)state;
    for (int i = 0; i < 2 * CHART_SAMPLES; i++)
        add(&chart, i < CHART_SAMPLES + 5 ? 100 : 1, 0);
    text = draw(&chart, 24, 8);
    assert_null(strstr(text, "+ C"));
    assert_non_null(strstr(text, "0 |++++++++++\n"));
    free(text);
}

static void no_line_is_wider_or_more_than_the_window(void **state)
{
    struct chart chart = plain();

    (void)state;
    chart_add_event(&chart,
                    "a very long event that does not fit into the window at all, whatever it says");
    for (size_t columns = 24; columns < 700; columns += 97)
        for (size_t rows = 6; rows < 60; rows += 9) {
            char *text = draw(&chart, columns, rows), *line = text;
            size_t lines = 0;

            for (; *line != '\0'; line += strcspn(line, "\n") + 1, lines++)
                assert_true(strcspn(line, "\n") <= columns);
            assert_true(lines <= rows);
            free(text);
        }
}

static void nothing_measured_yet_draws_an_empty_picture(void **state)
{
    struct chart chart = {.budget = 0};
    char *text = draw(&chart, 40, 10);

    (void)state;
    assert_non_null(strstr(text, "reserved 0 B"));
    free(text);
}

static void control_characters_do_not_reach_the_terminal(void **state)
{
    struct chart chart = plain();
    char *text;

    (void)state;
    chart_add_event(&chart, "evil\033[2J");
    text = draw(&chart, 40, 10);
    assert_null(strchr(text, '\033'));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_stand_at_the_right_under_the_marks),
        cmocka_unit_test(a_small_window_is_drawn_all_the_same),
        cmocka_unit_test(the_last_events_stand_below_the_oldest_first),
        cmocka_unit_test(more_samples_than_columns_show_the_newest),
        cmocka_unit_test(no_line_is_wider_or_more_than_the_window),
        cmocka_unit_test(nothing_measured_yet_draws_an_empty_picture),
        cmocka_unit_test(control_characters_do_not_reach_the_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
