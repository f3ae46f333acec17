#include "lifecycle/offline.h"

#include <inttypes.h>
#include <stdlib.h>

#include "device/kernel.h"
#include "engine/engine.h"
#include "lifecycle/budget.h"
#include "lifecycle/planning.h"
#include "models/profiling.h"
#include "observe/log.h"
#include "onnx/reader.h"
#include "ops/op.h"

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

/* What a batcher of one lane does with it, without serving anybody. */
static enum status profile_plan(struct device *device, struct ledger *ledger,
                                struct network *network, const struct shape *shapes,
                                const struct offline_question *question, FILE *to,
                                struct error *err)
{
    struct batcher_config config = {.device = device, .ledger = ledger, .lanes = 1};
    struct profile *profile = NULL;
    struct batcher *batcher = NULL;
    enum status status;

    status = host_pool_create(UINT64_MAX, &config.host_pool);
    if (status == STATUS_OK)
        status = batcher_create(&config, &batcher, err);
    if (status == STATUS_OK)
        status = profiling_run(batcher, network, question->file, shapes, &profile, err);
    if (status == STATUS_OK)
        profile_write(profile, to, question->as_json);
    profile_destroy(profile);
    batcher_destroy(batcher);
    host_pool_destroy(config.host_pool);
    return status;
}

static enum status explain_plan(struct network *network, const struct shape *shapes,
                                const struct offline_question *question, FILE *to,
                                struct error *err)
{
    struct plan *plan;

    TRY(network_plan(network, shapes, &plan, err));
    plan_explain(plan, to, question->as_json);
    plan_unref(plan);
    return STATUS_OK;
}

static enum status explain(struct device *device, struct ledger *ledger, struct network *network,
                           const struct offline_question *question, FILE *to, struct error *err)
{
    const struct network_port *ports;
    size_t inputs = network_inputs(network, &ports);
    struct shape *shapes = calloc(inputs + 1, sizeof(*shapes));
    enum status status = STATUS_OK;

    if (shapes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %zu inputs", inputs);
    for (size_t i = 0; i < inputs && status == STATUS_OK; i++)
        status = close_shape(&ports[i], question->batch, &shapes[i], question->as_json, to, err);
    if (status == STATUS_OK)
        status = question->profile
                     ? profile_plan(device, ledger, network, shapes, question, to, err)
                     : explain_plan(network, shapes, question, to, err);
    free(shapes);
    return status;
}

enum status offline_explain_plan(const struct config *config,
                                 const struct offline_question *question, FILE *to,
                                 struct error *err)
{
    char folder[PLANNING_FOLDER_BYTES];
    struct network_config network_config = {.name = question->file,
                                            .plan_cache_bytes = config->models.plan_cache,
                                            .planning = planning_read(config, folder)};
    struct device *device = NULL;
    struct ledger *ledger = NULL;
    struct network *network = NULL;
    struct graph *graph;
    enum status status = planning_open_device(config, &device, err);

    log_init(NULL);
    if (status != STATUS_OK)
        return status;
    network_config.planning.folder = NULL; /* the daemon's own */
    if (ledger_create(UINT64_MAX, &ledger) != STATUS_OK) {
        status = error_set(err, STATUS_NO_MEMORY, "no memory for a ledger");
        goto out;
    }
    status = onnx_read_file(question->file, &graph, NULL, err);
    if (status == STATUS_OK)
        status = network_create(graph, device, ledger, &network_config, &network, err);
    if (status == STATUS_OK)
        network_set_ahead(network, true);
    if (status == STATUS_OK)
        status = explain(device, ledger, network, question, to, err);
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

    TRY(planning_open_device(config, &device, err));
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
