/* From a program and shapes to a plan; internal.h says in which order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

static enum status no_memory(struct error *err)
{
    return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
}

/* ---- the beginning: a clone with true input shapes ---- */

static enum status known_value(struct making *making, size_t index, const void *data)
{
    struct value *value = making->graph->in[index];
    struct constant *constant = constant_allocate(value->dtype, &value->shape);
    struct value *known;

    if (constant == NULL)
        return STATUS_NO_MEMORY;
    if (tensor_bytes(&constant->tensor) > 0)
        memcpy((void *)(uintptr_t)constant->tensor.data, data, tensor_bytes(&constant->tensor));
    making->plan->in_values[index] = constant_ref(constant);
    known = graph_add_constant(making->graph, value->name, constant);
    if (known == NULL)
        return STATUS_NO_MEMORY;
    TRY(making_remember_folded(making, constant));
    /* An input that is an output as well stays one; what computes uses the value. */
    if (!value->is_output)
        return graph_replace_value(making->graph, value, known);
    return STATUS_OK;
}

static enum status set_inputs(struct making *making, const struct shape *shapes,
                              const void *const *values, struct error *err)
{
    struct graph *graph = making->graph;
    struct plan *plan = making->plan;

    plan->inputs = graph->inputs;
    plan->in_shapes = arena_take_array(&plan->arena, graph->inputs, sizeof(*plan->in_shapes));
    plan->in_values = arena_take_array(&plan->arena, graph->inputs, sizeof(*plan->in_values));
    if (plan->in_shapes == NULL || plan->in_values == NULL)
        return no_memory(err);
    for (size_t i = 0; i < graph->inputs; i++) {
        int64_t elements;

        if (shape_elements(&shapes[i], &elements) != STATUS_OK)
            return error_set(err, STATUS_INVALID, "input '%s': no plan can have such a shape",
                             graph->in[i]->name);
        plan->in_shapes[i] = shapes[i];
        graph->in[i]->shape = shapes[i];
        graph->in[i]->shape_known = true;
        if (values != NULL && values[i] != NULL && making->program->wants_value[i] &&
            known_value(making, i, values[i]) != STATUS_OK)
            return no_memory(err);
    }
    return STATUS_OK;
}

/* ---- borders ---- */

/* An output that is also an input, a constant or another output gets a copy of its own. */
static enum status separate_outputs(struct making *making)
{
    const struct op_def *identity = op_find("", "Identity");
    struct graph *graph = making->graph;

    for (size_t i = 0; i < making->own_outputs; i++) {
        struct value *value = graph->out[i], *copy;
        struct node *node;
        bool again = false;

        for (size_t k = 0; k < i; k++)
            again = again || graph->out[k] == value;
        if (value->constant == NULL && !value->is_input && !again)
            continue;
        node = graph_add_node(graph, NULL, identity, "copy", 1, 1);
        copy = graph_add_value(graph, value->name);
        if (node == NULL || copy == NULL)
            return STATUS_NO_MEMORY;
        copy->dtype = value->dtype;
        copy->shape = value->shape;
        copy->shape_known = true;
        copy->is_output = true;
        copy->users = 1;
        node_set_input(node, 0, value);
        node_set_output(node, 0, copy);
        value->users--;
        graph->out[i] = copy;
    }
    return STATUS_OK;
}

/* The nodes as an array. */
static enum status order_nodes(struct making *making, struct error *err)
{
    struct node *node;
    size_t count = 0;

    LIST_FOR_EACH (node, &making->graph->nodes, struct node, link)
        count++;
    making->order = arena_take_array(making->arena, count, sizeof(*making->order));
    if (making->order == NULL)
        return no_memory(err);
    LIST_FOR_EACH (node, &making->graph->nodes, struct node, link)
        making->order[making->nodes++] = node;
    return STATUS_OK;
}

/* ---- the end: steps ---- */

/* From here on the plan releases what the kernels prepared. */
static void adopt_kernels(struct making *making)
{
    struct plan *plan = making->plan;

    for (size_t n = 0; n < making->nodes; n++) {
        struct step *step = &plan->steps[plan->step_count];

        if (making->placed[n])
            continue;
        step->kernel = making->choices[n].kernel;
        step->state = making->choices[n].prepare.state;
        plan->step_count++;
    }
}

static enum step_place place_of(const struct making *making, const struct node *node)
{
    if (node->op == &op_to_device || node->op == &op_to_host)
        return STEP_COPY;
    return making_device(making, node) == making->network->device ? STEP_DEVICE : STEP_HOST;
}

/* A constant is where the kernel can read it, or nowhere when it does not. */
static struct slot input_slot(const struct making *making, const struct node *node,
                              const struct choice *choice, size_t index)
{
    const struct value *value = node->in[index];
    const void *data = choice->constants != NULL ? choice->constants[index] : NULL;

    if (value == NULL || value->constant == NULL || making->network->device->ops->host_memory ||
        making_on_host(making, node))
        return making_slot(making, value);
    return (struct slot){.base = data != NULL ? BASE_ABSOLUTE : BASE_NONE,
                         .offset = (int64_t)(intptr_t)data};
}

static enum status fill_step(struct making *making, size_t index, struct step *step)
{
    const struct node *node = making->order[index];
    struct choice *choice = &making->choices[index];
    struct plan *plan = making->plan;

    step->place = place_of(making, node);
    step->call = choice->prepare.call;
    step->name = node->name;
    step->note = arena_copy_string(&plan->arena, choice->prepare.note,
                                   strnlen(choice->prepare.note, sizeof(choice->prepare.note)));
    step->work = node_work(node);
    step_cost(step, node);
    step->refusals = choice->refusals;
    step->refused = choice->refused;
    step->in = arena_take_array(&plan->arena, node->inputs, sizeof(*step->in));
    step->out = arena_take_array(&plan->arena, node->outputs, sizeof(*step->out));
    if (step->in == NULL || step->out == NULL || step->note == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < node->inputs; i++)
        step->in[i] = input_slot(making, node, choice, i);
    for (size_t i = 0; i < node->outputs; i++) {
        step->out[i] = making_slot(making, node->out[i]);
        plan->makes_strings =
            plan->makes_strings || (node->out[i] != NULL && node->out[i]->dtype == DTYPE_STRING);
        step->has_bound = step->has_bound || (node->out[i] != NULL && node->out[i]->shape_bound);
    }
    step->scratch_bytes = choice->prepare.scratch_bytes;
    plan->bytes += choice->prepare.host_bytes;
    if (step->scratch_bytes > 0)
        step->scratch = (struct slot){.base = step->place == STEP_HOST ? BASE_HOST : BASE_ARENA,
                                      .offset = (int64_t)making->scratch_offsets[index]};
    if (step->has_bound) {
        step->found_first = plan->found_count;
        plan->found_count += node->outputs;
    }
    if (node->inputs > plan->max_operands)
        plan->max_operands = node->inputs;
    if (node->outputs > plan->max_operands)
        plan->max_operands = node->outputs;
    if ((choice->kernel->flags & KERNEL_BATCH_INEXACT) != 0 || choice->prepare.batch_inexact)
        plan->batch_exact = false;
    return STATUS_OK;
}

/* Lines behind what the step writes; one that several of its outputs share stands there twice. */
static enum status fill_guards(struct making *making, size_t index, struct step *step)
{
    const struct node *node = making->order[index];
    struct slot *guard =
        arena_take_array(&making->plan->arena, node->outputs + 1, sizeof(*step->guard));

    if (guard == NULL)
        return STATUS_NO_MEMORY;
    step->guard = guard;
    for (size_t i = 0; i < node->outputs; i++) {
        guard[step->guard_count] = making_guard(making, node->out[i]);
        if (guard[step->guard_count].base != BASE_NONE)
            step->guard_count++;
    }
    if (step->scratch_bytes > 0 && guards_apply(making->network->device)) {
        guard[step->guard_count] = step->scratch;
        guard[step->guard_count++].offset += (int64_t)round_up(step->scratch_bytes);
    }
    return STATUS_OK;
}

static enum status make_steps(struct making *making)
{
    struct plan *plan = making->plan;
    size_t count = 0;

    adopt_kernels(making);
    for (size_t n = 0; n < making->nodes; n++) {
        if (n == plan->peak_node)
            plan->peak_step = (uint32_t)count;
        if (making->placed[n])
            continue;
        TRY(fill_step(making, n, &plan->steps[count]));
        TRY(fill_guards(making, n, &plan->steps[count++]));
    }
    if (plan->peak_step >= plan->step_count && plan->step_count > 0)
        plan->peak_step = (uint32_t)plan->step_count - 1;
    return STATUS_OK;
}

/* What the value was copied from between host and device: that one's maker states shapes. */
static const struct value *copied_from(const struct value *value)
{
    while (value->producer != NULL &&
           (value->producer->op == &op_to_device || value->producer->op == &op_to_host))
        value = value->producer->in[0];
    return value;
}

/* Index of the true shape that the run finds for a value; -1: its shape is true already. */
static int64_t found_index(const struct making *making, const struct value *value)
{
    size_t step = 0;

    if (!value->shape_bound)
        return -1;
    value = copied_from(value);
    for (size_t n = 0; n < making->nodes; n++) {
        const struct node *node = making->order[n];

        if (making->placed[n])
            continue;
        for (size_t i = 0; i < node->outputs; i++)
            if (node->out[i] == value)
                return (int64_t)(making->plan->steps[step].found_first + i);
        step++;
    }
    return -1;
}

/* Whoever runs the plan goes by the declared type: it must be the true one. */
static enum status check_types(const struct making *making, struct error *err)
{
    for (size_t i = 0; i < making->own_outputs; i++) {
        const struct value *value = making->graph->out[i];
        const struct value *declared = making->program->graph->out[making->output_of[i]];

        if (declared->dtype != DTYPE_NONE && declared->dtype != value->dtype)
            return error_set(err, STATUS_INVALID, "output '%s' is declared as %s but is %s",
                             declared->name, dtype_name(declared->dtype), dtype_name(value->dtype));
    }
    return STATUS_OK;
}

static enum status describe_outputs(struct making *making)
{
    struct plan *plan = making->plan;
    const struct graph *whole = making->program->graph;

    plan->outputs = whole->outputs;
    plan->out_shapes = arena_take_array(&plan->arena, plan->outputs, sizeof(*plan->out_shapes));
    plan->out_bound = arena_take_array(&plan->arena, plan->outputs, sizeof(*plan->out_bound));
    plan->out_found = arena_take_array(&plan->arena, plan->outputs, sizeof(*plan->out_found));
    plan->out_bytes = arena_take_array(&plan->arena, plan->outputs, sizeof(*plan->out_bytes));
    plan->out_deferred = arena_take_array(&plan->arena, plan->outputs, sizeof(bool));
    if (plan->out_shapes == NULL || plan->out_bound == NULL || plan->out_found == NULL ||
        plan->out_bytes == NULL || plan->out_deferred == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < plan->outputs; i++) {
        plan->out_found[i] = -1;
        plan->out_bound[i] = plan->out_deferred[i] = true;
        /* What the file says about the rank; its numbers may be wrong for this batch. */
        plan->out_shapes[i].rank = whole->out[i]->shape_known ? whole->out[i]->shape.rank : 0;
        for (size_t d = 0; d < plan->out_shapes[i].rank; d++)
            plan->out_shapes[i].dims[d] = SHAPE_UNKNOWN;
    }
    for (size_t i = 0; i < making->own_outputs; i++) {
        const struct value *value = making->graph->out[i];
        size_t output = making->output_of[i];

        plan->out_shapes[output] = value->shape;
        plan->out_bytes[output] = (uint64_t)shape_count(&value->shape) * dtype_bytes(value->dtype);
        plan->out_bound[output] = value->shape_bound;
        plan->out_deferred[output] = false;
        plan->out_found[output] = found_index(making, value);
    }
    return STATUS_OK;
}

static void describe_carries(struct making *making)
{
    struct plan *plan = making->plan;
    const struct graph *graph = making->graph;

    for (size_t i = 0; i < plan->carry_count; i++) {
        const struct carried *carried = &making->carries[i];
        struct carry *carry = &plan->carries[i];

        if (carried->kind == CARRIED_CONSTANT) {
            carry->slot = (struct slot){.base = BASE_ABSOLUTE,
                                        .offset = (int64_t)(intptr_t)carry->constant->tensor.data};
            carry->dtype = carry->constant->tensor.dtype;
            carry->shape = carry->constant->tensor.shape;
            carry->found = -1;
            continue;
        }
        {
            const struct value *value = carried->kind == CARRIED_INPUT ? graph->in[carried->index]
                                                                       : graph->out[carried->index];

            carry->slot = making_slot(making, value);
            carry->dtype = value->dtype;
            carry->shape = value->shape;
            carry->found = found_index(making, value);
        }
    }
}

/* ---- the whole ---- */

static bool takes_attention(void *arg, const struct attention_attrs *attrs, enum dtype dtype,
                            const struct shape *const *shapes)
{
    struct device *device = arg;

    return device->ops->takes_attention != NULL &&
           device->ops->takes_attention(device, attrs, dtype, shapes);
}

static enum status make(struct making *making, const struct shape *shapes,
                        const void *const *values, struct error *err)
{
    const struct pass_context context = {
        .fold = folder_fold,
        .fold_arg = making->network->folder,
        .fold_limit_bytes = FOLD_BYTES_MAX,
        .narrow = making->network->device->narrow,
        .fuses_chains = making->network->device->fuses_chains,
        .fuses_attention = making->network->device->fuses_attention,
        .guards_attention = making->network->device->guards_attention,
        .takes_attention = takes_attention,
        .attention_arg = making->network->device,
        .fuses_preludes = making->network->device->fuses_preludes,
        .fuses_pools = making->network->device->fuses_pools,
        .fuses_shuffles = making->network->device->fuses_shuffles,
        .fuses_separable = making->network->device->fuses_separable,
        .fuses_narrow = making->network->device->fuses_narrow};
    struct plan *plan = making->plan;
    bool pays;

    TRY(set_inputs(making, shapes, values, err));
    TRY(making_infer(making, err));
    graph_remove_dead(making->graph);
    TRY(making_cut(making, err));
    TRY(pass_run_all(making->graph, PASS_PLAN, &context, err));
    if (separate_outputs(making) != STATUS_OK)
        return no_memory(err);
    TRY(making_layouts(making, err));
    graph_remove_dead(making->graph);
    TRY(making_spaces(making, err));
    TRY(order_nodes(making, err));
    TRY(making_share(making, err));
    TRY(making_select(making, err));
    TRY(making_place(making, &pays, err));
    if (!pays) {
        making->sharing_costs = true;
        return STATUS_UNSUPPORTED;
    }
    plan->steps = arena_take_array(&plan->arena, making->nodes, sizeof(*plan->steps));
    plan->batch_exact = true;
    plan->makes_strings = plan->rest != NULL;
    TRY(check_types(making, err));
    if (plan->steps == NULL || make_steps(making) != STATUS_OK ||
        describe_outputs(making) != STATUS_OK)
        return no_memory(err);
    describe_carries(making);
    if (plan_note_foreign(plan) != STATUS_OK)
        return no_memory(err);
    plan->recordings = recordings_create(plan, making->network->device);
    return STATUS_OK;
}

static struct plan *plan_create(struct network *network, struct program *program)
{
    struct plan *plan = calloc(1, sizeof(*plan));

    if (plan == NULL)
        return NULL;
    arena_init(&plan->arena);
    list_init(&plan->link);
    atomic_init(&plan->references, 1);
    atomic_init(&plan->predicted_us, -1);
    plan->network = network;
    plan->program = program;
    plan->graph = graph_clone(program->graph);
    if (plan->graph == NULL) {
        plan_destroy(plan);
        return NULL;
    }
    return plan;
}

void plan_destroy(struct plan *plan)
{
    if (plan == NULL)
        return;
    for (size_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].kernel->release != NULL)
            plan->steps[i].kernel->release(plan->steps[i].state);
    for (size_t i = 0; plan->in_values != NULL && i < plan->inputs; i++)
        constant_unref(plan->in_values[i]);
    for (size_t i = 0; i < plan->carry_count; i++)
        constant_unref(plan->carries[i].constant);
    recordings_destroy(plan->recordings);
    plan_forget_uploads(plan);
    graph_destroy(plan->graph);
    arena_deinit(&plan->arena);
    free(plan);
}

/* Kernels prepared for a plan that failed before it had steps. */
static void release_choices(struct making *making)
{
    for (size_t n = 0; making->choices != NULL && n < making->nodes; n++) {
        const struct choice *choice = &making->choices[n];

        if (choice->kernel != NULL && choice->kernel->release != NULL)
            choice->kernel->release(choice->prepare.state);
    }
}

static enum status exiles_add(struct exiles *exiles, uint32_t id)
{
    if (exiles->count == exiles->room) {
        size_t room = exiles->room * 2 + 16;
        uint32_t *grown = realloc(exiles->ids, room * sizeof(*grown));

        if (grown == NULL)
            return STATUS_NO_MEMORY;
        exiles->ids = grown;
        exiles->room = room;
    }
    exiles->ids[exiles->count++] = id;
    return STATUS_OK;
}

static enum status compile_once(struct network *network, struct program *program,
                                const struct shape *shapes, const void *const *values,
                                struct exiles *exiles, struct plan **out_plan, struct error *err)
{
    struct plan *plan = plan_create(network, program);
    struct making making = {.network = network,
                            .program = program,
                            .plan = plan,
                            .exiles = exiles,
                            .exile = UINT32_MAX,
                            .shares_least = exiles->shares_least};
    enum status status;

    if (plan == NULL)
        return no_memory(err);
    making.graph = plan->graph;
    making.arena = &plan->arena;
    status = make(&making, shapes, values, err);
    free(making.folded);
    if (status != STATUS_OK) {
        if (plan->step_count == 0)
            release_choices(&making);
        plan_destroy(plan);
        exiles->shares_least = exiles->shares_least || making.sharing_costs;
        if (making.exile == UINT32_MAX)
            return status;
        return exiles_add(exiles, making.exile) == STATUS_OK ? STATUS_UNSUPPORTED : no_memory(err);
    }
    plan->bytes += sizeof(*plan) + plan->arena.total_bytes + plan->graph->arena.total_bytes;
    *out_plan = plan;
    return STATUS_OK;
}

/* Again while there is a node more that the device's kernels turn out not to do, and when too much
 * was shared. */
static enum status compile(struct network *network, struct program *program,
                           const struct shape *shapes, const void *const *values,
                           struct plan **out_plan, struct error *err)
{
    struct exiles exiles = {0};
    size_t before;
    bool shared_least;
    enum status status;

    do {
        before = exiles.count;
        shared_least = exiles.shares_least;
        status = compile_once(network, program, shapes, values, &exiles, out_plan, err);
    } while (status == STATUS_UNSUPPORTED &&
             (exiles.count > before || exiles.shares_least != shared_least));
    free(exiles.ids);
    return status;
}

enum status program_plan(struct network *network, struct program *program,
                         const struct shape *shapes, const void *const *values,
                         struct plan **out_plan, struct error *err)
{
    struct plan *plan = plan_cache_find(network, program, shapes, values);
    enum status status = STATUS_OK;

    if (plan != NULL) {
        *out_plan = plan;
        return STATUS_OK;
    }
    pthread_mutex_lock(&network->compile_lock);
    plan = plan_cache_find(network, program, shapes, values); /* another thread was first */
    if (plan == NULL) {
        status = compile(network, program, shapes, values, &plan, err);
        if (status == STATUS_OK) {
            held_drop_rest(network);
            plan_cache_add(network, plan);
        }
        atomic_store_explicit(&network->winograd_bytes,
                              weights_cache_bytes(network->weights, "winograd"),
                              memory_order_relaxed);
    }
    pthread_mutex_unlock(&network->compile_lock);
    if (status == STATUS_OK)
        *out_plan = plan;
    return status;
}
