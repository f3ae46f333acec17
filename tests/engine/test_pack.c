/* Which packing a plan gets, and what is kept of it in files. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/internal.h"
#include "graph/planner.h"
#include "observe/log.h"
#include "support/fail_alloc.h"
#include "support/full_steps.h"

enum { ROOM = 256, PATH_ROOM = 256 };

/* A problem whose quick packing is far above the bound. */
struct hard {
    char folder[64];
    char file[PATH_ROOM];
    struct network network;
    size_t count;
    struct plan_buffer buffers[ROOM];
    uint64_t quick_peak;
};

static int setup(void **state)
{
    static struct hard hard;
    struct planner_result result;

    memset(&hard, 0, sizeof(hard));
    strcpy(hard.folder, "/tmp/sluice-pack-XXXXXX");
    assert_non_null(mkdtemp(hard.folder));
    hard.count = full_steps(hard.buffers, 40, 100, 40, 1);
    hard.network.planning = (struct network_planning){
        .mode = PLANNING_AUTO, .budget_us = 300 * 1000, .folder = hard.folder};
    assert_int_equal(planner_plan(hard.buffers, hard.count, NULL, &result), STATUS_OK);
    hard.quick_peak = result.peak_bytes;
    assert_true(result.peak_bytes > result.lower_bound_bytes * 105 / 100);
    log_init("engine:error"); /* the warnings are wanted here */
    *state = &hard;
    return 0;
}

static int teardown(void **state)
{
    struct hard *hard = *state;

    if (hard->file[0] != '\0')
        (void)remove(hard->file);
    assert_int_equal(rmdir(hard->folder), 0); /* nothing else was left behind */
    return 0;
}

static uint64_t pack(struct hard *hard)
{
    struct planner_result result;
    struct error err = {0};

    assert_int_equal(network_pack(&hard->network, hard->buffers, hard->count, &result), STATUS_OK);
    assert_int_equal(planner_check(hard->buffers, hard->count, result.peak_bytes, &err), STATUS_OK);
    assert_true(result.peak_bytes >= result.lower_bound_bytes);
    return result.peak_bytes;
}

/* Searches ahead of requests and keeps what it found. */
static uint64_t search(struct hard *hard)
{
    uint64_t peak;

    network_set_ahead(&hard->network, true);
    peak = pack(hard);
    network_set_ahead(&hard->network, false);
    assert_true(peak < hard->quick_peak);
    return peak;
}

/* The one file that there is. */
static void find_file(struct hard *hard)
{
    char pattern[128];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%s/*.packing", hard->folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    assert_true(strlen(found.gl_pathv[0]) < sizeof(hard->file));
    strcpy(hard->file, found.gl_pathv[0]);
    globfree(&found);
}

static void a_request_never_waits_for_a_search(void **state)
{
    struct hard *hard = *state;

    assert_int_equal(pack(hard), hard->quick_peak);
    hard->network.planning.mode = PLANNING_THOROUGH;
    assert_int_equal(pack(hard), hard->quick_peak);
}

static void a_quick_configuration_never_searches(void **state)
{
    struct hard *hard = *state;

    hard->network.planning.mode = PLANNING_QUICK;
    network_set_ahead(&hard->network, true);
    assert_int_equal(pack(hard), hard->quick_peak);
}

static void what_a_search_found_is_there_for_requests(void **state)
{
    struct hard *hard = *state;
    uint64_t peak = search(hard);

    find_file(hard);
    assert_int_equal(pack(hard), peak);
    hard->network.planning.folder = NULL;
    assert_int_equal(pack(hard), hard->quick_peak);
}

static void a_larger_budget_searches_again_and_a_smaller_one_does_not(void **state)
{
    struct hard *hard = *state;
    struct kept_packing first, second, third;

    hard->network.planning.budget_us = 1;
    network_set_ahead(&hard->network, true);
    (void)pack(hard);
    find_file(hard);
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &first), STATUS_OK);
    assert_int_equal(first.searched_us, 1);
    hard->network.planning.budget_us = 200 * 1000;
    (void)pack(hard);
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &second), STATUS_OK);
    assert_true(second.searched_us >= 200 * 1000);
    assert_true(second.peak_bytes <= first.peak_bytes);
    hard->network.planning.budget_us = 1000;
    assert_int_equal(pack(hard), second.peak_bytes);
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &third), STATUS_OK);
    assert_int_equal(third.searched_us, second.searched_us);
}

static void another_problem_does_not_get_it(void **state)
{
    struct hard *hard = *state;
    struct kept_packing kept;

    (void)search(hard);
    find_file(hard);
    hard->buffers[0].bytes++;
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &kept), STATUS_NOT_FOUND);
    hard->buffers[0].bytes--;
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count - 1, &kept),
                     STATUS_NOT_FOUND);
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &kept), STATUS_OK);
}

static void no_byte_of_a_file_may_be_another(void **state)
{
    struct hard *hard = *state;
    struct kept_packing kept;
    struct stat facts;
    int file;

    (void)search(hard);
    find_file(hard);
    file = open(hard->file, O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &facts), 0);
    for (off_t at = 0; at < facts.st_size; at++) {
        unsigned char byte, other;

        assert_int_equal(pread(file, &byte, 1, at), 1);
        other = byte ^ 0x10;
        assert_int_equal(pwrite(file, &other, 1, at), 1);
        assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &kept),
                         STATUS_NOT_FOUND);
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
    }
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &kept), STATUS_OK);
    for (off_t bytes = facts.st_size - 1; bytes >= 0; bytes -= 37) {
        assert_int_equal(ftruncate(file, bytes), 0);
        assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &kept),
                         STATUS_NOT_FOUND);
    }
    close(file);
    assert_int_equal(pack(hard), hard->quick_peak);
    assert_true(search(hard) < hard->quick_peak); /* and is written over */
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &kept), STATUS_OK);
}

static void what_is_no_file_is_left_alone(void **state)
{
    struct hard *hard = *state;
    struct kept_packing kept;

    (void)search(hard);
    find_file(hard);
    assert_int_equal(unlink(hard->file), 0);
    assert_int_equal(symlink("/dev/zero", hard->file), 0);
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &kept), STATUS_NOT_FOUND);
    assert_int_equal(unlink(hard->file), 0);
    assert_int_equal(mkfifo(hard->file, 0600), 0);
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &kept), STATUS_NOT_FOUND);
    assert_int_equal(unlink(hard->file), 0);
    assert_int_equal(mkdir(hard->file, 0700), 0);
    assert_int_equal(store_find(hard->folder, hard->buffers, hard->count, &kept), STATUS_NOT_FOUND);
}

static void a_folder_that_cannot_be_made_is_no_failure(void **state)
{
    struct hard *hard = *state;

    hard->network.planning.folder = "/proc/no/such/folder";
    (void)search(hard);
}

static enum status pack_ahead(void *arg)
{
    struct hard *hard = arg;
    struct planner_result result;

    return network_pack(&hard->network, hard->buffers, hard->count, &result);
}

static void allocations_may_fail(void **state)
{
    struct hard *hard = *state;

    hard->network.planning.budget_us = 1000;
    network_set_ahead(&hard->network, true);
    (void)fail_each_alloc(pack_ahead, hard);
    find_file(hard);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_request_never_waits_for_a_search),
        TEST(a_quick_configuration_never_searches),
        TEST(what_a_search_found_is_there_for_requests),
        TEST(a_larger_budget_searches_again_and_a_smaller_one_does_not),
        TEST(another_problem_does_not_get_it),
        TEST(no_byte_of_a_file_may_be_another),
        TEST(what_is_no_file_is_left_alone),
        TEST(a_folder_that_cannot_be_made_is_no_failure),
        TEST(allocations_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
