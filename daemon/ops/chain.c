#include "ops/chain.h"

bool chain_takes(const struct op_def *op)
{
    static const struct op_def *const links[] = {
        &op_abs,   &op_add,   &op_ceil,    &op_div,          &op_elu,        &op_erf,
        &op_exp,   &op_floor, &op_gelu,    &op_hard_sigmoid, &op_hard_swish, &op_leaky_relu,
        &op_log,   &op_max,   &op_min,     &op_mish,         &op_ms_gelu,    &op_mul,
        &op_neg,   &op_pow,   &op_prelu,   &op_quick_gelu,   &op_reciprocal, &op_relu,
        &op_round, &op_selu,  &op_sigmoid, &op_sign,         &op_softplus,   &op_softsign,
        &op_sqrt,  &op_sub,   &op_swish,   &op_tanh,
    };

    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        if (links[i] == op)
            return true;
    return false;
}

static uint64_t flops(const struct op_call *call)
{
    const struct chain_attrs *attrs = call->attrs;

    return attrs->count * op_flops_each_output(call);
}

const struct op_def op_chain = {
    .name = "chain",
    .onnx = {"Chain", .since = 1, .domain = "sluice"},
    .inputs = -1,
    .min_inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .flags = OP_INTERNAL | OP_ELEMENTWISE,
    .attrs_size = sizeof(struct chain_attrs),
    .infer = op_infer_broadcast,
    .flops = flops,
};
