/* Which plug-ins are opened, and what is said of the others. */
#include "device/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/unit.h"

static void expect(const char *folder, enum status wanted, const char *words)
{
    const struct device_ops *ops = NULL;
    struct error err = {.text = ""};

    assert_int_equal(setenv("SLUICE_PLUGIN_DIR", folder, 1), 0);
    assert_int_equal(plugin_load("cuda", &ops, &err), wanted);
    if (strstr(err.text, words) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, words);
}

static void another_builds_is_refused(void **state)
{
    (void)state;
    expect(OTHER_PLUGINS "/abi", STATUS_PRECONDITION, "speaks plug-in interface");
    expect(OTHER_PLUGINS "/size", STATUS_PRECONDITION, "another build");
    expect(OTHER_PLUGINS "/version", STATUS_PRECONDITION, "is of version 0.0.1");
    /* The same version and sizes: what operators' attributes mean may differ all the same. */
    expect(OTHER_PLUGINS "/border", STATUS_PRECONDITION, "another build");
}

/* The first `bytes` of this build's plug-in, under its name in a folder of its own. */
static void cut(const char *folder, long bytes)
{
    static char text[1 << 20];
    char path[256];
    FILE *from = fopen(OTHER_PLUGINS "/nothing/libsluice-cuda.so", "rb"), *to;
    size_t count;

    assert_non_null(from);
    count = fread(text, 1, bytes > 0 ? (size_t)bytes : sizeof(text), from);
    assert_true(count > 0 && count < sizeof(text));
    (void)fclose(from);
    (void)snprintf(path, sizeof(path), "%s/libsluice-cuda.so", folder);
    to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(text, 1, count, to), count);
    assert_int_equal(fclose(to), 0);
}

static void one_that_was_cut_off_is_refused(void **state)
{
    static const long lengths[] = {70, 4096, 4500, 9000};
    char folder[] = "/tmp/sluice-plugin-XXXXXX", path[256];

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        cut(folder, lengths[i]);
        expect(folder, STATUS_PRECONDITION, "is cut off");
    }
    cut(folder, 20); /* not even a header: the loader's own words */
    expect(folder, STATUS_NOT_FOUND, "does not open");
    (void)snprintf(path, sizeof(path), "%s/libsluice-cuda.so", folder);
    (void)remove(path);
    (void)remove(folder);
}

static void what_is_not_there_is_looked_for_where_it_was_said(void **state)
{
    (void)state;
    expect("/nowhere", STATUS_NOT_FOUND, "'/nowhere', which SLUICE_PLUGIN_DIR names");
}

static void its_own_builds_is_opened_once(void **state)
{
    (void)state;
    expect(OTHER_PLUGINS "/nothing", STATUS_OK, "");
    expect("/nowhere", STATUS_OK, ""); /* it is loaded */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_builds_is_refused),
        cmocka_unit_test(one_that_was_cut_off_is_refused),
        cmocka_unit_test(what_is_not_there_is_looked_for_where_it_was_said),
        cmocka_unit_test(its_own_builds_is_opened_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
