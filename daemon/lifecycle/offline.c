#include "lifecycle/offline.h"

#include <inttypes.h>
#include <stdlib.h>

#include "device/kernel.h"
#include "engine/engine.h"
#include "lifecycle/budget.h"
#include "lifecycle/planning.h"
#include "observe/log.h"
#include "onnx/reader.h"
#include "ops/op.h"

static enum status open_device(const struct config *config, struct device **out_device,
                               struct error *err)
{
    const struct device_config wanted = {
        .name = config->device.device,
        .lanes = config->device.lanes,
        .threads = config->device.threads,
        .precision = config->device.precision,
    };

    return device_open(&wanted, out_device, err);
}

/* Gives every open dimension a size: the first one the batch, others 1. */
static enum status close_shape(const struct network_port *port, int64_t batch, struct shape *shape,
                               bool as_json, FILE *to, struct error *err)
{
    *shape = port->shape;
    if (batch > 0 && shape->rank > 0 && shape->dims[0] != SHAPE_UNKNOWN && shape->dims[0] != batch)
        return error_set(err, STATUS_INVALID,
                         "input '%s': the model fixes the first dimension at %" PRId64
                         ", --batch is %" PRId64,
                         port->name, shape->dims[0], batch);
    for (size_t i = 0; i < shape->rank; i++) {
        if (shape->dims[i] != SHAPE_UNKNOWN)
            continue;
        shape->dims[i] = i == 0 && batch > 0 ? batch : 1;
        if (i > 0 && !as_json)
            fprintf(to, "input '%s': the open dimension %zu is taken as 1\n", port->name, i);
    }
    return STATUS_OK;
}

static enum status explain(struct network *network, int64_t batch, bool as_json, FILE *to,
                           struct error *err)
{
    const struct network_port *ports;
    size_t inputs = network_inputs(network, &ports);
    struct shape *shapes = calloc(inputs + 1, sizeof(*shapes));
    enum status status = STATUS_OK;
    struct plan *plan = NULL;

    if (shapes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %zu inputs", inputs);
    for (size_t i = 0; i < inputs && status == STATUS_OK; i++)
        status = close_shape(&ports[i], batch, &shapes[i], as_json, to, err);
    if (status == STATUS_OK)
        status = network_plan(network, shapes, &plan, err);
    if (status == STATUS_OK) {
        plan_explain(plan, to, as_json);
        plan_unref(plan);
    }
    free(shapes);
    return status;
}

enum status offline_explain_plan(const struct config *config, const char *file, int64_t batch,
                                 bool as_json, FILE *to, struct error *err)
{
    char folder[PLANNING_FOLDER_BYTES];
    struct network_config network_config = {.name = file,
                                            .plan_cache_bytes = config->models.plan_cache,
                                            .planning = planning_read(config, folder)};
    struct device *device = NULL;
    struct ledger *ledger = NULL;
    struct network *network = NULL;
    struct graph *graph;
    enum status status = open_device(config, &device, err);

    log_init(NULL);
    if (status != STATUS_OK)
        return status;
    network_config.planning.folder = NULL; /* the daemon's own */
    if (ledger_create(UINT64_MAX, &ledger) != STATUS_OK) {
        status = error_set(err, STATUS_NO_MEMORY, "no memory for a ledger");
        goto out;
    }
    status = onnx_read_file(file, &graph, NULL, err);
    if (status == STATUS_OK)
        status = network_create(graph, device, ledger, &network_config, &network, err);
    if (status == STATUS_OK)
        network_set_ahead(network, true);
    if (status == STATUS_OK)
        status = explain(network, batch, as_json, to, err);
out:
    network_destroy(network);
    ledger_destroy(ledger);
    device_close(device);
    return status;
}

void offline_list_ops(FILE *to)
{
    size_t count;
    const struct op_def *const *ops = op_table(&count);

    for (size_t i = 0; i < count; i++) {
        const struct op_def *op = ops[i];

        if ((op->flags & OP_INTERNAL) != 0)
            fprintf(to, "%-28s (made by passes)\n", op->name);
        else
            fprintf(to, "%-28s %s%s%s, form of opset %d\n", op->name,
                    op->onnx.domain != NULL ? op->onnx.domain : "",
                    op->onnx.domain != NULL ? "." : "", op->onnx.name, op->onnx.since);
    }
}

enum status offline_list_kernels(const struct config *config, FILE *to, struct error *err)
{
    const struct op_def *const *ops;
    struct device *device;
    char text[256];
    size_t count;

    TRY(open_device(config, &device, err));
    device->ops->describe(device, text, sizeof(text));
    fprintf(to, "%s\n", text);
    ops = op_table(&count);
    for (size_t i = 0; i < count; i++) {
        const struct kernel *const *kernels = device->ops->kernels(device, ops[i]);

        fprintf(to, "%-28s", ops[i]->name);
        for (; kernels != NULL && *kernels != NULL; kernels++)
            fprintf(to, " %s", (*kernels)->name);
        fputc('\n', to);
    }
    device_close(device);
    return STATUS_OK;
}
