/* Texts of configurations, read or refused. */
#ifndef TESTS_CONFIG_TEXTS_H
#define TESTS_CONFIG_TEXTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/config.h"
#include "support/fail_alloc.h"
#include "support/unit.h"

static inline struct config_set *read_text(const char *text)
{
    struct config_set *set = NULL;
    struct error err = {0};

    if (config_read_text("a.conf", text, strlen(text), &set, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return set;
}

static inline void expect_refusal(const char *text, const char *message)
{
    struct config_set *set = NULL;
    struct error err = {0};

    assert_int_equal(config_read_text("a.conf", text, strlen(text), &set, &err), STATUS_INVALID);
    assert_null(set);
    assert_string_equal(err.text, message);
}

#endif
