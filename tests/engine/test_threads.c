/* Many threads on one network: plans are found, made, dropped and run at once. */
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>

#include "rig.h"

enum { THREADS = 4, ROUNDS = 60 };

static struct graph *small_graph(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, 8));
    struct value *y = APPLY(graph, "Neg", APPLY(graph, "Abs", x));

    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

struct worker {
    struct rig *rig;
    struct network *network;
    struct device_lane *lane;
    struct lane_arena *arena;
    unsigned index;
    bool right;
};

static bool run_once(struct worker *worker, int64_t rows)
{
    const struct shape shape = SHAPE(rows, 8);
    struct plan *plan = network_find_plan(worker->network, &shape);
    float in[64], out[64];
    const struct run_buffer input = {in, (size_t)rows * 8 * sizeof(*in)};
    struct run_buffer output = {out, (size_t)rows * 8 * sizeof(*out)};
    struct run run = {.lane = worker->lane,
                      .arena = worker->arena,
                      .inputs = 1,
                      .in = &input,
                      .outputs = 1,
                      .out = &output};
    bool right = true;

    if (plan == NULL && network_plan(worker->network, &shape, &plan, NULL) != STATUS_OK)
        return false;
    for (int i = 0; i < 64; i++)
        in[i] = (float)(i + (int)worker->index);
    right = plan_run(plan, &run, NULL) == STATUS_OK;
    for (int64_t i = 0; right && i < rows * 8; i++)
        right = out[i] == -in[i];
    plan_unref(plan);
    return right;
}

static void *work(void *arg)
{
    struct worker *worker = arg;

    worker->right = true;
    for (int round = 0; worker->right && round < ROUNDS; round++) {
        worker->right = run_once(worker, 1 + (round + (int)worker->index) % 7);
        worker->right = worker->right && network_resident_bytes(worker->network) < 1 << 20 &&
                        network_plan_bytes(worker->network) > 0;
    }
    return NULL;
}

static void lanes_share_a_network(void **state)
{
    struct rig rig;
    struct network *network;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];

    (void)state;
    rig_open(&rig, "cpu", 1);
    network = make_network(&rig, small_graph()); /* keeps three plans of seven */
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.rig = &rig, .network = network, .index = i};
        assert_ok(rig.device->ops->lane_open(rig.device, i + 1, &workers[i].lane));
        assert_ok(
            lane_arena_create(rig.device->memory, rig.ledger, "lane", 1 << 24, &workers[i].arena));
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(workers[i].right);
        lane_arena_destroy(workers[i].arena);
        rig.device->ops->lane_close(workers[i].lane);
    }
    network_destroy(network);
    rig_close(&rig);
}

static size_t count_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    size_t count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    (void)closedir(folder);
    return count;
}

/* x [1,16,n,n] ──> Conv 3x3, 16 channels ──> Relu ──> MatMul with [n,n]. */
static struct graph *convolution_and_product(int64_t n)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(1, 16, n, n));
    struct value *y =
        APPLY(graph, "Relu", APPLY(graph, "Conv", x, make_floats(graph, SHAPE(16, 16, 3, 3), 1)));

    y = APPLY(graph, "MatMul", y, make_floats(graph, SHAPE(n - 2, n), 2));
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static void expect_no_threads_of_its_own(unsigned threads, int64_t n)
{
    const struct shape shape = SHAPE(1, 16, n, n);
    struct network *network;
    struct plan *plan;
    struct rig rig;
    float *in = calloc((size_t)(16 * n * n), sizeof(*in));
    float *out = calloc((size_t)(16 * n * n), sizeof(*out));
    size_t before;

    assert_true(in != NULL && out != NULL);
    rig_open(&rig, "cpu", threads);
    network = make_network(&rig, convolution_and_product(n));
    plan = make_plan(network, &shape);
    before = count_threads();
    assert_ok(run_floats(&rig, plan, in, (size_t)(16 * n * n), out, (size_t)(16 * (n - 2) * n)));
    assert_int_equal(count_threads(), before);
    plan_unref(plan);
    network_destroy(network);
    rig_close(&rig);
    free(out);
    free(in);
}

static void a_lane_of_one_thread_starts_no_others(void **state)
{
    (void)state;
    expect_no_threads_of_its_own(1, 120);
}

static void small_steps_start_no_threads(void **state)
{
    (void)state;
    expect_no_threads_of_its_own(3, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_steps_start_no_threads),
        cmocka_unit_test(a_lane_of_one_thread_starts_no_others),
        cmocka_unit_test(lanes_share_a_network),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
