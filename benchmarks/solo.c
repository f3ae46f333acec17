#include "solo.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/null/null.h"

static const uint64_t BUDGET_BYTES = UINT64_C(64) << 30;

enum status solo_open(const char *device, unsigned threads, struct solo *out_solo,
                      struct error *err)
{
    const struct device_config config = {.name = device, .lanes = 1, .threads = threads};
    struct solo solo = {0};
    enum status status;

    device_register(&device_cpu_ops);
    device_register(&device_null_ops);
    status = device_open(&config, &solo.device, err);
    if (status == STATUS_OK)
        status = solo.device->ops->lane_open(solo.device, 0, &solo.lane);
    if (status == STATUS_OK)
        status = ledger_create(BUDGET_BYTES, &solo.ledger);
    if (status == STATUS_OK)
        status = lane_arena_create(solo.device->memory, solo.ledger, "lane 0", BUDGET_BYTES,
                                   &solo.arena);
    if (status != STATUS_OK) {
        solo_close(&solo);
        return status;
    }
    *out_solo = solo;
    return STATUS_OK;
}

void solo_unload(struct solo *solo)
{
    network_destroy(solo->network);
    solo->network = NULL;
}

void solo_close(struct solo *solo)
{
    solo_unload(solo);
    lane_arena_destroy(solo->arena);
    if (solo->ledger != NULL)
        ledger_destroy(solo->ledger);
    if (solo->lane != NULL)
        solo->device->ops->lane_close(solo->lane);
    device_close(solo->device);
    *solo = (struct solo){0};
}

enum status solo_load(struct solo *solo, const char *path, struct error *err)
{
    const struct network_config config = {.name = path};
    struct graph *graph;

    solo_unload(solo);
    TRY(onnx_read_file(path, &graph, NULL, err));
    return network_create(graph, solo->device, solo->ledger, &config, &solo->network, err);
}

static void *place(void *arg, size_t output, const struct shape *shape, size_t bytes)
{
    struct run_buffer *buffers = arg;

    (void)buffers;
    (void)output;
    (void)shape;
    return malloc(bytes > 0 ? bytes : 1);
}

/* Room for what the plan tells; the rest is asked for while running. */
static enum status make_buffers(const struct plan *plan, size_t count,
                                const struct network_port *ports, struct run_buffer *buffers)
{
    const bool *bound;
    const struct shape *shapes = plan_output_shapes(plan, &bound);

    for (size_t i = 0; i < count; i++) {
        if (bound[i]) {
            buffers[i].bytes = RUN_PLACE;
            continue;
        }
        buffers[i].bytes = (size_t)shape_count(&shapes[i]) * dtype_bytes(ports[i].dtype);
        buffers[i].data = malloc(buffers[i].bytes > 0 ? buffers[i].bytes : 1);
        if (buffers[i].data == NULL)
            return STATUS_NO_MEMORY;
    }
    return STATUS_OK;
}

static enum status run_planned(struct solo *solo, struct plan *plan, const struct tensor *in,
                               struct solo_outputs *outputs, struct error *err)
{
    const struct network_port *in_ports, *ports;
    size_t inputs = network_inputs(solo->network, &in_ports);
    size_t count = network_outputs(solo->network, &ports);
    struct run_buffer *in_buffers = calloc(inputs + 1, sizeof(*in_buffers));
    struct run_buffer *buffers = calloc(count + 1, sizeof(*buffers));
    struct shape *shapes = calloc(count + 1, sizeof(*shapes));
    enum status status = STATUS_NO_MEMORY;

    outputs->count = count;
    outputs->tensors = calloc(count + 1, sizeof(*outputs->tensors));
    outputs->strings = string_heap_create();
    if (in_buffers != NULL && buffers != NULL && shapes != NULL && outputs->tensors != NULL &&
        outputs->strings != NULL)
        status = make_buffers(plan, count, ports, buffers);
    if (status == STATUS_OK) {
        struct run run = {.lane = solo->lane,
                          .arena = solo->arena,
                          .inputs = inputs,
                          .in = in_buffers,
                          .outputs = count,
                          .out = buffers,
                          .out_shapes = shapes,
                          .place = place,
                          .place_arg = buffers,
                          .strings = outputs->strings};

        for (size_t i = 0; i < inputs; i++)
            in_buffers[i] =
                (struct run_buffer){(void *)(uintptr_t)in[i].data, tensor_bytes(&in[i])};
        status = plan_run(plan, &run, err);
    }
    for (size_t i = 0; outputs->tensors != NULL && buffers != NULL && i < count; i++)
        outputs->tensors[i] =
            (struct tensor){.dtype = ports[i].dtype, .shape = shapes[i], .data = buffers[i].data};
    free(in_buffers);
    free(buffers);
    free(shapes);
    return status;
}

enum status solo_run(struct solo *solo, const struct tensor *in, struct solo_outputs *out_outputs,
                     struct error *err)
{
    const struct network_port *ports;
    size_t inputs = network_inputs(solo->network, &ports);
    struct shape *shapes = calloc(inputs + 1, sizeof(*shapes));
    struct solo_outputs outputs = {0};
    struct plan *plan = NULL;
    enum status status;

    if (shapes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory");
    for (size_t i = 0; i < inputs; i++)
        shapes[i] = in[i].shape;
    status = network_plan(solo->network, shapes, &plan, err);
    free(shapes);
    if (status == STATUS_OK)
        status = run_planned(solo, plan, in, &outputs, err);
    plan_unref(plan);
    if (status != STATUS_OK) {
        solo_free(&outputs);
        return status;
    }
    *out_outputs = outputs;
    return STATUS_OK;
}

void solo_free(struct solo_outputs *outputs)
{
    for (size_t i = 0; outputs->tensors != NULL && i < outputs->count; i++)
        free((void *)(uintptr_t)outputs->tensors[i].data);
    free(outputs->tensors);
    string_heap_destroy(outputs->strings);
    *outputs = (struct solo_outputs){0};
}
