/* The process's own memory as a source: what is given back leaves the resident size. */
#include "support/unit.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/host_source.h"

enum { RANGE = 8 << 20 };

static size_t resident_pages(char *base, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char present[RANGE / 4096];
    size_t count = 0;

    assert_int_equal(mincore(base, bytes, present), 0);
    for (size_t i = 0; i < bytes / page; i++)
        count += present[i] & 1;
    return count;
}

static void decommitted_pages_are_gone(void **state)
{
    struct mem_source *source = host_source();
    void *base;

    (void)state;
    assert_int_equal(source->ops->reserve(source, RANGE, &base), STATUS_OK);
    assert_int_equal(source->ops->commit(source, base, RANGE), STATUS_OK);
    memset(base, 1, RANGE);
    assert_int_equal(resident_pages(base, RANGE), RANGE / 4096);
    source->ops->decommit(source, (char *)base + RANGE / 2, RANGE / 2);
    assert_int_equal(resident_pages((char *)base + RANGE / 2, RANGE / 2), 0);
    assert_int_equal(((char *)base)[RANGE / 2 - 1], 1);
    assert_int_equal(source->ops->commit(source, (char *)base + RANGE / 2, RANGE / 2), STATUS_OK);
    assert_int_equal(((char *)base)[RANGE / 2], 0);
    source->ops->release(source, base, RANGE);
}

/* From the first page that is touched to the last one; what is there already stays. */
static void populated_pages_are_there_before_they_are_written(void **state)
{
    enum { PAGE = 4096, FROM = 3 * PAGE + 100, BYTES = 5 * PAGE };
    struct mem_source *source = host_source();
    char *base;

    (void)state;
    assert_int_equal(source->ops->reserve(source, RANGE, (void **)&base), STATUS_OK);
    assert_int_equal(source->ops->commit(source, base, 16 * PAGE), STATUS_OK);
    base[FROM] = 1;
    source->ops->populate(source, base + FROM, BYTES);
    assert_int_equal(base[FROM], 1);
    if (madvise(base, PAGE, 23 /* MADV_POPULATE_WRITE */) != 0)
        skip(); /* before Linux 5.14 they come with the first touch */
    assert_int_equal(resident_pages(base + 3 * PAGE, 6 * PAGE), 6);
    assert_int_equal(base[FROM + BYTES - 1], 0);
    source->ops->release(source, base, RANGE);
}

static void impossible_ranges_are_refused(void **state)
{
    struct mem_source *source = host_source();
    void *base;

    (void)state;
    assert_int_equal(source->ops->reserve(source, 0, &base), STATUS_INVALID);
    assert_int_equal(source->ops->reserve(source, SIZE_MAX, &base), STATUS_INVALID);
    assert_int_equal(source->ops->reserve(source, SIZE_MAX / 4, &base), STATUS_NO_MEMORY);
}

static void free_memory_is_less_than_all(void **state)
{
    struct mem_source *source = host_source();
    uint64_t available, total;

    (void)state;
    assert_int_equal(source->ops->query(source, &available, &total), STATUS_OK);
    assert_true(available > 0);
    assert_true(available <= total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decommitted_pages_are_gone),
        cmocka_unit_test(populated_pages_are_there_before_they_are_written),
        cmocka_unit_test(impossible_ranges_are_refused),
        cmocka_unit_test(free_memory_is_less_than_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
