/* Files of what took long to make. */
#include "device/cuda/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/unit.h"

static char folder[64];
static struct disk_cache cache;

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sluice-cache-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    disk_cache_init(&cache, folder, 4096);
    return 0;
}

static int remove_folder(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static bool has(const char *key, const char *wanted)
{
    size_t count = 0;
    char *data = disk_cache_find(&cache, key, &count);
    bool same = data != NULL && count == strlen(wanted) && memcmp(data, wanted, count) == 0;

    free(data);
    return same;
}

static void keep(const char *key, const char *data)
{
    disk_cache_keep(&cache, key, data, strlen(data));
}

static void what_is_kept_is_found_by_its_key_alone(void **state)
{
    (void)state;
    keep("one", "first");
    keep("two", "second");
    assert_true(has("one", "first"));
    assert_true(has("two", "second"));
    assert_false(has("three", ""));
    keep("one", "first again");
    assert_true(has("one", "first again"));
}

static void a_folder_is_made_when_it_is_first_needed(void **state)
{
    char below[96];

    (void)state;
    snprintf(below, sizeof(below), "%s/kernels", folder);
    disk_cache_init(&cache, below, 4096);
    assert_false(has("one", "first"));
    keep("one", "first");
    assert_true(has("one", "first"));
}

static void nothing_is_kept_without_a_folder(void **state)
{
    (void)state;
    disk_cache_init(&cache, NULL, 4096);
    keep("one", "first");
    assert_false(has("one", "first"));
}

static void a_folder_that_cannot_be_written_is_no_failure(void **state)
{
    (void)state;
    disk_cache_init(&cache, "/proc/none/such", 4096);
    keep("one", "first");
    assert_false(has("one", "first"));
}

/* The hash names the file, the whole key stands in it. */
static void a_file_under_the_name_of_another_key_counts_for_none(void **state)
{
    char command[192];

    (void)state;
    keep("one", "first");
    snprintf(command, sizeof(command), "cd %s && mv *.made kept", folder);
    assert_int_equal(system(command), 0);
    keep("two", "second");
    snprintf(command, sizeof(command), "cd %s && mv kept $(ls *.made)", folder);
    assert_int_equal(system(command), 0);
    assert_false(has("two", "second"));
    assert_false(has("two", "first"));
    keep("two", "second");
    assert_true(has("two", "second"));
}

static void a_link_is_not_followed(void **state)
{
    char command[192];

    (void)state;
    keep("one", "first");
    snprintf(command, sizeof(command),
             "cd %s && name=$(ls *.made) && mv $name kept && ln -s kept $name", folder);
    assert_int_equal(system(command), 0);
    assert_false(has("one", "first"));
}

/* Every file was used ten seconds longer ago. */
static void let_time_pass(void)
{
    struct dirent *entry;
    DIR *files = opendir(folder);

    assert_non_null(files);
    while ((entry = readdir(files)) != NULL) {
        struct stat facts;

        assert_int_equal(fstatat(dirfd(files), entry->d_name, &facts, 0), 0);
        if (S_ISREG(facts.st_mode)) {
            struct timespec times[2] = {facts.st_atim, facts.st_mtim};

            times[1].tv_sec -= 10;
            assert_int_equal(utimensat(dirfd(files), entry->d_name, times, 0), 0);
        }
    }
    closedir(files);
}

/* Of 4096 bytes, with some for each header. */
static void what_was_not_used_for_longest_goes_first(void **state)
{
    char data[1200], key[16];

    (void)state;
    memset(data, 'x', sizeof(data) - 1);
    data[sizeof(data) - 1] = '\0';
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof(key), "key %d", i);
        keep(key, data);
        let_time_pass();
    }
    assert_true(has("key 0", data)); /* used now */
    let_time_pass();
    keep("key 3", data);
    assert_true(has("key 0", data));
    assert_false(has("key 1", data));
    assert_true(has("key 2", data));
    assert_true(has("key 3", data));
}

static void what_is_larger_than_all_may_be_is_not_kept(void **state)
{
    char data[5000];

    (void)state;
    memset(data, 'x', sizeof(data) - 1);
    data[sizeof(data) - 1] = '\0';
    keep("small", "first");
    keep("large", data);
    assert_false(has("large", data));
    assert_true(has("small", "first"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_is_kept_is_found_by_its_key_alone),
        CASE(a_folder_is_made_when_it_is_first_needed),
        CASE(nothing_is_kept_without_a_folder),
        CASE(a_folder_that_cannot_be_written_is_no_failure),
        CASE(a_file_under_the_name_of_another_key_counts_for_none),
        CASE(a_link_is_not_followed),
        CASE(what_was_not_used_for_longest_goes_first),
        CASE(what_is_larger_than_all_may_be_is_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
