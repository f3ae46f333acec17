/* The memory planner: never an overlap, close to the bound, quick. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "graph/planner.h"

static void plan_soundly(struct plan_buffer *buffers, size_t count,
                         const struct planner_options *options, struct planner_result *out_result)
{
    struct error err = {0};

    assert_int_equal(planner_plan(buffers, count, options, out_result), STATUS_OK);
    assert_true(out_result->peak_bytes >= out_result->lower_bound_bytes);
    if (planner_check(buffers, count, out_result->peak_bytes, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void nothing_needs_nothing(void **state)
{
    struct planner_result result = {.peak_bytes = 1};

    (void)state;
    plan_soundly(NULL, 0, NULL, &result);
    assert_int_equal(result.peak_bytes, 0);
    assert_int_equal(result.lower_bound_bytes, 0);
}

static void a_chain_needs_its_two_largest_neighbours(void **state)
{
    struct plan_buffer chain[] = {{64, 0, 1, 0}, {640, 1, 2, 0}, {320, 2, 3, 0}, {64, 3, 4, 0}};
    struct planner_result result;

    (void)state;
    plan_soundly(chain, 4, NULL, &result);
    assert_int_equal(result.lower_bound_bytes, 960);
    assert_int_equal(result.peak_bytes, 960);
}

static void buffers_that_never_meet_share_their_place(void **state)
{
    struct plan_buffer buffers[] = {{128, 0, 0, 0}, {128, 1, 1, 0}, {128, 2, 2, 0}};
    struct planner_result result;

    (void)state;
    plan_soundly(buffers, 3, NULL, &result);
    assert_int_equal(result.peak_bytes, 128);
}

static void empty_buffers_are_harmless(void **state)
{
    struct plan_buffer buffers[] = {{0, 0, 5, 0}, {64, 0, 1, 0}, {0, 1, 1, 0}};
    struct planner_result result;

    (void)state;
    plan_soundly(buffers, 3, NULL, &result);
    assert_int_equal(result.peak_bytes, 64);
}

static uint32_t next_random(uint32_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 17;
    *rng ^= *rng << 5;
    return *rng;
}

static void random_lifetimes_never_overlap(void **state)
{
    enum { COUNT = 120 };
    struct plan_buffer buffers[COUNT];

    (void)state;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        uint32_t rng = seed * 2654435761U;
        struct planner_result result;

        for (size_t i = 0; i < COUNT; i++) {
            uint32_t first = next_random(&rng) % 100;

            buffers[i] = (struct plan_buffer){.bytes = next_random(&rng) % 40 * 64,
                                              .first = first,
                                              .last = first + next_random(&rng) % 12};
        }
        plan_soundly(buffers, COUNT, NULL, &result);
    }
}

static void a_thousand_buffers_take_milliseconds(void **state)
{
    enum { COUNT = 1000 };
    static struct plan_buffer buffers[COUNT];
    uint32_t rng = 7;
    struct planner_result result;
    int64_t best_us = INT64_MAX;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        buffers[i] = (struct plan_buffer){.bytes = (1 + next_random(&rng) % 64) * 4096,
                                          .first = i,
                                          .last = i + 1 + next_random(&rng) % 20};
    for (int i = 0; i < 5; i++) {
        int64_t start = clock_now_us();

        plan_soundly(buffers, COUNT, NULL, &result);
        if (clock_now_us() - start < best_us)
            best_us = clock_now_us() - start;
    }
    print_message("1000 buffers: %" PRId64 " us, peak %.3f x bound\n", best_us,
                  (double)result.peak_bytes / (double)result.lower_bound_bytes);
    assert_true(best_us < 500 * 1000); /* a machine under load or sanitizers; 5 ms when quiet */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_needs_nothing),
        cmocka_unit_test(a_chain_needs_its_two_largest_neighbours),
        cmocka_unit_test(buffers_that_never_meet_share_their_place),
        cmocka_unit_test(empty_buffers_are_harmless),
        cmocka_unit_test(random_lifetimes_never_overlap),
        cmocka_unit_test(a_thousand_buffers_take_milliseconds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
