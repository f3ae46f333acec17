/* Networks on the simulated device: a lane, an arena, and device memory for inputs and outputs. */
#ifndef TESTS_DEVICE_CUDA_RUN_RIG_H
#define TESTS_DEVICE_CUDA_RUN_RIG_H

#include "engine/rig.h"
#include "sim_device.h"

enum { ROWS = 3, WIDTH = 16, HIDDEN = 24, CLASSES = 8 };

struct run_rig {
    struct rig rig;
    struct lane_arena *io;
    struct network *network;
    struct plan *plan;
    struct profile *profile;      /* of runs; NULL: not measured */
    const atomic_bool *cancelled; /* of runs; NULL: none is called off */
};

/* x ─ MatMul ─ Add ─ Relu ─ MatMul ─ Softmax: all of it has kernels on the device. */
static inline struct graph *make_classifier(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH));
    struct value *h = APPLY(graph, "MatMul", x, make_floats(graph, SHAPE(WIDTH, HIDDEN), 1));
    struct value *y;

    h = APPLY(graph, "Relu", APPLY(graph, "Add", h, make_floats(graph, SHAPE(HIDDEN), 2)));
    y = APPLY(graph, "MatMul", h, make_floats(graph, SHAPE(HIDDEN, CLASSES), 3));
    y = APPLY(graph, "Softmax", y);
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

/* With steps in between that only the CPU has: to text and back. */
static inline struct graph *make_mixed(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH));
    struct node *write = NODE(graph, "Cast", APPLY(graph, "Relu", x));
    struct node *read = NODE(graph, "Cast", write->out[0]);
    struct value *y = APPLY(graph, "Add", read->out[0], make_floats(graph, SHAPE(1), 5));

    set_attr_int(write, "to", DTYPE_STRING);
    set_attr_int(read, "to", DTYPE_FLOAT);
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

/* What comes out of NonZero has to be counted before the plan can go on. */
static inline struct graph *make_counted(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDTH));
    struct node *cast = NODE(graph, "Cast", APPLY(graph, "NonZero", APPLY(graph, "Relu", x)));
    struct node *sum = NODE(graph, "ReduceSum", cast->out[0], INTS(graph, 1));

    set_attr_int(cast, "to", DTYPE_FLOAT);
    set_attr_int(sum, "keepdims", 0);
    set_borders(graph, 1, &x, 1, &sum->out[0]);
    return graph;
}

static inline void run_rig_open(struct run_rig *rig, const char *device, struct graph *graph)
{
    const struct shape shape = SHAPE(ROWS, WIDTH);

    rig_open(&rig->rig, device, 1);
    assert_ok(lane_arena_create(rig->rig.device->memory, rig->rig.ledger, "io", (size_t)1 << 30,
                                &rig->io));
    rig->network = make_network(&rig->rig, graph);
    rig->plan = make_plan(rig->network, &shape);
    rig->profile = NULL;
    rig->cancelled = NULL;
}

static inline void run_rig_close(struct run_rig *rig)
{
    plan_unref(rig->plan);
    network_destroy(rig->network);
    lane_arena_destroy(rig->io);
    rig_close(&rig->rig);
}

struct fetch {
    struct device_lane *lane;
    void *to;
    const void *from;
    size_t bytes;
};

static inline enum status fetch_output(void *arg)
{
    const struct fetch *fetch = arg;

    return fetch->lane->device->ops->copy_out(fetch->lane, fetch->to, fetch->from, fetch->bytes);
}

/* One run as batch/ does it: copies in, the plan, copies out, one wait.  `shift`: the buffers stand
 * so many bytes further. */
static inline enum status run_at(struct run_rig *rig, const float *in, float *out, size_t outputs,
                                 size_t shift, struct error *err)
{
    struct device_lane *lane = rig->rig.lane;
    const struct run_buffer input = {NULL, ROWS * WIDTH * sizeof(float)};
    struct run_buffer buffers[2] = {input, {NULL, outputs * sizeof(float)}};
    struct fetch fetch = {.lane = lane, .to = out, .bytes = buffers[1].bytes};
    struct run run = {.lane = lane,
                      .arena = rig->rig.arena,
                      .inputs = 1,
                      .in = &buffers[0],
                      .outputs = 1,
                      .out = &buffers[1],
                      .profile = rig->profile,
                      .cancelled = rig->cancelled,
                      .finish = fetch_output,
                      .finish_arg = &fetch};
    enum status status;
    void *base;

    TRY(lane_arena_begin(rig->io, 65536, &base));
    buffers[0].data = (char *)base + shift;
    buffers[1].data = (char *)base + 32768 + shift;
    fetch.from = buffers[1].data;
    status = lane->device->ops->copy_in(lane, buffers[0].data, in, buffers[0].bytes);
    if (status == STATUS_OK)
        status = plan_run(rig->plan, &run, err);
    (void)lane->device->ops->lane_wait(lane);
    lane_arena_end(rig->io);
    return status;
}

static inline void fill_input(float in[ROWS * WIDTH], float from)
{
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        in[i] = from + (float)(i * 7 % 13) / 8 - 0.5F;
}

#endif
