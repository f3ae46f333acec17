/* If: one of two sub-graphs.  Never inferred or run as a node: a plan takes the branch that the
 * condition names and puts its nodes in place; while the condition is not known the plan ends
 * there.
 *
 * Inputs behind the condition are what the branches capture (graph/graph.h). */
#include "ops/op.h"

struct if_attrs {
    struct graph *then_branch;
    struct graph *else_branch;
};

static enum status infer_if(const struct op_call *call, struct error *err)
{
    (void)call;
    return error_set(err, STATUS_PRECONDITION, "which branch is taken is not known yet");
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_GRAPH(struct if_attrs, then_branch),
    OP_ATTR_GRAPH(struct if_attrs, else_branch),
    OP_ATTR_END,
};

const struct op_def op_if = {
    .name = "if",
    .onnx = {"If", .since = 16},
    .inputs = -1,
    .min_inputs = 1,
    .outputs = -1,
    .dtypes = DTYPE_BIT(BOOL),
    .value_inputs = 1 << 0,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct if_attrs),
    .infer = infer_if,
};
