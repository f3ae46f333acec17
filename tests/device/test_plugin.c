/* Which plug-ins are opened, and what is said of the others. */
#include "device/plugin.h"

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
        cmocka_unit_test(what_is_not_there_is_looked_for_where_it_was_said),
        cmocka_unit_test(its_own_builds_is_opened_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
