/* From configuration to planning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lifecycle/planning.h"

static char folder[PLANNING_FOLDER_BYTES];

static struct network_planning read_planning(const char *text)
{
    struct config_set *set = NULL;
    struct network_planning planning;
    struct error err = {0};

    if (config_read_text("test.conf", text, strlen(text), &set, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    planning = planning_read(config_values(set), folder);
    config_destroy(set);
    return planning;
}

static int without_systemd(void **state)
{
    (void)state;
    return unsetenv("CACHE_DIRECTORY");
}

static void by_default_hard_plans_are_searched_and_kept_under_systemd(void **state)
{
    struct network_planning planning = read_planning("");

    (void)state;
    assert_int_equal(planning.mode, PLANNING_AUTO);
    assert_int_equal(planning.budget_us, 1000000);
    assert_null(planning.folder);
    assert_int_equal(setenv("CACHE_DIRECTORY", "/var/cache/a:/var/cache/b", 1), 0);
    assert_string_equal(read_planning("").folder, "/var/cache/a/plans");
    assert_int_equal(setenv("CACHE_DIRECTORY", "", 1), 0);
    assert_null(read_planning("").folder);
}

static void a_folder_may_be_named_or_refused(void **state)
{
    (void)state;
    assert_int_equal(setenv("CACHE_DIRECTORY", "/var/cache/a", 1), 0);
    assert_null(read_planning("[Models]\nPlanCacheDir=none\n").folder);
    assert_string_equal(read_planning("[Models]\nPlanCacheDir=/srv/p\n").folder, "/srv/p");
}

static void kernels_have_a_folder_of_their_own(void **state)
{
    static char kernels[PLANNING_FOLDER_BYTES];
    static const char *const texts[] = {"", "[Device]\nKernelCacheDir=none\n",
                                        "[Device]\nKernelCacheDir=/srv/k\n"};
    static const char *const wanted[] = {"/var/cache/a/kernels", NULL, "/srv/k"};

    (void)state;
    assert_int_equal(setenv("CACHE_DIRECTORY", "/var/cache/a", 1), 0);
    for (size_t i = 0; i < 3; i++) {
        struct config_set *set = NULL;
        struct error err = {0};
        const char *got;

        assert_int_equal(config_read_text("test.conf", texts[i], strlen(texts[i]), &set, &err),
                         STATUS_OK);
        got = planning_kernel_folder(config_values(set), kernels);
        if (wanted[i] == NULL)
            assert_null(got);
        else
            assert_string_equal(got, wanted[i]);
        config_destroy(set);
    }
}

static void a_path_that_is_too_long_is_none(void **state)
{
    static char path[PLANNING_FOLDER_BYTES];

    (void)state;
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    assert_int_equal(setenv("CACHE_DIRECTORY", path, 1), 0);
    assert_null(read_planning("").folder);
}

static void modes_and_budget_are_read(void **state)
{
    struct network_planning planning =
        read_planning("[Models]\nPlanner=thorough\nPlannerBudget=2s\n");

    (void)state;
    assert_int_equal(planning.mode, PLANNING_THOROUGH);
    assert_int_equal(planning.budget_us, 2000000);
    assert_int_equal(read_planning("[Models]\nPlanner=quick\n").mode, PLANNING_QUICK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, without_systemd)
    const struct CMUnitTest tests[] = {
        TEST(by_default_hard_plans_are_searched_and_kept_under_systemd),
        TEST(a_folder_may_be_named_or_refused),
        TEST(kernels_have_a_folder_of_their_own),
        TEST(a_path_that_is_too_long_is_none),
        TEST(modes_and_budget_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
