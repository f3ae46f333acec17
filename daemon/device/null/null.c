#include "device/null/null.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/host_source.h"
#include "device/kernel.h"

struct null_device {
    struct device device;
    atomic_long waits_left; /* "null:N" is lost after N waits; else there is no end of them */
};

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    (void)state;
    for (size_t i = 0; i < call->outputs; i++) {
        const struct operand *out = call->out[i];

        if (out == NULL)
            continue;
        memset(run->out[i], 0,
               layout_bytes(out->layout, call->device->channel_block, out->dtype, &out->shape));
        if (run->out_shapes != NULL)
            run->out_shapes[i] = out->shape;
    }
    return STATUS_OK;
}

static const struct kernel kernel_zeros = {.name = "null:zeros", .enqueue = enqueue};

static const struct kernel *const *kernels(struct device *device, const struct op_def *op)
{
    static const struct kernel *const list[] = {&kernel_zeros, NULL};

    (void)device;
    (void)op;
    return list;
}

static enum status open_null(const struct device_config *config, struct device **out_device,
                             struct error *err)
{
    struct null_device *null = calloc(1, sizeof(*null));
    const char *waits = strchr(config->name, ':');
    struct device *device;

    if (null == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the null device");
    atomic_init(&null->waits_left, waits == NULL ? LONG_MAX : strtol(waits + 1, NULL, 10));
    device = &null->device;
    device->ops = &device_null_ops;
    device->memory = host_source();
    device->channel_block = 8;
    device->lanes = config->lanes > 0 ? config->lanes : 1;
    device->threads_per_lane = 1;
    *out_device = device;
    return STATUS_OK;
}

static void close_null(struct device *device)
{
    free((struct null_device *)device);
}

static enum status lane_open(struct device *device, unsigned index, struct device_lane **out_lane)
{
    struct device_lane *lane = calloc(1, sizeof(*lane));

    if (lane == NULL)
        return STATUS_NO_MEMORY;
    lane->device = device;
    lane->index = index;
    lane->threads = 1;
    *out_lane = lane;
    return STATUS_OK;
}

static void lane_close(struct device_lane *lane)
{
    free(lane);
}

static void lane_enter(struct device_lane *lane)
{
    (void)lane;
}

static enum status lane_wait(struct device_lane *lane)
{
    struct null_device *null = (struct null_device *)lane->device;

    if (atomic_load(&null->waits_left) == LONG_MAX)
        return STATUS_OK;
    return atomic_fetch_sub(&null->waits_left, 1) > 0 ? STATUS_OK : STATUS_DEVICE_LOST;
}

static enum status copy(struct device_lane *lane, void *to, const void *from, size_t bytes)
{
    (void)lane;
    if (bytes > 0)
        memcpy(to, from, bytes);
    return STATUS_OK;
}

static void describe(struct device *device, char *text, size_t room)
{
    snprintf(text, room, "null: computes nothing, %u lanes", device->lanes);
}

const struct device_ops device_null_ops = {.name = "null",
                                           .open = open_null,
                                           .close = close_null,
                                           .lane_open = lane_open,
                                           .lane_close = lane_close,
                                           .lane_enter = lane_enter,
                                           .lane_wait = lane_wait,
                                           .copy_in = copy,
                                           .copy_out = copy,
                                           .kernels = kernels,
                                           .describe = describe,
                                           .host_memory = true};
