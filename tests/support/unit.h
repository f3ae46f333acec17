/* The includes that cmocka wants, in its order. */
#ifndef TESTS_SUPPORT_UNIT_H
#define TESTS_SUPPORT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"

#define assert_ok(call)      assert_int_equal((call), STATUS_OK)
#define assert_refused(call) assert_int_equal((call), STATUS_NO_MEMORY)

#endif
