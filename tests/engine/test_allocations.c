/* What allocates, and what is left behind where that fails. */
#include "graphs.h"
#include "support/fail_alloc.h"

static enum status load_and_run(void *arg)
{
    struct rig *rig = arg;
    const struct network_config config = {.name = "model"};
    const struct shape shape = SHAPE(1, 16, 8, 8);
    struct network *network = NULL;
    struct plan *plan = NULL;
    struct graph *graph = conv_graph();
    enum status status;

    fail_alloc_arm(rig->nth);
    status = network_create(graph, rig->device, rig->ledger, &config, &network, NULL);
    if (status == STATUS_OK)
        status = network_plan(network, &shape, &plan, NULL);
    rig->refused = fail_alloc_disarm();
    plan_unref(plan);
    network_destroy(network);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    struct rig *rig = *state;
    struct ledger_stats before, after;

    assert_ok(load_and_run(rig)); /* what is made once a process is made */
    ledger_read(rig->ledger, &before);
    for (rig->nth = 1;; rig->nth++) {
        enum status status = load_and_run(rig);

        ledger_read(rig->ledger, &after);
        assert_int_equal(after.reserved_bytes, before.reserved_bytes);
        if (!rig->refused) {
            assert_ok(status);
            break;
        }
        assert_true(status == STATUS_NO_MEMORY || status == STATUS_OK);
    }
    assert_true(rig->nth > 50);
}

/* What a request's way needs is reserved when its plan is made. */
static void a_run_allocates_nothing(void **state)
{
    struct rig *rig = *state;
    const struct shape shape = SHAPE(1, 16, 8, 8);
    struct model model = make_model(rig, conv_graph(), &shape);
    size_t count = (size_t)shape_count(plan_output_shapes(model.plan, NULL));
    float in[16 * 8 * 8] = {0}, *out = calloc(count, sizeof(*out));

    assert_non_null(out);
    assert_ok(run_floats(rig, model.plan, in, 16 * 8 * 8, out, count)); /* the lane's arena grows */
    fail_alloc_arm(1);
    assert_ok(run_floats(rig, model.plan, in, 16 * 8 * 8, out, count));
    assert_false(fail_alloc_disarm());
    free(out);
    drop_model(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_run_allocates_nothing),
    };

    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
