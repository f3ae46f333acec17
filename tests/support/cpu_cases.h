/* Setups of tests that run operators on the CPU device: a tester that is open while a group runs,
 * and groups that run once for each instruction set. */
#ifndef TESTS_SUPPORT_CPU_CASES_H
#define TESTS_SUPPORT_CPU_CASES_H

#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "op_tester/op_tester.h"
#include "support/unit.h"

static struct op_tester *tester; /* the group's; each test finds it in its state, too */

static inline int open_tester(void **state)
{
    setenv("GOMP_SPINCOUNT", "3000", 0); /* short work is shared, whenever its turn comes */
    device_register(&device_cpu_ops);
    *state = tester = op_tester_create(OP_TEST_DEVICE);
    return 0;
}

static inline int open_avx2(void **state)
{
    setenv("SLUICE_CPU", "avx2", 1);
    return open_tester(state);
}

static inline int open_baseline(void **state)
{
    setenv("SLUICE_CPU", "baseline", 1);
    return open_tester(state);
}

static inline int close_tester(void **state)
{
    (void)state;
    op_tester_destroy(tester);
    return 0;
}

#define run_cases(tests) cmocka_run_group_tests(tests, open_tester, close_tester)

#ifdef OP_TEST_ONE_ISA
#define run_cases_on_each_isa run_cases
#else
/* Failures over all sets.  What the machine lacks counts as the best it has. */
#define run_cases_on_each_isa(tests)                                                               \
    (cmocka_run_group_tests_name("the best instruction set", tests, open_tester, close_tester) +   \
     cmocka_run_group_tests_name("avx2", tests, open_avx2, close_tester) +                         \
     cmocka_run_group_tests_name("baseline", tests, open_baseline, close_tester))
#endif

#endif
