#include "memory/host_pool.h"

#include <string.h>

#include "support/fail_alloc.h"
#include "support/unit.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static int setup(void **state)
{
    return host_pool_create(8 * MIB, (struct host_pool **)state) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state)
{
    host_pool_destroy(*state);
    return 0;
}

static struct host_pool_stats read_stats(struct host_pool *pool)
{
    struct host_pool_stats stats;

    host_pool_read(pool, &stats);
    assert_true(stats.in_use_bytes + stats.cached_bytes <= stats.limit_bytes);
    return stats;
}

static void buffers_are_aligned_and_writable(void **state)
{
    static const size_t sizes[] = {0,        1,        63,           64,      4096,       64 * KIB,
                                   65 * KIB, 96 * KIB, 96 * KIB + 1, MIB + 1, 4 * MIB - 1};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        void *buffer;

        assert_ok(host_pool_take(*state, sizes[i], &buffer));
        assert_int_equal((uintptr_t)buffer % 64, 0);
        memset(buffer, 0xAB, sizes[i]);
        host_pool_give(*state, buffer, sizes[i]);
        assert_int_equal(read_stats(*state).in_use_bytes, 0);
    }
}

static void big_buffers_are_charged_by_class(void **state)
{
    void *a, *b;

    assert_ok(host_pool_take(*state, MIB + 1, &a));
    assert_int_equal(read_stats(*state).in_use_bytes, 3 * MIB / 2);
    assert_ok(host_pool_take(*state, 3 * MIB / 2 + 1, &b));
    assert_int_equal(read_stats(*state).in_use_bytes, 3 * MIB / 2 + 2 * MIB);
    host_pool_give(*state, a, MIB + 1);
    host_pool_give(*state, b, 3 * MIB / 2 + 1);
}

static void a_given_buffer_is_taken_again(void **state)
{
    void *first, *second;

    assert_ok(host_pool_take(*state, MIB, &first));
    host_pool_give(*state, first, MIB);
    assert_int_equal(read_stats(*state).cached_bytes, MIB);
    assert_ok(host_pool_take(*state, MIB - 5000, &second));
    assert_ptr_equal(first, second);
    assert_int_equal(read_stats(*state).cached_bytes, 0);
    host_pool_give(*state, second, MIB - 5000);
}

static void take_fails_cleanly_beyond_the_budget(void **state)
{
    void *a, *b = NULL;

    assert_ok(host_pool_take(*state, 6 * MIB, &a));
    assert_refused(host_pool_take(*state, 2 * MIB + 1, &b));
    assert_refused(host_pool_take(*state, SIZE_MAX, &b));
    assert_null(b);
    assert_int_equal(read_stats(*state).refused_total, 2);
    assert_int_equal(read_stats(*state).in_use_bytes, 6 * MIB);
    assert_ok(host_pool_take(*state, 2 * MIB, &b));
    host_pool_give(*state, a, 6 * MIB);
    host_pool_give(*state, b, 2 * MIB);
}

static void small_buffers_count_too(void **state)
{
    void *big, *small;

    assert_ok(host_pool_take(*state, 8 * MIB, &big));
    assert_refused(host_pool_take(*state, 1, &small));
    host_pool_give(*state, big, 8 * MIB);
}

static void kept_buffers_make_room(void **state)
{
    void *a, *b;

    assert_ok(host_pool_take(*state, 2 * MIB, &a));
    host_pool_give(*state, a, 2 * MIB);
    assert_int_equal(read_stats(*state).cached_bytes, 2 * MIB);
    assert_ok(host_pool_take(*state, 8 * MIB, &b));
    assert_int_equal(read_stats(*state).cached_bytes, 0);
    host_pool_give(*state, b, 8 * MIB);
    assert_int_equal(read_stats(*state).cached_bytes, 0); /* more than a quarter of the budget */
}

static void trim_gives_back_what_is_not_to_keep(void **state)
{
    void *a, *b;

    assert_ok(host_pool_take(*state, MIB, &a));
    assert_ok(host_pool_take(*state, MIB / 2, &b));
    host_pool_give(*state, a, MIB);
    host_pool_give(*state, b, MIB / 2);
    assert_int_equal(host_pool_trim(*state, MIB), MIB);
    assert_int_equal(read_stats(*state).cached_bytes, MIB / 2);
    assert_int_equal(host_pool_trim(*state, 0), MIB / 2);
    assert_int_equal(host_pool_trim(*state, 0), 0);
}

static void a_lowered_limit_drops_kept_buffers_and_refuses(void **state)
{
    void *a, *b;

    assert_ok(host_pool_take(*state, MIB, &a));
    assert_ok(host_pool_take(*state, MIB, &b));
    host_pool_give(*state, b, MIB);
    host_pool_set_limit(*state, MIB);
    assert_int_equal(read_stats(*state).cached_bytes, 0);
    assert_refused(host_pool_take(*state, 1, &b));
    host_pool_give(*state, a, MIB);
}

static enum status build(void *arg)
{
    struct host_pool *pool = NULL;
    void *small = NULL, *big = NULL;
    enum status status = host_pool_create(8 * MIB, &pool);

    (void)arg;
    if (status == STATUS_OK)
        status = host_pool_take(pool, 100, &small);
    if (status == STATUS_OK)
        status = host_pool_take(pool, MIB, &big);
    if (pool != NULL) {
        host_pool_give(pool, small, 100);
        host_pool_give(pool, big, MIB);
    }
    host_pool_destroy(pool);
    return status;
}

static void taking_survives_every_failed_allocation(void **state)
{
    (void)state;
    assert_int_equal(fail_each_alloc(build, NULL), 3);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(buffers_are_aligned_and_writable),
        TEST(big_buffers_are_charged_by_class),
        TEST(a_given_buffer_is_taken_again),
        TEST(take_fails_cleanly_beyond_the_budget),
        TEST(small_buffers_count_too),
        TEST(kept_buffers_make_room),
        TEST(trim_gives_back_what_is_not_to_keep),
        TEST(a_lowered_limit_drops_kept_buffers_and_refuses),
        cmocka_unit_test(taking_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
