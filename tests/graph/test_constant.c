/* Where the elements of constants live. */
#include "support/unit.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "graph/graph.h"

enum { LARGE = 512 << 10, SMALLER = 300 << 10 }; /* bytes; both have pages of their own */

static struct constant *make(size_t bytes)
{
    struct shape shape = shape_make(1, (int64_t[]){(int64_t)bytes});
    struct constant *constant = constant_allocate(DTYPE_UINT8, &shape);

    assert_non_null(constant);
    return constant;
}

static char *elements(const struct constant *constant)
{
    return (char *)(uintptr_t)constant->tensor.data;
}

static bool is_mapped(char *at)
{
    unsigned char present;

    return mincore(at, 1, &present) == 0 || errno != ENOMEM;
}

static void pages_that_a_thread_freed_are_used_again_and_are_zero(void **state)
{
    struct constant *constant;
    char *first;

    (void)state;
    constant_reuse_begin();
    constant = make(LARGE);
    first = elements(constant);
    memset(first, 1, LARGE);
    constant_unref(constant);
    constant = make(SMALLER);
    assert_ptr_equal(elements(constant), first);
    for (size_t i = 0; i < SMALLER; i++)
        assert_int_equal(first[i], 0);
    constant_unref(constant);
    constant_reuse_end();
    assert_false(is_mapped(first));
}

static void a_larger_one_gets_pages_of_its_own(void **state)
{
    struct constant *constant;
    char *first;

    (void)state;
    constant_reuse_begin();
    constant = make(SMALLER);
    first = elements(constant);
    constant_unref(constant);
    constant = make(LARGE);
    assert_ptr_not_equal(elements(constant), first);
    memset(elements(constant), 1, LARGE);
    constant_unref(constant);
    constant_reuse_end();
}

static void outside_pages_go_back_at_once(void **state)
{
    struct constant *constant = make(LARGE);
    char *first = elements(constant);

    (void)state;
    constant_unref(constant);
    assert_false(is_mapped(first));
}

/* ---- brought from an origin ---- */

static enum status fill_sevens(const struct constant_origin *origin, void *data)
{
    (void)origin;
    memset(data, 7, LARGE - 5);
    return STATUS_OK;
}

static void release_nothing(struct constant_origin *origin)
{
    (void)origin;
}

/* Kernels read constants in whole vectors. */
static void behind_elements_that_are_brought_are_zeros(void **state)
{
    struct constant_origin origin = {.restore = fill_sevens, .release = release_nothing};
    struct shape shape = shape_make(1, (int64_t[]){LARGE - 5});
    struct constant *constant = constant_promise(DTYPE_UINT8, &shape, &origin);

    (void)state;
    assert_non_null(constant);
    constant_reuse_begin();
    for (int i = 0; i < 2; i++) { /* new pages, then those of before */
        assert_ok(constant_restore(constant));
        assert_int_equal(elements(constant)[LARGE - 6], 7);
        for (size_t k = LARGE - 5; k < LARGE; k++)
            assert_int_equal(elements(constant)[k], 0);
        memset(elements(constant), 9, LARGE);
        constant_drop(constant);
        assert_null(constant->tensor.data);
    }
    constant_unref(constant);
    constant_reuse_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_that_a_thread_freed_are_used_again_and_are_zero),
        cmocka_unit_test(a_larger_one_gets_pages_of_its_own),
        cmocka_unit_test(outside_pages_go_back_at_once),
        cmocka_unit_test(behind_elements_that_are_brought_are_zeros),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
