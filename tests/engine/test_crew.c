/* Plans made on several threads (crew_run() calls pthread_create()). */
#include <math.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "engine/internal.h"
#include "rig.h"
#include "support/fail_alloc.h"

enum { JOBS = 9 };

struct roll {
    atomic_int runs[JOBS];
    _Atomic int64_t last; /* the highest job begun */
    atomic_bool in_order;
    pthread_t caller;
    pthread_barrier_t both; /* jobs 1 and 2 run at once */
};

static void note(void *arg, size_t index)
{
    struct roll *roll = arg;

    atomic_fetch_add(&roll->runs[index], 1);
}

/* Job 0 takes until help is asked for. */
static void meet(void *arg, size_t index)
{
    struct roll *roll = arg;
    int64_t until_us = clock_now_us() + 1000;

    note(arg, index);
    while (index == 0 && clock_now_us() < until_us)
        continue;
    if (index == 1 || index == 2)
        (void)pthread_barrier_wait(&roll->both);
}

static void count_order(void *arg, size_t index)
{
    struct roll *roll = arg;

    note(arg, index);
    if (atomic_load(&roll->last) + 1 != (int64_t)index ||
        !pthread_equal(pthread_self(), roll->caller))
        atomic_store(&roll->in_order, false);
    atomic_store(&roll->last, (int64_t)index);
}

static void assert_each_once(struct roll *roll)
{
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(atomic_load(&roll->runs[i]), 1);
}

static void one_thread_takes_all_jobs_in_order(void **state)
{
    struct roll roll = {.last = -1, .in_order = true, .caller = pthread_self()};

    (void)state;
    crew_run(&(struct crew_size){.threads = 1, .is_much = true}, JOBS, count_order, &roll);
    assert_each_once(&roll);
    assert_true(atomic_load(&roll.in_order));
    crew_run(&(struct crew_size){.threads = 1}, 0, count_order, &roll);
    assert_each_once(&roll);
}

static void work_that_is_much_or_takes_long_is_shared_with_a_helper(void **state)
{
    (void)state;
    for (int is_much = 0; is_much < 2; is_much++) {
        struct roll roll = {.last = -1};
        const struct crew_size size = {.threads = 2, .is_much = is_much == 1};

        assert_int_equal(pthread_barrier_init(&roll.both, NULL, 2), 0);
        crew_run(&size, JOBS, meet, &roll);
        assert_each_once(&roll);
        (void)pthread_barrier_destroy(&roll.both);
    }
}

/* ---- plans ---- */

enum { CHANNELS = 32, SIDE = 12, LAYERS = 8, ROW = CHANNELS * SIDE * SIDE };

/* Convolutions in turn 3x3 and 1x1; every third one has the weights of the first of its kind, all
 * have one bias. */
static struct graph *deep_graph(void)
{
    struct graph *graph = graph_create();
    struct value *x =
        make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, CHANNELS, SIDE, SIDE));
    struct value *bias = make_floats(graph, SHAPE(CHANNELS), 99), *y = x;
    struct value *shared[2] = {make_floats(graph, SHAPE(CHANNELS, CHANNELS, 3, 3), 100),
                               make_floats(graph, SHAPE(CHANNELS, CHANNELS, 1, 1), 101)};

    for (uint32_t i = 0; i < LAYERS; i++) {
        int64_t side = i % 2 == 0 ? 3 : 1;
        struct value *w = i % 3 == 0 ? shared[i % 2]
                                     : make_floats(graph, SHAPE(CHANNELS, CHANNELS, side, side), i);

        y = APPLY(graph, "Conv", y, w, bias);
        if (side == 3)
            y = APPLY(graph, "Pad", y, INTS(graph, 0, 0, 1, 1, 0, 0, 1, 1));
        y = APPLY(graph, "Relu", y);
    }
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

struct result {
    struct plan_facts facts;
    uint64_t weights;
    float y[ROW];
};

static void run_on(unsigned threads, struct result *result)
{
    const struct shape shape = SHAPE(1, CHANNELS, SIDE, SIDE);
    struct network *network;
    struct plan *plan;
    struct rig rig;
    float x[ROW];

    for (int i = 0; i < ROW; i++)
        x[i] = sinf((float)i);
    rig_open(&rig, "cpu", threads);
    network = make_network(&rig, deep_graph());
    plan = make_plan(network, &shape);
    plan_read(plan, &result->facts);
    result->weights = network_resident_bytes(network);
    assert_ok(run_floats(&rig, plan, x, ROW, result->y, ROW));
    plan_unref(plan);
    network_destroy(network);
    rig_close(&rig);
}

static void plans_are_the_same_on_any_number_of_threads(void **state)
{
    static struct result one, many;

    (void)state;
    run_on(1, &one);
    for (unsigned threads = 2; threads <= 4; threads++) {
        run_on(threads, &many);
        assert_int_equal(one.facts.steps, many.facts.steps);
        assert_int_equal(one.weights, many.weights);
        assert_memory_equal(one.y, many.y, sizeof(one.y));
    }
}

static enum status load_with_failure(struct rig *rig)
{
    const struct network_config config = {.name = "model"};
    const struct shape shape = SHAPE(1, CHANNELS, SIDE, SIDE);
    struct graph *graph = deep_graph();
    struct network *network = NULL;
    struct plan *plan = NULL;
    enum status status;

    fail_alloc_arm_anywhere(rig->nth);
    status = network_create(graph, rig->device, rig->ledger, &config, &network, NULL);
    if (status == STATUS_OK)
        status = network_plan(network, &shape, &plan, NULL);
    rig->refused = fail_alloc_disarm();
    plan_unref(plan);
    network_destroy(network);
    return status;
}

static void any_thread_s_allocation_may_fail(void **state)
{
    struct ledger_stats before, after;
    struct rig rig;

    (void)state;
    rig_open(&rig, "cpu", 3);
    assert_ok(load_with_failure(&rig));
    ledger_read(rig.ledger, &before);
    for (rig.nth = 1;; rig.nth++) {
        enum status status = load_with_failure(&rig);

        ledger_read(rig.ledger, &after);
        assert_int_equal(after.reserved_bytes, before.reserved_bytes);
        if (!rig.refused) {
            assert_ok(status);
            break;
        }
        assert_true(status == STATUS_NO_MEMORY || status == STATUS_OK);
    }
    assert_true(rig.nth > 100);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_takes_all_jobs_in_order),
        cmocka_unit_test(work_that_is_much_or_takes_long_is_shared_with_a_helper),
        cmocka_unit_test(plans_are_the_same_on_any_number_of_threads),
        cmocka_unit_test(any_thread_s_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
