/* Memory limits of cgroups, as files say them that a test has written. */
#include "support/unit.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "device/host_cgroup.h"

static char top[] = "/tmp/sluice-cgroup-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    strcpy(top + strlen(top) - 6, "XXXXXX");
    assert_non_null(mkdtemp(top));
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* `name` below the folder of the test, which stands for %s in the text; folders are made. */
static void put(const char *name, const char *text)
{
    char path[256];
    FILE *to;

    (void)snprintf(path, sizeof(path), "%s/%s", top, name);
    for (char *at = path + strlen(top) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    to = fopen(path, "w");
    assert_non_null(to);
    for (const char *mark; (mark = strstr(text, "%s")) != NULL; text = mark + 2)
        (void)fprintf(to, "%.*s%s", (int)(mark - text), text, top);
    (void)fputs(text, to);
    assert_int_equal(fclose(to), 0);
}

static void assert_folder(bool is_v1, const char *name)
{
    struct host_cgroup cgroup;
    char path[256];

    assert_true(host_cgroup_find_in(top, &cgroup));
    (void)snprintf(path, sizeof(path), "%s/%s", top, name);
    assert_string_equal(cgroup.folder, path);
    assert_int_equal(cgroup.is_v1, is_v1);
}

static void assert_limits(uint64_t free_bytes, uint64_t total_bytes)
{
    uint64_t available = 1000000, total = 2000000;
    struct host_cgroup cgroup;

    assert_true(host_cgroup_find_in(top, &cgroup));
    host_cgroup_limit(&cgroup, &available, &total);
    assert_int_equal(available, free_bytes);
    assert_int_equal(total, total_bytes);
}

static const char v1_mounts[] =
    "33 32 0:29 / %s/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / %s/memory rw,relatime shared:7 master:3 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / %s/unified rw,relatime - cgroup2 cgroup2 rw\n";

static void version_1_counts_where_it_has_the_memory(void **state)
{
    (void)state;
    put("mountinfo", v1_mounts);
    put("cgroup", "9:name=systemd:/\n5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/u\n");
    put("memory/a/b/memory.limit_in_bytes", "700000\n");
    put("memory/a/b/memory.usage_in_bytes", "500000\n");
    put("memory/a/b/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n");
    put("memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/a/memory.usage_in_bytes", "500000\n");
    put("memory/a/memory.stat", "");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/memory.usage_in_bytes", "500000\n");
    put("memory/memory.stat", "");
    assert_folder(true, "memory/a/b");
    assert_limits(300000, 700000);
}

static void the_tightest_limit_above_counts(void **state)
{
    (void)state;
    put("mountinfo", v1_mounts);
    put("cgroup", "4:memory:/a/b\n");
    put("memory/a/b/memory.limit_in_bytes", "900000\n");
    put("memory/a/b/memory.usage_in_bytes", "100000\n");
    put("memory/a/b/memory.stat", "");
    put("memory/a/memory.limit_in_bytes", "950000\n");
    put("memory/a/memory.usage_in_bytes", "940000\n");
    put("memory/a/memory.stat", "");
    assert_limits(10000, 900000);
}

static void version_2_has_a_second_limit_beyond_which_we_wait(void **state)
{
    struct host_cgroup cgroup;

    (void)state;
    put("mountinfo", "41 31 0:38 / %s/all rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n");
    put("cgroup", "0::/app\n");
    put("all/app/memory.max", "max\n");
    put("all/app/memory.high", "600000\n");
    put("all/app/memory.current", "550000\n");
    put("all/app/memory.stat", "anon 5\ninactive_file 50000\n");
    put("all/app/memory.events", "low 1\nhigh 20\nmax 3\noom 4\n");
    assert_folder(false, "all/app");
    assert_limits(100000, 600000);
    assert_true(host_cgroup_find_in(top, &cgroup));
    assert_int_equal(host_cgroup_events(&cgroup), 23);
}

static void a_container_sees_its_own_cgroup_as_the_root(void **state)
{
    struct host_cgroup cgroup;

    (void)state;
    put("mountinfo", "35 31 0:32 /docker/abc %s/memory rw - cgroup cgroup rw,memory\n");
    put("cgroup", "4:memory:/docker/abc/d\n");
    put("memory/d/memory.failcnt", "17\n");
    assert_folder(true, "memory/d");
    assert_true(host_cgroup_find_in(top, &cgroup));
    assert_int_equal(host_cgroup_events(&cgroup), 17);
    put("cgroup", "4:memory:/docker/abcd\n"); /* another's name: what is seen is ours */
    assert_folder(true, "memory");
    put("cgroup", "4:memory:/docker/abc/gone\n");
    assert_folder(true, "memory");
    put("cgroup", "4:memory:/docker/abc\n");
    assert_folder(true, "memory");
}

static void without_files_there_is_no_limit(void **state)
{
    struct host_cgroup cgroup;

    (void)state;
    assert_false(host_cgroup_find_in(top, &cgroup));
    put("cgroup", "4:memory:/\n0::/\nnonsense\n");
    assert_false(host_cgroup_find_in(top, &cgroup));
    put("mountinfo", "nonsense\n35 31\n41 31 0:38 / %s/all rw - cgroup2 cgroup2 rw\n");
    put("all/readme", "");
    assert_folder(false, "all");
    assert_limits(1000000, 2000000);
    assert_true(host_cgroup_find_in(top, &cgroup));
    assert_int_equal(host_cgroup_events(&cgroup), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(version_1_counts_where_it_has_the_memory),
        TEST(the_tightest_limit_above_counts),
        TEST(version_2_has_a_second_limit_beyond_which_we_wait),
        TEST(a_container_sees_its_own_cgroup_as_the_root),
        TEST(without_files_there_is_no_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
