/* What a network answers on a device, as a whole: compared with what it answers on another. */
#ifndef TESTS_DEVICE_CUDA_ANSWER_H
#define TESTS_DEVICE_CUDA_ANSWER_H

#include "run_rig.h"

#include <math.h>

enum { MANY = 4096 }; /* numbers in and out */

static const char *answer_cache; /* folder for what devices compile; NULL: none */

static inline void open_as(struct run_rig *rig, const char *device, const char *precision,
                           struct graph *graph, const struct shape *shape)
{
    const struct device_config config = {.name = device,
                                         .lanes = 1,
                                         .threads = 1,
                                         .precision = precision,
                                         .cache_folder = answer_cache};

    device_register(&device_cpu_ops);
    assert_ok(device_open(&config, &rig->rig.device, NULL));
    assert_ok(rig->rig.device->ops->lane_open(rig->rig.device, 0, &rig->rig.lane));
    assert_ok(ledger_create(UINT64_C(1) << 30, &rig->rig.ledger));
    assert_ok(lane_arena_create(rig->rig.device->memory, rig->rig.ledger, "lane 0", (size_t)1 << 32,
                                &rig->rig.arena));
    assert_ok(lane_arena_create(rig->rig.device->memory, rig->rig.ledger, "io", (size_t)1 << 30,
                                &rig->io));
    rig->network = make_network(&rig->rig, graph);
    rig->plan = make_plan(rig->network, shape);
}

static inline float largest(const float *numbers, size_t count)
{
    float most = 0;

    for (size_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf(numbers[i]));
    return most;
}

/* Outputs of one run on the device or the CPU; their number. */
static inline size_t answer(const char *device, const char *precision, struct graph *graph,
                            const float *in, size_t inputs, const struct shape *shape, float *out,
                            char **out_text)
{
    struct run_rig rig;
    const struct network_port *ports;
    struct run_buffer buffers[2] = {{NULL, inputs * sizeof(float)}, {NULL, 0}};
    size_t count, size;
    FILE *file = open_memstream(out_text, &size);
    struct error err = {.text = ""};
    struct run run = {.inputs = 1, .in = &buffers[0], .outputs = 1, .out = &buffers[1]};
    void *base;
    bool host;

    open_as(&rig, device, precision, graph, shape);
    assert_int_equal(network_outputs(rig.network, &ports), 1);
    assert_true(ports[0].dtype == DTYPE_FLOAT || ports[0].dtype == DTYPE_NONE); /* not declared */
    count = (size_t)shape_count(&plan_output_shapes(rig.plan, NULL)[0]);
    assert_true(count <= MANY);
    plan_explain(rig.plan, file, false);
    fclose(file);
    host = rig.rig.device->ops->host_memory;
    assert_ok(lane_arena_begin(rig.io, 2 * MANY * sizeof(float), &base));
    buffers[0].data = base;
    buffers[1] = (struct run_buffer){(char *)base + MANY * sizeof(float), count * sizeof(float)};
    run.lane = rig.rig.lane;
    run.arena = rig.rig.arena;
    if (host)
        memcpy(base, in, buffers[0].bytes);
    else
        assert_ok(rig.rig.lane->device->ops->copy_in(rig.rig.lane, base, in, buffers[0].bytes));
    if (plan_run(rig.plan, &run, &err) != STATUS_OK)
        fail_msg("plan_run: %s", err.text);
    if (host)
        memcpy(out, buffers[1].data, buffers[1].bytes);
    else
        assert_ok(rig.rig.lane->device->ops->copy_out(rig.rig.lane, out, buffers[1].data,
                                                      buffers[1].bytes));
    assert_ok(rig.rig.device->ops->lane_wait(rig.rig.lane));
    lane_arena_end(rig.io);
    run_rig_close(&rig);
    return count;
}

#endif
