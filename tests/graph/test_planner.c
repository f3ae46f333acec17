/* The memory planner: never an overlap, close to the bound, quick. */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "graph/planner.h"
#include "support/fail_alloc.h"
#include "support/full_steps.h"

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

/* ---- thorough ---- */

/* A rectangle of steps x bytes cut up at random: fits into its height without a byte to spare. */
struct cutter {
    struct plan_buffer *buffers;
    size_t count, room;
    uint32_t rng;
};

static void cut_up(struct cutter *cutter, uint32_t first, uint32_t last, uint64_t bytes,
                   unsigned times)
{
    bool by_time = last > first && (bytes == 1 || next_random(&cutter->rng) % 2 == 0);

    if (times == 0 || (last == first && bytes == 1)) {
        assert_true(cutter->count < cutter->room);
        cutter->buffers[cutter->count++] =
            (struct plan_buffer){.bytes = bytes * 64, .first = first, .last = last};
    } else if (by_time) {
        uint32_t middle = first + next_random(&cutter->rng) % (last - first);

        cut_up(cutter, first, middle, bytes, times - 1);
        cut_up(cutter, middle + 1, last, bytes, times - 1);
    } else {
        uint64_t low = 1 + next_random(&cutter->rng) % (bytes - 1);

        cut_up(cutter, first, last, low, times - 1);
        cut_up(cutter, first, last, bytes - low, times - 1);
    }
}

static void puzzles_without_a_byte_to_spare_are_solved(void **state)
{
    enum { ROOM = 64 };
    static struct plan_buffer buffers[ROOM];
    const struct planner_options options = {.mode = PLANNER_THOROUGH, .budget_us = 20 * 1000000};

    (void)state;
    for (uint32_t seed = 1; seed <= 25; seed++) {
        struct cutter cutter = {.buffers = buffers, .room = ROOM, .rng = seed * 2654435761U};
        struct planner_result result;

        cut_up(&cutter, 0, 99, 1000, 6);
        plan_soundly(buffers, cutter.count, &options, &result);
        assert_int_equal(result.peak_bytes, 64000);
        assert_int_equal(result.end, PLANNER_AT_BOUND);
    }
}

/* Tries everything: a byte is a bit, and buffers come by first step. */
static bool fits_below(const struct plan_buffer *buffers, size_t count, size_t at, unsigned peak,
                       uint32_t *taken)
{
    const struct plan_buffer *buffer = &buffers[at];

    if (at == count)
        return true;
    for (unsigned offset = 0; offset + buffer->bytes <= peak; offset++) {
        uint32_t bits = ((1U << buffer->bytes) - 1) << offset, used = 0;
        bool fits;

        for (uint32_t step = buffer->first; step <= buffer->last; step++)
            used |= taken[step];
        if ((used & bits) != 0)
            continue;
        for (uint32_t step = buffer->first; step <= buffer->last; step++)
            taken[step] |= bits;
        fits = fits_below(buffers, count, at + 1, peak, taken);
        for (uint32_t step = buffer->first; step <= buffer->last; step++)
            taken[step] &= ~bits;
        if (fits)
            return true;
    }
    return false;
}

static void small_problems_are_solved_exactly(void **state)
{
    enum { STEPS = 8, BYTES = 8 };
    const struct planner_options options = {.mode = PLANNER_THOROUGH, .budget_us = 60 * 1000000};
    size_t above_bound = 0;

    (void)state;
    for (uint32_t seed = 1; seed <= 300; seed++) {
        struct plan_buffer buffers[64];
        size_t count = full_steps(buffers, STEPS, BYTES, 5, seed);
        uint32_t taken[STEPS] = {0};
        struct planner_result result;
        unsigned least = BYTES;

        while (!fits_below(buffers, count, 0, least, taken))
            least++;
        plan_soundly(buffers, count, &options, &result);
        assert_int_equal(result.lower_bound_bytes, BYTES);
        assert_int_equal(result.peak_bytes, least);
        assert_int_equal(result.end, least == BYTES ? PLANNER_AT_BOUND : PLANNER_EXHAUSTED);
        above_bound += least > BYTES;
    }
    assert_true(above_bound > 0); /* a proof that the bound is out of reach was needed */
}

static void fill_randomly(struct plan_buffer *buffers, size_t count, uint32_t seed)
{
    uint32_t rng = seed * 2654435761U;

    for (size_t i = 0; i < count; i++) {
        uint32_t first = next_random(&rng) % 60;

        buffers[i] = (struct plan_buffer){.bytes = (1 + next_random(&rng) % 500) * 64,
                                          .first = first,
                                          .last = first + next_random(&rng) % 30};
    }
}

static void thorough_is_never_worse_than_quick(void **state)
{
    enum { COUNT = 150 };
    static struct plan_buffer buffers[COUNT];
    const struct planner_options options = {.mode = PLANNER_THOROUGH, .budget_us = 50 * 1000};

    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        struct planner_result quick, thorough;

        fill_randomly(buffers, COUNT, seed);
        plan_soundly(buffers, COUNT, NULL, &quick);
        plan_soundly(buffers, COUNT, &options, &thorough);
        assert_true(thorough.peak_bytes <= quick.peak_bytes);
        assert_int_equal(thorough.lower_bound_bytes, quick.lower_bound_bytes);
    }
}

static void the_same_problem_gets_the_same_offsets(void **state)
{
    enum { COUNT = 200 };
    static struct plan_buffer one[COUNT], other[COUNT];

    (void)state;
    for (uint32_t seed = 1; seed <= 10; seed++) {
        struct planner_result result;

        fill_randomly(one, COUNT, seed);
        memcpy(other, one, sizeof(other));
        plan_soundly(one, COUNT, NULL, &result);
        plan_soundly(other, COUNT, NULL, &result);
        assert_memory_equal(one, other, sizeof(other));
    }
}

static void a_limit_is_good_enough(void **state)
{
    enum { ROOM = 64 };
    static struct plan_buffer buffers[ROOM];
    struct cutter cutter = {.buffers = buffers, .room = ROOM, .rng = 17};
    const struct planner_options options = {.mode = PLANNER_THOROUGH, .limit_bytes = 64000 * 2};
    struct planner_result result;

    (void)state;
    cut_up(&cutter, 0, 99, 1000, 6);
    plan_soundly(buffers, cutter.count, &options, &result);
    assert_int_equal(result.end, PLANNER_AT_BOUND);
    assert_true(result.peak_bytes <= options.limit_bytes);
}

/* Too hard to be done soon: full at each of 40 steps, and probably impossible. */
enum { HARD_ROOM = 256 };
static size_t fill_hard(struct plan_buffer *buffers)
{
    return full_steps(buffers, 40, 100, 40, 1);
}

static void the_budget_is_kept(void **state)
{
    static struct plan_buffer buffers[HARD_ROOM];
    const struct planner_options options = {.mode = PLANNER_THOROUGH, .budget_us = 100 * 1000};
    struct planner_result result;
    int64_t start = clock_now_us();

    (void)state;
    plan_soundly(buffers, fill_hard(buffers), &options, &result);
    assert_true(clock_now_us() - start < 10 * 1000000); /* a loaded machine under sanitizers */
    assert_int_equal(result.end, PLANNER_TIMED_OUT);
}

static void *cancel(void *cancelled)
{
    atomic_store((atomic_bool *)cancelled, true);
    return NULL;
}

static void a_cancelled_search_leaves_a_sound_packing(void **state)
{
    static struct plan_buffer buffers[HARD_ROOM];
    static atomic_bool cancelled;
    const struct planner_options options = {
        .mode = PLANNER_THOROUGH, .budget_us = 3600 * INT64_C(1000000), .cancelled = &cancelled};
    struct planner_result result;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, cancel, &cancelled), 0);
    plan_soundly(buffers, fill_hard(buffers), &options, &result);
    assert_int_equal(result.end, PLANNER_CANCELLED);
    pthread_join(thread, NULL);
}

/* ---- what cannot be packed, what is no packing ---- */

static void impossible_problems_are_refused(void **state)
{
    struct plan_buffer backwards[] = {{64, 3, 2, 7}};
    struct plan_buffer endless[] = {{64, 0, UINT32_MAX, 7}};
    struct plan_buffer huge[] = {{UINT64_MAX, 0, 1, 7}};
    struct plan_buffer sum[] = {{(uint64_t)INT64_MAX, 0, 1, 7}, {1, 2, 3, 7}};
    struct planner_result result = {.peak_bytes = 5};

    (void)state;
    assert_int_equal(planner_plan(backwards, 1, NULL, &result), STATUS_INVALID);
    assert_int_equal(planner_plan(endless, 1, NULL, &result), STATUS_INVALID);
    assert_int_equal(planner_plan(huge, 1, NULL, &result), STATUS_INVALID);
    assert_int_equal(planner_plan(sum, 2, NULL, &result), STATUS_INVALID);
    assert_int_equal(result.peak_bytes, 5);
    assert_int_equal(sum[0].offset, 7);
}

static void sizes_near_the_limit_are_packed(void **state)
{
    const struct planner_options options = {.mode = PLANNER_THOROUGH, .budget_us = 100 * 1000};
    struct plan_buffer buffers[6];
    struct planner_result result;

    (void)state;
    for (uint32_t i = 0; i < 6; i++)
        buffers[i] = (struct plan_buffer){
            .bytes = (UINT64_C(1) << 60) + i * 64 + 1, .first = i, .last = i + 1 + i % 3};
    plan_soundly(buffers, 6, &options, &result);
    buffers[0] = (struct plan_buffer){
        .bytes = (uint64_t)INT64_MAX, .first = UINT32_MAX - 1, .last = UINT32_MAX - 1};
    plan_soundly(buffers, 1, &options, &result);
    assert_int_equal(result.peak_bytes, (uint64_t)INT64_MAX);
}

static enum status plan_hard(void *arg)
{
    const struct planner_options options = {.mode = PLANNER_THOROUGH, .budget_us = 1000};
    struct plan_buffer buffers[HARD_ROOM];
    struct planner_result result;

    (void)arg;
    return planner_plan(buffers, fill_hard(buffers), &options, &result);
}

static void no_memory_is_reported(void **state)
{
    (void)state;
    assert_true(fail_each_alloc(plan_hard, NULL) > 10);
}

static void the_check_finds_what_is_wrong(void **state)
{
    struct plan_buffer buffers[] = {{64, 0, 1, 0}, {64, 1, 2, 64}, {64, 2, 3, 0}};
    struct error err = {0};

    (void)state;
    assert_int_equal(planner_check(buffers, 3, 128, &err), STATUS_OK);
    assert_int_equal(planner_check(buffers, 3, 192, &err), STATUS_INVALID);
    assert_int_equal(planner_check(buffers, 3, 64, &err), STATUS_INVALID);
    buffers[1].offset = 32;
    assert_int_equal(planner_check(buffers, 3, 96, &err), STATUS_INVALID);
    assert_string_equal(err.text, "buffers 0 and 1 share bytes at step 1");
    buffers[1].offset = UINT64_MAX - 8;
    assert_int_equal(planner_check(buffers, 3, 128, &err), STATUS_INVALID);
    buffers[1] = (struct plan_buffer){64, 2, 1, 64};
    assert_int_equal(planner_check(buffers, 3, 128, &err), STATUS_INVALID);
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
        cmocka_unit_test(puzzles_without_a_byte_to_spare_are_solved),
        cmocka_unit_test(small_problems_are_solved_exactly),
        cmocka_unit_test(thorough_is_never_worse_than_quick),
        cmocka_unit_test(the_same_problem_gets_the_same_offsets),
        cmocka_unit_test(a_limit_is_good_enough),
        cmocka_unit_test(the_budget_is_kept),
        cmocka_unit_test(a_cancelled_search_leaves_a_sound_packing),
        cmocka_unit_test(impossible_problems_are_refused),
        cmocka_unit_test(sizes_near_the_limit_are_packed),
        cmocka_unit_test(no_memory_is_reported),
        cmocka_unit_test(the_check_finds_what_is_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
