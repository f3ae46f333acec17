/* Computes single nodes on the CPU while a graph is being made ready: constants, shapes.
 *
 * Used under the network's compile lock, one node at a time (folder.lock), on plain layouts.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

struct folder {
    struct device *device;
    struct device_lane *lane;
    /* What was folded may come back on several threads at once, and from what was folded. */
    pthread_mutex_t lock;
};

static void init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

enum status folder_create(struct folder **out_folder, struct error *err)
{
    const struct device_config config = {.name = "cpu", .lanes = 1, .threads = 1};
    struct folder *folder = calloc(1, sizeof(*folder));
    enum status status;

    if (folder == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to fold constants");
    init_lock(&folder->lock);
    status = device_open(&config, &folder->device, err);
    if (status != STATUS_OK)
        goto fail;
    status = folder->device->ops->lane_open(folder->device, 0, &folder->lane);
    if (status != STATUS_OK) {
        status = error_set(err, status, "no lane to fold constants on");
        goto fail;
    }
    *out_folder = folder;
    return STATUS_OK;
fail:
    folder_destroy(folder);
    return status;
}

void folder_destroy(struct folder *folder)
{
    if (folder == NULL)
        return;
    if (folder->lane != NULL)
        folder->device->ops->lane_close(folder->lane);
    device_close(folder->device);
    pthread_mutex_destroy(&folder->lock);
    free(folder);
}

/* Everything one computation needs; arena memory but for what is listed. */
struct folding {
    struct arena arena;
    struct kernel_prepare prepare;
    const struct kernel *kernel;
    struct weights_cache *weights;
    const void **in;
    void **out;
    struct shape *found;
    struct constant **made;
    bool *brought; /* per input: its elements were out of memory */
    void *scratch;
    bool prepared;
};

static bool can_fold(const struct node *node)
{
    for (size_t i = 0; i < node->outputs; i++) {
        const struct value *value = node->out[i];

        if (value == NULL)
            continue;
        if (!value->shape_known || !shape_is_known(&value->shape) || value->dtype == DTYPE_NONE ||
            value->dtype == DTYPE_STRING)
            return false;
    }
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL && node->in[i]->constant == NULL &&
            (node->op->flags & OP_SHAPE_ONLY) == 0)
            return false;
    return true;
}

static struct operand *make_operand(struct arena *arena, const struct value *value)
{
    struct operand *operand = arena_take(arena, sizeof(*operand));

    if (operand == NULL)
        return NULL;
    operand->dtype = value->dtype;
    operand->shape = value->shape;
    if (value->constant != NULL) {
        operand->constant = value->constant->tensor.data;
        operand->constant_key = value->constant;
    }
    return operand;
}

static enum status fill_call(struct folding *folding, struct folder *folder,
                             const struct node *node)
{
    const struct operand **in, **out;
    struct arena *arena = &folding->arena;

    in = arena_take_array(arena, node->inputs, sizeof(*in));
    out = arena_take_array(arena, node->outputs, sizeof(*out));
    folding->in = arena_take_array(arena, node->inputs, sizeof(*folding->in));
    folding->out = arena_take_array(arena, node->outputs, sizeof(*folding->out));
    folding->found = arena_take_array(arena, node->outputs, sizeof(*folding->found));
    folding->made = arena_take_array(arena, node->outputs, sizeof(*folding->made));
    folding->brought = arena_take_array(arena, node->inputs, sizeof(*folding->brought));
    if (in == NULL || out == NULL || folding->in == NULL || folding->out == NULL ||
        folding->found == NULL || folding->made == NULL || folding->brought == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < node->inputs; i++) {
        if (node->in[i] == NULL)
            continue;
        if (node->in[i]->constant != NULL) {
            folding->brought[i] = node->in[i]->constant->tensor.data == NULL;
            TRY(constant_restore(node->in[i]->constant));
        }
        if ((in[i] = make_operand(arena, node->in[i])) == NULL)
            return STATUS_NO_MEMORY;
        folding->in[i] = in[i]->constant;
    }
    for (size_t i = 0; i < node->outputs; i++) {
        if (node->out[i] == NULL)
            continue;
        if ((out[i] = make_operand(arena, node->out[i])) == NULL)
            return STATUS_NO_MEMORY;
        folding->made[i] = constant_allocate(node->out[i]->dtype, &node->out[i]->shape);
        if (folding->made[i] == NULL)
            return STATUS_NO_MEMORY;
        folding->out[i] = (void *)folding->made[i]->tensor.data;
        folding->found[i] = node->out[i]->shape;
    }
    folding->prepare.call = (struct kernel_call){.op = node->op,
                                                 .attrs = node->attrs,
                                                 .inputs = node->inputs,
                                                 .in = in,
                                                 .outputs = node->outputs,
                                                 .out = out,
                                                 .device = folder->device,
                                                 .threads = 1};
    return STATUS_OK;
}

/* The first kernel that neither refuses nor fails to prepare. */
static enum status choose(struct folding *folding, struct folder *folder, struct error *err)
{
    const struct kernel_call *call = &folding->prepare.call;
    const struct kernel *const *list = folder->device->ops->kernels(folder->device, call->op);
    enum status status = STATUS_UNSUPPORTED;

    for (; list != NULL && *list != NULL; list++) {
        const struct kernel *kernel = *list;

        if (kernel->layouts != 0 && (kernel->layouts & 1U << LAYOUT_PLAIN) == 0)
            continue;
        if (kernel->refuses != NULL && kernel->refuses(call) != NULL)
            continue;
        folding->kernel = kernel;
        status = kernel->prepare == NULL ? STATUS_OK : kernel->prepare(&folding->prepare, err);
        if (status != STATUS_UNSUPPORTED)
            break;
    }
    folding->prepared = status == STATUS_OK;
    return status;
}

static enum status compute(struct folding *folding, struct folder *folder, const struct node *node,
                           struct error *err)
{
    struct kernel_run run = {.in = folding->in, .out = folding->out, .lane = folder->lane};
    bool bound = false;
    enum status status;

    TRY(choose(folding, folder, err));
    for (size_t i = 0; i < node->outputs; i++)
        bound = bound || (node->out[i] != NULL && node->out[i]->shape_bound);
    run.out_shapes = bound ? folding->found : NULL;
    if (folding->prepare.scratch_bytes > 0) {
        folding->scratch = aligned_alloc(ALIGNMENT, round_up(folding->prepare.scratch_bytes));
        if (folding->scratch == NULL)
            return STATUS_NO_MEMORY;
        run.scratch = folding->scratch;
    }
    folder->device->ops->lane_enter(folder->lane);
    status = folding->kernel->enqueue(folding->prepare.state, &folding->prepare.call, &run);
    if (status == STATUS_OK)
        status = folder->device->ops->lane_wait(folder->lane);
    if (status != STATUS_OK)
        return error_set(err, status, "node '%s' (%s) cannot be computed from its constants",
                         node->name, node->op->onnx.name);
    for (size_t i = 0; bound && i < node->outputs; i++)
        if (folding->made[i] != NULL)
            folding->made[i]->tensor.shape = folding->found[i];
    return STATUS_OK;
}

static void finish(struct folding *folding, const struct node *node, enum status status,
                   struct constant **out)
{
    if (folding->prepared && folding->kernel->release != NULL)
        folding->kernel->release(folding->prepare.state);
    for (size_t i = 0; folding->brought != NULL && i < node->inputs; i++)
        if (folding->brought[i])
            constant_drop(node->in[i]->constant);
    for (size_t i = 0; folding->made != NULL && i < node->outputs; i++) {
        if (status == STATUS_OK)
            out[i] = folding->made[i];
        else
            constant_unref(folding->made[i]);
    }
    free(folding->scratch);
    weights_cache_destroy(folding->weights);
    arena_deinit(&folding->arena);
}

static enum status fold(struct folder *folder, const struct node *node, struct constant **out,
                        struct error *err)
{
    struct folding folding = {0};
    enum status status;

    arena_init(&folding.arena);
    status = weights_cache_create(folder->device->memory, NULL, &folding.weights);
    folding.prepare.weights = folding.weights;
    if (status == STATUS_OK)
        status = fill_call(&folding, folder, node);
    if (status == STATUS_OK)
        status = compute(&folding, folder, node, err);
    else
        status = error_set(err, status, "no memory to fold node '%s'", node->name);
    finish(&folding, node, status, out);
    return status;
}

enum status folder_fold(void *arg, const struct graph *graph, const struct node *node,
                        struct constant **out, struct error *err)
{
    struct folder *folder = arg;
    enum status status;

    (void)graph;
    if (!can_fold(node))
        return STATUS_UNSUPPORTED;
    pthread_mutex_lock(&folder->lock);
    status = fold(folder, node, out, err);
    pthread_mutex_unlock(&folder->lock);
    return status;
}

/* ---- folded values that may leave memory ---- */

/* A node of its own, with all that is needed to compute it again. */
struct folded_origin {
    struct constant_origin origin; /* source: the largest input */
    struct folder *folder;
    struct node node;
    struct value output;
    struct value *inputs; /* each with a reference to its constant */
};

static enum status compute_again(const struct constant_origin *origin, void *to)
{
    const struct folded_origin *folded = (const struct folded_origin *)origin;
    struct constant *made = NULL;
    struct error ignored = {0};

    TRY(folder_fold(folded->folder, NULL, &folded->node, &made, &ignored));
    memcpy(to, made->tensor.data, tensor_bytes(&made->tensor));
    constant_unref(made);
    return STATUS_OK;
}

static void release_folded(struct constant_origin *origin)
{
    struct folded_origin *folded = (struct folded_origin *)origin;

    for (size_t i = 0; folded->inputs != NULL && i < folded->node.inputs; i++)
        constant_unref(folded->inputs[i].constant);
    free(folded->inputs);
    free(folded->origin.other);
    free(folded->node.in);
    free(folded->node.out);
    free(folded->node.attrs);
    free(folded);
}

static bool copy_node(struct folded_origin *folded, const struct node *node)
{
    struct node *copy = &folded->node;

    *copy = (struct node){.op = node->op, .name = "a folded constant", .outputs = 1};
    copy->in = calloc(node->inputs + 1, sizeof(*copy->in));
    copy->out = calloc(1, sizeof(*copy->out));
    copy->attrs = malloc(node->op->attrs_size + 1);
    folded->inputs = calloc(node->inputs + 1, sizeof(*folded->inputs));
    folded->origin.other = calloc(node->inputs + 1, sizeof(*folded->origin.other));
    if (copy->in == NULL || copy->out == NULL || copy->attrs == NULL || folded->inputs == NULL ||
        folded->origin.other == NULL)
        return false;
    if (node->attrs != NULL)
        memcpy(copy->attrs, node->attrs, node->op->attrs_size);
    copy->inputs = node->inputs;
    for (size_t i = 0; i < node->inputs; i++) {
        if (node->in[i] == NULL)
            continue;
        folded->inputs[i] = *node->in[i];
        copy->in[i] = &folded->inputs[i];
        if (copy->in[i]->constant != NULL)
            folded->origin.other[folded->origin.others++] = constant_ref(copy->in[i]->constant);
    }
    folded->output = *node->out[0];
    folded->output.constant = NULL;
    copy->out[0] = &folded->output;
    return true;
}

static struct constant *largest_input(const struct node *node)
{
    struct constant *largest = NULL;

    for (size_t i = 0; i < node->inputs; i++) {
        struct constant *constant = node->in[i] != NULL ? node->in[i]->constant : NULL;

        if (constant != NULL &&
            (largest == NULL || tensor_bytes(&constant->tensor) > tensor_bytes(&largest->tensor)))
            largest = constant;
    }
    return largest;
}

enum status folder_fold_model(void *arg, const struct graph *graph, const struct node *node,
                              struct constant **out, struct error *err)
{
    struct folded_origin *folded;

    TRY(folder_fold(arg, graph, node, out, err));
    if (node->outputs != 1 || node->out[0]->shape_bound ||
        tensor_bytes(&out[0]->tensor) < DROP_BYTES_MIN)
        return STATUS_OK;
    folded = calloc(1, sizeof(*folded));
    if (folded == NULL)
        return STATUS_OK; /* it just stays in memory */
    folded->folder = arg;
    folded->origin.restore = compute_again;
    folded->origin.release = release_folded;
    if (!copy_node(folded, node)) {
        release_folded(&folded->origin);
        return STATUS_OK;
    }
    folded->origin.source = largest_input(&folded->node);
    out[0]->origin = &folded->origin;
    return STATUS_OK;
}
