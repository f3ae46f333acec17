/* One model version on one device: its graph after the model passes, its weights, its plans. */
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

/* ---- constants ---- */

/* A constant of the model.  Packed forms live in the weights cache; the elements themselves are
 * resident, and booked, while a step reads them, or always when they cannot come back. */
struct held {
    struct constant *constant;
    bool booked;
};

static int by_address(const void *left, const void *right)
{
    const struct constant *a = ((const struct held *)left)->constant;
    const struct constant *b = ((const struct held *)right)->constant;

    return (a > b) - (a < b);
}

static size_t count_constants(const struct graph *graph)
{
    const struct value *value;
    size_t count = 0;

    LIST_FOR_EACH (value, &graph->values, const struct value, link)
        count += value->constant != NULL;
    for (const struct graph *child = graph->children; child != NULL; child = child->next_child)
        count += count_constants(child);
    return count;
}

static void list_constants(struct network *network, const struct graph *graph)
{
    const struct value *value;

    LIST_FOR_EACH (value, &graph->values, const struct value, link)
        if (value->constant != NULL)
            network->held[network->held_count++].constant = value->constant;
    for (const struct graph *child = graph->children; child != NULL; child = child->next_child)
        list_constants(network, child);
}

static void drop_doubles(struct network *network)
{
    size_t kept = 0;

    qsort(network->held, network->held_count, sizeof(*network->held), by_address);
    for (size_t i = 0; i < network->held_count; i++)
        if (kept == 0 || network->held[kept - 1].constant != network->held[i].constant)
            network->held[kept++] = network->held[i];
    network->held_count = kept;
}

static enum status book(struct network *network, struct held *held)
{
    size_t bytes = tensor_bytes(&held->constant->tensor);

    if (held->booked)
        return STATUS_OK;
    TRY(ledger_add(network->account, bytes));
    held->booked = true;
    network->held_bytes += bytes;
    return STATUS_OK;
}

/* Not small ones, nor shapes and indices: rules and passes look at their values. */
static bool can_drop(const struct constant *constant)
{
    return constant->origin != NULL && dtype_bytes(constant->tensor.dtype) <= sizeof(float) &&
           constant->tensor.dtype != DTYPE_INT32 &&
           tensor_bytes(&constant->tensor) >= DROP_BYTES_MIN;
}

static enum status hold_constants(struct network *network, struct error *err)
{
    size_t count = count_constants(network->programs->graph);

    network->held = calloc(count + 1, sizeof(*network->held));
    if (network->held == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model's constants");
    list_constants(network, network->programs->graph);
    drop_doubles(network);
    for (size_t i = 0; i < network->held_count; i++)
        if (!can_drop(network->held[i].constant) && book(network, &network->held[i]) != STATUS_OK)
            return error_set(err, STATUS_NO_MEMORY,
                             "the model's constants do not fit into the memory budget");
    return STATUS_OK;
}

static struct held *find_held(const struct network *network, struct constant *constant)
{
    const struct held key = {.constant = constant};

    return network->held == NULL ? NULL
                                 : bsearch(&key, network->held, network->held_count,
                                           sizeof(*network->held), by_address);
}

enum status network_hold(struct network *network, struct constant *constant)
{
    struct held *held = find_held(network, constant);

    return held == NULL ? STATUS_OK : book(network, held);
}

enum status network_reserve(struct network *network, size_t constants)
{
    size_t room = network->kept_count + constants;
    struct constant **grown;

    if (room <= network->kept_room)
        return STATUS_OK;
    room += room / 2;
    grown = realloc(network->kept, room * sizeof(*grown));
    if (grown == NULL)
        return STATUS_NO_MEMORY;
    network->kept = grown;
    network->kept_room = room;
    return STATUS_OK;
}

void network_keep(struct network *network, struct constant *constant)
{
    if (find_held(network, constant) != NULL)
        return;
    for (size_t i = 0; i < network->kept_count; i++)
        if (network->kept[i] == constant)
            return;
    network->kept[network->kept_count++] = constant_ref(constant);
}

void network_drop(struct network *network, struct constant *constant)
{
    const struct held *held = find_held(network, constant);

    if (held != NULL && !held->booked && can_drop(constant))
        constant_drop(constant);
}

/* ---- the network ---- */

static enum status describe_ports(struct value *const *values, size_t count,
                                  struct network_port **out_ports)
{
    struct network_port *ports = calloc(count + 1, sizeof(*ports));

    if (ports == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        ports[i].name = values[i]->name;
        ports[i].dtype = values[i]->dtype;
        if (values[i]->shape_known)
            ports[i].shape = values[i]->shape;
    }
    *out_ports = ports;
    return STATUS_OK;
}

/* Said at load, not when the first request comes. */
static enum status check_kernels(struct network *network, const struct graph *graph,
                                 struct error *err)
{
    struct device *device = network->device;
    const struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, const struct node, link)
        if (!node_is_branching(node) && (node->op->flags & (OP_VIEW | OP_SHAPE_ONLY)) == 0 &&
            device->ops->kernels(device, node->op) == NULL)
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
                                         .fold_arg = network->folder};

    return pass_run_all(network->programs->graph, PASS_MODEL, &context, err);
}

static enum status open_parts(struct network *network, const struct network_config *config,
                              struct error *err)
{
    enum status status;

    network->name = strdup(config->name);
    network->programs->wants_value =
        calloc(network->programs->graph->inputs + 1, sizeof(*network->programs->wants_value));
    if (network->name == NULL || network->programs->wants_value == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model");
    if (ledger_open(network->ledger, config->name, MEM_WEIGHTS, &network->account) != STATUS_OK ||
        weights_cache_create(network->device->memory, network->account, &network->weights) !=
            STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model's weights");
    status = folder_create(&network->folder, err);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status; /* no CPU device: nothing is folded */
}

static enum status fill(struct network *network, const struct network_config *config,
                        struct error *err)
{
    struct graph *graph = network->programs->graph;

    TRY(open_parts(network, config, err));
    TRY(run_model_passes(network, err));
    TRY(check_kernels(network, graph, err));
    TRY(hold_constants(network, err));
    for (size_t i = 0; i < network->held_count; i++)
        network_drop(network, network->held[i].constant);
    if (describe_ports(graph->in, graph->inputs, &network->in) != STATUS_OK ||
        describe_ports(graph->out, graph->outputs, &network->out) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model");
    return STATUS_OK;
}

enum status network_create(struct graph *graph, struct device *device, struct ledger *ledger,
                           const struct network_config *config, struct network **out_network,
                           struct error *err)
{
    struct network *network = calloc(1, sizeof(*network));
    struct program *program = calloc(1, sizeof(*program));
    enum status status;

    if (network == NULL || program == NULL) {
        free(network);
        free(program);
        graph_destroy(graph);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model");
    }
    program->graph = graph;
    network->programs = program;
    network->device = device;
    network->ledger = ledger;
    network->max_plan_bytes =
        config->plan_cache_bytes > 0 ? config->plan_cache_bytes : PLAN_CACHE_BYTES;
    network->max_plan_count =
        config->plan_cache_count > 0 ? config->plan_cache_count : PLAN_CACHE_COUNT;
    pthread_mutex_init(&network->compile_lock, NULL);
    pthread_rwlock_init(&network->cache_lock, NULL);
    list_init(&network->plans);
    status = fill(network, config, err);
    if (status != STATUS_OK) {
        network_destroy(network);
        return status;
    }
    *out_network = network;
    return STATUS_OK;
}

static void destroy_programs(struct program *program)
{
    /* The whole model comes first but owns what the others' attributes point to: it goes last. */
    if (program == NULL)
        return;
    destroy_programs(program->next);
    graph_destroy(program->graph);
    free(program->wants_value);
    free(program->fingerprint);
    free(program);
}

void network_destroy(struct network *network)
{
    if (network == NULL)
        return;
    plan_cache_clear(network);
    weights_cache_destroy(network->weights);
    if (network->account != NULL)
        ledger_sub(network->account, network->held_bytes);
    ledger_close(network->account);
    destroy_programs(network->programs);
    folder_destroy(network->folder);
    for (size_t i = 0; i < network->kept_count; i++)
        constant_unref(network->kept[i]);
    free(network->kept);
    free(network->held);
    free(network->in);
    free(network->out);
    free(network->name);
    pthread_mutex_destroy(&network->compile_lock);
    pthread_rwlock_destroy(&network->cache_lock);
    free(network);
}

size_t network_inputs(const struct network *network, const struct network_port **out_ports)
{
    *out_ports = network->in;
    return network->programs->graph->inputs;
}

size_t network_outputs(const struct network *network, const struct network_port **out_ports)
{
    *out_ports = network->out;
    return network->programs->graph->outputs;
}

size_t network_resident_bytes(const struct network *network)
{
    return network->held_bytes + weights_cache_bytes(network->weights);
}

size_t network_plan_bytes(const struct network *network)
{
    return atomic_load_explicit(&network->plan_bytes, memory_order_relaxed);
}

enum status network_plan(struct network *network, const struct shape *input_shapes,
                         struct plan **out_plan, struct error *err)
{
    return program_plan(network, network->programs, input_shapes, NULL, out_plan, err);
}
