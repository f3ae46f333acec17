/* The reader of lifetimes: what is right is read, what is not is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "plan_file.h"
#include "support/fail_alloc.h"

static char path[] = "/tmp/sluice-plan-file-XXXXXX";

static enum status read_bytes(const char *text, size_t bytes, struct plan_buffer **out_buffers,
                              size_t *out_count, struct error *err)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return plan_file_read(path, out_buffers, out_count, err);
}

static int make_path(void **state)
{
    int file = mkstemp(path);

    (void)state;
    return file < 0 ? -1 : close(file);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void lifetimes_are_read(void **state)
{
    static const char TEXT[] = "id,lower,upper,size\na,0,3,4096\r\nb 2,7,4294967295,0";
    struct plan_buffer *buffers;
    struct error err;
    size_t count;

    (void)state;
    assert_int_equal(read_bytes(TEXT, strlen(TEXT), &buffers, &count, &err), STATUS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(buffers[0].first, 0);
    assert_int_equal(buffers[0].last, 2);
    assert_int_equal(buffers[0].bytes, 4096);
    assert_int_equal(buffers[1].first, 7);
    assert_int_equal(buffers[1].last, UINT32_MAX - 1);
    free(buffers);
}

static void what_is_wrong_is_named_with_its_line(void **state)
{
    static const struct {
        const char *text, *names;
    } CASES[] = {
        {"", "empty"},
        {"\n", ":1: the first line"},
        {"id,size\n", ":1: the first line"},
        {"id,lower,upper,size\n\n", ":2: a line is"},
        {"id,lower,upper,size\na,0,3\n", ":2: a line is"},
        {"id,lower,upper,size\na,0,3,1,5\n", ":2: a line is"},
        {"id,lower,upper,size\n,0,3,1\n", ":2: a line is"},
        {"id,lower,upper,size\na,0,3,1\nb,-1,3,1\n", ":3: lower is a whole number"},
        {"id,lower,upper,size\na,+0,3,1\n", ":2: lower is a whole number"},
        {"id,lower,upper,size\na,,3,1\n", ":2: lower is a whole number"},
        {"id,lower,upper,size\na,0,4294967296,1\n", ":2: upper is a whole number"},
        {"id,lower,upper,size\na,0, 3,1\n", ":2: upper is a whole number"},
        {"id,lower,upper,size\na,3,3,1\n", ":2: upper must be above lower"},
        {"id,lower,upper,size\na,4,3,1\n", ":2: upper must be above lower"},
        {"id,lower,upper,size\na,0,3,1k\n", ":2: size is a whole number"},
        {"id,lower,upper,size\na,0,3,9223372036854775808\n", ":2: size is a whole number"},
        {"id,lower,upper,size\na,0,3,99999999999999999999999\n", ":2: size is a whole number"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct plan_buffer *buffers = NULL;
        struct error err = {0};
        size_t count;

        assert_int_equal(read_bytes(CASES[i].text, strlen(CASES[i].text), &buffers, &count, &err),
                         STATUS_INVALID);
        if (strstr(err.text, CASES[i].names) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, CASES[i].names);
        assert_null(buffers);
    }
}

static void a_zero_byte_is_no_text(void **state)
{
    static const char TEXT[] = "id,lower,upper,size\na,0,3,1\0\n";
    struct plan_buffer *buffers;
    struct error err = {0};
    size_t count;

    (void)state;
    assert_int_equal(read_bytes(TEXT, sizeof(TEXT) - 1, &buffers, &count, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, ":2: a zero byte"));
}

static void a_file_that_is_not_there_is_named(void **state)
{
    struct plan_buffer *buffers;
    struct error err = {0};
    size_t count;

    (void)state;
    assert_int_equal(plan_file_read("/nowhere/x.csv", &buffers, &count, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "/nowhere/x.csv"));
    assert_int_equal(plan_file_read("/tmp", &buffers, &count, &err), STATUS_IO);
}

static void limits_are_in_names(void **state)
{
    (void)state;
    assert_int_equal(plan_file_limit("a/b.c/A.1048576.csv"), 1048576);
    assert_int_equal(plan_file_limit("cnn_1.cap4374.csv"), 4374);
    assert_int_equal(plan_file_limit("resnet50.csv"), 0);
    assert_int_equal(plan_file_limit("pangu_2.6B.csv"), 0);
    assert_int_equal(plan_file_limit("a.12/b.csv"), 0);
    assert_int_equal(plan_file_limit("a.12.txt"), 0);
    assert_int_equal(plan_file_limit(".csv"), 0);
    assert_int_equal(plan_file_limit(""), 0);
}

static enum status read_many(void *arg)
{
    struct plan_buffer *buffers;
    size_t count;
    enum status status = plan_file_read(path, &buffers, &count, NULL);

    (void)arg;
    if (status == STATUS_OK)
        free(buffers);
    return status;
}

static void allocations_may_fail(void **state)
{
    FILE *file = fopen(path, "w");

    (void)state;
    assert_non_null(file);
    fprintf(file, "id,lower,upper,size\n");
    for (int i = 0; i < 600; i++)
        fprintf(file, "%d,%d,%d,64\n", i, i, i + 2);
    assert_int_equal(fclose(file), 0);
    assert_true(fail_each_alloc(read_many, NULL) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lifetimes_are_read),
        cmocka_unit_test(what_is_wrong_is_named_with_its_line),
        cmocka_unit_test(a_zero_byte_is_no_text),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(limits_are_in_names),
        cmocka_unit_test(allocations_may_fail),
    };

    return cmocka_run_group_tests(tests, make_path, remove_path);
}
