/* One model version on one device: its graph after the model passes, its weights, its plans. */
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"
#include "ops/attend.h"

/* ---- the network ---- */

/* Copies: the ports stay when the graph goes. */
static enum status describe_ports(struct network *network, struct value *const *values,
                                  size_t count, struct network_port **out_ports)
{
    struct network_port *ports = arena_take_array(&network->arena, count, sizeof(*ports));

    if (ports == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        ports[i].name =
            arena_copy_string(&network->arena, values[i]->name, strlen(values[i]->name));
        if (ports[i].name == NULL)
            return STATUS_NO_MEMORY;
        ports[i].dtype = values[i]->dtype;
        if (values[i]->shape_known)
            ports[i].shape = values[i]->shape;
    }
    *out_ports = ports;
    return STATUS_OK;
}

static enum status describe_all_ports(struct network *network)
{
    const struct graph *graph = network->programs->graph;

    network->inputs = graph->inputs;
    network->outputs = graph->outputs;
    TRY(describe_ports(network, graph->in, graph->inputs, &network->in));
    return describe_ports(network, graph->out, graph->outputs, &network->out);
}

/* Said at load, not when the first request comes. */
static enum status check_kernels(struct network *network, const struct graph *graph,
                                 struct error *err)
{
    struct device *device = network->device, *host = device->host;
    const struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, const struct node, link)
        if (!node_is_branching(node) && !op_is_spelled_out(node->op) &&
            (node->op->flags & (OP_VIEW | OP_SHAPE_ONLY)) == 0 &&
            device->ops->kernels(device, node->op) == NULL &&
            (host == NULL || host->ops->kernels(host, node->op) == NULL))
            return error_set(err, STATUS_UNSUPPORTED,
                             "node '%s': operator %s has no kernel on this device", node->name,
                             node->op->onnx.name);
    for (const struct graph *child = graph->children; child != NULL; child = child->next_child)
        TRY(check_kernels(network, child, err));
    return STATUS_OK;
}

static enum status run_model_passes(struct network *network, struct error *err)
{
    const struct pass_context context = {.fold = network->folder != NULL ? folder_fold_model : NULL,
                                         .fold_arg = network->folder,
                                         .narrow = network->device->narrow,
                                         .multiplies_bytes = network->device->multiplies_bytes,
                                         .weighs_bytes = network->device->weighs_bytes};

    return pass_run_all(network->programs->graph, PASS_MODEL, &context, err);
}

/* Adopts the graph, also on failure. */
static enum status open_program(struct network *network, struct graph *graph)
{
    struct program *program = calloc(1, sizeof(*program));

    if (program != NULL)
        program->wants_value = calloc(graph->inputs + 1, sizeof(*program->wants_value));
    if (program == NULL || program->wants_value == NULL) {
        free(program);
        graph_destroy(graph);
        return STATUS_NO_MEMORY;
    }
    program->graph = graph;
    network->programs = program;
    return STATUS_OK;
}

enum status network_adopt(struct network *network, struct graph *graph, struct error *err)
{
    enum status status;

    if (open_program(network, graph) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model");
    status = folder_create(&network->folder, err);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND) /* no CPU device: nothing is folded */
        return status;
    TRY(run_model_passes(network, err));
    TRY(network_check_quantised(network, graph, err));
    TRY(check_kernels(network, graph, err));
    network->has_settled = false;
    if (held_list(network) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model's constants");
    return STATUS_OK;
}

static enum status open_parts(struct network *network, const struct network_config *config,
                              struct error *err)
{
    network->name = arena_copy_string(&network->arena, config->name, strlen(config->name));
    if (network->name == NULL ||
        ledger_open(network->ledger, config->name, MEM_WEIGHTS, &network->account) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model");
    return STATUS_OK;
}

/* Adopts the graph, also on failure. */
static enum status fill(struct network *network, struct graph *graph,
                        const struct network_config *config, struct error *err)
{
    enum status status = open_parts(network, config, err);

    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    TRY(network_adopt(network, graph, err));
    if (describe_all_ports(network) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model");
    return network_return(network, err);
}

enum status network_create(struct graph *graph, struct device *device, struct ledger *ledger,
                           const struct network_config *config, struct network **out_network,
                           struct error *err)
{
    struct network *network = calloc(1, sizeof(*network));
    enum status status;

    if (network == NULL) {
        graph_destroy(graph);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model");
    }
    arena_init(&network->arena);
    network->device = device;
    network->ledger = ledger;
    network->max_plan_bytes =
        config->plan_cache_bytes > 0 ? config->plan_cache_bytes : PLAN_CACHE_BYTES;
    network->max_plan_count =
        config->plan_cache_count > 0 ? config->plan_cache_count : PLAN_CACHE_COUNT;
    network->planning = config->planning;
    pthread_mutex_init(&network->compile_lock, NULL);
    pthread_rwlock_init(&network->cache_lock, NULL);
    list_init(&network->plans);
    status = fill(network, graph, config, err);
    if (status != STATUS_OK) {
        network_destroy(network);
        return status;
    }
    *out_network = network;
    return STATUS_OK;
}

void programs_destroy(struct program *program)
{
    /* The whole model comes first but owns what the others' attributes point to: it goes last. */
    if (program == NULL)
        return;
    programs_destroy(program->next);
    graph_destroy(program->graph);
    free(program->wants_value);
    free(program->fingerprint);
    free(program);
}

void network_destroy(struct network *network)
{
    if (network == NULL)
        return;
    (void)network_leave(network);
    (void)network_strip(network);
    free(network->shapes);
    ledger_close(network->account);
    arena_deinit(&network->arena);
    pthread_mutex_destroy(&network->compile_lock);
    pthread_rwlock_destroy(&network->cache_lock);
    free(network);
}

size_t network_inputs(const struct network *network, const struct network_port **out_ports)
{
    *out_ports = network->in;
    return network->inputs;
}

size_t network_outputs(const struct network *network, const struct network_port **out_ports)
{
    *out_ports = network->out;
    return network->outputs;
}

struct ledger_account *network_account(const struct network *network)
{
    return network->account;
}

uint64_t network_resident_bytes(const struct network *network)
{
    return ledger_account_bytes(network->account);
}

uint64_t network_winograd_bytes(const struct network *network)
{
    return atomic_load_explicit(&network->winograd_bytes, memory_order_relaxed);
}

size_t network_plan_bytes(const struct network *network)
{
    return atomic_load_explicit(&network->plan_bytes, memory_order_relaxed);
}

void network_watch(struct network *network, const atomic_bool *give_up)
{
    network->give_up = give_up;
}

enum status network_plan(struct network *network, const struct shape *input_shapes,
                         struct plan **out_plan, struct error *err)
{
    return program_plan(network, network->programs, input_shapes, NULL, out_plan, err);
}
