/* Type and shape of one node's outputs: checks what every operator wants checked, then asks its
 * rule. */
#include "graph/graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What op_call points to; one allocation, gone when the call is over. */
struct call_memory {
    struct tensor *in;
    const struct tensor **in_list;
    struct tensor *out;
    struct tensor **out_list;
    bool *bound;
};

static enum status check_counts(const struct node *node, struct error *err)
{
    const struct op_def *op = node->op;
    size_t least = (size_t)(op->min_inputs > 0 ? op->min_inputs : op->inputs < 0 ? 0 : op->inputs);

    if (op->inputs >= 0 && node->inputs > (size_t)op->inputs)
        return error_set(err, STATUS_INVALID, "it has %zu inputs, at most %d are allowed",
                         node->inputs, op->inputs);
    if (op->outputs >= 0 && node->outputs > (size_t)op->outputs)
        return error_set(err, STATUS_INVALID, "it has %zu outputs, at most %d are allowed",
                         node->outputs, op->outputs);
    for (size_t i = 0; i < least; i++)
        if (i >= node->inputs || node->in[i] == NULL)
            return error_set(err, STATUS_INVALID, "input %zu is missing, %zu are required", i,
                             least);
    return STATUS_OK;
}

static enum status check_input(const struct node *node, size_t index, struct error *err)
{
    const struct value *value = node->in[index];
    const struct op_def *op = node->op;

    if (value->dtype == DTYPE_NONE || !value->shape_known || !shape_is_known(&value->shape))
        return error_set(err, STATUS_PRECONDITION, "the shape of input %zu ('%s') is not known",
                         index, value->name);
    if (index == 0 && op->dtypes != 0 && (op->dtypes & UINT32_C(1) << value->dtype) == 0)
        return error_set(err, STATUS_UNSUPPORTED, "input 0 ('%s') of type %s is not supported",
                         value->name, dtype_name(value->dtype));
    if (index < 32 && (op->value_inputs & UINT32_C(1) << index) != 0 && value->constant == NULL &&
        (op->flags & OP_DATA_DEPENDENT) == 0)
        return error_set(err, STATUS_PRECONDITION,
                         "the value of input %zu ('%s') decides a shape and is not known", index,
                         value->name);
    return STATUS_OK;
}

static enum status check_node(const struct node *node, struct error *err)
{
    TRY(check_counts(node, err));
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL)
            TRY(check_input(node, i, err));
    return STATUS_OK;
}

static void *take_piece(unsigned char **next, size_t bytes)
{
    void *piece = *next;

    *next += (bytes + 15) & ~(size_t)15;
    return piece;
}

static void *make_call(const struct node *node, struct call_memory *memory)
{
    size_t in = node->inputs, out = node->outputs;
    size_t bytes = in * (sizeof(struct tensor) + sizeof(void *)) +
                   out * (sizeof(struct tensor) + sizeof(void *) + sizeof(bool)) + 5 * 16;
    unsigned char *block = calloc(1, bytes), *next = block;

    if (block == NULL)
        return NULL;
    memory->in = take_piece(&next, in * sizeof(struct tensor));
    memory->in_list = take_piece(&next, in * sizeof(void *));
    memory->out = take_piece(&next, out * sizeof(struct tensor));
    memory->out_list = take_piece(&next, out * sizeof(void *));
    memory->bound = take_piece(&next, out * sizeof(bool));
    for (size_t i = 0; i < in; i++) {
        const struct value *value = node->in[i];

        if (value == NULL)
            continue;
        memory->in[i] = (struct tensor){.dtype = value->dtype, .shape = value->shape};
        if (value->constant != NULL)
            memory->in[i].data = value->constant->tensor.data;
        memory->in_list[i] = &memory->in[i];
    }
    for (size_t i = 0; i < out; i++)
        if (node->out[i] != NULL)
            memory->out_list[i] = &memory->out[i];
    return block;
}

/* A rule that forgets something must not become a wrong plan. */
static enum status check_outputs(const struct node *node, const struct call_memory *memory,
                                 struct error *err)
{
    for (size_t i = 0; i < node->outputs; i++) {
        const struct tensor *out = &memory->out[i];
        char text[SHAPE_TEXT_BYTES];
        int64_t elements;

        if (node->out[i] == NULL)
            continue;
        if (!dtype_is_valid(out->dtype))
            return error_set(err, STATUS_UNSUPPORTED, "output %zu is not provided", i);
        if (shape_elements(&out->shape, &elements) != STATUS_OK)
            return error_set(err, STATUS_INVALID, "output %zu would have the impossible shape %s",
                             i, shape_format(&out->shape, text));
    }
    return STATUS_OK;
}

static void store_outputs(struct node *node, const struct call_memory *memory)
{
    for (size_t i = 0; i < node->outputs; i++) {
        struct value *value = node->out[i];

        if (value == NULL)
            continue;
        value->dtype = memory->out[i].dtype;
        value->shape = memory->out[i].shape;
        value->shape_known = true;
        value->shape_bound = memory->bound[i];
    }
}

static enum status infer(struct node *node, struct error *err)
{
    struct call_memory memory;
    struct op_call call;
    enum status status;
    void *block;

    TRY(check_node(node, err));
    block = make_call(node, &memory);
    if (block == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to infer its shapes");
    call = (struct op_call){
        .attrs = node->attrs,
        .inputs = node->inputs,
        .in = memory.in_list,
        .outputs = node->outputs,
        .out = memory.out_list,
        .out_bound = memory.bound,
    };
    status = node->op->infer(&call, err);
    if (status == STATUS_OK)
        status = check_outputs(node, &memory, err);
    if (status == STATUS_OK)
        store_outputs(node, &memory);
    free(block);
    return status;
}

enum status graph_infer_node(struct graph *graph, struct node *node, struct error *err)
{
    enum status status = infer(node, err);

    (void)graph;
    if (status != STATUS_OK)
        return error_prefix(err, status, "node '%s' (%s)", node->name, node->op->onnx.name);
    return STATUS_OK;
}
