/* What context and code take of the device, told from what others take. */
#include <pthread.h>
#include <stdatomic.h>

#include "run_rig.h"

#include "models/fixed.h"

#define MIB (UINT64_C(1) << 20)

static uint64_t fixed_of(struct device *device)
{
    return device->ops->fixed_bytes(device);
}

static void the_context_counts_as_ours_and_what_came_before_as_others(void **state)
{
    struct device *device;

    (void)state;
    sim_set_memory(4096 * MIB, 500 * MIB);
    device = open_cuda();
    assert_int_equal(fixed_of(device), 256 * MIB);
    device_close(device);
}

static void what_a_load_adds_beyond_what_is_mapped_is_ours(void **state)
{
    struct device *device;
    void *base;

    (void)state;
    sim_set_memory(4096 * MIB, 500 * MIB);
    device = open_cuda();
    sim_set_memory(4096 * MIB, 700 * MIB); /* another process, between loads */
    assert_int_equal(fixed_of(device), 256 * MIB);
    device->ops->fixed_mark(device);
    assert_int_equal(fixed_of(device), 256 * MIB);
    device->ops->fixed_mark(device);
    assert_ok(device->memory->ops->reserve(device->memory, 64 * MIB, &base));
    assert_ok(device->memory->ops->commit(device->memory, base, 64 * MIB));
    assert_int_equal(fixed_of(device), 256 * MIB);
    device->ops->fixed_mark(device);
    sim_set_memory(4096 * MIB, 710 * MIB); /* as code would that is loaded now */
    assert_int_equal(fixed_of(device), 266 * MIB);
    device->memory->ops->release(device->memory, base, 64 * MIB);
    assert_int_equal(fixed_of(device), 266 * MIB);
    device_close(device);
}

struct taker {
    struct device *device;
    void *base;
    atomic_bool over;
    pthread_t thread;
};

/* As lanes do while a model is loaded. */
static void *take_and_give_back(void *arg)
{
    struct taker *taker = arg;
    struct mem_source *memory = taker->device->memory;

    while (!atomic_load(&taker->over)) {
        assert_ok(memory->ops->commit(memory, taker->base, 8 * MIB));
        memory->ops->decommit(memory, taker->base, 8 * MIB);
        (void)memory->ops->trim(memory, 0);
    }
    return NULL;
}

static void memory_that_comes_and_goes_meanwhile_is_not_taken_for_it(void **state)
{
    struct taker taker = {.over = false};

    (void)state;
    sim_set_memory(4096 * MIB, 500 * MIB);
    taker.device = open_cuda();
    assert_ok(taker.device->memory->ops->reserve(taker.device->memory, 8 * MIB, &taker.base));
    assert_int_equal(pthread_create(&taker.thread, NULL, take_and_give_back, &taker), 0);
    for (unsigned i = 0; i < 2000; i++) {
        taker.device->ops->fixed_mark(taker.device);
        assert_int_equal(fixed_of(taker.device), 256 * MIB);
    }
    atomic_store(&taker.over, true);
    assert_int_equal(pthread_join(taker.thread, NULL), 0);
    taker.device->memory->ops->release(taker.device->memory, taker.base, 8 * MIB);
    device_close(taker.device);
}

static void the_ledger_shows_it_as_a_kind_of_its_own(void **state)
{
    struct ledger_stats stats;
    struct fixed_cost fixed;
    struct device *device;
    struct ledger *ledger;

    (void)state;
    sim_set_memory(4096 * MIB, 500 * MIB);
    device = open_cuda();
    assert_ok(ledger_create(3000 * MIB, &ledger));
    assert_ok(fixed_open(&fixed, device, ledger));
    ledger_read(ledger, &stats);
    assert_int_equal(stats.kind_bytes[MEM_FIXED], 256 * MIB);
    fixed_before_load(&fixed);
    sim_set_memory(4096 * MIB, 532 * MIB);
    fixed_after_load(&fixed);
    ledger_read(ledger, &stats);
    assert_int_equal(stats.kind_bytes[MEM_FIXED], 288 * MIB);
    fixed_close(&fixed);
    ledger_destroy(ledger);
    device_close(device);
}

/* x ─ Conv, of images of any number. */
static struct graph *make_convolution(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, 4, 6, 6));
    struct value *y = APPLY(graph, "Conv", x, make_floats(graph, SHAPE(8, 4, 3, 3), 1));

    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static struct plan *plan_images(struct network *network, int64_t images)
{
    const struct shape shape = SHAPE(images, 4, 6, 6);

    return make_plan(network, &shape);
}

/* Whoever makes it, and whatever another process takes before and after. */
static void what_a_plan_of_the_library_holds_is_ours_until_it_goes(void **state)
{
    struct network *network;
    struct device *device;
    struct rig rig;
    struct plan *plan;
    uint64_t before, held;

    (void)state;
    sim_set_memory(4096 * MIB, 500 * MIB);
    rig_open(&rig, "cuda", 1);
    device = rig.device;
    network = make_network(&rig, make_convolution());
    plan_unref(plan_images(network, 1)); /* as a load does */
    before = fixed_of(device);
    sim_set_memory(4096 * MIB, 700 * MIB);
    sim_set_plan_bytes(8 * MIB);
    plan = plan_images(network, 3); /* as a request does */
    held = fixed_of(device) - before;
    assert_true(held >= 8 * MIB && held % (8 * MIB) == 0);
    sim_set_memory(4096 * MIB, 900 * MIB);
    assert_int_equal(fixed_of(device), before + held);
    plan_unref(plan);
    network_destroy(network);
    assert_int_equal(fixed_of(device), before);
    sim_set_plan_bytes(0);
    rig_close(&rig);
}

/* The ledger follows, without a load. */
static void what_is_known_is_booked_between_loads(void **state)
{
    struct ledger_stats stats;
    struct fixed_cost fixed;
    struct network *network;
    struct rig rig;

    (void)state;
    rig_open(&rig, "cuda", 1);
    assert_ok(fixed_open(&fixed, rig.device, rig.ledger));
    ledger_read(rig.ledger, &stats);
    const uint64_t before = stats.kind_bytes[MEM_FIXED];
    network = make_network(&rig, make_convolution());
    sim_set_plan_bytes(4 * MIB);
    plan_unref(plan_images(network, 2));
    fixed_note(&fixed);
    ledger_read(rig.ledger, &stats);
    assert_true(stats.kind_bytes[MEM_FIXED] >= before + 4 * MIB);
    network_destroy(network);
    fixed_note(&fixed);
    ledger_read(rig.ledger, &stats);
    assert_int_equal(stats.kind_bytes[MEM_FIXED], before);
    sim_set_plan_bytes(0);
    fixed_close(&fixed);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_context_counts_as_ours_and_what_came_before_as_others,
                               clean_slate),
        cmocka_unit_test_setup(what_a_load_adds_beyond_what_is_mapped_is_ours, clean_slate),
        cmocka_unit_test_setup(memory_that_comes_and_goes_meanwhile_is_not_taken_for_it,
                               clean_slate),
        cmocka_unit_test_setup(the_ledger_shows_it_as_a_kind_of_its_own, clean_slate),
        cmocka_unit_test_setup(what_a_plan_of_the_library_holds_is_ours_until_it_goes, clean_slate),
        cmocka_unit_test_setup(what_is_known_is_booked_between_loads, clean_slate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
