/* Limits of device memory from a cgroup's files. */
#include "device/cuda/dmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/unit.h"

static char folder[] = "/tmp/sluice-dmem-XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "we");
    assert_non_null(file);
    (void)fputs(text, file);
    fclose(file);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char path[256];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/dmem.max", folder);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/dmem.current", folder);
    (void)unlink(path);
    return rmdir(folder);
}

static void the_regions_of_the_device_are_summed(void **state)
{
    uint64_t left, limit;

    (void)state;
    write_file("dmem.max", "drm/0000:41:00.0/vram0 1000\ndrm/0000:41:00.0/vram1 500\n"
                           "drm/0000:42:00.0/vram0 7\n");
    write_file("dmem.current", "drm/0000:41:00.0/vram0 900\ndrm/0000:41:00.0/vram1 20\n"
                               "drm/0000:42:00.0/vram0 7\n");
    assert_true(dmem_limit_of(folder, "0000:41:00.0", &left, &limit));
    assert_int_equal(limit, 1500);
    assert_int_equal(left, 580);
    assert_true(dmem_limit_of(folder, "0000:42:00.0", &left, &limit));
    assert_int_equal(left, 0);
}

static void no_number_and_no_region_are_no_limit(void **state)
{
    uint64_t left, limit;

    (void)state;
    write_file("dmem.max", "drm/0000:41:00.0/vram0 max\n");
    write_file("dmem.current", "drm/0000:41:00.0/vram0 900\n");
    assert_false(dmem_limit_of(folder, "0000:41:00.0", &left, &limit));
    assert_false(dmem_limit_of(folder, "0000:43:00.0", &left, &limit));
    assert_false(dmem_limit_of(folder, "", &left, &limit));
    assert_false(dmem_limit_of("/nowhere", "0000:41:00.0", &left, &limit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_regions_of_the_device_are_summed),
        cmocka_unit_test(no_number_and_no_region_are_no_limit),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
