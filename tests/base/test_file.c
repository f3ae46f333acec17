/* Files read and written whole. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/unit.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sluice-file-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static bool write_words(const char *name, const char *first, const char *second)
{
    const struct file_piece pieces[] = {{first, strlen(first)}, {second, strlen(second)}};

    return file_write_whole(folder, name, ".begun.", pieces, 2);
}

static void assert_holds(const char *name, const char *wanted)
{
    char path[128], text[64] = "";
    int file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_true(file_read_all(file, text, strlen(wanted)));
    assert_string_equal(text, wanted);
    assert_false(file_read_all(file, text, 1)); /* no more is there */
    close(file);
}

static unsigned count_files(void)
{
    DIR *files = opendir(folder);
    unsigned count = 0;

    assert_non_null(files);
    for (struct dirent *entry; (entry = readdir(files)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(files);
    return count;
}

static void pieces_become_one_file_in_their_order(void **state)
{
    (void)state;
    assert_true(write_words("x", "first ", "second"));
    assert_holds("x", "first second");
    assert_true(write_words("x", "", "again"));
    assert_holds("x", "again");
    assert_int_equal(count_files(), 1);
}

static void a_failure_leaves_what_was_there_and_nothing_beside_it(void **state)
{
    char path[128];

    (void)state;
    snprintf(path, sizeof(path), "%s/x", folder);
    assert_int_equal(mkdir(path, 0700), 0); /* no file takes a folder's place */
    assert_false(write_words("x", "a", "b"));
    assert_int_equal(errno, EISDIR);
    assert_int_equal(count_files(), 1);
    assert_false(file_write_whole("/nowhere", "x", ".begun.", NULL, 0));
    assert_int_equal(errno, ENOENT);
}

static void a_path_too_long_is_refused(void **state)
{
    char *name = calloc(1, 5000);

    (void)state;
    assert_non_null(name);
    memset(name, 'n', 4999);
    assert_false(write_words(name, "a", "b"));
    assert_int_equal(errno, ENAMETOOLONG);
    free(name);
    assert_int_equal(count_files(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces_become_one_file_in_their_order, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_failure_leaves_what_was_there_and_nothing_beside_it,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_path_too_long_is_refused, make_folder, remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
