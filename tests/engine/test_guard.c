/* A kernel that writes behind what its plan gave it: noticed, named, counted, never answered. */
#include "engine/internal.h"
#include "rig.h"

/* The null device with a kernel that takes scratch and writes where it is told to. */
static struct {
    const char *op; /* ONNX's name of the operator that misbehaves */
    enum { NOTHING, BEHIND_OUTPUT, BEHIND_SCRATCH } overrun;
    size_t bytes;
} fault;

enum { SCRATCH_BYTES = 256, WIDTH = 48 };

static enum status prepare(struct kernel_prepare *to, struct error *err)
{
    (void)err;
    to->scratch_bytes = SCRATCH_BYTES;
    return STATUS_OK;
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    size_t bytes = layout_bytes(LAYOUT_PLAIN, 0, call->out[0]->dtype, &call->out[0]->shape);

    (void)state;
    memset(run->out[0], 0, bytes);
    memset(run->scratch, 0, SCRATCH_BYTES);
    if (strcmp(call->op->onnx.name, fault.op) != 0)
        return STATUS_OK;
    if (fault.overrun == BEHIND_OUTPUT)
        memset((char *)run->out[0] + bytes, 0, fault.bytes);
    if (fault.overrun == BEHIND_SCRATCH)
        memset((char *)run->scratch + SCRATCH_BYTES, 0, fault.bytes);
    return STATUS_OK;
}

static const struct kernel kernel_overruns = {
    .name = "test:overruns", .prepare = prepare, .enqueue = enqueue};

static const struct kernel *const *kernels(struct device *device, const struct op_def *op)
{
    static const struct kernel *const list[] = {&kernel_overruns, NULL};

    (void)device;
    (void)op;
    return list;
}

static struct device_ops overrun_ops;

static enum status open_device(const struct device_config *config, struct device **out_device,
                               struct error *err)
{
    enum status status = device_null_ops.open(config, out_device, err);

    if (status == STATUS_OK)
        (*out_device)->ops = &overrun_ops;
    return status;
}

struct guarded {
    struct rig rig;
    struct network *network;
    struct plan *plan;
    float in[WIDTH];
    float out[WIDTH + 2 * RUN_GUARD_BYTES / sizeof(float)];
};

/* Exp, Sqrt, Neg in a row: the first two have their results in the arena, the last in the output.
 */
static int setup(void **state)
{
    static struct guarded guarded;
    struct graph *graph = graph_create();
    struct shape shape = SHAPE(1, WIDTH);
    struct value *in = make_value(graph, "in", DTYPE_FLOAT, SHAPE(1, WIDTH));
    struct value *out = APPLY(graph, "Neg", APPLY(graph, "Sqrt", APPLY(graph, "Exp", in)));

    overrun_ops = device_null_ops;
    overrun_ops.name = "overrun";
    overrun_ops.open = open_device;
    overrun_ops.kernels = kernels;
    device_register(&overrun_ops);
    memset(&guarded, 0, sizeof(guarded));
    fault.op = "none";
    fault.overrun = NOTHING;
    fault.bytes = 4;
    rig_open(&guarded.rig, "overrun", 1);
    set_borders(graph, 1, &in, 1, &out);
    guarded.network = make_network(&guarded.rig, graph);
    guarded.plan = make_plan(guarded.network, &shape);
    assert_int_equal(count_steps(guarded.plan), 3);
    *state = &guarded;
    return 0;
}

static int teardown(void **state)
{
    struct guarded *guarded = *state;

    plan_unref(guarded->plan);
    network_destroy(guarded->network);
    rig_close(&guarded->rig);
    return 0;
}

static enum status run(struct guarded *guarded, struct run_buffer output, struct error *err)
{
    const struct run_buffer input = {guarded->in, sizeof(guarded->in)};
    struct run run = {.lane = guarded->rig.lane,
                      .arena = guarded->rig.arena,
                      .inputs = 1,
                      .in = &input,
                      .outputs = 1,
                      .out = &output};

    return plan_run(guarded->plan, &run, err);
}

static uint64_t violations(const struct guarded *guarded)
{
    struct ledger_stats stats;

    ledger_read(guarded->rig.ledger, &stats);
    return stats.plan_violations;
}

static void assert_caught(struct guarded *guarded, struct run_buffer output, const char *op)
{
    uint64_t before = violations(guarded);
    struct error err = {.text = ""};

    fault.op = op;
    assert_int_equal(run(guarded, output, &err), STATUS_INTERNAL);
    assert_non_null(strstr(err.text, op));
    assert_non_null(strstr(err.text, "test:overruns"));
    assert_int_equal(violations(guarded), before + 1);
}

static void a_plan_kept_to_is_answered(void **state)
{
    struct guarded *guarded = *state;
    struct run_buffer roomy = {guarded->out, sizeof(guarded->out)};
    struct run_buffer tight = {guarded->out, sizeof(guarded->in)};
    struct run_buffer unwanted = {NULL, 0};

    assert_ok(run(guarded, roomy, NULL));
    assert_ok(run(guarded, tight, NULL));
    assert_ok(run(guarded, unwanted, NULL));
    assert_int_equal(violations(guarded), 0);
}

static void a_write_behind_the_scratch_is_caught(void **state)
{
    struct guarded *guarded = *state;
    struct run_buffer output = {guarded->out, sizeof(guarded->out)};

    fault.overrun = BEHIND_SCRATCH;
    assert_caught(guarded, output, "Exp");
    assert_caught(guarded, output, "Neg");
}

static void a_write_behind_an_activation_is_caught(void **state)
{
    struct guarded *guarded = *state;
    struct run_buffer output = {guarded->out, sizeof(guarded->out)};

    fault.overrun = BEHIND_OUTPUT;
    assert_caught(guarded, output, "Exp");
    assert_caught(guarded, output, "Sqrt");
}

static void a_write_behind_an_output_with_room_is_caught(void **state)
{
    struct guarded *guarded = *state;
    struct run_buffer output = {guarded->out, sizeof(guarded->out)};

    fault.overrun = BEHIND_OUTPUT;
    assert_caught(guarded, output, "Neg");
}

static void a_write_behind_an_unwanted_output_is_caught(void **state)
{
    fault.overrun = BEHIND_OUTPUT;
    assert_caught(*state, (struct run_buffer){NULL, 0}, "Neg");
}

/* The arena never has less than the overrun is known to reach. */
static void a_plan_that_was_caught_is_admitted_with_more(void **state)
{
    struct guarded *guarded = *state;
    struct run_buffer output = {guarded->out, sizeof(guarded->out)};
    uint64_t before = plan_run_bytes(guarded->plan, &output);

    fault.overrun = BEHIND_SCRATCH;
    assert_caught(guarded, output, "Sqrt");
    assert_true(plan_run_bytes(guarded->plan, &output) >= before + 4096);
    for (int i = 0; i < 300; i++)
        assert_caught(guarded, output, "Sqrt");
    assert_true(plan_run_bytes(guarded->plan, &output) <= before + (UINT64_C(1) << 20));
    fault.overrun = NOTHING;
    assert_ok(run(guarded, output, NULL));
}

static void unwanted_outputs_count_in_what_a_run_asks_for(void **state)
{
    struct guarded *guarded = *state;
    struct run_buffer wanted = {guarded->out, sizeof(guarded->out)}, unwanted = {NULL, 0};

    assert_true(plan_run_bytes(guarded->plan, &unwanted) >=
                plan_run_bytes(guarded->plan, &wanted) + sizeof(guarded->in));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_plan_kept_to_is_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(a_write_behind_the_scratch_is_caught, setup, teardown),
        cmocka_unit_test_setup_teardown(a_write_behind_an_activation_is_caught, setup, teardown),
        cmocka_unit_test_setup_teardown(a_write_behind_an_output_with_room_is_caught, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_write_behind_an_unwanted_output_is_caught, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_plan_that_was_caught_is_admitted_with_more, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(unwanted_outputs_count_in_what_a_run_asks_for, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
