/* What only a run can tell: shapes out of values, branches, bounds. */
#include <math.h>

#include "rig.h"

/* Outputs whose memory is asked for while running. */
struct placed {
    void *data[2];
    struct shape shapes[2];
    bool refuses;
};

static void *place(void *arg, size_t output, const struct shape *shape, size_t bytes)
{
    struct placed *placed = arg;

    if (placed->refuses)
        return NULL;
    placed->shapes[output] = *shape;
    free(placed->data[output]);
    placed->data[output] = malloc(bytes > 0 ? bytes : 1);
    return placed->data[output];
}

static enum status run_placed(struct rig *rig, struct plan *plan, size_t inputs,
                              const struct run_buffer *in, struct placed *placed,
                              struct shape *out_shape)
{
    struct run_buffer out = {NULL, RUN_PLACE};
    struct run run = {.lane = rig->lane,
                      .arena = rig->arena,
                      .inputs = inputs,
                      .in = in,
                      .outputs = 1,
                      .out = &out,
                      .out_shapes = out_shape,
                      .place = place,
                      .place_arg = placed};

    return plan_run(plan, &run, NULL);
}

/* y = Neg(Reshape(Abs(x), shape)) with the shape fed */
static struct graph *fed_shape_graph(void)
{
    struct graph *graph = graph_create();
    struct value *in[2] = {make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN)),
                           make_value(graph, "shape", DTYPE_INT64, SHAPE(2))};
    struct value *y =
        APPLY(graph, "Neg", APPLY(graph, "Reshape", APPLY(graph, "Abs", in[0]), in[1]));

    y->dtype = DTYPE_FLOAT;
    set_borders(graph, 2, in, 1, &y);
    return graph;
}

static void a_shape_that_is_fed_is_planned_when_it_is_known(void **state)
{
    struct rig *rig = *state;
    const struct shape shapes[2] = {SHAPE(12), SHAPE(2)};
    struct model model = make_model(rig, fed_shape_graph(), shapes);
    struct placed placed = {.refuses = false};
    struct plan_facts facts;
    float x[12];

    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    plan_read(model.plan, &facts);
    assert_false(facts.exact);
    for (int64_t rows = 1; rows <= 4; rows++) {
        int64_t dims[2] = {rows, -1};
        const struct run_buffer in[2] = {{x, sizeof(x)}, {dims, sizeof(dims)}};
        const struct shape wanted = SHAPE(rows, 12 / rows);
        struct shape got;

        if (12 % rows != 0)
            continue;
        assert_ok(run_placed(rig, model.plan, 2, in, &placed, &got));
        assert_true(shape_is_equal(&got, &wanted));
        assert_true(shape_is_equal(&placed.shapes[0], &wanted));
        for (int i = 0; i < 12; i++)
            assert_true(((float *)placed.data[0])[i] == -(float)i);
    }
    free(placed.data[0]);
    drop_model(&model);
}

static void a_shape_that_cannot_be_is_refused_while_running(void **state)
{
    struct rig *rig = *state;
    const struct shape shapes[2] = {SHAPE(12), SHAPE(2)};
    struct model model = make_model(rig, fed_shape_graph(), shapes);
    struct placed placed = {.refuses = false};
    float x[12] = {0};
    int64_t dims[2] = {5, 5};
    const struct run_buffer in[2] = {{x, sizeof(x)}, {dims, sizeof(dims)}};

    assert_int_equal(run_placed(rig, model.plan, 2, in, &placed, NULL), STATUS_INVALID);
    assert_int_equal(lane_arena_used(rig->arena), 0);
    drop_model(&model);
}

static void no_memory_for_a_late_output_ends_the_run(void **state)
{
    struct rig *rig = *state;
    const struct shape shapes[2] = {SHAPE(12), SHAPE(2)};
    struct model model = make_model(rig, fed_shape_graph(), shapes);
    struct placed placed = {.refuses = true};
    float x[12] = {0};
    int64_t dims[2] = {3, 4};
    const struct run_buffer in[2] = {{x, sizeof(x)}, {dims, sizeof(dims)}};

    assert_int_equal(run_placed(rig, model.plan, 2, in, &placed, NULL), STATUS_NO_MEMORY);
    drop_model(&model);
}

static enum status refuse_more(void *arg, uint64_t total_bytes)
{
    (void)arg;
    (void)total_bytes;
    return STATUS_NO_MEMORY;
}

static void more_memory_behind_a_cut_is_asked_for(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *in[2] = {make_value(graph, "x", DTYPE_FLOAT, SHAPE(1)),
                           make_value(graph, "shape", DTYPE_INT64, SHAPE(1))};
    struct value *wide = APPLY(graph, "Expand", APPLY(graph, "Abs", in[0]), in[1]);
    struct value *y = APPLY(graph, "Sum", APPLY(graph, "Exp", wide), APPLY(graph, "Neg", wide),
                            APPLY(graph, "Sqrt", wide));
    const struct shape shapes[2] = {SHAPE(1), SHAPE(1)};
    struct model model;
    float x[1] = {1};
    int64_t dims[1] = {100000};
    const struct run_buffer inputs[2] = {{x, sizeof(x)}, {dims, sizeof(dims)}};
    struct run_buffer out = {NULL, RUN_PLACE};
    struct placed placed = {.refuses = false};
    struct run run = {.lane = rig->lane,
                      .arena = rig->arena,
                      .inputs = 2,
                      .in = inputs,
                      .outputs = 1,
                      .out = &out,
                      .place = place,
                      .place_arg = &placed,
                      .admit = refuse_more};

    y->dtype = DTYPE_FLOAT;
    set_borders(graph, 2, in, 1, &y);
    model = make_model(rig, graph, shapes);
    assert_int_equal(plan_run(model.plan, &run, NULL), STATUS_NO_MEMORY);
    run.admit = NULL;
    out = (struct run_buffer){NULL, RUN_PLACE};
    assert_ok(plan_run(model.plan, &run, NULL));
    free(placed.data[0]);
    drop_model(&model);
}

/* y = Abs(Gather(x, NonZero(x))): a bound first, then its true shape. */
static void a_bound_becomes_its_true_shape_behind_the_cut(void **state)
{
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(6));
    struct value *where = APPLY(graph, "NonZero", x);
    struct value *y = APPLY(graph, "Abs", APPLY(graph, "Gather", x, where));
    const struct shape shape = SHAPE(6), wanted = SHAPE(1, 3);
    float data[6] = {0, -1, 0, 2, -3, 0};
    const struct run_buffer in = {data, sizeof(data)};
    struct placed placed = {.refuses = false};
    struct model model;
    struct shape got;

    y->dtype = DTYPE_FLOAT;
    set_borders(graph, 1, &x, 1, &y);
    model = make_model(rig, graph, &shape);
    assert_ok(run_placed(rig, model.plan, 1, &in, &placed, &got));
    assert_true(shape_is_equal(&got, &wanted));
    assert_true(((float *)placed.data[0])[0] == 1);
    assert_true(((float *)placed.data[0])[1] == 2);
    assert_true(((float *)placed.data[0])[2] == 3);
    free(placed.data[0]);
    drop_model(&model);
}

/* ---- If ---- */

/* A branch that applies `op` to a captured value. */
static struct graph *make_branch(const char *op)
{
    struct graph *branch = graph_create();
    struct value *captured = graph_add_value(branch, "captured");
    struct value *out = APPLY(branch, op, captured);

    assert_ok(graph_set_captures(branch, 1, &captured));
    assert_ok(graph_set_outputs(branch, 1, &out));
    return branch;
}

static void set_attr_graph(struct node *node, const char *name, struct graph *branch)
{
    for (const struct attr_def *attr = node->op->attrs; attr->type != ATTR_END; attr++)
        if (strcmp(attr->name, name) == 0)
            *(struct graph **)((char *)node->attrs + attr->offset) = branch;
}

/* y = If(cond, Exp(a), Neg(a)) + a with a = Abs(x); cond is `condition`. */
static struct graph *branching_graph(struct value *(*condition)(struct graph *))
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN));
    struct value *in[2] = {x, condition(graph)};
    struct value *a = APPLY(graph, "Abs", x);
    struct node *node = NODE(graph, "If", in[1], a, a);
    struct value *y = APPLY(graph, "Add", node->out[0], a);
    struct graph *then_branch = make_branch("Neg"), *else_branch = make_branch("Exp");

    set_attr_graph(node, "then_branch", then_branch);
    set_attr_graph(node, "else_branch", else_branch);
    graph_adopt(graph, then_branch);
    graph_adopt(graph, else_branch);
    y->dtype = DTYPE_FLOAT;
    set_borders(graph, in[1]->constant == NULL ? 2 : 1, in, 1, &y);
    return graph;
}

static struct value *fed_condition(struct graph *graph)
{
    return make_value(graph, "condition", DTYPE_BOOL, shape_make(0, NULL));
}

static struct value *constant_condition(struct graph *graph)
{
    struct shape scalar = shape_make(0, NULL);
    struct constant *constant = constant_allocate(DTYPE_BOOL, &scalar);

    *(bool *)(uintptr_t)constant->tensor.data = true;
    return graph_add_constant(graph, "", constant);
}

static void a_branch_is_taken_once_its_condition_is_known(void **state)
{
    struct rig *rig = *state;
    const struct shape shapes[2] = {SHAPE(3), shape_make(0, NULL)};
    struct model model = make_model(rig, branching_graph(fed_condition), shapes);
    struct placed placed = {.refuses = false};
    float x[3] = {0, 0, 0};

    for (int round = 0; round < 4; round++) {
        bool condition = round % 2 == 0;
        const struct run_buffer in[2] = {{x, sizeof(x)}, {&condition, sizeof(condition)}};
        struct shape got;

        assert_ok(run_placed(rig, model.plan, 2, in, &placed, &got));
        for (int i = 0; i < 3; i++)
            assert_true(((float *)placed.data[0])[i] == (condition ? 0.0F : 1.0F));
    }
    free(placed.data[0]);
    drop_model(&model);
}

static void a_branch_of_a_constant_condition_needs_no_cut(void **state)
{
    struct rig *rig = *state;
    const struct shape shape = SHAPE(3);
    struct model model = make_model(rig, branching_graph(constant_condition), &shape);
    struct plan_facts facts;
    float x[3] = {1, -2, 3}, y[3];

    plan_read(model.plan, &facts);
    assert_true(facts.exact);
    assert_int_equal(facts.steps, 3);
    assert_ok(run_floats(rig, model.plan, x, 3, y, 3));
    for (int i = 0; i < 3; i++)
        assert_true(y[i] == 0.0F);
    drop_model(&model);
}

/* y = Concat(a, b) + Reshape(a, shape), shape fed, a = Abs(x): `a` goes on behind the cut, dense.
 */
static void what_goes_on_behind_a_cut_is_no_part_of_a_batch(void **state)
{
    enum { ROWS = 3, WIDTH = 4, COUNT = ROWS * WIDTH };
    struct rig *rig = *state;
    struct graph *graph = graph_create();
    struct value *in[2] = {make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH)),
                           make_value(graph, "shape", DTYPE_INT64, SHAPE(2))};
    struct value *a = APPLY(graph, "Abs", in[0]), *b = APPLY(graph, "Neg", in[0]);
    struct node *both = NODE(graph, "Concat", a, b);
    struct value *sum = APPLY(graph, "ReduceSum", both->out[0], INTS(graph, 0, 1));
    struct value *y = APPLY(graph, "Add", APPLY(graph, "Reshape", a, in[1]), sum);
    const struct shape shapes[2] = {SHAPE(ROWS, WIDTH), SHAPE(2)};
    const int64_t wanted[2] = {2, 6};
    float x[COUNT], expected = 0;
    const struct run_buffer buffers[2] = {{x, sizeof(x)}, {(void *)(uintptr_t)wanted, 16}};
    struct placed placed = {.refuses = false};
    struct model model;
    struct shape found;

    set_attr_int(both, "axis", 1);
    y->dtype = DTYPE_FLOAT;
    set_borders(graph, 2, in, 1, &y);
    model = make_model(rig, graph, shapes);
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(i - 5);
        expected += fabsf(x[i]) - x[i];
    }
    assert_ok(run_placed(rig, model.plan, 2, buffers, &placed, &found));
    for (int i = 0; i < COUNT; i++)
        assert_true(((float *)placed.data[0])[i] == fabsf(x[i]) + expected);
    free(placed.data[0]);
    drop_model(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_that_is_fed_is_planned_when_it_is_known),
        cmocka_unit_test(a_shape_that_cannot_be_is_refused_while_running),
        cmocka_unit_test(no_memory_for_a_late_output_ends_the_run),
        cmocka_unit_test(more_memory_behind_a_cut_is_asked_for),
        cmocka_unit_test(a_bound_becomes_its_true_shape_behind_the_cut),
        cmocka_unit_test(a_branch_is_taken_once_its_condition_is_known),
        cmocka_unit_test(a_branch_of_a_constant_condition_needs_no_cut),
        cmocka_unit_test(what_goes_on_behind_a_cut_is_no_part_of_a_batch),
    };

    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
