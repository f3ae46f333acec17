/* A CPU device with one lane, and graphs built by hand for it. */
#ifndef TESTS_ENGINE_RIG_H
#define TESTS_ENGINE_RIG_H

#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/null/null.h"
#include "engine/engine.h"
#include "support/unit.h"

struct rig {
    struct device *device;
    struct device_lane *lane;
    struct ledger *ledger;
    struct lane_arena *arena;
    unsigned nth; /* allocation that fails; 0: none */
    bool refused;
};

static inline void rig_open(struct rig *rig, const char *device, unsigned threads)
{
    const struct device_config config = {.name = device, .lanes = 1, .threads = threads};

    device_register(&device_cpu_ops);
    device_register(&device_null_ops);
    assert_ok(device_open(&config, &rig->device, NULL));
    assert_ok(rig->device->ops->lane_open(rig->device, 0, &rig->lane));
    assert_ok(ledger_create(UINT64_C(1) << 30, &rig->ledger));
    assert_ok(lane_arena_create(rig->device->memory, rig->ledger, "lane 0", (size_t)1 << 32,
                                &rig->arena));
}

static inline void rig_close(struct rig *rig)
{
    lane_arena_destroy(rig->arena);
    assert_true(ledger_is_valid(rig->ledger));
    ledger_destroy(rig->ledger);
    rig->device->ops->lane_close(rig->lane);
    device_close(rig->device);
}

/* The setup and teardown of a group of tests: state is a rig on the CPU, one thread. */
static inline int rig_setup(void **state)
{
    static struct rig rig;

    rig = (struct rig){.nth = 0};
    rig_open(&rig, "cpu", 1);
    *state = &rig;
    return 0;
}

static inline int rig_teardown(void **state)
{
    rig_close(*state);
    return 0;
}

/* ---- graphs ---- */

static inline struct value *make_value(struct graph *graph, const char *name, enum dtype dtype,
                                       struct shape shape)
{
    struct value *value = graph_add_value(graph, name);

    assert_non_null(value);
    value->dtype = dtype;
    value->shape = shape;
    value->shape_known = true;
    return value;
}

#define SHAPE(...)                                                                                 \
    shape_make(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static inline struct value *make_floats(struct graph *graph, struct shape shape, uint32_t seed)
{
    struct constant *constant = constant_allocate(DTYPE_FLOAT, &shape);
    float *data;

    assert_non_null(constant);
    data = (float *)(uintptr_t)constant->tensor.data;
    for (int64_t i = 0; i < shape_count(&shape); i++) {
        seed = seed * 1664525U + 1013904223U;
        data[i] = (float)(seed >> 8) / 16777216.0F - 0.5F;
    }
    return graph_add_constant(graph, "", constant);
}

static inline struct value *make_ints(struct graph *graph, size_t count, const int64_t *values)
{
    const int64_t dim = (int64_t)count;
    struct shape shape = shape_make(1, &dim);
    struct constant *constant = constant_allocate(DTYPE_INT64, &shape);

    assert_non_null(constant);
    memcpy((void *)(uintptr_t)constant->tensor.data, values, count * sizeof(*values));
    return graph_add_constant(graph, "", constant);
}
#define INTS(graph, ...)                                                                           \
    make_ints(graph, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

/* A node with one output. */
static inline struct node *make_node(struct graph *graph, const char *op, size_t inputs,
                                     struct value *const *in)
{
    const struct op_def *def = op_find("", op);
    struct node *node;

    assert_non_null(def);
    node = graph_add_node(graph, NULL, def, op, inputs, 1);
    assert_non_null(node);
    if (node->attrs != NULL)
        op_attrs_default(def, node->attrs);
    for (size_t i = 0; i < inputs; i++)
        node_set_input(node, i, in[i]);
    node_set_output(node, 0, graph_add_value(graph, op));
    return node;
}
#define NODE(graph, op, ...)                                                                       \
    make_node(graph, op, sizeof((struct value *[]){__VA_ARGS__}) / sizeof(struct value *),         \
              (struct value *[]){__VA_ARGS__})
#define APPLY(graph, op, ...) (NODE(graph, op, __VA_ARGS__)->out[0])

static inline void set_attr_int(struct node *node, const char *name, int64_t value)
{
    for (const struct attr_def *attr = node->op->attrs; attr->type != ATTR_END; attr++)
        if (strcmp(attr->name, name) == 0) {
            *(int64_t *)((char *)node->attrs + attr->offset) = value;
            return;
        }
    fail_msg("%s has no attribute %s", node->op->name, name);
}

static inline void set_borders(struct graph *graph, size_t inputs, struct value *const *in,
                               size_t outputs, struct value *const *out)
{
    assert_ok(graph_set_inputs(graph, inputs, in));
    assert_ok(graph_set_outputs(graph, outputs, out));
}

static inline struct network *make_network(struct rig *rig, struct graph *graph)
{
    const struct network_config config = {.name = "model", .plan_cache_count = 3};
    struct network *network = NULL;
    struct error err = {.text = ""};
    enum status status = network_create(graph, rig->device, rig->ledger, &config, &network, &err);

    if (status != STATUS_OK)
        fail_msg("network_create: %s", err.text);
    return network;
}

static inline struct plan *make_plan(struct network *network, const struct shape *shapes)
{
    struct plan *plan = NULL;
    struct error err = {.text = ""};

    if (network_plan(network, shapes, &plan, &err) != STATUS_OK)
        fail_msg("network_plan: %s", err.text);
    return plan;
}

/* A network and its plan for one set of input shapes. */
struct model {
    struct network *network;
    struct plan *plan;
};

static inline struct model make_model(struct rig *rig, struct graph *graph,
                                      const struct shape *shapes)
{
    struct network *network = make_network(rig, graph);

    return (struct model){network, make_plan(network, shapes)};
}

static inline void drop_model(struct model *model)
{
    plan_unref(model->plan);
    network_destroy(model->network);
}

static inline size_t count_steps(const struct plan *plan)
{
    struct plan_facts facts;

    plan_read(plan, &facts);
    return facts.steps;
}

/* One input, one output, floats. */
static inline enum status run_floats(struct rig *rig, struct plan *plan, const float *in,
                                     size_t in_count, float *out, size_t out_count)
{
    const struct run_buffer input = {(void *)(uintptr_t)in, in_count * sizeof(*in)};
    struct run_buffer output = {out, out_count * sizeof(*out)};
    struct shape shape;
    struct run run = {.lane = rig->lane,
                      .arena = rig->arena,
                      .inputs = 1,
                      .in = &input,
                      .outputs = 1,
                      .out = &output,
                      .out_shapes = &shape};
    struct error err = {.text = ""};
    enum status status = plan_run(plan, &run, &err);

    if (status != STATUS_OK)
        print_message("plan_run: %s\n", err.text);
    return status;
}

#endif
