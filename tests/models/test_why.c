#include "models/why.h"

#include <string.h>

#include "base/clock.h"
#include "support/unit.h"

#define SECOND INT64_C(1000000)

static struct why tell(const struct why_facts *facts)
{
    struct why why;

    why_tell(facts, &why);
    return why;
}

static struct why_facts idle_model(void)
{
    return (struct why_facts){.kind = MEM_WEIGHTS,
                              .is_model = true,
                              .name = "resnet",
                              .idle_us = 40 * SECOND,
                              .keep_alive_us = 100 * SECOND};
}

static void an_idle_model_goes_when_its_keep_alive_is_over(void **state)
{
    struct why_facts facts = idle_model();

    (void)state;
    assert_string_equal(tell(&facts).held_for, "idle for 40 s, evictable now");
    assert_non_null(strstr(tell(&facts).freed_by, "keep_alive in 60 s"));
    assert_non_null(strstr(tell(&facts).freed_by, "unload resnet"));
    facts.keep_alive_us = CLOCK_NEVER;
    assert_null(strstr(tell(&facts).freed_by, "keep_alive"));
    assert_non_null(strstr(tell(&facts).freed_by, "pressure"));
}

static void a_model_in_use_says_by_how_many(void **state)
{
    struct why_facts facts = idle_model();

    (void)state;
    facts.requests = 1;
    assert_string_equal(tell(&facts).held_for, "in use by 1 request");
    facts.requests = 2;
    assert_string_equal(tell(&facts).held_for, "in use by 2 requests");
    facts.is_moving = true;
    assert_string_equal(tell(&facts).held_for, "moving");
}

static void a_pinned_model_goes_only_by_unload(void **state)
{
    struct why_facts facts = idle_model();

    (void)state;
    facts.is_pinned = true;
    assert_string_equal(tell(&facts).held_for, "pinned (sluice.pin)");
    assert_string_equal(tell(&facts).freed_by, "unload resnet");
    facts.requests = 3;
    assert_string_equal(tell(&facts).freed_by, "unload resnet");
}

static void cached_memory_names_the_time_until_it_decays(void **state)
{
    struct why_facts facts = {
        .kind = MEM_CACHED, .decay_us = 3 * SECOND - 1, .shrink_us = 10 * SECOND};

    (void)state;
    assert_string_equal(tell(&facts).freed_by, "idle decay in 3 s, over 10 s; now: empty-cache");
    facts.decay_us = -4 * SECOND;
    assert_string_equal(tell(&facts).freed_by, "idle decay, gone in 6 s; now: empty-cache");
    facts.decay_us = CLOCK_NEVER;
    assert_non_null(strstr(tell(&facts).freed_by, "idle decay is off"));
    facts.is_floor = true;
    assert_non_null(strstr(tell(&facts).freed_by, "--force"));
}

static void a_lane_in_use_names_the_model(void **state)
{
    struct why_facts facts = {.kind = MEM_ACTIVATION, .user = "resnet/1"};

    (void)state;
    assert_string_equal(tell(&facts).held_for, "a batch of resnet/1");
    facts.user = NULL;
    assert_string_equal(tell(&facts).held_for, "a batch of a model");
}

static void what_belongs_to_nobody_says_so(void **state)
{
    struct why_facts facts = {.kind = MEM_FIXED};

    (void)state;
    assert_string_equal(tell(&facts).held_for, "the daemon itself");
    facts.kind = MEM_WEIGHTS; /* an account that no model of the repository has */
    assert_string_equal(tell(&facts).held_for, "a load or an unload under way");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_model_goes_when_its_keep_alive_is_over),
        cmocka_unit_test(a_model_in_use_says_by_how_many),
        cmocka_unit_test(a_pinned_model_goes_only_by_unload),
        cmocka_unit_test(cached_memory_names_the_time_until_it_decays),
        cmocka_unit_test(a_lane_in_use_names_the_model),
        cmocka_unit_test(what_belongs_to_nobody_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
