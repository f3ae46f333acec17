/* MatMul and Gemm through cuBLASLt.
 *
 * Bias, a residual before the activation and ReLU are the library's (C and epilogue of its
 * product), the last where it keeps NaN (nan_trial.h); other activations are one pointwise program
 * over the result, in place.
 */
#include <stdlib.h>

#include "device/cuda/blas/problem.h"
#include "device/cuda/kernels/epilogue_plan.h"
#include "device/cuda/kernels/rows.h"
#include "ops/gemm.h"

struct matmul_state {
    struct lt_product product;
    struct epilogue_program after;
};

static const char *refuse_common(const struct kernel_call *call, const struct epilogue *epilogue)
{
    enum dtype dtype = call->in[0]->dtype;

    if (dtype != DTYPE_FLOAT && !dtype_is_narrow(dtype))
        return "cuBLASLt is asked for float32, float16 and bfloat16 only";
    for (size_t i = 1; i < call->inputs; i++)
        if (call->in[i] != NULL && call->in[i]->dtype != dtype)
            return "operands of different types";
    if (call->out[0]->dtype != dtype)
        return "a result of another type";
    /* The product would overwrite a residual that lies where the result goes. */
    if (epilogue->has_residual && epilogue->residual_after && epilogue->act != ACT_NONE)
        return "a residual behind the activation";
    return NULL;
}

/* What the operators differ in has been filled in by them. */
static const char *fill_common(const struct kernel_call *call, const struct epilogue *epilogue,
                               struct lt_problem *problem)
{
    problem->dtype = call->in[0]->dtype;
    problem->precision = cuda_device_of(call->device)->precision;
    problem->relu = epilogue->act == ACT_RELU;
    if (epilogue->has_residual) {
        problem->has_c = true;
        problem->beta = 1;
    }
    return NULL;
}

static const char *describe_matmul(const struct kernel_call *call, struct lt_problem *problem)
{
    const struct matmul_attrs *attrs = call->attrs;
    const char *why = refuse_common(call, &attrs->epilogue);

    if (why == NULL)
        why = lt_problem_matrices(&call->in[MATMUL_A]->shape, &call->in[MATMUL_B]->shape,
                                  attrs->trans_a, attrs->trans_b, problem);
    if (why != NULL)
        return why;
    problem->alpha = attrs->has_scale ? attrs->scale : 1;
    problem->has_bias = attrs->has_bias;
    return fill_common(call, &attrs->epilogue, problem);
}

/* How C lies over the result. */
static const char *describe_c(const struct kernel_call *call, struct lt_problem *problem)
{
    const struct gemm_attrs *attrs = call->attrs;
    const struct operand *c = call_input(call, GEMM_C);
    int64_t columns, rows;

    if (c == NULL || attrs->beta == 0)
        return NULL;
    columns = c->shape.rank > 0 ? c->shape.dims[c->shape.rank - 1] : 1;
    rows = c->shape.rank > 1 ? c->shape.dims[0] : 1;
    if (columns == problem->n && rows == problem->m && rows > 1) {
        if (attrs->epilogue.has_residual)
            return "both a matrix C and a residual";
        problem->has_c = true;
        problem->beta = attrs->beta;
        return NULL;
    }
    if (columns != problem->n || rows != 1)
        return "C is neither a row nor a matrix";
    if (attrs->beta != 1)
        return "beta scales a row";
    problem->has_bias = true;
    return NULL;
}

static const char *describe_gemm(const struct kernel_call *call, struct lt_problem *problem)
{
    const struct gemm_attrs *attrs = call->attrs;
    const char *why = refuse_common(call, &attrs->epilogue);

    if (why == NULL)
        why = lt_problem_matrices(&call->in[GEMM_A]->shape, &call->in[GEMM_B]->shape,
                                  attrs->transA != 0, attrs->transB != 0, problem);
    if (why == NULL)
        why = describe_c(call, problem);
    if (why != NULL)
        return why;
    problem->alpha = attrs->alpha;
    return fill_common(call, &attrs->epilogue, problem);
}

/* NULL, and the problem, or why not. */
static const char *describe(const struct kernel_call *call, struct lt_problem *problem)
{
    return call->op == &op_gemm ? describe_gemm(call, problem) : describe_matmul(call, problem);
}

static const struct epilogue *epilogue_of(const struct kernel_call *call)
{
    const struct matmul_attrs *matmul = call->attrs;
    const struct gemm_attrs *gemm = call->attrs;

    return call->op == &op_gemm ? &gemm->epilogue : &matmul->epilogue;
}

static const char *refuses(const struct kernel_call *call)
{
    struct lt_problem problem;
    const char *why = describe(call, &problem);

    if (why == NULL)
        (void)lt_get(cuda_device_of(call->device), &why);
    return why;
}

/* The activation over the result, in place. */
static bool fill_after(struct matmul_state *state, const struct kernel_call *call)
{
    struct epilogue epilogue = *epilogue_of(call);

    if (state->product.problem.relu)
        epilogue.act = ACT_NONE; /* done by the library */
    if (!epilogue_program_make(&state->after, &epilogue, call->out[0], NULL, NULL))
        return false;
    epilogue_program_fuse(&state->after, call->device);
    return true;
}

static void release(void *prepared)
{
    struct matmul_state *state = prepared;

    epilogue_program_free(&state->after);
    free(state);
}

static void describe_after(const void *prepared, char *text, size_t room)
{
    const struct matmul_state *state = prepared;

    epilogue_program_describe(&state->after, text, room);
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    struct cuda_device *cuda = cuda_device_of(prepare->call.device);
    struct lt_problem problem;
    const char *why = describe(&prepare->call, &problem);
    const struct lt *lt = why == NULL ? lt_get(cuda, &why) : NULL;
    struct matmul_state *state;
    enum status status;

    if (lt == NULL)
        return error_set(err, STATUS_UNSUPPORTED, "%s", why);
    CU_TRY(cudaSetDevice(cuda->ordinal));
    state = prepare_state(prepare, sizeof(*state), err);
    if (state == NULL)
        return STATUS_NO_MEMORY;
    status =
        lt_product_init(&state->product, lt, &problem, cuda->capability, prepare->weights, err);
    if (status == STATUS_OK && problem.relu &&
        !lt_product_keeps_nan(&state->product, prepare->weights)) {
        problem.relu = false;
        status =
            lt_product_init(&state->product, lt, &problem, cuda->capability, prepare->weights, err);
    }
    if (status == STATUS_OK && !fill_after(state, &prepare->call))
        status = error_set(err, STATUS_UNSUPPORTED, "an activation over too many dimensions");
    if (status != STATUS_OK) {
        release(state);
        prepare->state = NULL;
        return status;
    }
    prepare->scratch_bytes = state->product.workspace_bytes;
    prepare->host_bytes = sizeof(*state);
    lt_product_describe(&state->product, prepare->note, sizeof(prepare->note));
    return STATUS_OK;
}

static enum status run(const void *prepared, const struct kernel_call *call,
                       const struct kernel_run *run)
{
    const struct matmul_state *state = prepared;
    const struct lt_problem *problem = &state->product.problem;
    size_t c = epilogue_of(call)->has_residual ? (size_t)MATMUL_RESIDUAL : (size_t)GEMM_C;
    struct lt_operands operands = {.a = run->in[MATMUL_A],
                                   .b = run->in[MATMUL_B],
                                   .bias = problem->has_bias ? run->in[MATMUL_BIAS] : NULL,
                                   .c = problem->has_c ? run->in[c] : NULL,
                                   .out = run->out[0]};

    TRY(lt_product_run(&state->product, &operands, run->scratch, cuda_stream(run)));
    return epilogue_program_run(&state->after, run, run->out[0], NULL, NULL);
}

_Static_assert((int)MATMUL_A == (int)GEMM_A && (int)MATMUL_B == (int)GEMM_B &&
                   (int)MATMUL_BIAS == (int)GEMM_C && (int)MATMUL_RESIDUAL == (int)GEMM_RESIDUAL,
               "both operators have their operands at the same places");

#define PRODUCT(operator)                                                                          \
    const struct kernel kernel_##operator##_lt = {                                                 \
        .name = "cuda:cublaslt",                                                                   \
        .flags = KERNEL_IN_PLACE_LAST,                                                             \
        .refuses = refuses,                                                                        \
        .prepare = prepare,                                                                        \
        .enqueue = run,                                                                            \
        .release = release,                                                                        \
        .describe = describe_after,                                                                \
    };
PRODUCT(matmul)
PRODUCT(gemm)
