/* Networks that leave the device and come back. */
#include "rig.h"
#include "support/fail_alloc.h"

enum { ROWS = 3, WIDTH = 96, SPARE = 1000 };

struct bench {
    struct rig rig;
    struct network *network;
    float x[ROWS * WIDTH], y[ROWS * WIDTH];
    size_t graphs; /* made before allocations fail */
    struct graph *graph[SPARE];
};

/* y = Abs(x · W + b): a weight that is packed, a constant that is read as it is. */
static struct graph *make_graph(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH));
    struct value *w = make_floats(graph, SHAPE(WIDTH, WIDTH), 1);
    struct value *b = make_floats(graph, SHAPE(1, WIDTH), 2);
    struct value *y = APPLY(graph, "Abs", APPLY(graph, "Add", APPLY(graph, "MatMul", x, w), b));

    y->name = "y";
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static uint64_t weight_bytes(const struct bench *bench)
{
    struct ledger_stats stats;

    ledger_read(bench->rig.ledger, &stats);
    return stats.kind_bytes[MEM_WEIGHTS];
}

static void run_once(struct bench *bench, float *y)
{
    const struct shape shape = SHAPE(ROWS, WIDTH);
    struct plan *plan = make_plan(bench->network, &shape);

    assert_ok(run_floats(&bench->rig, plan, bench->x, ROWS * WIDTH, y, ROWS * WIDTH));
    plan_unref(plan);
}

static int set_up(void **state)
{
    static struct bench bench;

    bench = (struct bench){0};
    rig_open(&bench.rig, "cpu", 1);
    bench.network = make_network(&bench.rig, make_graph());
    for (int i = 0; i < ROWS * WIDTH; i++)
        bench.x[i] = (float)(i % 17) - 8;
    run_once(&bench, bench.y);
    *state = &bench;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *bench = *state;

    network_destroy(bench->network);
    assert_int_equal(weight_bytes(bench), 0);
    rig_close(&bench->rig);
    return 0;
}

static void assert_answers_as_before(struct bench *bench)
{
    float y[ROWS * WIDTH];

    run_once(bench, y);
    assert_memory_equal(y, bench->y, sizeof(y));
}

static void leaving_gives_back_every_byte_and_the_way_back_the_same_bits(void **state)
{
    struct bench *bench = *state;
    uint64_t held = weight_bytes(bench);

    assert_int_equal(network_place(bench->network), NETWORK_DEVICE);
    assert_int_equal(network_resident_bytes(bench->network), held);
    assert_int_equal(network_host_bytes(bench->network), 0);
    assert_int_equal(network_leave(bench->network), held);
    assert_int_equal(network_place(bench->network), NETWORK_HOST);
    assert_int_equal(weight_bytes(bench), 0);
    assert_int_equal(network_plan_bytes(bench->network), 0);
    assert_true(network_host_bytes(bench->network) > 0);
    assert_int_equal(network_leave(bench->network), 0);
    assert_ok(network_return(bench->network, NULL));
    assert_int_equal(weight_bytes(bench), held);
    assert_answers_as_before(bench);
}

static void the_way_back_makes_the_plans_that_were_used_last(void **state)
{
    struct bench *bench = *state;
    const struct shape used = SHAPE(ROWS, WIDTH), other = SHAPE(ROWS + 1, WIDTH);
    struct plan *plan;

    (void)network_leave(bench->network);
    assert_null(network_find_plan(bench->network, &used));
    assert_ok(network_return(bench->network, NULL));
    plan = network_find_plan(bench->network, &used);
    assert_non_null(plan);
    plan_unref(plan);
    assert_null(network_find_plan(bench->network, &other));
}

static void a_stripped_network_keeps_its_ports_and_is_filled_again(void **state)
{
    struct bench *bench = *state;
    const struct network_port *ports;
    uint64_t held = weight_bytes(bench);

    (void)network_leave(bench->network);
    assert_true(network_strip(bench->network) > 0);
    assert_int_equal(network_place(bench->network), NETWORK_GONE);
    assert_int_equal(network_host_bytes(bench->network), 0);
    assert_int_equal(network_inputs(bench->network, &ports), 1);
    assert_string_equal(ports[0].name, "x");
    assert_int_equal(ports[0].shape.dims[1], WIDTH);
    assert_ok(network_refill(bench->network, make_graph(), NULL));
    assert_int_equal(network_place(bench->network), NETWORK_HOST);
    assert_int_equal(weight_bytes(bench), 0);
    assert_ok(network_return(bench->network, NULL));
    assert_int_equal(weight_bytes(bench), held);
    assert_answers_as_before(bench);
}

static void another_graph_is_refused_and_leaves_nothing(void **state)
{
    struct bench *bench = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH + 1));
    struct value *y = APPLY(graph, "Abs", x);
    struct error err;

    set_borders(graph, 1, &x, 1, &y);
    (void)network_leave(bench->network);
    (void)network_strip(bench->network);
    assert_int_equal(network_refill(bench->network, graph, &err), STATUS_PRECONDITION);
    assert_non_null(strstr(err.text, "other inputs or outputs"));
    assert_int_equal(network_place(bench->network), NETWORK_GONE);
    assert_ok(network_refill(bench->network, make_graph(), NULL));
    assert_ok(network_return(bench->network, NULL));
    assert_answers_as_before(bench);
}

static void a_way_back_without_room_leaves_it_in_host_memory(void **state)
{
    struct bench *bench = *state;
    struct error err;

    (void)network_leave(bench->network);
    ledger_set_budget(bench->rig.ledger, 4096);
    assert_int_equal(network_return(bench->network, &err), STATUS_NO_MEMORY);
    assert_int_equal(network_place(bench->network), NETWORK_HOST);
    assert_int_equal(weight_bytes(bench), 0);
    ledger_set_budget(bench->rig.ledger, UINT64_C(1) << 30);
    assert_ok(network_return(bench->network, NULL));
    assert_answers_as_before(bench);
}

static void dropped_plans_are_made_again_beside_the_same_weights(void **state)
{
    struct bench *bench = *state;
    uint64_t held = weight_bytes(bench);

    assert_true(network_drop_plans(bench->network) > 0);
    assert_int_equal(network_plan_bytes(bench->network), 0);
    assert_answers_as_before(bench);
    assert_int_equal(weight_bytes(bench), held);
}

static enum status come_back(void *arg)
{
    struct bench *bench = arg;
    enum status status = network_return(bench->network, NULL);

    if (status != STATUS_OK) {
        assert_int_equal(network_place(bench->network), NETWORK_HOST);
        assert_int_equal(weight_bytes(bench), 0);
        return status;
    }
    (void)network_leave(bench->network);
    return status;
}

static enum status fill_again(void *arg)
{
    struct bench *bench = arg;
    enum status status;

    assert_true(bench->graphs > 0);
    status = network_refill(bench->network, bench->graph[--bench->graphs], NULL);
    assert_int_equal(network_place(bench->network),
                     status == STATUS_OK ? NETWORK_HOST : NETWORK_GONE);
    if (status == STATUS_OK)
        (void)network_strip(bench->network);
    return status;
}

static void moves_survive_every_failed_allocation(void **state)
{
    struct bench *bench = *state;

    (void)network_leave(bench->network);
    assert_true(fail_each_alloc(come_back, bench) > 20);
    (void)network_strip(bench->network);
    while (bench->graphs < SPARE)
        bench->graph[bench->graphs++] = make_graph();
    assert_true(fail_each_alloc(fill_again, bench) > 10);
    while (bench->graphs > 0)
        graph_destroy(bench->graph[--bench->graphs]);
    assert_ok(network_refill(bench->network, make_graph(), NULL));
    assert_ok(network_return(bench->network, NULL));
    assert_answers_as_before(bench);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(leaving_gives_back_every_byte_and_the_way_back_the_same_bits),
        TEST(the_way_back_makes_the_plans_that_were_used_last),
        TEST(a_stripped_network_keeps_its_ports_and_is_filled_again),
        TEST(another_graph_is_refused_and_leaves_nothing),
        TEST(a_way_back_without_room_leaves_it_in_host_memory),
        TEST(dropped_plans_are_made_again_beside_the_same_weights),
        TEST(moves_survive_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
