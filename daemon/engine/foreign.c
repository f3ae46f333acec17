/* Memory that another process may rewrite while a run uses it.
 *
 * Bound as it is, such memory must not be able to do more than spoil the answer.  A step that looks
 * at a value twice, once to check it (an index, a count, a divisor) and once to use it, can be made
 * to go astray by whoever changes the value in between.  So only steps of operators are let near it
 * whose addresses and whose amount of work follow from shapes alone; everything else gets a copy
 * that nobody else can see.  Operators that are not listed here are taken to look twice.
 */
#include "engine/internal.h"

struct blind_row {
    const struct op_def *op;
    uint32_t in;      /* bit i: input i may be foreign; the output may be in any case */
    bool floats_only; /* division by an integer traps, chains may divide */
};

#define FIRST UINT32_C(1)
#define ALL   UINT32_MAX

static const struct blind_row blind[] = {
    /* element by element */
    {&op_abs, ALL, true},
    {&op_add, ALL, false},
    {&op_bias_gelu, ALL, true},
    {&op_cast, ALL, false},
    {&op_ceil, ALL, true},
    {&op_chain, ALL, true},
    {&op_clip, ALL, true},
    {&op_cos, ALL, true},
    {&op_div, ALL, true},
    {&op_elu, ALL, true},
    {&op_erf, ALL, true},
    {&op_exp, ALL, true},
    {&op_fast_gelu, ALL, true},
    {&op_floor, ALL, true},
    {&op_gelu, ALL, true},
    {&op_hard_sigmoid, ALL, true},
    {&op_hard_swish, ALL, true},
    {&op_leaky_relu, ALL, true},
    {&op_log, ALL, true},
    {&op_max, ALL, true},
    {&op_mean, ALL, true},
    {&op_min, ALL, true},
    {&op_mish, ALL, true},
    {&op_ms_gelu, ALL, true},
    {&op_mul, ALL, false},
    {&op_neg, ALL, true},
    {&op_pow, ALL, true},
    {&op_prelu, ALL, true},
    {&op_quick_gelu, ALL, true},
    {&op_reciprocal, ALL, true},
    {&op_relu, ALL, true},
    {&op_scaler, ALL, true},
    {&op_selu, ALL, true},
    {&op_sigmoid, ALL, true},
    {&op_sin, ALL, true},
    {&op_softplus, ALL, true},
    {&op_sqrt, ALL, true},
    {&op_sub, ALL, false},
    {&op_sum, ALL, true},
    {&op_swish, ALL, true},
    {&op_tanh, ALL, true},
    /* from place to place */
    {&op_concat, ALL, false},
    {&op_depth_to_space, FIRST, false},
    {&op_expand, FIRST, false},
    {&op_flatten, FIRST, false},
    {&op_identity, FIRST, false},
    {&op_pad, FIRST, false},
    {&op_reorder, FIRST, false},
    {&op_reshape, FIRST, false},
    {&op_slice, FIRST, false},
    {&op_space_to_depth, FIRST, false},
    {&op_split, FIRST, false},
    {&op_squeeze, FIRST, false},
    {&op_tile, FIRST, false},
    {&op_transpose, FIRST, false},
    {&op_unsqueeze, FIRST, false},
    /* sums of products, windows, norms */
    {&op_average_pool, ALL, true},
    {&op_batch_normalization, ALL, true},
    {&op_conv, ALL, true},
    {&op_conv_integer, ALL, false},
    {&op_conv_pool, ALL, true},
    {&op_conv_transpose, ALL, true},
    {&op_gemm, ALL, true},
    {&op_global_average_pool, ALL, true},
    {&op_global_max_pool, ALL, true},
    {&op_group_normalization, ALL, true},
    {&op_instance_normalization, ALL, true},
    {&op_layer_normalization, ALL, true},
    {&op_log_softmax, ALL, true},
    {&op_lrn, ALL, true},
    {&op_matmul, ALL, true},
    {&op_matmul_integer, ALL, false},
    {&op_max_pool, ALL, true},
    {&op_reduce_max, FIRST, true},
    {&op_reduce_mean, FIRST, true},
    {&op_reduce_min, FIRST, true},
    {&op_reduce_sum, FIRST, true},
    {&op_resize, FIRST, true},
    {&op_rms_normalization, ALL, true},
    {&op_separable_conv, ALL, true},
    {&op_skip_layer_normalization, ALL, true},
    {&op_softmax, ALL, true},
    /* quantised */
    {&op_dequantize_linear, FIRST, false},
    {&op_dynamic_quantize_linear, FIRST, false},
    {&op_qlinear_conv, FIRST, false},
    {&op_qlinear_matmul, FIRST, false},
    {&op_quantize_linear, FIRST, false},
};

static const struct blind_row *find_blind(const struct op_def *op)
{
    for (size_t i = 0; i < sizeof(blind) / sizeof(blind[0]); i++)
        if (blind[i].op == op)
            return &blind[i];
    return NULL;
}

/* Truth values and texts are never foreign: whoever reads them counts on what they may be. */
static bool may_be_foreign(const struct blind_row *row, const struct operand *operand)
{
    return row != NULL && operand != NULL && operand->dtype != DTYPE_BOOL &&
           operand->dtype != DTYPE_STRING && (!row->floats_only || dtype_is_float(operand->dtype));
}

static bool reads_blindly(const struct step *step, uint32_t base)
{
    const struct blind_row *row = find_blind(step->call.op);

    for (size_t i = 0; i < step->call.inputs; i++)
        if (step->in[i].base == base && (i >= 32 || row == NULL || (row->in >> i & 1) == 0 ||
                                         !may_be_foreign(row, step->call.in[i])))
            return false;
    return true;
}

static bool writes_blindly(const struct step *step, uint32_t base)
{
    const struct blind_row *row = find_blind(step->call.op);

    if (step->scratch_bytes > 0 && step->scratch.base == base)
        return false;
    for (size_t i = 0; i < step->call.outputs; i++)
        if (step->out[i].base == base && !may_be_foreign(row, step->call.out[i]))
            return false;
    return true;
}

/* Nothing of it lives on behind a cut, where values decide about shapes. */
static bool is_carried(const struct plan *plan, uint32_t base)
{
    for (size_t i = 0; i < plan->carry_count; i++)
        if (plan->carries[i].slot.base == base)
            return true;
    return false;
}

static bool takes_foreign(const struct plan *plan, uint32_t base)
{
    if (is_carried(plan, base))
        return false;
    for (size_t i = 0; i < plan->step_count; i++)
        if (!reads_blindly(&plan->steps[i], base) || !writes_blindly(&plan->steps[i], base))
            return false;
    return true;
}

enum status plan_note_foreign(struct plan *plan)
{
    plan->in_foreign = arena_take_array(&plan->arena, plan->inputs, sizeof(bool));
    plan->out_foreign = arena_take_array(&plan->arena, plan->outputs, sizeof(bool));
    if (plan->in_foreign == NULL || plan->out_foreign == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < plan->inputs; i++)
        plan->in_foreign[i] = takes_foreign(plan, (uint32_t)(BASE_FIRST_BOUND + i));
    for (size_t i = 0; i < plan->outputs; i++)
        plan->out_foreign[i] = !plan->out_deferred[i] && !plan->out_bound[i] &&
                               takes_foreign(plan, (uint32_t)(BASE_FIRST_BOUND + plan->inputs + i));
    return STATUS_OK;
}

bool plan_takes_foreign_input(const struct plan *plan, size_t input)
{
    return plan->in_foreign[input];
}

bool plan_takes_foreign_output(const struct plan *plan, size_t output)
{
    return plan->out_foreign[output];
}
