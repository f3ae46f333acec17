/* Which models go, and in which order. */
#include "govern/eviction.h"

#include <stdbool.h>
#include <stdlib.h>

#include "support/unit.h"

#define MIB    ((uint64_t)1 << 20)
#define SECOND INT64_C(1000000)

/* 100 MiB, back in a second, idle for a minute, asked for once a minute. */
static struct eviction_candidate usual(void)
{
    return (struct eviction_candidate){.bytes = 100 * MIB,
                                       .reload_us = SECOND,
                                       .idle_us = 60 * SECOND,
                                       .interval_us = 60 * SECOND};
}

static void nothing_goes_for_nothing(void **state)
{
    struct eviction_candidate one = usual();
    size_t order[1];

    (void)state;
    assert_int_equal(eviction_choose(&one, 1, 0, order), 0);
    assert_int_equal(eviction_choose(NULL, 0, MIB, order), 0);
}

static void of_equals_the_longest_idle_goes_first(void **state)
{
    struct eviction_candidate all[3] = {usual(), usual(), usual()};
    size_t order[3];

    (void)state;
    all[1].idle_us = 90 * SECOND;
    all[2].idle_us = 30 * SECOND;
    assert_int_equal(eviction_choose(all, 3, 300 * MIB, order), 3);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 0);
    assert_int_equal(order[2], 2);
    assert_int_equal(eviction_choose(all, 3, MIB, order), 1);
    assert_int_equal(order[0], 1);
}

static void what_reloads_fast_goes_before_what_reloads_slowly(void **state)
{
    struct eviction_candidate all[2] = {usual(), usual()};
    size_t order[2];

    (void)state;
    all[0].reload_us = 30 * SECOND;
    assert_int_equal(eviction_choose(all, 2, MIB, order), 1);
    assert_int_equal(order[0], 1);
}

static void what_gives_more_bytes_goes_before_what_gives_few(void **state)
{
    struct eviction_candidate all[2] = {usual(), usual()};
    size_t order[2];

    (void)state;
    all[1].bytes = 4096 * MIB;
    assert_int_equal(eviction_choose(all, 2, MIB, order), 1);
    assert_int_equal(order[0], 1);
}

static void what_is_asked_for_often_stays_longer_but_not_for_ever(void **state)
{
    struct eviction_candidate all[2] = {usual(), usual()};
    size_t order[2];

    (void)state;
    all[0].interval_us = SECOND / 10; /* popular, until a moment ago */
    all[0].idle_us = SECOND;
    all[1].idle_us = SECOND / 2;
    assert_int_equal(eviction_choose(all, 2, MIB, order), 1);
    assert_int_equal(order[0], 1);
    all[0].idle_us = 3600 * SECOND; /* nobody came for an hour */
    assert_int_equal(eviction_choose(all, 2, MIB, order), 1);
    assert_int_equal(order[0], 0);
}

static void what_was_never_used_goes_first(void **state)
{
    struct eviction_candidate all[2] = {usual(), usual()};
    size_t order[2];

    (void)state;
    all[0].idle_us = 3600 * SECOND;
    all[1].interval_us = 0;
    all[1].idle_us = SECOND;
    assert_int_equal(eviction_choose(all, 2, MIB, order), 1);
    assert_int_equal(order[0], 1);
}

static void a_small_one_is_spared_when_the_next_gives_enough_alone(void **state)
{
    struct eviction_candidate all[3] = {usual(), usual(), usual()};
    size_t order[3];

    (void)state;
    all[0].bytes = MIB; /* the least worth of all: fast to come back, long idle */
    all[0].reload_us = 1000;
    all[0].idle_us = 3600 * SECOND;
    all[1].idle_us = 61 * SECOND;
    assert_int_equal(eviction_choose(all, 3, 50 * MIB, order), 1);
    assert_int_equal(order[0], 1);
    assert_int_equal(eviction_choose(all, 3, 101 * MIB, order), 2); /* here it is what lacks */
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 1);
}

static void what_holds_nothing_is_never_chosen_and_too_little_is_all_there_is(void **state)
{
    struct eviction_candidate all[3] = {usual(), usual(), usual()};
    size_t order[3];

    (void)state;
    all[1].bytes = 0;
    assert_int_equal(eviction_choose(all, 3, UINT64_MAX, order), 2);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 2);
}

/* Whatever is given: enough or everything, each at most once, and no one that could be spared. */
static void every_choice_suffices_and_none_is_in_vain(void **state)
{
    enum { COUNT = 12, ROUNDS = 2000 };
    struct eviction_candidate all[COUNT];
    size_t order[COUNT];

    (void)state;
    srand(42);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t sum = 0, wanted, chosen = 0, least = UINT64_MAX;
        bool taken[COUNT] = {false};
        size_t count;

        for (size_t i = 0; i < COUNT; i++) {
            all[i] = (struct eviction_candidate){.bytes = (uint64_t)(rand() % 5) * MIB,
                                                 .reload_us = rand() % 1000,
                                                 .idle_us = rand() % 1000000,
                                                 .interval_us = rand() % 1000};
            sum += all[i].bytes;
        }
        wanted = (uint64_t)(rand() % 40) * MIB;
        count = eviction_choose(all, COUNT, wanted, order);
        for (size_t i = 0; i < count; i++) {
            assert_true(order[i] < COUNT);
            assert_false(taken[order[i]]);
            taken[order[i]] = true;
            chosen += all[order[i]].bytes;
            least = all[order[i]].bytes < least ? all[order[i]].bytes : least;
        }
        assert_true(chosen >= (wanted < sum ? wanted : sum));
        if (count > 0 && chosen >= wanted)
            assert_true(chosen - least < wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_goes_for_nothing),
        cmocka_unit_test(of_equals_the_longest_idle_goes_first),
        cmocka_unit_test(what_reloads_fast_goes_before_what_reloads_slowly),
        cmocka_unit_test(what_gives_more_bytes_goes_before_what_gives_few),
        cmocka_unit_test(what_is_asked_for_often_stays_longer_but_not_for_ever),
        cmocka_unit_test(what_was_never_used_goes_first),
        cmocka_unit_test(a_small_one_is_spared_when_the_next_gives_enough_alone),
        cmocka_unit_test(what_holds_nothing_is_never_chosen_and_too_little_is_all_there_is),
        cmocka_unit_test(every_choice_suffices_and_none_is_in_vain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
