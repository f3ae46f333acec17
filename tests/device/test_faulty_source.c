/* A source that misbehaves by order does so exactly as ordered, and keeps its books. */
#include "device/faulty_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/fake_source.h"
#include "support/unit.h"

enum { PAGE = 4096, RANGE = 100 * PAGE };

static struct fake_source fake;
static struct mem_source *source;
static void *base;

static void begin(const char *words)
{
    struct error err;

    fake_source_init(&fake, RANGE);
    assert_ok(faulty_source_create(&fake.source, words, &source, &err));
    assert_int_equal(source->page_bytes, PAGE);
    assert_ok(source->ops->reserve(source, RANGE, &base));
}

static void end(void)
{
    struct faulty_source_counts counts;

    source->ops->release(source, base, RANGE);
    faulty_source_read(source, &counts);
    assert_int_equal(counts.mapped_bytes, 0);
    faulty_source_destroy(source);
    fake_source_deinit(&fake);
}

static enum status map(size_t page, size_t pages)
{
    return source->ops->commit(source, (char *)base + page * PAGE, pages * PAGE);
}

static void unmap(size_t page, size_t pages)
{
    source->ops->decommit(source, (char *)base + page * PAGE, pages * PAGE);
}

static uint64_t free_now(void)
{
    uint64_t free_bytes, total;

    assert_ok(source->ops->query(source, &free_bytes, &total));
    assert_int_equal(total, RANGE);
    return free_bytes;
}

static void only_the_nth_map_is_refused(void **state)
{
    struct faulty_source_counts counts;

    (void)state;
    begin("map:n=2");
    assert_ok(map(0, 1));
    assert_int_equal(map(1, 1), STATUS_NO_MEMORY);
    assert_ok(map(1, 1));
    assert_ok(map(2, 1));
    faulty_source_read(source, &counts);
    assert_int_equal(counts.maps, 4);
    assert_int_equal(counts.refused, 1);
    assert_int_equal(counts.mapped_bytes, 3 * PAGE);
    assert_int_equal(fake.committed_bytes, 3 * PAGE);
    unmap(0, 3);
    end();
}

static void every_kth_map_is_refused(void **state)
{
    (void)state;
    begin("map:every=3");
    for (size_t i = 1; i < 20; i++)
        assert_int_equal(map(i, 1), i % 3 == 0 ? STATUS_NO_MEMORY : STATUS_OK);
    end();
}

static void maps_above_a_size_are_refused(void **state)
{
    (void)state;
    begin("map:above=8K");
    assert_ok(map(0, 2));
    assert_int_equal(map(2, 3), STATUS_NO_MEMORY);
    end();
}

static void a_slow_device_takes_its_time(void **state)
{
    int64_t from_us = clock_now_us();

    (void)state;
    begin("map:slow=3ms");
    assert_ok(map(0, 1));
    unmap(0, 1);
    assert_true(clock_now_us() - from_us >= 6000);
    end();
}

static void a_hog_takes_from_what_is_free(void **state)
{
    (void)state;
    begin("size=400K, hog=100K");
    assert_int_equal(free_now(), 300 << 10);
    assert_int_equal(map(0, 76), STATUS_NO_MEMORY);
    assert_ok(map(0, 75));
    assert_int_equal(free_now(), 0);
    unmap(25, 50);
    faulty_source_set_hog(source, 0);
    assert_int_equal(free_now(), 300 << 10);
    assert_ok(map(25, 75));
    end();
}

static void without_a_size_a_hog_only_shows(void **state)
{
    (void)state;
    begin("hog=100K");
    assert_int_equal(free_now(), RANGE - (100 << 10));
    assert_ok(map(0, 100));
    end();
}

static void a_hog_comes_and_goes(void **state)
{
    int64_t until_us = clock_now_us() + 5000000;
    bool with = false, without = false;

    (void)state;
    begin("hog=100K/1ms");
    while (!(with && without) && clock_now_us() < until_us) {
        uint64_t free_bytes = free_now();

        with |= free_bytes == RANGE - (100 << 10);
        without |= free_bytes == RANGE;
    }
    assert_true(with && without);
    end();
}

static void a_hog_can_be_ordered_by_a_file(void **state)
{
    char path[] = "/tmp/sluice-hog-XXXXXX", words[64];
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    (void)snprintf(words, sizeof(words), "hog=%s", path);
    begin(words);
    assert_int_equal(free_now(), RANGE);
    assert_int_equal(write(fd, "8K\n", 3), 3);
    assert_int_equal(free_now(), RANGE - 8192);
    (void)close(fd);
    (void)unlink(path);
    assert_int_equal(free_now(), RANGE);
    end();
}

static void a_map_that_the_device_itself_refuses_is_not_booked(void **state)
{
    struct faulty_source_counts counts;

    (void)state;
    begin("map:n=100");
    fake.refuse_after = 0;
    assert_int_equal(map(0, 1), STATUS_NO_MEMORY);
    faulty_source_read(source, &counts);
    assert_int_equal(counts.mapped_bytes, 0);
    fake.refuse_after = -1;
    end();
}

static void words_that_are_none_are_named(void **state)
{
    static const char *const bad[] = {"map:n",
                                      "map:n=0",
                                      "map:n=x",
                                      "map:every=-1",
                                      "map:above=1X",
                                      "map:slow=2",
                                      "size=",
                                      "hog=1M/",
                                      "hog=1M/2",
                                      "hog=",
                                      "map:n=1 bogus",
                                      "hog=1/1s/2s",
                                      "size=99999999999999999999"};
    struct mem_source *made = NULL;
    struct error err;

    (void)state;
    fake_source_init(&fake, RANGE);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(faulty_source_create(&fake.source, bad[i], &made, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "SLUICE_FAULT has '"));
        assert_non_null(strstr(err.text, "allowed are map:n=N"));
    }
    assert_null(made);
    fake_source_deinit(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_nth_map_is_refused),
        cmocka_unit_test(every_kth_map_is_refused),
        cmocka_unit_test(maps_above_a_size_are_refused),
        cmocka_unit_test(a_slow_device_takes_its_time),
        cmocka_unit_test(a_hog_takes_from_what_is_free),
        cmocka_unit_test(without_a_size_a_hog_only_shows),
        cmocka_unit_test(a_hog_comes_and_goes),
        cmocka_unit_test(a_hog_can_be_ordered_by_a_file),
        cmocka_unit_test(a_map_that_the_device_itself_refuses_is_not_booked),
        cmocka_unit_test(words_that_are_none_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
