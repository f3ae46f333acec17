/* Which kernel computes a node: the first of the device's list that takes the layouts and does not
 * refuse.  Why better ones were passed over is kept for people. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"

/* Floats and bytes of numbers on devices with blocks, 16-bit floats and bytes where they lie
 * channels last. */
static bool dtype_has_layouts(const struct device *device, enum dtype dtype)
{
    if (dtype == DTYPE_INT8 || dtype == DTYPE_UINT8)
        return device->channel_block > 0 || device->lays_narrow_last;
    if (dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16)
        return device->lays_narrow_last;
    return device->channel_block > 0 && dtype == DTYPE_FLOAT;
}

bool value_is_blockable(const struct making *making, const struct value *value)
{
    return value->constant == NULL && dtype_has_layouts(making->network->device, value->dtype) &&
           value->shape.rank >= 3 && value->shape.rank <= 5 && shape_count(&value->shape) > 0;
}

enum layout value_other_layout(const struct value *value)
{
    return value->dtype == DTYPE_FLOAT ? LAYOUT_BLOCKED : LAYOUT_NHWC;
}

uint64_t value_bytes(const struct making *making, const struct value *value)
{
    return layout_bytes(making_layout(making, value), making->network->device->channel_block,
                        value->dtype, &value->shape);
}

enum layout making_layout(const struct making *making, const struct value *value)
{
    return value->id < making->layout_room ? making->layouts[value->id] : LAYOUT_PLAIN;
}

/* Room in the lists by value id for one value more. */
static enum status grow_layouts(struct making *making, uint32_t id)
{
    size_t room = (size_t)id * 2 + 64;
    enum layout *grown;

    if (id < making->layout_room)
        return STATUS_OK;
    grown = arena_take_array(making->arena, room, sizeof(*grown));
    if (grown == NULL)
        return STATUS_NO_MEMORY;
    if (making->layout_room > 0)
        memcpy(grown, making->layouts, making->layout_room * sizeof(*grown));
    making->layouts = grown;
    making->layout_room = room;
    return STATUS_OK;
}

enum status making_set_layout(struct making *making, const struct value *value, enum layout layout)
{
    TRY(grow_layouts(making, value->id));
    making->layouts[value->id] = layout;
    return STATUS_OK;
}

static enum layout lowest_layout(uint32_t layouts)
{
    return (enum layout)__builtin_ctz(layouts);
}

/* Whether the kernel's table of layouts has room for body/in[0] as asked; out[0] follows from it.
 */
static bool takes_layouts(const struct kernel *kernel, enum layout body, enum layout first,
                          enum layout *out_result)
{
    uint32_t layouts = kernel->layouts != 0 ? kernel->layouts : 1U << LAYOUT_PLAIN;

    if ((layouts & 1U << body) == 0)
        return false;
    if (first != body && (kernel->in_layouts & 1U << first) == 0)
        return false;
    *out_result = kernel->out_layouts != 0 ? lowest_layout(kernel->out_layouts) : body;
    return true;
}

static const max_align_t elsewhere[8];

static struct operand describe(const struct making *making, const struct value *value,
                               enum layout layout)
{
    struct operand operand = {.dtype = value->dtype,
                              .shape = value->shape,
                              .layout = value_is_blockable(making, value) ? layout : LAYOUT_PLAIN,
                              .outer_stride = making_stride(making, value)};

    if (value->constant != NULL) {
        /* Large elements may have left memory while layouts are tried; refuses() reads none. */
        operand.constant =
            value->constant->tensor.data != NULL ? value->constant->tensor.data : elsewhere;
        operand.constant_key = value->constant;
    }
    return operand;
}

/* Memory of a call whose layouts are tried out. */
struct trial {
    struct operand *operands;
    const struct operand **list;
    struct kernel_call call;
};

static enum status make_trial(struct making *making, const struct node *node, struct trial *trial)
{
    size_t count = node->inputs + node->outputs;

    if (making->trial_room < count) {
        making->trial_operands = arena_take_array(making->arena, count, sizeof(struct operand));
        making->trial_list = arena_take_array(making->arena, count, sizeof(struct operand *));
        if (making->trial_operands == NULL || making->trial_list == NULL)
            return STATUS_NO_MEMORY;
        making->trial_room = count;
    }
    trial->operands = making->trial_operands;
    trial->list = making->trial_list;
    trial->call = (struct kernel_call){.op = node->op,
                                       .attrs = node->attrs,
                                       .inputs = node->inputs,
                                       .in = trial->list,
                                       .outputs = node->outputs,
                                       .out = trial->list + node->inputs,
                                       .device = making_device(making, node),
                                       .threads = making_device(making, node)->threads_per_lane};
    return STATUS_OK;
}

static void fill_trial(const struct making *making, const struct node *node, struct trial *trial,
                       const struct node_layouts *layouts)
{
    for (size_t i = 0; i < node->inputs; i++) {
        trial->list[i] = node->in[i] == NULL ? NULL : &trial->operands[i];
        if (node->in[i] != NULL)
            trial->operands[i] =
                describe(making, node->in[i], i == 0 ? layouts->first : layouts->body);
    }
    for (size_t i = 0; i < node->outputs; i++) {
        size_t k = node->inputs + i;

        trial->list[k] = node->out[i] == NULL ? NULL : &trial->operands[k];
        if (node->out[i] != NULL)
            trial->operands[k] =
                describe(making, node->out[i], i == 0 ? layouts->result : layouts->body);
    }
}

enum status making_try(struct making *making, const struct node *node, enum layout body,
                       enum layout first, struct node_layouts *out_layouts, int *out_rank)
{
    const struct kernel *const *list = making_kernels(making, node);
    struct trial trial;

    *out_rank = -1;
    TRY(make_trial(making, node, &trial));
    for (int rank = 0; list != NULL && list[rank] != NULL; rank++) {
        struct node_layouts layouts = {.body = body, .first = first};

        if (!takes_layouts(list[rank], body, first, &layouts.result))
            continue;
        fill_trial(making, node, &trial, &layouts);
        if (list[rank]->refuses != NULL && list[rank]->refuses(&trial.call) != NULL)
            continue;
        *out_rank = rank;
        *out_layouts = layouts;
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* Those that the engine has itself, behind the device's own. */
static const struct kernel *const *own_kernels(const struct making *making, const struct node *node)
{
    static const struct kernel *const copy[] = {&kernel_engine_copy, NULL};
    static const struct kernel *const move[] = {&kernel_engine_move, NULL};
    static const struct kernel *const to_device[] = {&kernel_engine_to_device, NULL};
    static const struct kernel *const to_host[] = {&kernel_engine_to_host, NULL};

    if (node->op == &op_to_device)
        return to_device;
    if (node->op == &op_to_host)
        return to_host;
    if ((node->op->flags & OP_VIEW) == 0)
        return NULL;
    return making_device(making, node)->ops->host_memory ? copy : move;
}

const struct kernel *const *making_kernels(const struct making *making, const struct node *node)
{
    struct device *device = making_device(making, node);
    const struct kernel *const *list = device->ops->kernels(device, node->op);

    return list != NULL ? list : own_kernels(making, node);
}

/* ---- the final choice ----
 *
 * Kernels are prepared on several threads where the device's memory is the host's (groups.c says
 * which nodes at once); what they share is looked at under making->lock, what takes time is not.
 */

/* One for all that touches the value; but each node has its own of a constant, which says where the
 * elements are when its kernel is prepared. */
static struct operand *operand_of(struct making *making, struct value *value)
{
    struct operand *own = NULL;
    struct operand **place = value->constant != NULL ? &own : &making->operands[value->id];

    if (*place != NULL)
        return *place;
    *place = arena_take(making->arena, sizeof(**place));
    if (*place != NULL)
        **place = describe(making, value, making_layout(making, value));
    return *place;
}

static enum status make_call(struct making *making, struct node *node, struct kernel_call *call)
{
    const struct operand **in, **out;

    in = arena_take_array(making->arena, node->inputs, sizeof(*in));
    out = arena_take_array(making->arena, node->outputs, sizeof(*out));
    if (in == NULL || out == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL && (in[i] = operand_of(making, node->in[i])) == NULL)
            return STATUS_NO_MEMORY;
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL && (out[i] = operand_of(making, node->out[i])) == NULL)
            return STATUS_NO_MEMORY;
    *call = (struct kernel_call){.op = node->op,
                                 .attrs = node->attrs,
                                 .inputs = node->inputs,
                                 .in = in,
                                 .outputs = node->outputs,
                                 .out = out,
                                 .device = making_device(making, node),
                                 .threads = making_device(making, node)->threads_per_lane};
    return STATUS_OK;
}

static bool has_strides(const struct kernel_call *call)
{
    for (size_t i = 0; i < call->inputs; i++)
        if (call->in[i] != NULL && call->in[i]->outer_stride != 0)
            return true;
    for (size_t i = 0; i < call->outputs; i++)
        if (call->out[i] != NULL && call->out[i]->outer_stride != 0)
            return true;
    return false;
}

/* NULL, or the reason why the layouts of the call are not for this kernel. */
static const char *layout_refusal(const struct kernel *kernel, const struct kernel_call *call)
{
    uint32_t layouts = kernel->layouts != 0 ? kernel->layouts : 1U << LAYOUT_PLAIN;

    if ((kernel->flags & KERNEL_STRIDED) == 0 && has_strides(call))
        return "a part of something larger, in rows that lie apart";
    if ((kernel->flags & KERNEL_LAYOUT_CHANGE) != 0)
        return NULL;
    for (size_t i = 0; i < call->inputs; i++) {
        uint32_t allowed = layouts | (i == 0 ? kernel->in_layouts : 0);

        if (call->in[i] != NULL && (allowed & 1U << call->in[i]->layout) == 0 &&
            call->in[i]->layout != LAYOUT_PLAIN)
            return "an input's layout";
        if (call->in[i] != NULL && call->in[i]->layout == LAYOUT_PLAIN &&
            (allowed & 1U << LAYOUT_PLAIN) == 0 && call->in[i]->constant == NULL &&
            call->in[i]->shape.rank >= 3 && dtype_has_layouts(call->device, call->in[i]->dtype))
            return "a plain input";
    }
    for (size_t i = 0; i < call->outputs; i++) {
        uint32_t allowed = i == 0 && kernel->out_layouts != 0 ? kernel->out_layouts : layouts;

        if (call->out[i] == NULL)
            continue;
        if (call->out[i]->layout == LAYOUT_PLAIN && call->out[i]->shape.rank < 3)
            continue;
        if ((allowed & 1U << call->out[i]->layout) == 0)
            return "the output's layout";
    }
    return NULL;
}

static const char *find_refusal(const struct kernel *kernel, const struct kernel_call *call)
{
    const char *why = layout_refusal(kernel, call);

    return why == NULL && kernel->refuses != NULL ? kernel->refuses(call) : why;
}

/* The operands as they are, with or without strides. */
static void fill_final(const struct making *making, const struct node *node, struct trial *trial,
                       bool dense)
{
    for (size_t i = 0; i < node->inputs + node->outputs; i++) {
        const struct value *value = i < node->inputs ? node->in[i] : node->out[i - node->inputs];

        trial->list[i] = value == NULL ? NULL : &trial->operands[i];
        if (value == NULL)
            continue;
        trial->operands[i] = describe(making, value, making_layout(making, value));
        if (dense)
            trial->operands[i].outer_stride = 0;
    }
}

enum status making_takes_strides(struct making *making, const struct node *node, bool *out_takes)
{
    const struct kernel *const *list = making_kernels(making, node);
    struct trial trial;

    *out_takes = false;
    TRY(make_trial(making, node, &trial));
    fill_final(making, node, &trial, true);
    while (list != NULL && *list != NULL && find_refusal(*list, &trial.call) != NULL)
        list++;
    if (list == NULL || *list == NULL)
        return STATUS_OK;
    fill_final(making, node, &trial, false);
    *out_takes = find_refusal(*list, &trial.call) == NULL;
    return STATUS_OK;
}

static enum status note_refusal(struct making *making, struct choice *choice, size_t room,
                                const char *kernel, const char *why)
{
    if (choice->refused == NULL)
        choice->refused = arena_take_array(making->arena, room, sizeof(*choice->refused));
    why = arena_copy_string(making->arena, why, strlen(why));
    if (choice->refused == NULL || why == NULL)
        return STATUS_NO_MEMORY;
    choice->refused[choice->refusals++] = (struct refusal){.kernel = kernel, .why = why};
    return STATUS_OK;
}

static size_t list_length(const struct kernel *const *list)
{
    size_t length = 0;

    while (list != NULL && list[length] != NULL)
        length++;
    return length;
}

/* Says for a person what was tried. */
static enum status refuse_node(const struct node *node, const struct choice *choice,
                               struct error *err)
{
    char reasons[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < choice->refusals && used < sizeof(reasons); i++)
        used +=
            (size_t)snprintf(reasons + used, sizeof(reasons) - used, "%s%s: %s", i == 0 ? "" : "; ",
                             choice->refused[i].kernel, choice->refused[i].why);
    return error_set(err, STATUS_UNSUPPORTED, "node '%s' (%s): %s", node->name, node->op->onnx.name,
                     choice->refusals > 0 ? reasons : "this device has no kernel for it");
}

/* ---- elements of constants: those that may be away are this group's alone ---- */

/* Elements that left memory are not brought back for a kernel that finds them packed: every plan
 * would pay for that. */
static bool are_packed(struct weights_cache *weights, const struct node *node)
{
    bool packed = false;

    for (size_t i = 0; i < node->inputs; i++) {
        struct constant *constant = node->in[i] != NULL ? node->in[i]->constant : NULL;

        if (constant != NULL && constant->tensor.data == NULL)
            packed = packed || weights_cache_has(weights, constant);
    }
    return packed;
}

static enum status bring_constants(const struct node *node, const struct operand *const *in)
{
    for (size_t i = 0; i < node->inputs; i++) {
        const struct value *value = node->in[i];

        if (value == NULL || value->constant == NULL)
            continue;
        TRY(constant_restore(value->constant));
        ((struct operand *)(uintptr_t)in[i])->constant = value->constant->tensor.data;
    }
    return STATUS_OK;
}

/* The names of packed forms hold the addresses of any of the step's constants.  Lock held. */
static void keep_packed_constants(struct making *making, const struct node *node)
{
    struct weights_cache *weights = making_weights(making, node);
    bool packed = false;

    for (size_t i = 0; i < node->inputs; i++)
        packed = packed || (node->in[i] != NULL && node->in[i]->constant != NULL &&
                            weights_cache_has(weights, node->in[i]->constant));
    for (size_t i = 0; packed && i < node->inputs; i++)
        if (node->in[i] != NULL && node->in[i]->constant != NULL)
            network_keep(making->network, node->in[i]->constant);
}

/* ---- one node ---- */

static enum status try_packed(struct making *making, const struct node *node,
                              const struct kernel *kernel, struct kernel_prepare *prepare)
{
    struct weights_cache *weights = making_weights(making, node);
    struct error ignored;
    enum status status = STATUS_NOT_FOUND;

    if (are_packed(weights, node)) {
        weights_cache_freeze(weights, true);
        status = kernel->prepare(prepare, &ignored);
        weights_cache_freeze(weights, false);
    }
    return status;
}

static enum status prepare_kernel(struct making *making, const struct node *node,
                                  const struct kernel *kernel, const struct kernel_call *call,
                                  struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_prepare fresh = {.call = *call, .weights = making_weights(making, node)};
    enum status status;

    *prepare = fresh;
    if (kernel->prepare == NULL || try_packed(making, node, kernel, prepare) == STATUS_OK)
        return STATUS_OK;
    status = bring_constants(node, call->in);
    if (status != STATUS_OK)
        return making_constant_lost(status, err);
    *prepare = fresh;
    return kernel->prepare(prepare, err);
}

static enum status begin_node(struct making *making, struct node *node, struct kernel_call *call)
{
    enum status status;

    pthread_mutex_lock(&making->lock);
    status = make_call(making, node, call);
    pthread_mutex_unlock(&making->lock);
    return status;
}

/* The kernel is prepared: keeps what it packed, drops what it does not read. */
static enum status end_node(struct making *making, const struct node *node,
                            const struct kernel *kernel, struct choice *choice, struct error *err)
{
    enum status status = STATUS_OK;

    pthread_mutex_lock(&making->lock);
    keep_packed_constants(making, node);
    if (kernel != NULL) {
        choice->kernel = kernel;
        status = making_constants(making, node, choice, err);
    }
    pthread_mutex_unlock(&making->lock);
    return status;
}

static enum status pass_over(struct making *making, struct choice *choice, size_t room,
                             const struct kernel *kernel, const char *why, struct error *err)
{
    enum status status;

    pthread_mutex_lock(&making->lock);
    status = note_refusal(making, choice, room, kernel->name, why);
    pthread_mutex_unlock(&making->lock);
    return status == STATUS_OK ? STATUS_OK : error_set(err, status, "no memory to plan");
}

static enum status choose_kernel(struct making *making, struct node *node, struct choice *choice,
                                 struct error *err)
{
    const struct kernel *const *list = making_kernels(making, node);
    size_t room = list_length(list);
    struct kernel_call call;

    if (begin_node(making, node, &call) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan node '%s'", node->name);
    for (; list != NULL && *list != NULL; list++) {
        const struct kernel *kernel = *list;
        const char *why = find_refusal(kernel, &call);
        struct error reason = {.text = ""};

        if (why == NULL) {
            enum status status =
                prepare_kernel(making, node, kernel, &call, &choice->prepare, &reason);

            if (status == STATUS_OK)
                return end_node(making, node, kernel, choice, err);
            (void)end_node(making, node, NULL, choice, err);
            if (status != STATUS_UNSUPPORTED)
                return error_set(err, status, "node '%s' (%s): %s: %s", node->name,
                                 node->op->onnx.name, kernel->name,
                                 reason.text[0] != '\0' ? reason.text : status_words(status));
            why = reason.text;
        }
        TRY(pass_over(making, choice, room, kernel, why, err));
    }
    return refuse_node(node, choice, err);
}

static bool is_given_up(const struct network *network)
{
    return network->give_up != NULL && atomic_load_explicit(network->give_up, memory_order_relaxed);
}

/* ---- all nodes ---- */

struct selecting {
    struct making *making;
    struct groups groups;
    /* The first node that failed, in the plan's order: later ones are not begun any more. */
    _Atomic uint32_t failed;
    pthread_mutex_t lock; /* guards the two below */
    enum status status;
    struct error err;
};

static void note_failure(struct selecting *selecting, uint32_t node, enum status status,
                         const struct error *err)
{
    pthread_mutex_lock(&selecting->lock);
    if (node < atomic_load(&selecting->failed)) {
        atomic_store(&selecting->failed, node);
        selecting->status = status;
        selecting->err = *err;
    }
    pthread_mutex_unlock(&selecting->lock);
}

static void choose_group(void *arg, size_t index)
{
    struct selecting *selecting = arg;
    struct making *making = selecting->making;

    for (uint32_t n = selecting->groups.first[index];
         n != GROUP_END && n < atomic_load(&selecting->failed); n = selecting->groups.next[n]) {
        struct error err = {.text = ""};
        enum status status =
            is_given_up(making->network)
                ? error_set(&err, STATUS_UNAVAILABLE, "the load was given up")
                : choose_kernel(making, making->order[n], &making->choices[n], &err);

        if (status != STATUS_OK)
            note_failure(selecting, n, status, &err);
    }
}

static enum status choose_all(struct selecting *selecting, struct error *err)
{
    struct making *making = selecting->making;
    const struct device *device = making->network->device;
    const struct crew_size size = {
        .threads = device->ops->host_memory ? device->threads_per_lane : 1,
        .is_much = !making->network->has_settled, /* all is to be packed */
    };

    crew_run(&size, selecting->groups.count, choose_group, selecting);
    if (selecting->status == STATUS_OK)
        return STATUS_OK;
    if (selecting->status == STATUS_UNSUPPORTED)
        (void)making_exile(making, making->order[selecting->failed]);
    if (err != NULL)
        *err = selecting->err;
    return selecting->status;
}

/* Room to keep what any node may pack, before several threads do. */
static enum status reserve_all(struct making *making)
{
    size_t inputs = 0;

    for (size_t n = 0; n < making->nodes; n++)
        inputs += making->placed[n] ? 0 : making->order[n]->inputs;
    return network_reserve(making->network, inputs);
}

enum status making_select(struct making *making, struct error *err)
{
    struct selecting selecting = {.making = making, .failed = UINT32_MAX};
    enum status status;

    making->choices = arena_take_array(making->arena, making->nodes, sizeof(*making->choices));
    making->operands =
        arena_take_array(making->arena, making->graph->next_value_id, sizeof(*making->operands));
    if (making->choices == NULL || making->operands == NULL || reserve_all(making) != STATUS_OK ||
        groups_make(making, &selecting.groups) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    pthread_mutex_init(&selecting.lock, NULL);
    pthread_mutex_init(&making->lock, NULL);
    status = choose_all(&selecting, err);
    pthread_mutex_destroy(&making->lock);
    pthread_mutex_destroy(&selecting.lock);
    groups_free(&selecting.groups);
    return status;
}
