#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "batch/bucket.h"

static void up_and_down_meet_at_the_known_sizes(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_true(bucket_is(sizes[i], 1000));
        assert_int_equal(bucket_up(sizes[i], 1000), sizes[i]);
        assert_int_equal(bucket_down(sizes[i], 1000), sizes[i]);
    }
    assert_int_equal(bucket_up(5, 1000), 6);
    assert_int_equal(bucket_down(5, 1000), 4);
    assert_int_equal(bucket_up(13, 1000), 16);
    assert_int_equal(bucket_down(23, 1000), 16);
}

static void padding_is_at_most_a_third_of_a_batch(void **state)
{
    (void)state;
    for (int64_t largest = 1; largest <= 300; largest++)
        for (int64_t rows = 1; rows <= largest; rows++) {
            int64_t size = bucket_up(rows, largest);

            assert_true(size >= rows && size <= largest);
            assert_true((size - rows) * 3 <= size);
            assert_true(bucket_down(rows, largest) <= rows);
        }
}

static void the_largest_batch_is_a_size_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(bucket_up(9, 10), 10);
    assert_int_equal(bucket_up(10, 10), 10);
    assert_true(bucket_is(10, 10));
    assert_false(bucket_is(10, 11));
    /* A single request with more rows than the governor's cap still finds a size. */
    assert_int_equal(bucket_up(20, 16), 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(up_and_down_meet_at_the_known_sizes),
        cmocka_unit_test(padding_is_at_most_a_third_of_a_batch),
        cmocka_unit_test(the_largest_batch_is_a_size_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
