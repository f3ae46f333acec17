#include "solo.h"

#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/null/null.h"

static const uint64_t BUDGET_BYTES = UINT64_C(32) << 30;

/* The same device, but one that cannot record. */
static enum status forget_recordings(struct solo *solo)
{
    solo->ops = malloc(sizeof(*solo->ops));
    if (solo->ops == NULL)
        return STATUS_NO_MEMORY;
    *solo->ops = *solo->device->ops;
    solo->ops->record_begin = NULL;
    solo->device->ops = solo->ops;
    return STATUS_OK;
}

enum status solo_open(const char *device, unsigned threads, struct solo *out_solo,
                      struct error *err)
{
    return solo_open_as(&(struct solo_config){.device = device, .threads = threads}, out_solo, err);
}

enum status solo_open_as(const struct solo_config *wanted, struct solo *out_solo, struct error *err)
{
    const struct device_config config = {.name = wanted->device,
                                         .lanes = 1,
                                         .threads = wanted->threads,
                                         .precision = wanted->precision};
    struct solo solo = {0};
    enum status status;

    device_register(&device_cpu_ops);
    device_register(&device_null_ops);
    status = device_open(&config, &solo.device, err);
    if (status == STATUS_OK && wanted->eager)
        status = forget_recordings(&solo);
    if (status == STATUS_OK)
        status = solo.device->ops->lane_open(solo.device, 0, &solo.lane);
    if (status == STATUS_OK)
        status = ledger_create(BUDGET_BYTES, &solo.ledger);
    if (status == STATUS_OK)
        status = lane_arena_create(solo.device->memory, solo.ledger, "lane 0", BUDGET_BYTES,
                                   &solo.arena);
    if (status == STATUS_OK)
        status = lane_arena_create(solo.device->memory, solo.ledger, "lane 0 io", BUDGET_BYTES,
                                   &solo.io);
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
    lane_arena_destroy(solo->io);
    lane_arena_destroy(solo->arena);
    if (solo->ledger != NULL)
        ledger_destroy(solo->ledger);
    if (solo->lane != NULL)
        solo->device->ops->lane_close(solo->lane);
    device_close(solo->device);
    free(solo->ops);
    *solo = (struct solo){0};
}

enum status solo_load(struct solo *solo, const char *path, struct error *err)
{
    const struct network_config config = {.name = path, .planning = solo->planning};
    struct graph *graph;

    solo_unload(solo);
    TRY(onnx_read_file(path, &graph, NULL, err));
    TRY(network_create(graph, solo->device, solo->ledger, &config, &solo->network, err));
    network_set_ahead(solo->network, true);
    return STATUS_OK;
}

/* ---- buffers where the device wants them ---- */

enum { IO_ALIGNMENT = 256 };

bool solo_has_host_memory(const struct solo *solo)
{
    return solo->device->ops->host_memory;
}

void *solo_take(struct solo_room *room, size_t bytes)
{
    size_t taken = (bytes + IO_ALIGNMENT) / IO_ALIGNMENT * IO_ALIGNMENT;
    void *base;
    char *at;

    if (solo_has_host_memory(room->solo))
        return malloc(bytes > 0 ? bytes : 1);
    if (room->base == NULL) {
        if (lane_arena_begin(room->solo->io, taken, &base) != STATUS_OK)
            return NULL;
        room->base = base;
    } else if (lane_arena_extend(room->solo->io, room->used + taken) != STATUS_OK) {
        return NULL;
    }
    at = room->base + room->used;
    room->used += taken;
    return at;
}

/* What one run has. */
struct buffers {
    struct solo *solo;
    bool host;
    struct solo_room room;
    size_t inputs, outputs;
    struct run_buffer *in, *out;
    struct shape *shapes;
};

static void *place(void *arg, size_t output, const struct shape *shape, size_t bytes)
{
    (void)output;
    (void)shape;
    struct buffers *buffers = arg;

    return solo_take(&buffers->room, bytes);
}

static enum status bind_inputs(struct buffers *buffers, const struct tensor *in)
{
    struct device_lane *lane = buffers->solo->lane;

    lane->device->ops->lane_enter(lane);
    for (size_t i = 0; i < buffers->inputs; i++) {
        struct run_buffer *buffer = &buffers->in[i];

        *buffer = (struct run_buffer){(void *)(uintptr_t)in[i].data, tensor_bytes(&in[i])};
        if (buffers->host)
            continue;
        buffer->data = solo_take(&buffers->room, buffer->bytes);
        if (buffer->data == NULL)
            return STATUS_NO_MEMORY;
        TRY(lane->device->ops->copy_in(lane, buffer->data, in[i].data, buffer->bytes));
    }
    return STATUS_OK;
}

/* Room for what the plan tells; the rest is asked for while running. */
static enum status bind_outputs(struct buffers *buffers, const struct plan *plan,
                                const struct network_port *ports)
{
    const bool *bound;
    const struct shape *shapes = plan_output_shapes(plan, &bound);

    for (size_t i = 0; i < buffers->outputs; i++) {
        struct run_buffer *buffer = &buffers->out[i];

        if (bound[i]) {
            buffer->bytes = RUN_PLACE;
            continue;
        }
        buffer->bytes = (size_t)shape_count(&shapes[i]) * dtype_bytes(ports[i].dtype);
        buffer->data = solo_take(&buffers->room, buffer->bytes);
        if (buffer->data == NULL)
            return STATUS_NO_MEMORY;
    }
    return STATUS_OK;
}

/* The outputs as tensors in host memory. */
static enum status fetch_outputs(struct buffers *buffers, const struct network_port *ports,
                                 struct solo_outputs *outputs)
{
    struct device_lane *lane = buffers->solo->lane;

    for (size_t i = 0; i < buffers->outputs; i++) {
        struct tensor *tensor = &outputs->tensors[i];
        void *data = buffers->out[i].data;

        *tensor = (struct tensor){ports[i].dtype, buffers->shapes[i], data};
        if (buffers->host)
            continue;
        data = malloc(tensor_bytes(tensor) + 1);
        tensor->data = data;
        if (data == NULL)
            return STATUS_NO_MEMORY;
        TRY(lane->device->ops->copy_out(lane, data, buffers->out[i].data, tensor_bytes(tensor)));
    }
    return lane->device->ops->lane_wait(lane);
}

static enum status run_bound(struct buffers *buffers, struct plan *plan, const struct tensor *in,
                             struct solo_outputs *outputs, struct error *err)
{
    const struct network_port *ports;
    struct run run = {.lane = buffers->solo->lane,
                      .arena = buffers->solo->arena,
                      .inputs = buffers->inputs,
                      .in = buffers->in,
                      .outputs = buffers->outputs,
                      .out = buffers->out,
                      .out_shapes = buffers->shapes,
                      .place = place,
                      .place_arg = buffers,
                      .strings = outputs->strings};

    (void)network_outputs(buffers->solo->network, &ports);
    TRY(bind_inputs(buffers, in));
    TRY(bind_outputs(buffers, plan, ports));
    TRY(plan_run(plan, &run, err));
    return fetch_outputs(buffers, ports, outputs);
}

static enum status run_planned(struct solo *solo, struct plan *plan, const struct tensor *in,
                               struct solo_outputs *outputs, struct error *err)
{
    const struct network_port *ports;
    struct buffers buffers = {.solo = solo,
                              .host = solo_has_host_memory(solo),
                              .room = {.solo = solo},
                              .inputs = network_inputs(solo->network, &ports)};
    enum status status = STATUS_NO_MEMORY;

    buffers.outputs = outputs->count = network_outputs(solo->network, &ports);
    buffers.in = calloc(buffers.inputs + 1, sizeof(*buffers.in));
    buffers.out = calloc(buffers.outputs + 1, sizeof(*buffers.out));
    buffers.shapes = calloc(buffers.outputs + 1, sizeof(*buffers.shapes));
    outputs->tensors = calloc(outputs->count + 1, sizeof(*outputs->tensors));
    outputs->strings = string_heap_create();
    if (buffers.in != NULL && buffers.out != NULL && buffers.shapes != NULL &&
        outputs->tensors != NULL && outputs->strings != NULL)
        status = run_bound(&buffers, plan, in, outputs, err);
    for (size_t i = 0;
         status != STATUS_OK && buffers.host && buffers.out != NULL && i < buffers.outputs; i++)
        free(buffers.out[i].data);
    if (buffers.room.base != NULL)
        lane_arena_end(solo->io);
    free(buffers.in);
    free(buffers.out);
    free(buffers.shapes);
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
