/* Orders of steps: sound, never worse, and the best one where everything can be tried. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "graph/schedule.h"
#include "support/fail_alloc.h"

enum { STEPS_MAX = 1000, LINKS_MAX = 4 };

/* Every step makes the block of its number and reads those of the steps before it. */
struct web {
    struct schedule_problem problem;
    struct schedule_block blocks[STEPS_MAX];
    struct schedule_step steps[STEPS_MAX];
    uint32_t before[STEPS_MAX][LINKS_MAX];
    uint32_t touch[STEPS_MAX][LINKS_MAX + 1];
    struct schedule_over over[STEPS_MAX];
};

static void web_init(struct web *web)
{
    memset(web, 0, sizeof(*web));
    web->problem.block = web->blocks;
    web->problem.step = web->steps;
}

static void add_step(struct web *web, uint64_t bytes, size_t befores, const uint32_t *before)
{
    size_t number = web->problem.steps++;
    struct schedule_step *step = &web->steps[number];

    web->problem.blocks++;
    web->blocks[number].bytes = bytes;
    step->before = web->before[number];
    step->touch = web->touch[number];
    step->over = &web->over[number];
    for (size_t i = 0; i < befores; i++)
        web->before[number][step->befores++] = web->touch[number][step->touches++] = before[i];
    web->touch[number][step->touches++] = (uint32_t)number;
}

#define ADD(web, bytes, ...)                                                                       \
    add_step(web, bytes, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t),                     \
             (const uint32_t[]){__VA_ARGS__})

static void assert_sound(const struct web *web, const uint32_t *order)
{
    uint32_t place[STEPS_MAX];

    memset(place, 0xff, sizeof(place));
    for (uint32_t i = 0; i < web->problem.steps; i++) {
        assert_true(order[i] < web->problem.steps);
        assert_int_equal(place[order[i]], UINT32_MAX);
        place[order[i]] = i;
    }
    for (size_t i = 0; i < web->problem.steps; i++)
        for (size_t k = 0; k < web->steps[i].befores; k++)
            assert_true(place[web->steps[i].before[k]] < place[i]);
}

static uint64_t peak_of(const struct web *web, const uint32_t *order)
{
    uint64_t peak = 0;

    assert_int_equal(schedule_peak(&web->problem, order, &peak), STATUS_OK);
    return peak;
}

/* The best peak found; the order is sound and not worse than the given one. */
static uint64_t reorder(const struct web *web, bool *out_improved)
{
    uint32_t order[STEPS_MAX];
    uint64_t peak;

    assert_int_equal(schedule_order(&web->problem, order, out_improved), STATUS_OK);
    assert_sound(web, order);
    peak = peak_of(web, order);
    if (*out_improved)
        assert_true(peak < peak_of(web, NULL));
    else
        for (uint32_t i = 0; i < web->problem.steps; i++)
            assert_int_equal(order[i], i);
    return peak;
}

static void nothing_stays_nothing(void **state)
{
    static struct web web;
    bool improved = true;

    (void)state;
    web_init(&web);
    assert_int_equal(reorder(&web, &improved), 0);
    assert_false(improved);
}

static void a_chain_stays_as_it_is(void **state)
{
    static struct web web;
    bool improved = true;

    (void)state;
    web_init(&web);
    add_step(&web, 100, 0, NULL);
    ADD(&web, 50, 0);
    ADD(&web, 70, 1);
    assert_int_equal(reorder(&web, &improved), 150);
    assert_false(improved);
}

/* Two branches whose large results shrink at once: one after the other. */
static void branches_are_finished_one_by_one(void **state)
{
    static struct web web;
    bool improved = false;

    (void)state;
    web_init(&web);
    add_step(&web, 10, 0, NULL);
    ADD(&web, 1000, 0);
    ADD(&web, 1000, 0);
    ADD(&web, 1, 1);
    ADD(&web, 1, 2);
    ADD(&web, 1, 3, 4);
    assert_int_equal(peak_of(&web, NULL), 2010);
    assert_int_equal(reorder(&web, &improved), 1011);
    assert_true(improved);
}

static void a_result_over_its_input_needs_no_room(void **state)
{
    static struct web web;

    (void)state;
    web_init(&web);
    add_step(&web, 100, 0, NULL);
    ADD(&web, 100, 0);
    assert_int_equal(peak_of(&web, NULL), 200);
    web.over[1] = (struct schedule_over){.dying = 0, .made = 1};
    web.steps[1].overs = 1;
    assert_int_equal(peak_of(&web, NULL), 100);
    web.blocks[0].is_kept = true;
    assert_int_equal(peak_of(&web, NULL), 200);
}

static void scratch_counts_in_its_step_alone(void **state)
{
    static struct web web;

    (void)state;
    web_init(&web);
    add_step(&web, 100, 0, NULL);
    ADD(&web, 10, 0);
    web.steps[1].scratch_bytes = 7;
    assert_int_equal(peak_of(&web, NULL), 117);
}

static uint32_t next_random(uint32_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 17;
    *rng ^= *rng << 5;
    return *rng;
}

static void weave(struct web *web, size_t steps, uint32_t reach, uint32_t seed)
{
    uint32_t rng = seed * 2654435761U;

    web_init(web);
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t before[LINKS_MAX];
        size_t count = 0;

        for (uint32_t k = 0; i > 0 && k < 1 + next_random(&rng) % 2; k++) {
            uint32_t one = i - 1 - next_random(&rng) % (i < reach ? i : reach);

            if (count == 0 || before[0] != one)
                before[count++] = one;
        }
        add_step(web, 1 + next_random(&rng) % 100, count, before);
        web->steps[i].scratch_bytes = next_random(&rng) % 20;
        web->blocks[i].is_kept = next_random(&rng) % 16 == 0;
        if (count > 0 && web->blocks[before[0]].bytes == web->blocks[i].bytes) {
            web->over[i] = (struct schedule_over){.dying = before[0], .made = i};
            web->steps[i].overs = 1;
        }
    }
}

/* The least peak of all orders that begin with those `done`. */
static uint64_t least_peak(const struct web *web, uint32_t *order, size_t length, uint32_t done)
{
    uint64_t least = UINT64_MAX;

    if (length == web->problem.steps)
        return peak_of(web, order);
    for (uint32_t i = 0; i < web->problem.steps; i++) {
        bool is_ready = (done & 1U << i) == 0;
        uint64_t found;

        for (size_t k = 0; k < web->steps[i].befores; k++)
            is_ready = is_ready && (done & 1U << web->steps[i].before[k]) != 0;
        if (!is_ready)
            continue;
        order[length] = i;
        found = least_peak(web, order, length + 1, done | 1U << i);
        least = found < least ? found : least;
    }
    return least;
}

static void small_webs_get_the_best_order(void **state)
{
    static struct web web;
    size_t improvements = 0;

    (void)state;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        uint32_t order[8];
        bool improved;

        weave(&web, 8, 5, seed);
        assert_int_equal(reorder(&web, &improved), least_peak(&web, order, 0, 0));
        improvements += improved;
    }
    assert_true(improvements > 10);
}

static void large_webs_get_a_sound_order_in_time(void **state)
{
    static struct web web;
    int64_t start;

    (void)state;
    for (uint32_t seed = 1; seed <= 10; seed++) {
        uint64_t peak, again;
        bool improved;

        weave(&web, STEPS_MAX, 12, seed);
        start = clock_now_us();
        peak = reorder(&web, &improved);
        assert_true(clock_now_us() - start < 20 * 1000000); /* milliseconds when quiet */
        again = reorder(&web, &improved);
        assert_int_equal(peak, again);
        if (seed == 1)
            print_message("1000 steps: %" PRId64 " us, peak %.3f of the given order's\n",
                          (clock_now_us() - start) / 2, (double)peak / (double)peak_of(&web, NULL));
    }
}

static enum status reorder_web(void *arg)
{
    struct web *web = arg;
    uint32_t order[STEPS_MAX];
    bool improved;

    return schedule_order(&web->problem, order, &improved);
}

static void no_memory_is_reported(void **state)
{
    static struct web web;

    (void)state;
    weave(&web, 50, 12, 3);
    assert_true(fail_each_alloc(reorder_web, &web) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_stays_nothing),
        cmocka_unit_test(a_chain_stays_as_it_is),
        cmocka_unit_test(branches_are_finished_one_by_one),
        cmocka_unit_test(a_result_over_its_input_needs_no_room),
        cmocka_unit_test(scratch_counts_in_its_step_alone),
        cmocka_unit_test(small_webs_get_the_best_order),
        cmocka_unit_test(large_webs_get_a_sound_order_in_time),
        cmocka_unit_test(no_memory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
