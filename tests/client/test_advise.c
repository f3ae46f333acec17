#include "advise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "support/unit.h"

#define MIB (UINT64_C(1) << 20)

static struct advise_model calm_model(void)
{
    return (struct advise_model){.name = "m/1",
                                 .use_bytes = 100 * MIB,
                                 .requests = 1000,
                                 .queue_ns = 1000 * 1000,
                                 .compute_ns = 1000 * 1000000,
                                 .max_batch_size = 8};
}

static struct advise_facts calm(const struct advise_model *model)
{
    return (struct advise_facts){.budget_bytes = 1000 * MIB,
                                 .total_bytes = 4000 * MIB,
                                 .headroom_bytes = 100 * MIB,
                                 .weights_bytes = 300 * MIB,
                                 .peak_allocated_bytes = 400 * MIB,
                                 .taken_bytes = 100 * MIB,
                                 .peak_arena_bytes = 100 * MIB,
                                 .low = 0.75,
                                 .high = 0.88,
                                 .critical = 0.95,
                                 .lanes = 1,
                                 .cores = 8,
                                 .models = 1,
                                 .model = model};
}

static const struct advise_proposal *find(const struct advice *advice, const char *key)
{
    for (size_t i = 0; i < advice->count; i++)
        if (strcmp(advice->proposal[i].key, key) == 0)
            return &advice->proposal[i];
    return NULL;
}

static const char *proposed(const struct advice *advice, const char *key)
{
    const struct advise_proposal *proposal = find(advice, key);

    return proposal != NULL ? proposal->proposed : "";
}

static void a_calm_daemon_is_left_alone(void **state)
{
    struct advise_model model = calm_model();
    struct advise_facts facts = calm(&model);
    struct advice advice;

    (void)state;
    advise(&facts, &advice);
    assert_int_equal(advice.count, 0);
    facts.models = 0; /* and one that serves nothing */
    advise(&facts, &advice);
    assert_int_equal(advice.count, 0);
}

static void a_need_above_the_low_mark_moves_the_marks_it_must(void **state)
{
    struct advise_model model = calm_model();
    struct advise_facts facts = calm(&model);
    struct advice advice;

    (void)state;
    model.use_bytes = 450 * MIB;
    advise(&facts, &advice);
    assert_string_equal(proposed(&advice, "LowWatermark"), "0.80");
    assert_null(find(&advice, "HighWatermark")); /* it lies above already */
    assert_non_null(strstr(find(&advice, "LowWatermark")->reason, "m/1"));
    model.use_bytes = 530 * MIB;
    advise(&facts, &advice);
    assert_string_equal(proposed(&advice, "LowWatermark"), "0.88");
    assert_string_equal(proposed(&advice, "HighWatermark"), "0.94");
    assert_string_equal(proposed(&advice, "CriticalWatermark"), "0.97");
}

static void a_need_that_no_mark_can_serve_asks_for_a_larger_limit(void **state)
{
    struct advise_model model = calm_model();
    struct advise_facts facts = calm(&model);
    struct advice advice;

    (void)state;
    model.use_bytes = 650 * MIB;
    advise(&facts, &advice);
    assert_string_equal(proposed(&advice, "Limit"), "1358M"); /* 950 / 0.7 */
    assert_null(find(&advice, "LowWatermark"));
    facts.total_bytes = 1100 * MIB; /* the device has no more */
    advise(&facts, &advice);
    assert_null(find(&advice, "Limit"));
    assert_null(find(&advice, "LowWatermark"));
}

static void memory_taken_again_and_again_is_kept(void **state)
{
    struct advise_model model = calm_model();
    struct advise_facts facts = calm(&model);
    struct advice advice;

    (void)state;
    facts.decays = 20;
    facts.taken_bytes = 2000 * MIB;
    advise(&facts, &advice);
    assert_string_equal(proposed(&advice, "Floor"), "100M");
    facts.floor_bytes = 100 * MIB;
    advise(&facts, &advice);
    assert_null(find(&advice, "Floor"));
}

static void a_floor_that_no_trim_can_reach_is_lowered(void **state)
{
    struct advise_model model = calm_model();
    struct advise_facts facts = calm(&model);
    struct advice advice;

    (void)state;
    facts.floor_bytes = 600 * MIB;
    advise(&facts, &advice);
    assert_string_equal(proposed(&advice, "Floor"), "450M");
}

static void lanes_follow_the_waiting(void **state)
{
    struct advise_model model = calm_model();
    struct advise_facts facts = calm(&model);
    struct advice advice;

    (void)state;
    model.queue_ns = 2 * model.compute_ns;
    advise(&facts, &advice);
    assert_string_equal(proposed(&advice, "Lanes"), "2");
    assert_true(find(&advice, "Lanes")->needs_restart);
    facts.cores = 1; /* nothing to run it on */
    advise(&facts, &advice);
    assert_null(find(&advice, "Lanes"));
    facts.cores = 8;
    model.use_bytes = 300 * MIB; /* a second such batch passes the low mark */
    advise(&facts, &advice);
    assert_null(find(&advice, "Lanes"));
    model = calm_model();
    facts.lanes = 4; /* and never two batches at once */
    advise(&facts, &advice);
    assert_string_equal(proposed(&advice, "Lanes"), "1");
}

static void a_batch_that_gains_nothing_is_capped(void **state)
{
    static const struct advise_batch sizes[] = {
        {.rows = 1, .count = 100, .ns = 100 * 1000},
        {.rows = 4, .count = 100, .ns = 100 * 2000},
        {.rows = 8, .count = 100, .ns = 100 * 4000},
    };
    struct advise_model model = calm_model();
    struct advise_facts facts = calm(&model);
    char reason[ADVISE_REASON_BYTES];

    (void)state;
    model.size = sizes;
    model.sizes = 3;
    assert_int_equal(advise_batch_cap(&facts, &model, reason), 4);
    model.sizes = 1; /* nothing to compare */
    assert_int_equal(advise_batch_cap(&facts, &model, reason), 0);
    model.sizes = 3;
    model.max_batch_size = 4;
    assert_int_equal(advise_batch_cap(&facts, &model, reason), 0);
}

static void a_batch_that_was_refused_is_capped_to_what_fits(void **state)
{
    static const struct advise_batch sizes[] = {{.rows = 4, .count = 1, .ns = 1000}};
    struct advise_model model = calm_model();
    struct advise_facts facts = calm(&model);
    char reason[ADVISE_REASON_BYTES];

    (void)state;
    model.size = sizes;
    model.sizes = 1;
    model.max_batch_size = 64;
    model.ooms = 3;
    assert_int_equal(advise_batch_cap(&facts, &model, reason), 28); /* 700 / 100 · 4 */
    assert_non_null(strstr(reason, "3 batches"));
}

/* ---- whatever was counted, the check of the configuration takes what is proposed ---- */

static uint64_t number(unsigned *seed, uint64_t most)
{
    return (((uint64_t)rand_r(seed) << 31) ^ (uint64_t)rand_r(seed)) % (most + 1);
}

static double share(unsigned *seed, double least, double most)
{
    return least + (most - least) * (double)rand_r(seed) / RAND_MAX;
}

static struct advise_facts any_facts(unsigned *seed, struct advise_model *model)
{
    uint64_t total = 64 * MIB + number(seed, UINT64_C(1) << 36);
    struct advise_facts facts = {.total_bytes = number(seed, 4) == 0 ? 0 : total,
                                 .headroom_bytes = number(seed, total),
                                 .budget_bytes = MIB + number(seed, total),
                                 .taken_bytes = number(seed, 10 * total),
                                 .peak_arena_bytes = number(seed, total),
                                 .trims = number(seed, 100),
                                 .decays = number(seed, 100),
                                 .lanes = 1 + (unsigned)number(seed, 31),
                                 .cores = 1 + (unsigned)number(seed, 255),
                                 .models = 1,
                                 .model = model};

    *model = calm_model();
    model->use_bytes = number(seed, 2 * facts.budget_bytes);
    model->queue_ns = number(seed, UINT64_C(1) << 40);
    model->compute_ns = number(seed, UINT64_C(1) << 40);
    facts.weights_bytes = number(seed, facts.budget_bytes);
    facts.peak_allocated_bytes = number(seed, facts.budget_bytes);
    facts.floor_bytes = number(seed, facts.budget_bytes);
    facts.low = share(seed, 0.1, 0.97);
    facts.high = share(seed, facts.low + 0.001, 0.99);
    facts.critical = share(seed, facts.high + 0.001, 1);
    return facts;
}

/* The configuration in force, and the proposals behind it: the last line of a key counts. */
static void write_config(const struct advise_facts *facts, const struct advice *advice, FILE *to)
{
    fprintf(to,
            "[Memory]\nLimit=%llu\nHeadroom=%llu\nFloor=%llu\nLowWatermark=%.9f\n"
            "HighWatermark=%.9f\nCriticalWatermark=%.9f\n",
            (unsigned long long)facts->budget_bytes, (unsigned long long)facts->headroom_bytes,
            (unsigned long long)facts->floor_bytes, facts->low, facts->high, facts->critical);
    for (size_t i = 0; i < advice->count; i++)
        fprintf(to, "[%s]\n%s=%s\n", advice->proposal[i].section, advice->proposal[i].key,
                advice->proposal[i].proposed);
}

static void what_it_proposes_passes_the_check_of_the_configuration(void **state)
{
    unsigned seed = 20;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        unsigned replay = seed;
        struct advise_model model;
        struct advise_facts facts = any_facts(&seed, &model);
        struct config_set *set = NULL;
        struct advice advice;
        struct error err = {.text = ""};
        char *text = NULL;
        size_t size = 0;
        FILE *to = open_memstream(&text, &size);

        advise(&facts, &advice);
        assert_true(advice.count <= ADVISE_MOST);
        write_config(&facts, &advice, to);
        assert_int_equal(fclose(to), 0);
        if (config_read_text("proposed", text, size, &set, &err) != STATUS_OK)
            fail_msg("seed %u: %s\n%s", replay, err.text, text);
        config_destroy(set);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_calm_daemon_is_left_alone),
        cmocka_unit_test(a_need_above_the_low_mark_moves_the_marks_it_must),
        cmocka_unit_test(a_need_that_no_mark_can_serve_asks_for_a_larger_limit),
        cmocka_unit_test(memory_taken_again_and_again_is_kept),
        cmocka_unit_test(a_floor_that_no_trim_can_reach_is_lowered),
        cmocka_unit_test(lanes_follow_the_waiting),
        cmocka_unit_test(a_batch_that_gains_nothing_is_capped),
        cmocka_unit_test(a_batch_that_was_refused_is_capped_to_what_fits),
        cmocka_unit_test(what_it_proposes_passes_the_check_of_the_configuration),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
