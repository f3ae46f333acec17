#include "govern/marks.h"

#include <string.h>

#include "support/unit.h"

#define MIB (UINT64_C(1) << 20)

struct heard {
    unsigned count;
    char last[MARKS_SENTENCE_BYTES];
};

static void hear(void *arg, const char *sentence)
{
    struct heard *heard = arg;

    heard->count++;
    strcpy(heard->last, sentence);
}

static struct marks_facts good(void)
{
    return (struct marks_facts){
        .config = {.budget_bytes = 1000 * MIB,
                   .headroom_bytes = 100 * MIB,
                   .low = 0.75,
                   .high = 0.88,
                   .critical = 0.95,
                   .floor_bytes = 50 * MIB},
        .limit_bytes = 1000 * MIB,
        .total_bytes = 2000 * MIB,
        .free_bytes = 1500 * MIB,
        .weights_bytes = 300 * MIB,
        .peak_bytes = 200 * MIB,
        .peak_model = "m/1",
        .largest_bytes = 200 * MIB,
        .largest_model = "m",
    };
}

static struct heard check(const struct marks_facts *facts)
{
    struct heard heard = {.count = 0};
    unsigned count = marks_check(facts, hear, &heard);

    assert_int_equal(count, heard.count);
    return heard;
}

static void marks_that_work_are_not_mentioned(void **state)
{
    struct marks_facts facts = good();

    (void)state;
    assert_int_equal(check(&facts).count, 0);
    facts.total_bytes = facts.free_bytes = 0; /* a device that cannot tell */
    assert_int_equal(check(&facts).count, 0);
}

static void a_low_mark_below_weights_and_the_largest_batch_names_the_least_that_works(void **state)
{
    struct marks_facts facts = good();
    struct heard heard;

    (void)state;
    facts.peak_bytes = 500 * MIB;
    heard = check(&facts);
    assert_int_equal(heard.count, 1);
    assert_non_null(strstr(heard.last, "LowWatermark=0.75 is at 750.0 MiB"));
    assert_non_null(strstr(heard.last, "'m/1'"));
    assert_non_null(strstr(heard.last, "above 0.80"));
    assert_non_null(strstr(heard.last, "above 1.0 GiB")); /* 800 / 0.75 MiB */
    facts.peak_bytes = 450 * MIB;
    assert_int_equal(check(&facts).count, 0);
}

static void weights_above_the_low_mark_are_said_once(void **state)
{
    struct marks_facts facts = good();
    struct heard heard;

    (void)state;
    facts.weights_bytes = 760 * MIB;
    heard = check(&facts);
    assert_int_equal(heard.count, 1);
    assert_non_null(strstr(heard.last, "pinned"));
}

static void a_floor_above_the_low_mark_names_the_most_that_works(void **state)
{
    struct marks_facts facts = good();
    struct heard heard;

    (void)state;
    facts.config.floor_bytes = 500 * MIB;
    heard = check(&facts);
    assert_int_equal(heard.count, 1);
    assert_non_null(strstr(heard.last, "at most 450.0 MiB"));
}

static void a_headroom_larger_than_the_device_is_named(void **state)
{
    struct marks_facts facts = good();
    struct heard heard;

    (void)state;
    facts.config.headroom_bytes = 2000 * MIB;
    heard = check(&facts);
    assert_int_equal(heard.count, 1);
    assert_non_null(strstr(heard.last, "Headroom"));
    facts = good();
    facts.limit_bytes = 1950 * MIB; /* fits, but not beside the headroom */
    assert_non_null(strstr(check(&facts).last, "the limit in force"));
    facts = good();
    facts.free_bytes = 99 * MIB;
    assert_non_null(strstr(check(&facts).last, "free now"));
}

static void a_budget_smaller_than_the_largest_model_names_it(void **state)
{
    struct marks_facts facts = good();

    (void)state;
    facts.largest_bytes = 1001 * MIB;
    assert_non_null(strstr(check(&facts).last, "model 'm' alone"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_that_work_are_not_mentioned),
        cmocka_unit_test(a_low_mark_below_weights_and_the_largest_batch_names_the_least_that_works),
        cmocka_unit_test(weights_above_the_low_mark_are_said_once),
        cmocka_unit_test(a_floor_above_the_low_mark_names_the_most_that_works),
        cmocka_unit_test(a_headroom_larger_than_the_device_is_named),
        cmocka_unit_test(a_budget_smaller_than_the_largest_model_names_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
