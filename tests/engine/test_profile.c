/* What is told of measured runs. */
#include "rig.h"

#include <stdio.h>

#include "device/kernel.h"

enum { ROWS = 4, WIDTH = 64, OUT = 32 };

/* x [4,64] times W [64,32], then its Softmax. */
static struct network *make_product(struct rig *rig)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(ROWS, WIDTH));
    struct value *product = APPLY(graph, "MatMul", x, make_floats(graph, SHAPE(WIDTH, OUT), 1));
    struct value *y = APPLY(graph, "Softmax", product);

    set_borders(graph, 1, &x, 1, &y);
    return make_network(rig, graph);
}

static void run_once(struct rig *rig, struct plan *plan, struct profile *profile,
                     const atomic_bool *cancelled, enum status expected)
{
    float in[ROWS * WIDTH] = {0}, out[ROWS * OUT];
    const struct run_buffer input = {in, sizeof(in)};
    struct run_buffer output = {out, sizeof(out)};
    struct run run = {.lane = rig->lane,
                      .arena = rig->arena,
                      .inputs = 1,
                      .in = &input,
                      .outputs = 1,
                      .out = &output,
                      .cancelled = cancelled,
                      .profile = profile};
    struct error err;

    assert_int_equal(plan_run(plan, &run, &err), expected);
}

static char *written(const struct profile *profile, bool as_json)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    assert_non_null(to);
    profile_write(profile, to, as_json);
    assert_int_equal(fclose(to), 0);
    return text;
}

/* The number behind the first `key` after `from`. */
static double number_after(const char *from, const char *key)
{
    const char *at = strstr(from, key);

    if (at == NULL)
        fail_msg("no %s in %s", key, from);
    return strtod(at + strlen(key), NULL);
}

static void profiled_runs_are_counted_and_failed_ones_are_not(void **state)
{
    const atomic_bool cancelled = true;
    struct rig rig;
    struct network *network;
    struct plan *plan;
    struct profile *profile = profile_create();

    (void)state;
    rig_open(&rig, "cpu", 1);
    network = make_product(&rig);
    plan = make_plan(network, &(struct shape){2, {ROWS, WIDTH}});
    assert_non_null(profile);
    for (int i = 0; i < 3; i++)
        run_once(&rig, plan, profile, NULL, STATUS_OK);
    run_once(&rig, plan, profile, &cancelled, STATUS_CANCELLED);
    assert_int_equal(profile_runs(profile), 3);
    for (int i = 0; i < PROFILE_RUNS; i++)
        run_once(&rig, plan, profile, NULL, STATUS_OK);
    assert_int_equal(profile_runs(profile), PROFILE_RUNS);
    profile_destroy(profile);
    plan_unref(plan);
    network_destroy(network);
    rig_close(&rig);
}

static void a_profile_tells_operations_bytes_and_times_of_each_step(void **state)
{
    struct rig rig;
    struct network *network;
    struct plan *plan;
    struct profile *profile = profile_create();
    char *text;
    const char *second;

    (void)state;
    rig_open(&rig, "cpu", 1);
    network = make_product(&rig);
    plan = make_plan(network, &(struct shape){2, {ROWS, WIDTH}});
    run_once(&rig, plan, profile, NULL, STATUS_OK);
    plan_unref(plan); /* the profile holds it */
    text = written(profile, true);
    assert_true(number_after(text, "\"peak_flops_per_second\":") > 0);
    assert_true(number_after(text, "\"run_us\":") > 0);
    assert_true(number_after(text, "\"between_us\":") >= 0);
    assert_int_equal(number_after(text, "\"count\":"), 2);
    second = strstr(text, "{\"index\":0");
    assert_non_null(second);
    assert_int_equal(number_after(second, "\"flops\":"), 2 * ROWS * WIDTH * OUT);
    assert_int_equal(number_after(second, "\"read_bytes\":"),
                     (ROWS * WIDTH + WIDTH * OUT) * sizeof(float));
    assert_int_equal(number_after(second, "\"written_bytes\":"), ROWS * OUT * sizeof(float));
    assert_true(number_after(second, "\"us\":") > 0);
    assert_true(number_after(second, "\"peak_share\":") > 0);
    second = strstr(text, "{\"index\":1");
    assert_non_null(second);
    assert_int_equal(number_after(second, "\"flops\":"), 5 * ROWS * OUT);
    free(text);
    text = written(profile, false);
    assert_non_null(strstr(text, "1 runs, median"));
    assert_non_null(strstr(text, "Softmax"));
    free(text);
    profile_destroy(profile);
    network_destroy(network);
    rig_close(&rig);
}

static void where_memory_is_short_a_profile_does_without_peaks(void **state)
{
    struct rig rig;
    struct network *network;
    struct plan *plan;
    struct profile *profile = profile_create();
    char *text;

    (void)state;
    rig_open(&rig, "cpu", 1);
    network = make_product(&rig);
    plan = make_plan(network, &(struct shape){2, {ROWS, WIDTH}});
    ledger_set_budget(rig.ledger, 1 << 20);
    run_once(&rig, plan, profile, NULL, STATUS_OK);
    text = written(profile, true);
    assert_int_equal(number_after(text, "\"peak_flops_per_second\":"), 0);
    assert_int_equal(number_after(text, "\"peak_share\":"), 0);
    assert_true(number_after(text, "\"flops_per_second\":") > 0);
    free(text);
    profile_destroy(profile);
    plan_unref(plan);
    network_destroy(network);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profiled_runs_are_counted_and_failed_ones_are_not),
        cmocka_unit_test(a_profile_tells_operations_bytes_and_times_of_each_step),
        cmocka_unit_test(where_memory_is_short_a_profile_does_without_peaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
