/* What the simulator's own tests share. */
#ifndef SLUICE_TESTS_SIM_SUPPORT_H
#define SLUICE_TESTS_SIM_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#define must(call) assert_int_equal(call, cudaSuccess)

#define assert_contains(text, words)                                                               \
    do {                                                                                           \
        const char *text_ = (text);                                                                \
        if (strstr(text_, words) == NULL)                                                          \
            fail_msg("\"%s\" does not speak of \"%s\"", text_, words);                             \
    } while (0)

#endif
