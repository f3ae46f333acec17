/* Mapped files. */
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/file.h"

enum { FILE_BYTES = 4 << 20 };

/* Pages of files in this process's memory. */
static long file_pages(void)
{
    FILE *statm = fopen("/proc/self/statm", "re");
    long size, resident, shared;

    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%ld %ld %ld", &size, &resident, &shared), 3);
    fclose(statm);
    return shared;
}

static unsigned sum(struct bytes bytes)
{
    unsigned total = 0;

    for (size_t i = 0; i < bytes.size; i++)
        total += (unsigned char)bytes.data[i];
    return total;
}

static void what_was_let_go_leaves_memory_and_comes_back(void **state)
{
    char path[] = "/tmp/sluice-file-XXXXXX";
    int fd = mkstemp(path);
    char *data = malloc(FILE_BYTES);
    struct file *file;
    struct error err;
    unsigned total;
    long before;

    (void)state;
    assert_true(fd >= 0);
    for (size_t i = 0; i < FILE_BYTES; i++)
        data[i] = (char)(i * 7 + i / 4096);
    assert_int_equal(write(fd, data, FILE_BYTES), FILE_BYTES);
    assert_ok(file_map_fd(fd, path, &file, &err));
    total = sum(file->data);
    before = file_pages();
    file_let_go(file, (struct bytes){file->data.data + 100, FILE_BYTES - 200});
    assert_true(before - file_pages() > FILE_BYTES / 4096 / 2);
    assert_int_equal(sum(file->data), total);
    file_unref(file);
    (void)close(fd);
    (void)unlink(path);
    free(data);
}

static void a_copy_has_no_pages_to_let_go(void **state)
{
    static const char text[8192] = {1, 2, 3};
    struct file *file = file_copy((struct bytes){text, sizeof(text)});

    (void)state;
    assert_non_null(file);
    file_let_go(file, file->data);
    assert_memory_equal(file->data.data, text, sizeof(text));
    file_unref(file);
}

/* A mapped file of known bytes, its reading over. */
static struct file *read_and_unmapped(int *out_fd)
{
    char path[] = "/tmp/sluice-file-XXXXXX";
    struct file *file;
    struct error err;

    *out_fd = mkstemp(path);
    assert_true(*out_fd >= 0);
    (void)unlink(path);
    assert_int_equal(write(*out_fd, "0123456789", 10), 10);
    assert_ok(file_map_fd(*out_fd, path, &file, &err));
    file_unmap(file);
    return file;
}

static void bytes_come_back_while_the_file_is_as_it_was(void **state)
{
    int fd;
    struct file *file = read_and_unmapped(&fd);
    char bytes[4];

    (void)state;
    assert_ok(file_read_again(file, 3, bytes, sizeof(bytes)));
    assert_memory_equal(bytes, "3456", 4);
    file_unref(file);
    (void)close(fd);
}

static void a_file_overwritten_in_place_is_not_read_again(void **state)
{
    const struct timespec later[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    int fd;
    struct file *file = read_and_unmapped(&fd);
    char bytes[4];

    (void)state;
    assert_int_equal(pwrite(fd, "xx", 2, 3), 2);
    assert_int_equal(futimens(fd, later), 0); /* whatever the clock's grain is */
    assert_int_equal(file_read_again(file, 3, bytes, sizeof(bytes)), STATUS_PRECONDITION);
    file_unref(file);
    (void)close(fd);
}

static void a_file_cut_in_place_is_refused_and_not_a_fault(void **state)
{
    int fd;
    struct file *file = read_and_unmapped(&fd);
    char bytes[4];

    (void)state;
    assert_int_equal(ftruncate(fd, 2), 0);
    assert_int_equal(file_read_again(file, 3, bytes, sizeof(bytes)), STATUS_PRECONDITION);
    file_unref(file);
    (void)close(fd);
}

static void a_file_that_is_cut_while_it_is_read_ends_nothing(void **state)
{
    char path[] = "/tmp/sluice-file-XXXXXX";
    int fd = mkstemp(path);
    struct file *file;
    struct error err;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
    assert_ok(file_map_fd(fd, path, &file, &err));
    assert_ok(file_check(file));
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(sum(file->data), 0);
    assert_int_equal(file_check(file), STATUS_PRECONDITION);
    file_unref(file);
    (void)close(fd);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_let_go_leaves_memory_and_comes_back),
        cmocka_unit_test(bytes_come_back_while_the_file_is_as_it_was),
        cmocka_unit_test(a_file_overwritten_in_place_is_not_read_again),
        cmocka_unit_test(a_file_cut_in_place_is_refused_and_not_a_fault),
        cmocka_unit_test(a_file_that_is_cut_while_it_is_read_ends_nothing),
        cmocka_unit_test(a_copy_has_no_pages_to_let_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
