/* Two lanes on one device: what one copies and computes does not wait for the other. */
#include <pthread.h>

#include "run_rig.h"

struct side {
    struct run_rig rig; /* device, ledger, network and plan are both sides' */
    float in[ROWS * WIDTH], out[ROWS * CLASSES];
    enum status status;
    pthread_t thread;
};

static void open_side(struct side *side, unsigned index, struct device *device,
                      struct ledger *ledger, struct network *network, struct plan *plan)
{
    *side = (struct side){
        .rig = {.rig = {.device = device, .ledger = ledger}, .network = network, .plan = plan}};
    assert_ok(device->ops->lane_open(device, index, &side->rig.rig.lane));
    assert_ok(lane_arena_create(device->memory, ledger, index == 0 ? "lane 0" : "lane 1",
                                (size_t)1 << 30, &side->rig.rig.arena));
    assert_ok(lane_arena_create(device->memory, ledger, index == 0 ? "io 0" : "io 1",
                                (size_t)1 << 30, &side->rig.io));
    fill_input(side->in, (float)index);
}

static void close_side(struct side *side)
{
    struct device *device = side->rig.rig.device;

    lane_arena_destroy(side->rig.io);
    lane_arena_destroy(side->rig.rig.arena);
    device->ops->lane_close(side->rig.rig.lane);
}

static enum status run_side(struct side *side)
{
    side->rig.rig.lane->device->ops->lane_enter(side->rig.rig.lane);
    return run_at(&side->rig, side->in, side->out, ROWS * CLASSES, 0, NULL);
}

static void *run_thread(void *arg)
{
    struct side *side = arg;

    side->status = run_side(side);
    return NULL;
}

/* Copies in, kernels, copies out and the event of a batch are on its lane's stream alone: with a
 * kernel of lane 0 that does not end, batches of lane 1 go through from first copy to last. */
static void batches_of_one_lane_pass_by_a_kernel_of_the_other(void **state)
{
    const struct shape shape = SHAPE(ROWS, WIDTH);
    float wanted[ROWS * CLASSES];
    struct side sides[2];
    struct device *device;
    struct ledger *ledger;
    struct run_rig shared;

    (void)state;
    sim_set_mode(SIM_ASYNC);
    device = open_cuda();
    assert_ok(ledger_create(UINT64_C(1) << 30, &ledger));
    shared.rig = (struct rig){.device = device, .ledger = ledger};
    shared.network = make_network(&shared.rig, make_classifier());
    shared.plan = make_plan(shared.network, &shape);
    for (unsigned i = 0; i < 2; i++)
        open_side(&sides[i], i, device, ledger, shared.network, shared.plan);
    assert_ok(run_side(&sides[1]));
    memcpy(wanted, sides[1].out, sizeof(wanted));

    sim_hang_nth_kernel(2);
    assert_int_equal(pthread_create(&sides[0].thread, NULL, run_thread, &sides[0]), 0);
    sim_await_hung();
    for (unsigned run = 0; run < 4; run++) { /* ordinary, recorded, replayed */
        memset(sides[1].out, 0, sizeof(wanted));
        assert_ok(run_side(&sides[1]));
        assert_memory_equal(sides[1].out, wanted, sizeof(wanted));
    }
    sim_release_hung();
    assert_int_equal(pthread_join(sides[0].thread, NULL), 0);
    assert_ok(sides[0].status);

    plan_unref(shared.plan);
    network_destroy(shared.network);
    for (unsigned i = 0; i < 2; i++)
        close_side(&sides[i]);
    assert_true(ledger_is_valid(ledger));
    ledger_destroy(ledger);
    device_close(device);
    assert_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(batches_of_one_lane_pass_by_a_kernel_of_the_other, clean_slate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
