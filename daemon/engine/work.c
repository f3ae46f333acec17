/* How much a node has to do, roughly: in bytes moved, arithmetic counted by how much of it is done
 * in the time that moves one byte.  Prices layouts, and shares of time where nothing was measured.
 */
#include "engine/internal.h"

enum { FLOPS_PER_BYTE = 8 };

struct shape value_row_shape(const struct value *value)
{
    struct shape shape = value->shape;

    if (value->constant == NULL && shape.rank > 0 && shape.dims[0] > 0)
        shape.dims[0] = 1;
    return shape;
}

static uint64_t count_of(const struct value *value, bool row)
{
    struct shape shape = row ? value_row_shape(value) : value->shape;

    return (uint64_t)shape_count(&shape);
}

/* Multiplications and additions for one element of the result. */
static uint64_t flops_each(const struct node *node)
{
    const struct value *left = node->in[0], *right = node->inputs > 1 ? node->in[1] : NULL;

    if (node_epilogue(node) == NULL || left == NULL || right == NULL)
        return 0;
    if (right->shape.rank >= 3 && right->shape.dims[0] > 0 && right->constant != NULL)
        return 2 * (uint64_t)(shape_count(&right->shape) / right->shape.dims[0]);
    return left->shape.rank > 0 ? 2 * (uint64_t)left->shape.dims[left->shape.rank - 1] : 0;
}

static uint64_t work_of(const struct node *node, bool row)
{
    uint64_t work = 0;

    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL)
            work += count_of(node->in[i], row) * dtype_bytes(node->in[i]->dtype);
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL)
            work += count_of(node->out[i], row) * dtype_bytes(node->out[i]->dtype);
    if (node->outputs > 0 && node->out[0] != NULL)
        work += count_of(node->out[0], row) * flops_each(node) / FLOPS_PER_BYTE;
    return work;
}

uint64_t node_work(const struct node *node)
{
    return work_of(node, false);
}

uint64_t node_row_work(const struct node *node)
{
    return work_of(node, true);
}

/* ---- what a profile counts ---- */

static struct tensor tensor_of(const struct operand *operand)
{
    struct tensor tensor = {.dtype = DTYPE_NONE};

    if (operand != NULL)
        tensor = (struct tensor){.dtype = operand->dtype, .shape = operand->shape};
    return tensor;
}

static uint64_t operand_bytes(const struct step *step, const struct operand *operand)
{
    return operand == NULL ? 0
                           : layout_bytes(operand->layout, step->call.device->channel_block,
                                          operand->dtype, &operand->shape);
}

static uint64_t step_flops(const struct kernel_call *call)
{
    struct tensor in[call->inputs + 1], out[call->outputs + 1];
    const struct tensor *ins[call->inputs + 1];
    struct tensor *outs[call->outputs + 1];
    struct op_call op_call = {.attrs = call->attrs,
                              .inputs = call->inputs,
                              .in = ins,
                              .outputs = call->outputs,
                              .out = outs};

    for (size_t i = 0; i < call->inputs; i++) {
        in[i] = tensor_of(call->in[i]);
        ins[i] = call->in[i] == NULL ? NULL : &in[i];
    }
    for (size_t i = 0; i < call->outputs; i++) {
        out[i] = tensor_of(call->out[i]); /* rules may look at one that nobody wants */
        outs[i] = &out[i];
    }
    return op_flops(call->op, &op_call);
}

/* An activation and a residual are an operation an element each. */
static uint64_t epilogue_flops(const struct node *node, const struct operand *out)
{
    const struct epilogue *epilogue = node_epilogue(node);

    if (epilogue == NULL || out == NULL)
        return 0;
    return (uint64_t)shape_count(&out->shape) *
           ((epilogue->act != ACT_NONE) + (unsigned)epilogue->has_residual);
}

void step_cost(struct step *step, const struct node *node)
{
    const struct kernel_call *call = &step->call;

    step->flops = step_flops(call) + epilogue_flops(node, call->outputs > 0 ? call->out[0] : NULL);
    for (size_t i = 0; i < call->outputs; i++)
        step->written_bytes += operand_bytes(step, call->out[i]);
    if ((call->op->flags & OP_SHAPE_ONLY) != 0)
        return;
    for (size_t i = 0; i < call->inputs; i++) {
        uint64_t bytes = operand_bytes(step, call->in[i]);

        if ((call->op->flags & OP_PICKS) != 0 && bytes > step->written_bytes)
            bytes = step->written_bytes;
        step->read_bytes += bytes;
    }
}
