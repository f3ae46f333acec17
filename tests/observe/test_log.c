#define LOG_COMPONENT "batch"
#include "observe/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/unit.h"

static char captured[8192];

/* Runs `write` with stderr in a file; what it wrote is in `captured`. */
static void capture(void (*write)(void))
{
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    size_t bytes;

    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    write();
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    bytes = fread(captured, 1, sizeof(captured) - 1, file);
    captured[bytes] = '\0';
    fclose(file);
}

static void levels_are_by_component_over_a_standard(void **state)
{
    (void)state;
    log_init("warn,batch:trace, device:error");
    assert_true(log_is_on(LOG_LEVEL_TRACE, "batch"));
    assert_true(log_is_on(LOG_LEVEL_WARN, "serve"));
    assert_false(log_is_on(LOG_LEVEL_INFO, "serve"));
    assert_false(log_is_on(LOG_LEVEL_WARN, "device"));
    log_init("");
    assert_true(log_is_on(LOG_LEVEL_INFO, "batch"));
    assert_false(log_is_on(LOG_LEVEL_DEBUG, "batch"));
}

static void the_environment_is_read_when_no_levels_are_given(void **state)
{
    (void)state;
    setenv("SLUICE_LOG", "debug", 1);
    log_init(NULL);
    unsetenv("SLUICE_LOG");
    assert_true(log_is_on(LOG_LEVEL_DEBUG, "batch"));
    log_init(NULL);
    assert_false(log_is_on(LOG_LEVEL_DEBUG, "batch"));
}

static void write_one(void)
{
    log_warn("queue of '%s' is full, ignoring", "m");
    log_debug("not written");
}

static void a_line_has_time_level_component_and_text(void **state)
{
    unsigned year, month, day, hour, minute, second, ms;
    int length = 0;

    (void)state;
    log_init("info");
    capture(write_one);
    assert_int_equal(sscanf(captured, "%4u-%2u-%2uT%2u:%2u:%2u.%3uZ %n", &year, &month, &day, &hour,
                            &minute, &second, &ms, &length),
                     7);
    assert_string_equal(captured + length, "warn  batch: queue of 'm' is full, ignoring\n");
}

static void write_foreign(void)
{
    log_error("a\nb\x1b[31mc");
}

static void foreign_bytes_make_no_lines_of_their_own(void **state)
{
    (void)state;
    capture(write_foreign);
    assert_non_null(strstr(captured, ": a b [31mc\n"));
}

static void write_long(void)
{
    char text[5000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    log_error("%s", text);
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    capture(write_long);
    assert_in_range(strlen(captured), 2000, 2200);
    assert_int_equal(captured[strlen(captured) - 1], '\n');
}

static void init_badly(void)
{
    log_init("batch:loud,nonsense,serve:debug");
}

static void bad_levels_warn_and_are_ignored(void **state)
{
    (void)state;
    log_init("info");
    capture(init_badly);
    assert_non_null(strstr(captured, "'batch:loud' is not"));
    assert_non_null(strstr(captured, "'nonsense' is not"));
    assert_true(log_is_on(LOG_LEVEL_DEBUG, "serve"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_by_component_over_a_standard),
        cmocka_unit_test(the_environment_is_read_when_no_levels_are_given),
        cmocka_unit_test(a_line_has_time_level_component_and_text),
        cmocka_unit_test(foreign_bytes_make_no_lines_of_their_own),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(bad_levels_warn_and_are_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
